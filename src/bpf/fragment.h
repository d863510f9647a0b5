/* fragment.h - a checked program as PTX text with named inputs: what the translator hands the instrumenter.
 *
 * The body is one PTX scope `{ ... }`, valid for every .target from sm_52 and .version from 6.0 on. It declares its own
 * registers (%egpu_r..) and labels ($egpu_..) inside that scope, ends by falling off its end, and reads as inputs, which the
 * instrumenter declares and sets in an enclosing scope:
 *   - for each field in `fields`: %egpu_<name> of ebpf_fields[], .b32 for 4 bytes and .b64 for 8;
 *   - for each field in `gathered`, in fragments of a warp: .local .align 8 .b8 $egpu_lanes_<name>[32 * bytes], what lane 0, 1, ...
 *     has, 0 of lanes that do not take part; it is only read;
 *   - for each parameter read: .b64 %egpu_param<i>, zero-extended;
 *   - .b32 %egpu_weight where `sampled` says so: how many warps this one stands for. The fragment runs in chosen warps only, and
 *     multiplies what it adds to maps that it only adds to;
 *   - .b64 %egpu_passes, in `repeat` alone: as how many runs it counts; and .b32 %egpu_word, below `words`: which of the words of a value that
 *     it adds to together is this lane's;
 *   - .b32 %egpu_slot where `slot` says so: which replica is this multiprocessor's, min(%smid, entry SMS - 1);
 *   - the module-scope table `.const .align 8 .u64 __egpu_table[]`: entry m is the device address of map m's
 *     image (map/layout.h); entries EBPF_TABLE_* hold what follows below; the symbols of the kernel come after. Entry n is named
 *     [__egpu_table+8n], in decimal: the clock is measured only for a text that names entry EBPF_TABLE_CLOCK.
 * `funcs` are module-scope .func definitions (named __egpu_..., same name = same text) that the body calls.
 *
 * Where targets differ, body and funcs hold lines such as
 *
 *	#if ptx 7.0 sm 80
 *		redux.sync.add.u32 ...
 *	#elif ptx 6.2
 *		...
 *	#else
 *		...
 *	#endif
 *
 * that is: .version and .target are at least these (either may be left out). They do not nest. ebpf_fragment_text makes the
 * PTX of them.
 */
#ifndef EGPU_BPF_FRAGMENT_H
#define EGPU_BPF_FRAGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "bpf/context.h"

enum {
	EBPF_TABLE_MAPS = 64,	      /* entries 0..63: map images */
	EBPF_TABLE_SMS = 64,	      /* replicas of per-CPU maps: use min(%smid, this - 1) */
	EBPF_TABLE_CLOCK = 65,	      /* added to %globaltimer: CLOCK_MONOTONIC nanoseconds */
	EBPF_TABLE_SEED = 66,	      /* seed of get_prandom_u32 */
	EBPF_TABLE_CHOICE = 67,	      /* seed of the choice of warps (instrument/sample.c) */
	EBPF_TABLE_PROCESS = 68,      /* the process that launches: its number, in both halves */
	EBPF_TABLE_REPLICAS = 72,     /* entries 72..135: bytes between the replicas of an array (map/layout.h); 0: it has one */
	EBPF_TABLE_SYMBOLS = 136,     /* first entry of the kernel's own symbols */
};

struct ebpf_fragment_param {
	uint32_t index, bytes; /* bytes 1, 2, 4 or 8: the widest read */
};

struct ebpf_fragment_func {
	const char *name, *text;
};

/* A question about a field that the instrumenter can answer when it knows the field. */
enum ebpf_test { EBPF_TEST_EQ, EBPF_TEST_NE, EBPF_TEST_LT, EBPF_TEST_LE, EBPF_TEST_GT, EBPF_TEST_GE, EBPF_TEST_ANY, EBPF_TEST_NONE, EBPF_TESTS };
struct ebpf_when {
	enum ebpf_field field; /* SITE, BYTES, SPACE or OP */
	enum ebpf_test test;   /* unsigned; ANY, NONE: whether some bit of both is set */
	uint32_t value;
};

/* How the places of a stretch of code that the same lanes go through have their ring records in one reservation: a scope
 *
 *	{
 *	begin
 *	for each place: { inputs; item }
 *	end
 *	one place after the other: inputs; apart	where there is such a text: taken instead, at times
 *	$egpu_together:
 *	}
 *
 * in which, outside, .b32 %egpu_items is the number of places, and at each .b32 %egpu_item its own, from 0. Inputs are straight code. All
 * that the program does is a record at each place where `when` holds, which are the places that may take part, and nothing at others.
 * `like` may stand for `item` at a place with as many bytes as an earlier one, whose address is that one's and a number that is the same in all
 * threads of a block; NULL: there is no such text. */
struct ebpf_batch {
	uint32_t most; /* places */
	struct ebpf_when *when; /* all of them */
	uint32_t n_when;
	const char *begin, *item, *like, *end;
	const char *apart; /* what the body does at such a place; NULL: they always go together */
};

