/* call.c - what guards call: it says that lanes are inside a list's programs, and calls the list's function or the interpreter.
 *
 * A lane may stand between a guard's load of the word and the program for any time, and inside the program as well: nothing says when a GPU runs the lanes
 * of a warp that has come apart. So the guard's word is a hint. The lanes that came together first count themselves into the list, and then look past L1 whether
 * it is open, both on a line of their multiprocessor's. If so they run its programs, meet, and count themselves out; if not, they leave it and begin again with what the
 * word leads to now. The agent closes a list, and reads the counts when nothing from before is on its way any more (live.h): a lane whose count it does not
 * see then, finds the list closed. So neither a fence nor an answer from the counter is needed, which each pass would wait for; that the addition is issued
 * first is enough, and compilers keep the order, since both may be at one address for all they know.
 *
 * The lowest lane counts all of its group, of which nobody leaves in between: they decide together whether the list is open, and meet behind the programs before
 * it counts them out. Where they have to begin again each counts itself. The counter's address is kept, since a warp that was preempted may go on elsewhere.
 *
 * All lanes of a group do the same all the way. Where the lowest looked, looped and slept for the others, part of a group waited for ever on an H200 at the shuffle that told
 * them, which the rest had passed (docs/decisions.md).
 *
 * A lane that yields in a loop of a program lets those go that wait for it where the ways join, all but at a barrier like the one behind the programs: without it they
 * would never come together again in a kernel that sees no reason why they should have parted.
 *
 * The compiler must see the call of the interpreter, so that the kernel has the registers and the stack that it needs; the function takes no
 * more of either.
 */
#include <stddef.h>
#include <string.h>

#include "live/call.h"
#include "live/live.h"
#include "live/object.h"

/* Arguments, as interp.c has them. */
#define ACCESS(X)                                                                                                                          \
	X(64, 0, "") X(32, 1, ", ") X(32, 2, ", ") X(32, 3, ", ") X(64, 4, ", ") X(32, 5, ", ") X(32, 6, ", ") X(32, 7, ", ") X(32, 8, ", ")       \
		X(64, 9, ", ") X(64, 10, ", ") X(64, 11, ", ") X(64, 12, ", ")
#define PLACE(X) X(64, 0, "") X(64, 1, ", ") X(64, 2, ", ")

#define DECLARE(bits, i, comma) comma ".param .b" #bits " a" #i
#define LOAD(bits, i, comma) "\t.reg .b" #bits " %a" #i ";\n\tld.param.b" #bits " %a" #i ", [a" #i "];\n"
#define PASS(bits, i, comma) "\t.param .b" #bits " p" #i ";\n\tst.param.b" #bits " [p" #i "], %a" #i ";\n"
#define NAME(bits, i, comma) comma "p" #i
#define TYPE(bits, i, comma) comma ".param .b" #bits " _"

/* %first is true for who counts %n lanes. Then %p: the list is open; %high: those who come rest first. */
#define COUNT_IN                                                                                                                           \
	"\tld.global.u64 %count, [%a0+144];\n\tmov.u32 %sm, %smid;\n\tand.b32 %sm, %sm, 1023;\n\tmad.wide.u32 %count, %sm, 32, %count;\n" \
	"\t@%first red.relaxed.gpu.global.add.u32 [%count], %n;\n\tld.relaxed.sys.global.u64 %open, [%count+32768];\n"                    \
	"\tld.global.u32 %number, [%a0+152];\n\tmov.b64 {%low, %high}, %open;\n\tsetp.eq.u32 %p, %low, %number;\n"

/* No lane is missing from its own group, so none takes this way; but the compiler does not know it, and has all join at MET as one. */
#define NEVER_LEFT                                                                                                                         \
	"\tmov.u32 %lane, %lanemask_eq;\n\tand.b32 %lane, %lane, %mask;\n\tsetp.eq.u32 %first, %lane, -1;\n"                              \
	"\tsetp.eq.u32 %p, %lane, 0;\n\t@%p bra MET;\n"

#define SLEEP(until, otherwise)                                                                                                            \
	"\tmov.u64 %code, %globaltimer;\n\tsetp.gt.u64 %p, %code, " until ";\n\t@%p bra " otherwise ";\n\tnanosleep.u32 50000;\n"

