/* instrument.h - a kernel's own PTX plus checked fragments gives a side variant.
 *
 * Passes: collect (functions, symbols) -> bind (symbols to the table) -> sites -> splice -> print. Requires a
 * parsed module; leaves PTX text that compiles for the module's own .target and .version, which are kept.
 */
#ifndef EGPU_INSTRUMENT_INSTRUMENT_H
#define EGPU_INSTRUMENT_INSTRUMENT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "bpf/fragment.h"
#include "live/live.h"
#include "ptx/ptx.h"

/* One instrumented place. */
struct instrument_site {
	uint32_t ordinal;	 /* position among all sites of the kernel: entry, exits and every memory access of the kernel and the
				  * functions it calls, in text order; does not depend on the fragments. Sites of the
				  * other points come behind all of these, see instrument_request.numbering */
	enum ebpf_point point;	 /* ENTRY, EXIT, LOAD, STORE, ATOMIC; BLOCK and later */
	uint32_t ptx_line;	 /* in the module's text */
	const char *file;	 /* .loc in effect, NULL without */
	uint32_t line, column;	 /* of it */
	const char *opcode;	 /* "ld.global.f32" */
	const char *function;	 /* function the site is in: the kernel or one it calls */
	enum ptx_space space;
	uint32_t bytes;
	const char *skipped;	 /* reason why no probe runs here; NULL: probes run */
	bool parts_product;	 /* instrument_sites only: a probe that looks at the operands here parts a product from its sum, and
				  * the last bit may differ */
	const char *unguarded;	 /* reason why a guard of --live is not here, other probes are; NULL: it is */
};

/* What a warp does that takes every way through a kernel (cost.c). All are numbers of executions; instructions of about
 * one machine instruction. */
struct instrument_work {
	double insns;		  /* the kernel's own */
	double bytes;		  /* a lane asks of global, generic and local memory, */
	double gathered;	  /* and where the address comes out of memory itself */
	double atomics;		  /* on global memory */
	double shared;		  /* accesses to shared memory, neighbours joined */
	double probe_insns;	  /* of programs, with what comes before them, */
	double looped;		  /* and those of them that are in loops of the kernel's */
	double adds, atoms;	  /* atomic instructions of programs without and with a result */
	double loads, stores;	  /* of programs, in memory; stores in words a lane */
	double exchanges;	  /* match, redux, shfl, vote */
	double scattered;	  /* of these, groups of lanes by address: each adds for itself */
};
/* How often loops go round is not known, but for those whose text says it: what is done in none of the others, in one, in two within each other,
 * each time they all go round once. */
enum { INSTRUMENT_DEPTHS = 4 };
struct instrument_cost {
	struct instrument_work in[INSTRUMENT_DEPTHS];
};
/* All of it, where they go round so often. */
struct instrument_work instrument_work(const struct instrument_cost *c, double passes);
struct instrument_request {
	const struct ptx_module *module;
	const char *kernel; /* mangled name */
	const struct ebpf_fragment *const *fragments; /* in the order they run at a site */
	uint32_t n_fragments;
	uint32_t kernel_id;	/* value of the field `kernel` */
	uint32_t first_site;	/* site id = first_site + ordinal */
	const char *const *unbound; /* module-scope names that cannot be bound to the loaded original */
	uint32_t n_unbound;
	/* Fragments whose points number the sites behind those of entries, exits and accesses; NULL:
	 * `fragments`. They must include every point of `fragments`, and stay the same for a kernel as
	 * long as its site ids do. */
	const struct ebpf_fragment *const *numbering;
	uint32_t n_numbering;
};

struct instrument_result {
	const char *ptx; /* the variant, in the arena; the entry keeps its name */
	size_t ptx_bytes;
	/* The same, and a last line that says, in a comment, which lines of the original its lines
	 * are (lines.c): what to load. */
	const char *lined;
	size_t lined_bytes;
	struct instrument_site *sites; /* all, skipped ones included */
	uint32_t n_sites;
	uint32_t n_probed;	 /* places where at least one fragment was spliced */
	const char **symbols;	 /* symbols[i] is bound by table entry EBPF_TABLE_SYMBOLS + i */
	uint32_t n_symbols;
	uint32_t table_entries;	 /* size of __egpu_table in u64 */
	bool launch_param;	 /* the entry has one more, last parameter: .u64, instrument_launch_word */
	bool reads_launch;	 /* a program reads the launch id */
	bool sampled;		 /* a program runs in chosen warps only */
	uint32_t n_params;	 /* of the original kernel */
	uint32_t launch_param_offset; /* byte offset of the added parameter in the packed block */
	bool last_bit_may_differ;
	uint32_t local_bytes_added;
	struct instrument_cost cost; /* zero: not counted */
};

