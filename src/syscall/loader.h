/* loader.h - the loader's side of the user-space bpf(2): what a command that uses libbpf sets and
 * asks.
 *
 * There is one bpf(2) in a process, so the loader is one per process too. All functions may be
 * called from any thread. Usage: loader_start with a session; loader_register_sections once before
 * the first bpf_object__open; then libbpf as usual (open, load, bpf_program__attach); on a failure
 * loader_last_error and loader_prog_by_name say more than errno.
 *
 * Life of what bpf(2) made: as in the kernel, a link whose last descriptor is closed is detached.
 * This is noticed at the next bpf(2) command that makes something, or by loader_sweep. A map that a GPU program used
 * stays in the session until the session ends.
 */
#ifndef EGPU_SYSCALL_LOADER_H
#define EGPU_SYSCALL_LOADER_H

#include "bpf/fragment.h"
#include "map/session.h"
#include "verifier/verifier.h"

struct loader_options {
	struct session *session;     /* borrowed; must outlive loader_stop */
	const char *default_pattern; /* kernels of links whose section names none (-k); NULL: such
					links are refused */
	uint32_t threads; /* that have elements in per-thread arrays which do not say how many; 0: as many as fit in 16 MiB, 1024 at least */
	bool live; /* links are for kernels that run: their programs go to guards (live/live.h) */
	struct verifier_options verifier; /* log_level: at least this much is kept for loader_prog,
					     whatever libbpf asks for */
};

/* -EBUSY when a loader runs already, -ENOTSUP when syscall(2) does not reach us (the command was
 * linked wrongly). */
int loader_start(const struct loader_options *options, struct diag *d);
/* Frees every object; descriptors that are still open lose their meaning. The session stays. */
void loader_stop(void);
/* Frees what no descriptor holds any more. Never waits. */
void loader_sweep(void);
/* Sections "gpu/..." and "gpu.warp/..." for libbpf ("raw_tp/gpu/..." needs nothing). */
int loader_register_sections(struct diag *d);

/* The diagnostic of the last bpf(2) command that failed for a reason worth a sentence; empty text:
 * none. Copied out. */
void loader_last_error(struct diag *out);
void loader_clear_error(void);

/* One GPU program that was handed to BPF_PROG_LOAD, accepted or not. Valid until loader_stop. */
struct loader_prog {
	const char *name; /* the function's, in full when there is BTF */
	int err;          /* 0: accepted; else -errno, and `error` says why */
	struct diag error;
	const char *log;                    /* the verifier's, "" when it did not run */
	const struct ebpf_program *program; /* NULL when it failed before verification */
	struct verifier_result
		verified; /* valid when verification was reached; facts only when it succeeded */
	const struct ebpf_fragment *fragment; /* NULL unless accepted; its point is one of the
						 context's, see loader_fragment */
};

/* In order of loading; NULL past the end. A program that libbpf loads again, to get its log,
 * appears again. */
const struct loader_prog *loader_prog(uint32_t index);
/* The latest of that function name, and the one behind a descriptor; NULL: none. */
const struct loader_prog *loader_prog_by_name(const char *name);
const struct loader_prog *loader_prog_by_fd(int fd);
/* The fragment as text for a point, in the form sessions store. -EINVAL when the program's context
 * is not that point's. */
int loader_fragment(const struct loader_prog *p, enum ebpf_point point, bool warp, struct buf *out,
	struct diag *d);
/* The same for a section's name, with the opcode that gpu/insn:OPCODE has. */
int loader_fragment_for(
	const struct loader_prog *p, const char *section, struct buf *out, struct diag *d);

/* A descriptor that stands for a function's entry or its returns, for BPF_LINK_CREATE to find kprobe/FUNCTION or kretprobe/FUNCTION in, a
 * GPU kernel's; or -errno. */
int loader_kprobe_open(const char *function, bool at_return);
bool loader_is_kprobe(int fd);

/* Ids in the session; -ENOENT: the descriptor is not one of ours. */
int loader_map_id(int fd, uint32_t *id);
int loader_link_id(int fd, uint32_t *id);

#endif
