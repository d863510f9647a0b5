#include "bpf/context.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "egpu/probe.bpf.h"

const struct ebpf_field_row ebpf_fields[EBPF_FIELD_COUNT] = {
#define FIELD(id, field, contexts_, offset_, bytes_, uniform_)                                     \
	[EBPF_FIELD_##id] = { #field, contexts_, offset_, bytes_, uniform_ },
	EBPF_CONTEXT_FIELDS(FIELD)
#undef FIELD
};

/* The table equals the structs that programs are compiled against: AT(id, member, struct) compares one row
 * with one member. The names of rows and members differ where two contexts have a member of one name. */
enum {
#define FIELD(id, field, contexts_, offset_, bytes_, uniform_)                                     \
	AT_OFFSET_##id = offset_, AT_BYTES_##id = bytes_, AT_CONTEXTS_##id = contexts_,
	EBPF_CONTEXT_FIELDS(FIELD)
#undef FIELD
};

#define AT(id, member, type)                                                                       \
	_Static_assert(AT_OFFSET_##id == offsetof(struct type, member) &&                          \
		AT_BYTES_##id == sizeof(((struct type *)0)->member), #type "." #member)
#define AT_COMMON(type)                                                                            \
	AT(SITE, site, type);                                                                      \
	AT(LANE, lane, type);                                                                      \
	AT(WARP, warp, type);                                                                      \
	AT(SM, sm, type);                                                                          \
	AT(THREAD_X, thread.x, type);                                                              \
	AT(THREAD_Y, thread.y, type);                                                              \
	AT(THREAD_Z, thread.z, type);                                                              \
	AT(BLOCK_DIM_X, block_dim.x, type);                                                        \
	AT(BLOCK_DIM_Y, block_dim.y, type);                                                        \
	AT(BLOCK_DIM_Z, block_dim.z, type);                                                        \
	AT(BLOCK_X, block.x, type);                                                                \
	AT(BLOCK_Y, block.y, type);                                                                \
	AT(BLOCK_Z, block.z, type);                                                                \
	AT(GRID_DIM_X, grid_dim.x, type);                                                          \
	AT(GRID_DIM_Y, grid_dim.y, type);                                                          \
	AT(GRID_DIM_Z, grid_dim.z, type);                                                          \
	AT(CLUSTER_X, cluster.x, type);                                                            \
	AT(CLUSTER_Y, cluster.y, type);                                                            \
	AT(CLUSTER_Z, cluster.z, type);                                                            \
	AT(CLUSTER_DIM_X, cluster_dim.x, type);                                                    \
	AT(CLUSTER_DIM_Y, cluster_dim.y, type);                                                    \
	AT(CLUSTER_DIM_Z, cluster_dim.z, type);                                                    \
	AT(CLUSTER_RANK_X, cluster_rank.x, type);                                                  \
	AT(CLUSTER_RANK_Y, cluster_rank.y, type);                                                  \
	AT(CLUSTER_RANK_Z, cluster_rank.z, type);                                                  \
	AT(ACTIVE_MASK, active_mask, type);                                                        \
	AT(LAUNCH, launch, type);                                                                  \
	AT(KERNEL, kernel, type)

AT_COMMON(egpu_entry);
AT_COMMON(egpu_exit);
AT_COMMON(egpu_mem);
AT_COMMON(egpu_warp);
AT_COMMON(egpu_warp_mem);
AT_COMMON(egpu_block);
AT_COMMON(egpu_branch);
AT_COMMON(egpu_barrier);
AT_COMMON(egpu_call);
AT_COMMON(egpu_insn);
AT_COMMON(egpu_load_done);
AT(BLOCK_INDEX, index, egpu_block);
AT(BLOCK_INSNS, insns, egpu_block);
AT(LOOP_HEAD, loop_head, egpu_block);
AT(TAKEN, taken, egpu_branch);
AT(TARGET, target, egpu_branch);
AT(BARRIER_KIND, kind, egpu_barrier);
AT(BARRIER_ID, id, egpu_barrier);
AT(BARRIER_THREADS, threads, egpu_barrier);
AT(CALLEE, callee, egpu_call);
AT(OPERANDS, operands, egpu_insn);
AT(VALUE0, value[0], egpu_insn);
AT(VALUE3, value[3], egpu_insn);
AT(ADDRESS, address, egpu_load_done);
AT(BYTES, bytes, egpu_load_done);
AT(SPACE, space, egpu_load_done);
AT(OP, op, egpu_load_done);
AT(VALUE_BYTES, value_bytes, egpu_load_done);
AT(VALUE0, value[0], egpu_load_done);
AT(VALUE3, value[3], egpu_load_done);
AT(CYCLES, cycles, egpu_load_done);
AT(ADDRESS, address, egpu_mem);
AT(BYTES, bytes, egpu_mem);
AT(SPACE, space, egpu_mem);
AT(OP, op, egpu_mem);
AT(VALUE_BYTES, value_bytes, egpu_mem);
AT(VALUE0, value[0], egpu_mem);
AT(VALUE1, value[1], egpu_mem);
AT(VALUE2, value[2], egpu_mem);
AT(VALUE3, value[3], egpu_mem);
AT(MASK, mask, egpu_warp);
AT(LANES, lanes, egpu_warp);
AT(ADDRESS, address, egpu_warp_mem);
AT(BYTES, bytes, egpu_warp_mem);
AT(SPACE, space, egpu_warp_mem);
AT(OP, op, egpu_warp_mem);
AT(MEM_MASK, mask, egpu_warp_mem);
AT(MEM_LANES, lanes, egpu_warp_mem);
AT(DISTINCT_BYTES, distinct_bytes, egpu_warp_mem);
AT(SECTORS, sectors, egpu_warp_mem);
AT_COMMON(egpu_lane);
AT(ADDRESS, address, egpu_lane);
AT(SPACE, space, egpu_lane);
AT(VALUE0, value[0], egpu_lane);
AT(VALUE1, value[1], egpu_lane);
AT(VALUE2, value[2], egpu_lane);
AT(VALUE3, value[3], egpu_lane);
AT(CYCLES, cycles, egpu_lane);
AT(TAKEN, taken, egpu_lane);
AT(BARRIER_ID, id, egpu_lane);
AT(BARRIER_THREADS, threads, egpu_lane);
_Static_assert(offsetof(struct egpu_entry, param) == EBPF_PARAM_OFFSET, "egpu_entry.param");
_Static_assert(offsetof(struct egpu_exit, param) == EBPF_PARAM_OFFSET, "egpu_exit.param");
_Static_assert((int)EGPU_MAX_PARAMS == (int)EBPF_PARAM_COUNT, "EGPU_MAX_PARAMS");
_Static_assert(EBPF_FIELD_COUNT <= 64, "a field set is one u64");

static const struct {
	const char *name;
	uint32_t bytes;
} contexts[EBPF_CONTEXT_COUNT] = {
	[EBPF_CONTEXT_NONE] = { "none", 0 },
	[EBPF_CONTEXT_ENTRY] = { "egpu_entry", sizeof(struct egpu_entry) },
	[EBPF_CONTEXT_EXIT] = { "egpu_exit", sizeof(struct egpu_exit) },
	[EBPF_CONTEXT_MEM] = { "egpu_mem", sizeof(struct egpu_mem) },
	[EBPF_CONTEXT_WARP] = { "egpu_warp", sizeof(struct egpu_warp) },
	[EBPF_CONTEXT_WARP_MEM] = { "egpu_warp_mem", sizeof(struct egpu_warp_mem) },
	[EBPF_CONTEXT_BLOCK] = { "egpu_block", sizeof(struct egpu_block) },
	[EBPF_CONTEXT_BRANCH] = { "egpu_branch", sizeof(struct egpu_branch) },
	[EBPF_CONTEXT_BARRIER] = { "egpu_barrier", sizeof(struct egpu_barrier) },
	[EBPF_CONTEXT_CALL] = { "egpu_call", sizeof(struct egpu_call) },
	[EBPF_CONTEXT_INSN] = { "egpu_insn", sizeof(struct egpu_insn) },
	[EBPF_CONTEXT_LOAD_DONE] = { "egpu_load_done", sizeof(struct egpu_load_done) },
};

static const struct {
	const char *name;
	uint8_t thread, warp; /* enum ebpf_context of each form */
} points[] = {
	[EBPF_POINT_NONE] = { "none", EBPF_CONTEXT_NONE, EBPF_CONTEXT_NONE },
	[EBPF_POINT_ENTRY] = { "entry", EBPF_CONTEXT_ENTRY, EBPF_CONTEXT_WARP },
	[EBPF_POINT_EXIT] = { "exit", EBPF_CONTEXT_EXIT, EBPF_CONTEXT_WARP },
	[EBPF_POINT_LOAD] = { "load", EBPF_CONTEXT_MEM, EBPF_CONTEXT_WARP_MEM },
	[EBPF_POINT_STORE] = { "store", EBPF_CONTEXT_MEM, EBPF_CONTEXT_WARP_MEM },
	[EBPF_POINT_ATOMIC] = { "atomic", EBPF_CONTEXT_MEM, EBPF_CONTEXT_WARP_MEM },
	[EBPF_POINT_ACCESS] = { "access", EBPF_CONTEXT_MEM, EBPF_CONTEXT_WARP_MEM },
	[EBPF_POINT_MEM] = { "mem", EBPF_CONTEXT_MEM, EBPF_CONTEXT_WARP_MEM },
	[EBPF_POINT_BLOCK] = { "block", EBPF_CONTEXT_BLOCK, EBPF_CONTEXT_WARP },
	[EBPF_POINT_BRANCH] = { "branch", EBPF_CONTEXT_BRANCH, EBPF_CONTEXT_WARP },
	[EBPF_POINT_BARRIER] = { "barrier", EBPF_CONTEXT_BARRIER, EBPF_CONTEXT_WARP },
	[EBPF_POINT_CALL] = { "call", EBPF_CONTEXT_CALL, EBPF_CONTEXT_WARP },
	[EBPF_POINT_INSN] = { "insn", EBPF_CONTEXT_INSN, EBPF_CONTEXT_WARP },
	[EBPF_POINT_LOAD_DONE] = { "load_done", EBPF_CONTEXT_LOAD_DONE, EBPF_CONTEXT_WARP_MEM },
};

enum { N_POINTS = sizeof(points) / sizeof(points[0]) };

int ebpf_field_at(enum ebpf_context ctx, uint32_t offset, uint32_t bytes, uint32_t *shift)
{
	for (int i = 0; i < EBPF_FIELD_COUNT; i++) {
		const struct ebpf_field_row *f = &ebpf_fields[i];
		if (!(f->contexts >> ctx & 1) || offset < f->offset || !bytes || bytes > f->bytes)
			continue;
		if (offset - f->offset > f->bytes - bytes)
			continue;
		if (shift)
			*shift = offset - f->offset;
		return i;
	}
	return -1;
}

/* Contexts in which one thread sees what a warp's program sees of all. */
static uint32_t twins(enum ebpf_context ctx)
{
	uint32_t bits = 0;
	for (int p = EBPF_POINT_NONE + 1; p < N_POINTS; p++)
		if (points[p].warp == ctx)
			bits |= 1u << points[p].thread;
	return bits;
}

static bool of_lanes(int field, uint32_t thread_contexts)
{
	const struct ebpf_field_row *f = &ebpf_fields[field];
	return f->uniform == EBPF_VARYING && field != EBPF_FIELD_LANE && (f->contexts & thread_contexts);
}

int ebpf_lane_field(enum ebpf_context ctx, uint64_t offset)
{
	uint32_t bits = ctx == EBPF_CONTEXT_NONE ? EBPF_IN(ENTRY) : twins(ctx);
	for (int i = 0; i < EBPF_FIELD_COUNT; i++)
		if (ebpf_fields[i].offset == offset && of_lanes(i, bits))
			return i;
	return -1;
}

int ebpf_lane_field_missing(uint64_t fields, enum ebpf_point point)
{
	for (int i = 0; i < EBPF_FIELD_COUNT; i++)
		if ((fields >> i & 1) && !of_lanes(i, 1u << ebpf_point_context(point, false)))
			return i;
	return -1;
}

uint32_t ebpf_lane_bytes(uint64_t fields)
{
	uint32_t sum = 0;
	for (int i = 0; i < EBPF_FIELD_COUNT; i++)
		if (fields >> i & 1)
			sum += 32u * ebpf_fields[i].bytes;
	return sum;
}

uint32_t ebpf_context_bytes(enum ebpf_context ctx)
{
	return (unsigned)ctx < EBPF_CONTEXT_COUNT ? contexts[ctx].bytes : 0;
}

enum ebpf_context ebpf_context_by_struct(const char *struct_name)
{
	for (int i = EBPF_CONTEXT_NONE + 1; struct_name && i < EBPF_CONTEXT_COUNT; i++)
		if (!strcmp(struct_name, contexts[i].name))
			return (enum ebpf_context)i;
	return EBPF_CONTEXT_NONE;
}

const char *ebpf_context_struct(enum ebpf_context ctx)
{
	return (unsigned)ctx < EBPF_CONTEXT_COUNT ? contexts[ctx].name : "none";
}

enum ebpf_context ebpf_point_context(enum ebpf_point point, bool warp)
{
	if ((unsigned)point >= N_POINTS)
		return EBPF_CONTEXT_NONE;
	return (enum ebpf_context)(warp ? points[point].warp : points[point].thread);
}

const char *ebpf_point_name(enum ebpf_point point)
{
	return (unsigned)point < N_POINTS ? points[point].name : "none";
}

enum ebpf_point ebpf_point_by_name(const char *name, uint32_t len)
{
	for (int i = EBPF_POINT_NONE + 1; i < N_POINTS; i++)
		if (strlen(points[i].name) == len && !memcmp(points[i].name, name, len))
			return (enum ebpf_point)i;
	return EBPF_POINT_NONE;
}

/* What follows the prefix, or NULL. */
static const char *after(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);
	return strncmp(s, prefix, n) ? NULL : s + n;
}

static bool opcode_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == ':';
}