/* index: of the word among LIVE_POINTS * LIVE_KERNELS: 15 bits, and the list's address is aligned. */
#define TEXT(name, interpreter, ARGS, INDEX)                                                                                               \
	".func " name "(" ARGS(DECLARE) ")\n{\n"                                                                                           \
	"\t.reg .pred %p, %first;\n\t.reg .b32 %index, %mask, %lane, %n, %low, %high, %sm, %number;\n"                                    \
	"\t.reg .b64 %count, %word, %code, %open;\n"                                                                                      \
	ARGS(LOAD) INDEX                                                                                                                   \
	"\tactivemask.b32 %mask;\n\tcvt.u64.u32 %word, %index;\n\tshl.b64 %code, %a0, 7;\n\tor.b64 %word, %word, %code;\n"                \
	"\tmatch.any.sync.b64 %mask, %word, %mask;\n" NEVER_LEFT                                                                           \
	"\tand.b64 %code, %a0, 1;\n\tsetp.eq.u64 %p, %code, 1;\n\t@%p bra REST;\n"                                                        \
	"\tmov.u32 %lane, %lanemask_lt;\n\tand.b32 %lane, %lane, %mask;\n\tsetp.eq.u32 %first, %lane, 0;\n\tpopc.b32 %n, %mask;\n"        \
	COUNT_IN "\tvote.sync.all.pred %p, %p, %mask;\n\t@%p bra OPEN;\n"                                                                  \
	"CLOSED:\n\tneg.s32 %n, %n;\n\t@%first red.relaxed.gpu.global.add.u32 [%count], %n;\n"                                            \
	"\tld.global.u64 %word, [%a0+160];\n\tmad.wide.u32 %word, %index, 8, %word;\n\tld.relaxed.sys.global.u64 %a0, [%word];\n"         \
	"\tand.b64 %code, %a0, 1;\n\tsetp.eq.u64 %p, %code, 1;\n\tselp.b64 %a0, 0, %a0, %p;\n"                                            \
	"\tsetp.eq.u64 %p, %a0, 0;\n\t@%p bra NONE;\n"                                                                                    \
	"\tsetp.ne.u64 %first, %a0, 0;\n\tmov.u32 %n, 1;\n" COUNT_IN "\t@!%p bra CLOSED;\n"                                               \
	"OPEN:\n\tsetp.eq.u32 %p, %high, 0;\n\t@%p bra RUN;\n"                                                                            \
	"\tld.relaxed.sys.global.u64 %word, [%count+32776];\n" SLEEP("%word", "RUN")                                                       \
	"RUN:\n\tld.global.u64 %code, [%a0+136];\n\tsetp.eq.u64 %p, %code, 0;\n\t@%p bra INTERPRET;\n\t{\n"                               \
	"\tTYPE: .callprototype _ (" ARGS(TYPE) ");\n" ARGS(PASS) "\tcall %code, (" ARGS(NAME) "), TYPE;\n\t}\n\tbra OUT;\n"             \
	"INTERPRET:\n\t{\n" ARGS(PASS) "\tcall " interpreter ", (" ARGS(NAME) ");\n\t}\n\tbra OUT;\n"                                     \
	"REST:\n\tshr.u64 %word, %a0, 1;\n" SLEEP("%word", "NONE")                                                                         \
	"NONE:\n\tsetp.ne.u32 %first, %mask, %mask;\n"                                                                                    \
	"OUT:\n\tbar.warp.sync %mask;\n"                                                                                                   \
	"MET:\n\tneg.s32 %n, %n;\n\t@%first red.relaxed.gpu.global.add.u32 [%count], %n;\n\tret;\n}\n"

_Static_assert(offsetof(struct live_list, code) == 136 && offsetof(struct live_list, inside) == 144 && offsetof(struct live_list, number) == 152 &&
		       offsetof(struct live_list, words) == 160 && offsetof(struct live_inside, open) == 32768 && sizeof(struct live_line) == 32 &&
		       offsetof(struct live_line, rest_until) == 8 && LIVE_RESTS == UINT64_C(1) << 32 && LIVE_REST_NS == 50000 && LIVE_SMS == 1024 &&
		       LIVE_KERNELS == 8192 && LIVE_POINTS * LIVE_KERNELS <= 1 << 15 && LIVE_ALIGN >= 1 << 8,
	"TEXT");

#define OF_ACCESS "\tmad.lo.u32 %index, %a1, 8192, %a3;\n"
#define OF_PLACE "\tmov.b64 {%low, %high}, %a1;\n\tshr.u32 %index, %high, 16;\n\tand.b32 %high, %high, 0xffff;\n\tmad.lo.u32 %index, %index, 8192, %high;\n"

const char *live_call_text(const char *name)
{
	static const char run[] = TEXT(LIVE_CALL_RUN, LIVE_RUN, ACCESS, OF_ACCESS), at[] = TEXT(LIVE_CALL_AT, LIVE_AT, PLACE, OF_PLACE);

	return !strcmp(name, LIVE_CALL_RUN) ? run : !strcmp(name, LIVE_CALL_AT) ? at : NULL;
}
