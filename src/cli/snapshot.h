/* snapshot.h - what the agents of a session saw: kernels and sites, copied out of shared memory and
 * checked.
 *
 * Reports, tools and tests of patterns work on this copy, which no longer changes. Everything lives
 * in `arena`.
 */
#ifndef EGPU_CLI_SNAPSHOT_H
#define EGPU_CLI_SNAPSHOT_H

#include "base/arena.h"
#include "map/session.h"

struct snap_kernel {
	uint32_t id;
	enum session_kernel_state state;
	uint32_t pid;
	uint64_t image_hash;
	const char *name;             /* mangled */
	const char *demangled;        /* the same when it is not mangled */
	const char *reason;           /* REFUSED, PENDING; "" otherwise */
	const char *source;           /* where its PTX is; "" when not known */
	const char *params;           /* types of its parameters (struct session_kernel); "" when not known */
	uint32_t first_site, n_sites; /* rows of sites[] below */
	struct snap_shape *shapes;    /* the most frequent first; launches in graphs, and those of ways beyond 64, are in none */
	uint32_t n_shapes;
	uint64_t launches, launches_instrumented;
	uint32_t regs_before, regs_after, local_before, local_after;
	bool last_bit_may_differ;
	uint64_t links;
	uint64_t since_ns; /* CLOCK_MONOTONIC: in this state since */
	uint64_t compile_ns; /* 0: no variant was compiled */
	bool compile_cached;
	uint64_t timed;   /* launches whose time was taken */
	double slowdown;  /* mean time of the probed launches by that of the others; 0: not both were timed */
	/* Programs run in one warp of so many: last, and the extremes; 0: nothing is sampled. */
	uint32_t one_in, one_in_least, one_in_most;
	uint64_t warps;	  /* of the launches in which they ran */
	bool given_up;	  /* --max-overhead could not be kept: it is probed no more */
	int64_t overhead_ppm; /* with --max-overhead: how much longer a launch with one_in takes; 0: not known */
	double estimate, estimate_least, estimate_most; /* of slowdown, before it ran; 0: none */
	uint64_t time_ns; /* of all launches on the device, estimated from those; 0: unknown */
	/* What that is estimated from: samples, those of probed launches, and the first launch. */
	struct snap_times {
		uint64_t n, ns, probed_n, probed_ns, first_ns;
	} samples;
};

/* One way in which a kernel is launched. */
struct snap_shape {
	uint32_t grid[3], block[3];
	uint32_t shared_bytes, stream;
	uint64_t launches, timed, time_ns; /* time_ns: of those that were timed */
};

struct snap_site {
	uint32_t id;     /* what probes see as ctx->site */
	uint32_t kernel; /* row of kernels[] */
	enum ebpf_point point;
	uint32_t ptx_line, line, column;      /* line 0: no source line known */
	const char *file, *opcode, *function; /* file "" without */
	const char *skipped;                  /* why no probe runs here; "" when one does */
	uint32_t space;                       /* enum egpu_space; 0: generic */
	uint32_t bytes;                       /* of one lane's access */
};

struct snapshot {
	struct arena *arena;
	struct session_filter filter;
	struct snap_kernel *kernels;
	uint32_t n_kernels;
	struct snap_site *sites; /* by kernel, then in text order */
	uint32_t n_sites;
	uint32_t kernels_lost,
		sites_lost; /* tries: no room in the session, or it was out of reach */
	uint64_t launches, launches_instrumented;
	uint64_t time_ns, probed_ns; /* of all kernels; of the launches that were instrumented */
	uint32_t untimed;            /* kernels that were launched and never timed */
	uint32_t n_probed; /* kernels whose variant ran or is ready */
};

/* NULL when memory is out. */
struct snapshot *snap_take(const struct session *s);
/* What was before is taken away: launches, and the time that they took. before NULL: nothing was. */
void snap_since(struct snapshot *snap, const struct snapshot *before);
void snap_free(struct snapshot *snap);

const char *snap_state_name(enum session_kernel_state state);
const char *snap_space_name(uint32_t space);

/* Since a time of CLOCK_MONOTONIC, as sessions have them; 0 where that is 0. */
double snap_seconds_since(uint64_t ns);

#endif