uint32_t ebpf_section_opcode(const char *section, const char **opcode)
{
	enum ebpf_point point;
	bool warp;
	const char *pattern;
	if (ebpf_section_parse(section, &point, &warp, &pattern) || point != EBPF_POINT_INSN)
		return 0;
	*opcode = strstr(section, "/insn:") + 6;
	return (uint32_t)strcspn(*opcode, "/");
}

/* As probes for bpftime write it: kprobe/KERNEL and kretprobe/KERNEL, cuda_ in front of the name where it has to say that it is a kernel's
 * (before a mangled name, which begins with _Z itself; another may follow on two of them). */
static int parse_kprobe(const char *section, enum ebpf_point *point, const char **pattern)
{
	const char *entry = after(section, "kprobe/"), *exit = after(section, "kretprobe/"), *name = entry ? entry : exit;
	if (!name || ebpf_section_refused(section))
		return -EINVAL;
	const char *kernel = after(name, "cuda_");
	if (kernel)
		name = kernel[0] == '_' && kernel[1] != 'Z' ? kernel + 1 : kernel;
	*point = exit ? EBPF_POINT_EXIT : EBPF_POINT_ENTRY;
	*pattern = *name ? name : NULL;
	if (entry && !strcmp(name, "__memcapture")) {
		*point = EBPF_POINT_ACCESS;
		*pattern = NULL;
	}
	return 0;
}