/* What the added parameter says: the launch id (its low 40 bits), that one warp in `one_in` (from 1 on) runs sampled programs and stands for
 * one_in * times (1 to 4) warps, and that a graph launches it again and again with the same word. */
enum { INSTRUMENT_MAX_ONE_IN = 65536, INSTRUMENT_MAX_TIMES = 4 };
/* Where they are in it. inputs.c and sample.c read it, in PTX. */
enum { INSTRUMENT_WORD_ONE_IN = 40, INSTRUMENT_WORD_TIMES = 56, INSTRUMENT_WORD_GRAPH = 58 };
static inline uint64_t instrument_launch_word(uint64_t id, uint32_t one_in, uint32_t times, bool graph)
{
	return (id & ((UINT64_C(1) << INSTRUMENT_WORD_ONE_IN) - 1)) |
	       (uint64_t)((one_in - 1) & (INSTRUMENT_MAX_ONE_IN - 1)) << INSTRUMENT_WORD_ONE_IN |
	       (uint64_t)((times - 1) & (INSTRUMENT_MAX_TIMES - 1)) << INSTRUMENT_WORD_TIMES | (uint64_t)graph << INSTRUMENT_WORD_GRAPH;
}

/* 0; -EOPNOTSUPP when this kernel cannot be instrumented (d says why, in words for `egpu list`);
 * -ENOENT no such kernel; -EINVAL a fragment that does not fit (parameter index or size); -ENOMEM. */
int instrument_kernel(struct arena *arena, const struct instrument_request *req, struct instrument_result *out, struct diag *d);

/* A result without its texts as bytes, behind what is in the buffer, and back: *used of n bytes are its own. The bytes may be
 * anything: -EINVAL, -ENOMEM. Only for this build of egpu on this machine. */
void instrument_store(const struct instrument_result *r, struct buf *b);
int instrument_restore(struct arena *arena, const char *bytes, size_t n, struct instrument_result *out, size_t *used);

/* The sites that instrument_kernel numbers for these fragments. Same errors. */
int instrument_sites_for(struct arena *arena, const struct ptx_module *m, const char *kernel,
	const struct ebpf_fragment *const *numbering, uint32_t n_numbering,
	struct instrument_site **sites, uint32_t *n_sites, struct diag *d);

/* Sites and instrumentability of a kernel without fragments, for `egpu list`. Same errors. */
int instrument_sites(struct arena *arena, const struct ptx_module *m, const char *kernel,
	struct instrument_site **sites, uint32_t *n_sites, struct diag *d);

/* Programs for the guards of --live at one point, as a function of its own that calls nothing and has no data: its machine code runs wherever
 * it lies (live/live.h). */
#define NATIVE_NAME "egpu_native"
struct native_request {
	const struct ebpf_fragment *const *fragments;
	const uint32_t *ops; /* per fragment: accesses that it wants, as in struct live_program */
	uint32_t n;
	enum live_point point;
	const uint64_t *table; /* EBPF_TABLE_SYMBOLS of what __egpu_table holds elsewhere */
	uint32_t cc;
};
/* Adds a module with the function NATIVE_NAME to out. -EOPNOTSUPP: what such programs cannot do, with the reason; -ENOMEM. */
int instrument_native(const struct native_request *r, struct buf *out, struct diag *d);

/* Counts in a variant's text (or any kernel's, which has no programs). -EINVAL, -ENOENT, -ENOMEM with d. */
int instrument_count(const char *ptx, size_t bytes, const char *kernel, struct instrument_cost *out, struct diag *d);
/* How many times as long a launch takes, by these numbers: as a rule between least and most. */
struct instrument_estimate {
	double slowdown, least, most;
};
void instrument_estimate(const struct instrument_cost *c, struct instrument_estimate *out);

#endif
