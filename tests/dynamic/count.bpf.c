/* Threads of launches. */
#include <egpu/probe.bpf.h>

__u64 threads;

SEC("gpu/entry") int count(struct egpu_entry *ctx)
{
	threads++;
	return 0;
}
