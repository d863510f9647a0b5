/* call.c - what guards call where programs may be machine code: the list's function, or the interpreter.
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

#define TEXT(name, interpreter, ARGS)                                                                                                      \
	".func " name "(" ARGS(DECLARE) ")\n{\n"                                                                                           \
	"\t.reg .pred %p;\n\t.reg .b64 %code;\n" ARGS(LOAD)                                                                              \
	"\tld.global.u64 %code, [%a0+136];\n\tsetp.eq.u64 %p, %code, 0;\n\t@%p bra INTERPRET;\n\t{\n"                                 \
	"\tTYPE: .callprototype _ (" ARGS(TYPE) ");\n" ARGS(PASS) "\tcall %code, (" ARGS(NAME) "), TYPE;\n\t}\n\tret;\n"             \
	"INTERPRET:\n\t{\n" ARGS(PASS) "\tcall " interpreter ", (" ARGS(NAME) ");\n\t}\n\tret;\n}\n"

_Static_assert(offsetof(struct live_list, code) == 136, "TEXT");

const char *live_call_text(const char *name)
{
	static const char run[] = TEXT(LIVE_CALL_RUN, LIVE_RUN, ACCESS), at[] = TEXT(LIVE_CALL_AT, LIVE_AT, PLACE);

	return !strcmp(name, LIVE_CALL_RUN) ? run : !strcmp(name, LIVE_CALL_AT) ? at : NULL;
}
