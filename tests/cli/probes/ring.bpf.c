/* Every thread sends eight bytes into a ring that cannot hold them all. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

__u64 sent, refused;

SEC("gpu/entry")
int send(struct egpu_entry *ctx)
{
	__u64 where = (__u64)ctx->block.x << 32 | ctx->thread.x;
	if (bpf_ringbuf_output(&events, &where, sizeof(where), 0))
		__sync_fetch_and_add(&refused, 1);
	__sync_fetch_and_add(&sent, 1);
	return 0;
}
