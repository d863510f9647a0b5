/* 256 keys for a hash map of 8. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

__u64 stored, too_big, other;

SEC("gpu/entry")
int store(struct egpu_entry *ctx)
{
	__u32 key = ctx->thread.x;
	__u64 value = 1;
	long err = bpf_map_update_elem(&seen, &key, &value, 0);
	__sync_fetch_and_add(!err ? &stored : err == -7 ? &too_big : &other, 1); /* 7: E2BIG */
	return 0;
}