const char *ebpf_section_refused(const char *section)
{
	static const char host[] = "it is a probe of a function on the host, and egpu runs programs in GPU kernels alone; put the two in different objects, "
				   "and load that one with the kernel's bpf(2)";
	static const char *const hosts[] = { "uprobe", "uretprobe", "usdt", "tracepoint", "tp/", "kprobe.", "kretprobe.", "ksyscall", "kretsyscall", "fentry",
		"fexit", "perf_event" };
	if (!strcmp(section, "kprobe/__directly_run"))
		return "it is a kernel of its own, which nobody launches here: egpu runs programs in the kernels that an application launches";
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
		if (after(section, hosts[i]))
			return host;
	return NULL;
}

int ebpf_section_parse(const char *section, enum ebpf_point *point, bool *warp,
	const char **pattern)
{
	const char *s = section, *rest;
	if (!parse_kprobe(section, point, pattern)) {
		*warp = false;
		return 0;
	}
	if ((rest = after(s, "raw_tp/")) || (rest = after(s, "raw_tracepoint/")))
		s = rest;
	bool per_warp = false;
	if ((rest = after(s, "gpu/")))
		s = rest;
	else if ((rest = after(s, "gpu.warp/")))
		s = rest, per_warp = true;
	else
		return -EINVAL;
	size_t len = strcspn(s, "/"), name = strcspn(s, "/:");
	enum ebpf_point p = ebpf_point_by_name(s, (uint32_t)name);
	if (len > 64 || p == EBPF_POINT_NONE)
		return -EINVAL;
	/* Only `insn:` has an opcode behind it, and needs one. */
	if ((p == EBPF_POINT_INSN) != (name < len) || (name < len && name + 1 == len))
		return -EINVAL;
	for (size_t i = name + 1; i < len; i++)
		if (!opcode_char(s[i]))
			return -EINVAL;
	*point = p;
	*warp = per_warp;
	/* Only the first slash separates: a kernel may be given as a regular expression between slashes. */
	*pattern = s[len] == '/' && s[len + 1] ? s + len + 1 : NULL;
	return 0;
}
