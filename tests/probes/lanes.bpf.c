// SPDX-License-Identifier: Apache-2.0
/* Updates whose place or value is the same in all lanes of a warp, in some, or in none. */
#include <egpu/probe.bpf.h>

/* Only added to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64[4]);
} adds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64[4]);
} bits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64[2]);
} hash SEC(".maps");

__u64 sums[8];		     /* .bss: only added to */
__u32 pair[2] SEC(".data.pair") = { 0, 5 }; /* two 32-bit sums in one word */
struct {
	__u8 bytes[4];
	__u16 halves[2];
	__u64 all;
} mixed SEC(".data.mixed") = { { 0, 7, 0, 9 }, { 0, 11 }, ~0ull };

SEC("gpu/load")
int lanes(struct egpu_mem *ctx)
{
	__u32 lane = ctx->lane, block = ctx->block.x, key = lane >> 2, same = block & 7;
	__u64 *v, wide = lane * 0x123456789abcdefull;

	sums[0]++;
	sums[1] += block * 3;
	sums[2] += wide;
	sums[3] -= lane;
	if (lane % 3 == 1) {
		sums[4]++;
		sums[5] += lane;
	}
	for (__u32 i = 0; i < (lane & 3); i++)
		sums[6] += i + 1;
	pair[0] -= 1;
	__sync_fetch_and_add(&pair[1], lane);

	v = bpf_map_lookup_elem(&adds, &key);
	if (v) {
		v[0]++;
		v[1] += wide;
	}
	v = bpf_map_lookup_elem(&adds, &same);
	if (v) {
		__sync_fetch_and_add(&v[2], 5);
		v[3] += lane;
	}
	v = bpf_map_lookup_elem(&bits, &key);
	if (v) {
		__sync_fetch_and_or(&v[0], 1ull << lane);
		__sync_fetch_and_xor(&v[1], wide);
		__sync_fetch_and_xor(&v[2], 0x5555);
	}
	v = bpf_map_lookup_elem(&bits, &same);
	if (v)
		__sync_fetch_and_or(&v[3], wide ^ block);
	__sync_fetch_and_and(&mixed.all, ~(1ull << lane));
	mixed.bytes[1]++;
	mixed.bytes[3] += lane;
	mixed.halves[0] -= 3;
	mixed.halves[1] += lane;

	__u64 none[2] = { 0, 0 };
	bpf_map_update_elem(&hash, &same, none, BPF_NOEXIST);
	v = bpf_map_lookup_elem(&hash, &same);
	if (v) {
		v[0]++;
		v[1] += wide;
	}
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
