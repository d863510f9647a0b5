/* probe.h - probe sources to programs, without a loader: compiles with clang, reads the object,
 * resolves maps.
 *
 * And a host for fragments: a kernel which computes a fragment's inputs from special registers and
 * runs it once per thread.
 */
#ifndef EGPU_TEST_PROBE_H
#define EGPU_TEST_PROBE_H

#include "base/arena.h"
#include "base/buf.h"
#include "bpf/fragment.h"
#include "bpf/program.h"

struct probe_object {
	struct ebpf_map maps[EBPF_MAX_MAPS]; /* id = index */
	uint32_t n_maps;
	struct {
		struct ebpf_program program;
		enum ebpf_point point;
		bool warp;
	} progs[16];
	uint32_t n_progs;
};

/* The command of a clang that knows BPF, or NULL: "clang", "clang-19", "clang-16", "clang-14" are
 * tried, those with v4 only when asked. */
const char *probe_clang(bool v4);
/* Compiles source for cpu "v3" or "v4" into the file `object`. */
bool probe_compile(const char *clang, const char *source, const char *cpu, const char *object);
/* Reads an object; everything lives in the arena. false with a line on standard error. */
bool probe_read(struct arena *arena, const char *object, struct probe_object *out);
/* Adds the ring buffer of trace_printk. */
void probe_add_trace_map(struct probe_object *o, uint32_t bytes);
/* The map of that name, or of a section (".bss"); NULL. */
const struct ebpf_map *probe_map(const struct probe_object *o, const char *name);

/* A module whose kernels host0, host1, ... (.param .u64 p0, .param .u64 p1) run one fragment in
 * each thread; table: `__egpu_table`. */
void probe_hosts(const struct ebpf_fragment *fragments, uint32_t n, const char *version,
	const char *target, struct buf *ptx);

#endif
