/* Least and greatest values, bits and sums of hashed thread numbers: in global variables, in an array by keys that differ within a warp, in a
 * hash, where the old value is wanted too, and of a block alone. */
#include <egpu/probe.bpf.h>
#include "extremes.h"

struct extremes all = EXTREMES_START;	       /* of each store */
struct extremes blocks = EXTREMES_START;       /* of each block, at entry */
struct extremes chosen = EXTREMES_START;       /* by the other way to write it, of some threads */
__u64 least_of_0 = 0;			       /* nothing is smaller */
__u64 record_of_u64, record_of_thread;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EXTREMES_KEYS);
	__type(key, __u32);
	__type(value, struct extremes);
} keyed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EXTREMES_KEYS);
	__type(key, __u32);
	__type(value, struct extremes);
} hashed SEC(".maps");

static __attribute__((always_inline)) inline void keep(struct extremes *e, __u64 x)
{
	__u32 y = (__u32)x;
	if (x < e->least)
		e->least = x;
	if (e->most < x)
		e->most = x;
	if ((__s64)x <= e->sleast)
		e->sleast = (__s64)x;
	if ((__s64)x > e->smost)
		e->smost = (__s64)x;
	if (y < e->least32)
		e->least32 = y;
	if (y >= e->most32)
		e->most32 = y;
	if ((__s32)y < e->sleast32)
		e->sleast32 = (__s32)y;
	if (e->smost32 < (__s32)y)
		e->smost32 = (__s32)y;
	__sync_fetch_and_or(&e->bits, extremes_bit(x));
	__sync_fetch_and_and(&e->common, ~extremes_bit(x >> 6));
	__sync_fetch_and_xor(&e->flips, x);
	e->sum += x;
	__sync_fetch_and_or(&e->bits32, y & y >> 7 & y >> 13);
	__sync_fetch_and_and(&e->common32, y | y >> 7 | y >> 13);
	__sync_fetch_and_xor(&e->flips32, y);
	e->n++;
}

static __attribute__((always_inline)) inline __u64 number(__u32 block, __u32 threads, __u32 thread)
{
	return extremes_mix((__u64)block * threads + thread);
}

SEC("gpu/store")
int of_all(struct egpu_mem *ctx)
{
	__u64 x = number(ctx->block.x, ctx->block_dim.x, ctx->thread.x);

	keep(&all, x);
	if (x < least_of_0)
		least_of_0 = x;
	if (x & 2)
		return 0;
	chosen.least = x < chosen.least ? x : chosen.least;
	chosen.most = chosen.most > x ? chosen.most : x;
	chosen.sleast32 = (__s32)x < chosen.sleast32 ? (__s32)x : chosen.sleast32;
	return 0;
}

SEC("gpu/store")
int of_keys(struct egpu_mem *ctx)
{
	__u64 x = number(ctx->block.x, ctx->block_dim.x, ctx->thread.x);
	__u32 key = (__u32)(x >> 40) % EXTREMES_KEYS;
	struct extremes *e = bpf_map_lookup_elem(&keyed, &key);

	if (e)
		keep(e, x);
	return 0;
}

SEC("gpu/store")
int of_hash(struct egpu_mem *ctx)
{
	__u64 x = number(ctx->block.x, ctx->block_dim.x, ctx->thread.x);
	__u32 key = ctx->block.x % EXTREMES_KEYS;
	struct extremes *e = bpf_map_lookup_elem(&hashed, &key);

	if (!e) {
		struct extremes start = EXTREMES_START;
		bpf_map_update_elem(&hashed, &key, &start, BPF_NOEXIST);
		e = bpf_map_lookup_elem(&hashed, &key);
	}
	if (e)
		keep(e, x);
	return 0;
}

SEC("gpu/entry")
int of_blocks(struct egpu_entry *ctx)
{
	keep(&blocks, extremes_mix(ctx->block.x));
	return 0;
}

SEC("gpu/store")
int records(struct egpu_mem *ctx)
{
	__u64 x = number(ctx->block.x, ctx->block_dim.x, ctx->thread.x);

	if (x > record_of_u64) {
		record_of_u64 = x;
		record_of_thread++;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