/* How all programs change a number in a map's values, which is how several copies of it become one. */
enum ebpf_fold {
	EBPF_FOLD_NONE, /* not at all */
	EBPF_FOLD_ADD32,
	EBPF_FOLD_ADD64,
	EBPF_FOLD_XOR,
	EBPF_FOLD_OR,
	EBPF_FOLD_AND,
	EBPF_FOLD_MIN_U32,
	EBPF_FOLD_MIN_S32,
	EBPF_FOLD_MIN_U64,
	EBPF_FOLD_MIN_S64,
	EBPF_FOLD_MAX_U32,
	EBPF_FOLD_MAX_S32,
	EBPF_FOLD_MAX_U64,
	EBPF_FOLD_MAX_S64,
	EBPF_FOLD_MIXED, /* in several, or others */
};

/* Halves of 8-byte words whose folds are kept: those further on in a value share them. */
enum { EBPF_FOLD_HALVES = 128 };

/* Whether a copy that begins with zero can be folded into another. */
static inline bool ebpf_folds_from_zero(uint8_t fold)
{
	return fold <= EBPF_FOLD_OR || fold == EBPF_FOLD_MAX_U32 || fold == EBPF_FOLD_MAX_U64;
}

/* An update of a map's value that the program writes as a load and a store, which is atomic in the text. */
enum ebpf_update_op { EBPF_UPDATE_ADD, EBPF_UPDATE_MIN_U, EBPF_UPDATE_MIN_S, EBPF_UPDATE_MAX_U, EBPF_UPDATE_MAX_S, EBPF_UPDATE_OTHER };
struct ebpf_update {
	uint32_t load, store; /* instructions; the load only serves the sum where op is ADD */
	enum ebpf_update_op op; /* OTHER: a sum that is also used, or of 1 or 2 bytes; or copies of the function differ */
};

static inline uint8_t ebpf_fold_join(uint8_t a, uint8_t b)
{
	return !a || a == b ? b : !b ? a : EBPF_FOLD_MIXED;
}

/* How the program uses the values of a map. */
struct ebpf_map_use {
	bool folded;	 /* changed in the ways of `fold` */
	bool other;	 /* read, or changed in another way, which makes every fold mixed */
	uint8_t fold[EBPF_FOLD_HALVES]; /* enum ebpf_fold of the 4 bytes at 4 i, 4 (i + 128), ... of a value */
	bool changed;	 /* among `other`: perhaps more than read */
	bool inserted;	 /* keys come or go: not among `other` */
	bool replaced;	 /* hashes: keys may go, or have their values overwritten */
	bool weighed;	 /* what is added, and what insertions begin with in words that are added to, is multiplied by the weight */
	bool unweighed;	 /* a program that is sampled does something that is not */
};

/* Whether each number is changed in one way, and that in one that copies of the map allow: those of an array begin as the host's values, those of
 * a hash's values with zero. */
static inline bool ebpf_folds_agree(const uint8_t fold[EBPF_FOLD_HALVES], bool from_zero)
{
	for (int i = 0; i < EBPF_FOLD_HALVES; i++)
		if (fold[i] == EBPF_FOLD_MIXED || (from_zero && !ebpf_folds_from_zero(fold[i])))
			return false;
	return true;
}

struct ebpf_fragment {
	const char *name; /* program name */
	enum ebpf_point point;
	bool warp;	      /* run by one elected lane */
	const char *opcode;   /* INSN: what opcodes begin with; NULL for other points */
	uint64_t fields;      /* bit per enum ebpf_field */
	uint64_t gathered;    /* the same, of all lanes */
	bool slot;	      /* %egpu_slot is read */
	bool sampled;	      /* it runs in chosen warps only; %egpu_weight may be read */
	bool anywhere;	      /* it only adds to arrays, and reads nothing that changes within a basic block: it may run anywhere in one */
	uint64_t maps;	      /* bit per map id */
	uint32_t max_insns;   /* worst-case eBPF instructions a run */
	uint32_t local_bytes; /* stack in local memory, 0 when all slots became registers; and what lanes hand over */
	struct ebpf_fragment_param *params;
	uint32_t n_params;
	struct ebpf_fragment_func *funcs;
	uint32_t n_funcs;
	struct ebpf_when *when; /* it does nothing where one of these does not hold */
	uint32_t n_when;
	const char *body;
	const char *repeat; /* run for each %egpu_word below `words`, it adds what %egpu_passes runs of the body add, whatever other lanes do; NULL: there
			       is none. What it reads is the same in all runs of a thread at one site; of a site itself, numbers that the text knows. */
	uint32_t words;	    /* 1, 2 or 4 */
	const struct ebpf_batch *batch; /* NULL: there is no such way */
	const struct ebpf_update *updates; /* by rising store; not in the text */
	uint32_t n_updates;
	const struct ebpf_map_use *use; /* by map id, EBPF_TABLE_MAPS of them; not in the text: NULL when it was read from there */
};

/* The text form, which `egpu translate` prints and sessions store; fragment_parse reads it back. */
void ebpf_fragment_print(const struct ebpf_fragment *f, struct buf *out);
/* Allocates from arena; every count and name is checked. 0, -EINVAL, -ENOMEM. */
int ebpf_fragment_parse(struct arena *arena, const char *text, size_t size, struct ebpf_fragment *out, struct diag *d);
/* The PTX of a body or function for a module's own .version (major * 100 + minor) and .target. */
void ebpf_fragment_text(const char *text, uint32_t version, uint32_t sm, struct buf *out);

#endif
