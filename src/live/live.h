/* live.h - probes inside a kernel that is already running: what host and device agree on.
 *
 * A kernel that the user names for --live gets, at its entry, exits, loop heads and memory accesses, a *guard*:
 * one load of a word in device memory and a branch. While the word is 0 nothing else happens. When it is the
 * address of a list of programs, the guard calls an interpreter that was compiled into the variant, so a program is
 * only data: it arrives by DMA while the kernel is on the multiprocessors.
 *
 * The words and the programs live in one map image, the session's internal ARRAY map "egpu_live", whose only value is laid
 * out here. The writer is the agent; kernels only read.
 *
 *	order of publishing: maps, then program, then the list, open, then the word; each is finished before the next starts
 *	order of taking away: the word; the list is closed; its counts are 0; list, program and maps stay until no kernel that could hold them runs
 *
 * Nothing is reused under a running kernel. A multiprocessor may hold an old word in its L1, and a fence of system scope drops it. So
 * each change raises the number in the *bell*; a doorbell kernel goes to the multiprocessors, and guards at loop heads look at the
 * number now and then past L1, because a full multiprocessor has no room for the doorbell. Either, where it finds that its
 * multiprocessor has not *heard* this number, executes the fence and then writes it down as heard.
 *
 * A line that was on its way into L1 when the fence came may bring the old word back. Therefore the bell is rung twice: once all have heard
 * the first time, the second is rung, LIVE_SETTLE_NS after the words were written, when nothing from before is on its way any more. Between the
 * two a guard may see new, old and new again. When all have heard the second time the change has *settled*: from then on every
 * pass counts, or none.
 *
 * What a guard has seen is a hint: a lane may stand between that and the program, or in the program, for any time. Lanes count themselves into a list, and then look
 * past L1 whether it is open (call.c). A list that no word leads to any more is closed, and *left* when its counts are 0, read LIVE_SETTLE_NS after that:
 * whoever is counted later finds it closed. What was taken away is *gone* when the lists with it are left: a multiprocessor that has not heard of it
 * finds out at each guard, which costs time.
 *
 * A multiprocessor whose warps only compute gives one that waits for memory few turns (docs/dynamic.md): those that are inside a list could be there for
 * seconds. While a closed list is not left, others *rest* for a moment: who comes to a list that is open, or to a word at a loop head that leads to none.
 *
 * The device's side is interp.c, compiled to PTX when egpu is built.
 */
#ifndef EGPU_LIVE_LIVE_H
#define EGPU_LIVE_LIVE_H

#include <stdint.h>

/* Where programs can run. */
enum live_point { LIVE_ENTRY, LIVE_EXIT, LIVE_MEM, LIVE_LOOP, LIVE_POINTS };

enum {
	LIVE_KERNELS = 8192,	   /* kernel ids of a session, see SESSION_MAX_KERNELS */
	LIVE_PER_LIST = 16,	   /* programs at one point of one kernel */
	LIVE_STACK = 512,	   /* bytes, of all frames of a program together */
	LIVE_FRAMES = 5,	   /* nested calls, the program itself included */
	LIVE_ALIGN = 256,	   /* of what is written while kernels run: no line holds two such things */
	LIVE_WORDS_BYTES = LIVE_POINTS * LIVE_KERNELS * 8,
	LIVE_SMS = 1024,	   /* multiprocessors of a device at most: a power of two */
	LIVE_BELL = LIVE_WORDS_BYTES, /* offset of struct live_bell */
	LIVE_CODE = LIVE_BELL + LIVE_ALIGN + 4 * LIVE_SMS,
	LIVE_CODE_BYTES = 4 << 20, /* for lists and programs */
	LIVE_LISTS = 64, /* that words lead to, or lanes are inside of, at a time */
	LIVE_INSIDE = LIVE_CODE + LIVE_CODE_BYTES, /* offset of struct live_inside[LIVE_LISTS] */
	LIVE_LINE = 32,	 /* bytes between what multiprocessors have of their own: a line that all of them read is given a thousand million times a second */
	LIVE_INSIDE_BYTES = 2 * LIVE_SMS * LIVE_LINE,
	LIVE_VALUE_BYTES = LIVE_INSIDE + LIVE_LISTS * LIVE_INSIDE_BYTES,
	LIVE_SETTLE_NS = 1000000,
	LIVE_REST_NS = 50000, /* of a pass, while a word says so */
};

/* A word that leads to nothing, and has a lane that comes upon it sleep for LIVE_REST_NS on the average, until %globaltimer says t. Lists are aligned: no address is odd. */
#define LIVE_REST_UNTIL(t) ((uint64_t)(t) << 1 | 1)

/* Offset in the value of a kernel's word at a point. */
#define LIVE_WORD(point, kernel) (((uint64_t)(point) * LIVE_KERNELS + (kernel)) * 8)

