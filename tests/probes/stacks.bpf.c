/* Where loads are, by the ids of their stacks. */
#include <egpu/probe.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__uint(value_size, 8 * 4);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, 8);
} one SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

__u64 errors, taken, exists, bad_flags, skipped;

SEC("gpu/mem")
int where(struct egpu_mem *ctx)
{
	__u64 none = 0;
	long id = bpf_get_stackid(ctx, &stacks, 0);
	__u32 key = id;
	if (id < 0) {
		__sync_fetch_and_add(&errors, 1);
		return 0;
	}
	__u64 *n = bpf_map_lookup_elem(&counts, &key);
	if (!n) {
		bpf_map_update_elem(&counts, &key, &none, BPF_NOEXIST);
		n = bpf_map_lookup_elem(&counts, &key);
	}
	if (n)
		__sync_fetch_and_add(n, 1);
	/* All sites meet in one place. */
	id = bpf_get_stackid(ctx, &one, BPF_F_REUSE_STACKID | 1);
	if (id == 0)
		__sync_fetch_and_add(&taken, 1);
	id = bpf_get_stackid(ctx, &one, 0);
	if (id == -17)
		__sync_fetch_and_add(&exists, 1);
	if (bpf_get_stackid(ctx, &stacks, 1 << 20) == -22)
		__sync_fetch_and_add(&bad_flags, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Apache-2.0";
