/* As probes for bpftime are written: numbers for map types and helpers, kprobe and kretprobe sections, functions named cuda__. Nothing of
 * egpu's own header is used but what the kernel's headers give. */
#include <egpu/probe.bpf.h>

struct pt_regs;
struct where {
	__u64 block, thread, process;
};

#define MAP(name, number, entries, type_of_value)                                                                            \
	struct {                                                                                                             \
		__uint(type, number);                                                                                        \
		__uint(max_entries, entries);                                                                                \
		__type(key, __u32);                                                                                          \
		__type(value, type_of_value);                                                                                \
	} name SEC(".maps")
MAP(hash, 1501, 1024, __u64);
MAP(calls, 1502, 1, __u64);
MAP(numbers, 1502, 3, __u32);
MAP(shared, 1503, 2, __u64);
MAP(with_kernel, 1504, 1, __u64);
MAP(on_host, 1512, 1, __u64);
MAP(shared_on_host, 1513, 1, __u64);
MAP(records, 1527, 16, struct where);
MAP(spent, BPF_MAP_TYPE_HASH, 64, __u64);
MAP(started, 1502, 1, __u64);
MAP(accesses, 1503, 3, __u64);

static __u64 (*const timer)(void) = (void *)502;
static __u64 (*const block_index)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*const block_size)(__u64 *x, __u64 *y, __u64 *z) = (void *)504;
static __u64 (*const thread_index)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;
static __u64 (*const grid_size)(__u64 *x, __u64 *y, __u64 *z) = (void *)508;

SEC("kprobe/KERNEL")
int cuda__enter()
{
	__u32 zero = 0, one = 1, two = 2, process = bpf_get_current_pid_tgid() >> 32;
	__u64 bx, by, bz, nx, ny, nz, x, y, z, gx, gy, gz, first = 1, *v;
	block_index(&bx, &by, &bz);
	block_size(&nx, &ny, &nz);
	thread_index(&x, &y, &z);
	grid_size(&gx, &gy, &gz);
	x += bx * nx, y += by * ny, z += bz * nz;
	__u32 linear = x + gx * nx * (y + gy * ny * z), *last = bpf_map_lookup_elem(&numbers, &two);
	/* An own element needs no atomics: 1 is set by an update, 2 by what was there. */
	bpf_map_update_elem(&numbers, &one, &linear, BPF_ANY);
	if (last)
		*last = (*last ^ linear) * 3 + 1;
	v = bpf_map_lookup_elem(&hash, &process);
	if (v)
		__sync_fetch_and_add(v, 1);
	else
		bpf_map_update_elem(&hash, &process, &first, BPF_NOEXIST);
	v = bpf_map_lookup_elem(&shared, &zero);
	if (v)
		__sync_fetch_and_add(v, x);
	v = bpf_map_lookup_elem(&with_kernel, &zero);
	if (v)
		__sync_fetch_and_add(v, 2);
	v = bpf_map_lookup_elem(&shared_on_host, &zero);
	if (v)
		__sync_fetch_and_add(v, 3);
	__u64 now = timer();
	bpf_map_update_elem(&started, &zero, &now, BPF_ANY);
	return 0;
}

SEC("kretprobe/cuda_KERNEL")
int cuda__leave(struct pt_regs *ctx)
{
	__u32 zero = 0;
	__u64 *v = bpf_map_lookup_elem(&calls, &zero), took = 5, bx, by, bz, x, y, z;
	if (v)
		*v += 1;
	v = bpf_map_lookup_elem(&on_host, &zero);
	if (v)
		*v = *v + 7;
	v = bpf_map_lookup_elem(&started, &zero);
	if (v && (!*v || timer() < *v))
		took = 0;
	/* One update for a map's value and for the stack, as compilers make it; the value is its own. */
	v = bpf_map_lookup_elem(&spent, &zero);
	if (v) {
		*v += took;
		bpf_map_update_elem(&spent, &zero, v, BPF_EXIST);
	} else {
		bpf_map_update_elem(&spent, &zero, &took, BPF_NOEXIST);
	}
	block_index(&bx, &by, &bz);
	thread_index(&x, &y, &z);
	struct where here = { bx, x, bpf_get_current_pid_tgid() };
	if (!y && !z && !by && !bz)
		bpf_perf_event_output(ctx, &records, BPF_F_CURRENT_CPU, &here, sizeof(here));
	return 0;
}

SEC("kprobe/__memcapture")
int cuda__access(struct pt_regs *ctx)
{
	__u32 zero = 0;
	__u64 *v = bpf_map_lookup_elem(&accesses, &zero);
	if (v)
		*v = *v + 1;
	return 0;
}

/* The same accesses, and atomics, as egpu counts them. */
SEC("gpu/mem")
int all(struct egpu_mem *ctx)
{
	__u32 one = ctx->op == EGPU_OP_ATOMIC ? 2 : 1;
	__u64 *v = bpf_map_lookup_elem(&accesses, &one);
	if (v)
		*v += 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
