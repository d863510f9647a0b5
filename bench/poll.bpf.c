/* A record of 16 bytes for each thread, as any libbpf loader can attach it: the section begins with raw_tp/. */
#include <egpu/probe.bpf.h>

struct event {
	__u64 one, thread;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 20);
} events SEC(".maps");

__u64 threads, dropped;

SEC("raw_tp/gpu/entry/vecadd")
int each_thread(struct egpu_entry *ctx)
{
	struct event e = { 1, (__u64)ctx->block.x * ctx->block_dim.x + ctx->thread.x };
	threads++;
	if (bpf_ringbuf_output(&events, &e, sizeof(e), 0))
		dropped++;
	return 0;
}

char LICENSE[] SEC("license") = "Apache-2.0";