struct live_bell {
	uint32_t number; /* writer: agent; raised by each ringing */
	uint32_t reserved[LIVE_ALIGN / 4 - 1];
	uint32_t heard[LIVE_SMS]; /* writer: whoever is on the multiprocessor; by %smid */
};
_Static_assert(LIVE_BELL + sizeof(struct live_bell) == LIVE_CODE, "the bell");

struct live_list {
	uint64_t n; /* 1 to LIVE_PER_LIST */
	uint64_t programs[LIVE_PER_LIST]; /* device addresses of struct live_program */
	uint64_t code; /* of a function that does what all of them do, and takes what the guard passes; 0: they are interpreted */
	uint64_t inside; /* address of its struct live_inside */
	uint64_t number; /* of the list, 32 bits, not 0 */
	uint64_t words;	 /* address of the value */
};

#define LIVE_RESTS (UINT64_C(1) << 32)

/* Of a list, by the multiprocessor that lanes came in on. */
struct live_line {
	uint64_t n;
	uint64_t rest_until; /* %globaltimer: who comes in before that sleeps first, as at LIVE_REST_UNTIL */
	uint64_t reserved[LIVE_LINE / 8 - 2];
};
struct live_inside {
	struct live_line count[LIVE_SMS]; /* lanes that are inside, or about to find that they must not be; writer: kernels, atomic */
	struct live_line open[LIVE_SMS];  /* the list's number while a word leads to it, and LIVE_RESTS where rest_until says something; writer: agent */
};
_Static_assert(sizeof(struct live_inside) == LIVE_INSIDE_BYTES, "the counts");

/* The native tier. The list's programs are compiled to a function with no data of its own (instrument/native.c), and its machine code is
 * copied to memory that nothing has executed, since multiprocessors keep what they have executed. Guards of a session that may do so call
 * what the list says. Compiling takes longer than attaching: programs are interpreted first, and a list with code takes the list's place
 * when there is one. */
enum {
	LIVE_NATIVE_REGS = 24,	 /* of a thread: a kernel that calls functions has no fewer, whatever limit it is compiled with (ptxas 13.0) */
	LIVE_NATIVE_FRAME = 1024, /* stack bytes: less than the interpreter's, which the kernel has room for */
	LIVE_NATIVE_BYTES = 64 << 10, /* of one function */
	LIVE_NATIVE_GAP = 4096,	 /* bytes between functions: caches read ahead */
};
/* struct session_map, live */
enum live_tier { LIVE_TIER_INTERPRETED = 1, LIVE_TIER_NATIVE = 2 };

enum { LIVE_WARP = 1, LIVE_WANTS_COVERAGE = 2 };

struct live_program {
	uint32_t n_insns;
	uint32_t flags;	   /* LIVE_WARP: once for the lanes that came together, by an elected one */
	uint32_t budget;   /* instructions after which a run is cut off: the verifier's bound */
	uint32_t sms;	   /* replicas of per-CPU maps: EBPF_TABLE_SMS */
	uint64_t clock;	   /* EBPF_TABLE_CLOCK */
	uint64_t seed;	   /* EBPF_TABLE_SEED */
	uint32_t ops;	   /* enum egpu_op bits (1 << op) of accesses it wants; entry, exit, loops: all */
	uint32_t reserved;
	uint64_t trace;	   /* address of the ring buffer that bpf_printk writes to; 0: none */
	uint64_t insns[];  /* struct bpf_insn, encoded by live_encode */
};

/* How live_encode changes instructions: a call, of a function or of a helper that calls one back, has in `off` the bytes of stack that
 * the caller's frame takes; a callback is named by the absolute index of its first instruction; where a ring buffer's record is submitted or
 * discarded, `off` is the index of a ld_imm64 of its map; a load from the context has this mode and in `imm` the offset there; an update that is written as load and store
 * is an atomic, also of these operations (struct ebpf_update). A ld_imm64 of a map is left for the agent, which knows the device's addresses
 * (struct live_reloc). */

enum { LIVE_CONTEXT_MODE = 7 };
enum { LIVE_MIN_U = 0x10, LIVE_MIN_S = 0x20, LIVE_MAX_U = 0x30, LIVE_MAX_S = 0x60 };

/* A program as the session keeps it, prog-ID.live: this, then n_relocs relocations, then n_insns words. Behind it the program as a fragment's
 * text (bpf/fragment.h) and struct live_tail, where it could be translated. */
struct live_object {
	uint32_t magic, n_insns, n_relocs, flags, budget, ops;
	uint32_t point; /* enum live_point */
	uint32_t trace; /* id in the session of bpf_printk's ring buffer, and 1; 0: none */
};

enum { LIVE_MAGIC = 0x45474c50, LIVE_MAX_INSNS = 65536 };

struct live_tail {
	uint32_t text_bytes, magic;
};

struct live_reloc {
	uint32_t insn;	 /* of the ld_imm64's first half */
	uint32_t map;	 /* id in the session */
	uint64_t offset; /* added to the address of the map's image */
};

#endif
