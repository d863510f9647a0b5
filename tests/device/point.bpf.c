/* One program at the point of SECTION, with control flow of its own: it looks at a value and counts. tests/device/meson.build
 * compiles it for every point. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 hits, odd;

SEC(SECTION)
int probe(struct CONTEXT *ctx)
{
	hits++;
	if (USES & 1)
		odd++;
	return 0;
}
