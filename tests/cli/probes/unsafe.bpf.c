/* One program that forgets the NULL check, one that is fine. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

SEC("gpu/entry")
int forgets(struct egpu_entry *ctx)
{
	__u32 key = ctx->block.x;
	__u64 *v = bpf_map_lookup_elem(&counts, &key);
	*v = 1;
	return 0;
}

SEC("gpu/exit")
int fine(struct egpu_exit *ctx)
{
	return 0;
}
