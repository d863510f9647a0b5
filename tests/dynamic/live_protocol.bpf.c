/* What tests/dynamic/live_protocol.c attaches: each program counts its runs. */
#include <egpu/probe.bpf.h>

enum { PROGRAMS = 5 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

#define COUNT(name, section, i)                                                                    \
	SEC(section) int name(struct egpu_warp *ctx)                                               \
	{                                                                                          \
		__u32 key = i;                                                                     \
		__u64 *n = bpf_map_lookup_elem(&hits, &key);                                       \
		if (n)                                                                             \
			__sync_fetch_and_add(n, 1);                                                \
		return 0;                                                                          \
	}

COUNT(alpha_a, "gpu.warp/block/alpha", 0)
COUNT(alpha_b, "gpu.warp/block/alpha", 1)
COUNT(beta, "gpu.warp/block/beta", 2)
COUNT(all, "gpu.warp/block/*", 3)
COUNT(left, "gpu.warp/exit/*", 4)

char _license[] SEC("license") = "GPL";
