/* One count a thread. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

__u64 threads;

SEC("gpu/entry")
int on_entry(struct egpu_entry *ctx)
{
	threads++;
	return 0;
}
