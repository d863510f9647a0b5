/* What programs see of their context, as sums that do not depend on the order of threads: tests/dynamic/live.t compares programs for the next
 * launch with the same ones inside a running kernel. The first parts the lanes of which the second runs once a warp. */
#include <egpu/probe.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

static __attribute__((always_inline)) void add(__u32 at, __u64 v)
{
	__u64 *s = bpf_map_lookup_elem(&sums, &at);
	if (s)
		__sync_fetch_and_add(s, v);
}

/* thread: of its coordinates, of which programs of warps have others'. Parts of fields are loaded too. */
#define COMMON(ctx, base, thread)                                                                                    \
	add(base, 1);                                                                                                \
	add(base + 1, ctx->lane);                                                                                    \
	add(base + 2, ctx->warp);                                                                                    \
	add(base + 3, thread);                                                                                       \
	add(base + 4, ctx->block_dim.x);                                                                             \
	add(base + 5, ctx->block_dim.y + 3 * ctx->block_dim.z);                                                      \
	add(base + 6, ctx->block.x * ctx->block.x + 5 * ctx->block.y + 7 * ctx->block.z);                            \
	add(base + 7, ctx->grid_dim.x + 3 * ctx->grid_dim.y + 5 * ctx->grid_dim.z);                                  \
	add(base + 8, ctx->cluster.x + 3 * ctx->cluster.y + 5 * ctx->cluster.z);                                     \
	add(base + 9, ctx->cluster_dim.x + ctx->cluster_dim.y * ctx->cluster_dim.z + ctx->cluster_rank.x);           \
	add(base + 10, ctx->active_mask);                                                                            \
	add(base + 11, *(__u16 *)&ctx->active_mask + *((__u8 *)&ctx->active_mask + 3))

#define OWN_THREAD(ctx) (ctx->thread.x * 3 + ctx->thread.y * 5 + ctx->thread.z * 7)

SEC("gpu/mem/*")
int parts(struct egpu_mem *ctx)
{
	if (ctx->lane % 3 == 1)
		for (int i = 0; i < 5; i++)
			add(200 + i, ctx->lane);
	return 0;
}

SEC("gpu.warp/mem/*")
int of_warps(struct egpu_warp_mem *ctx)
{
	COMMON(ctx, 0, egpu_lane_read(3, thread.x) + egpu_lane_read(9, thread.y));
	add(16, ctx->address & 0xff);
	add(17, ctx->bytes);
	add(18, ctx->space * 16 + ctx->op);
	add(19, ctx->mask);
	add(20, ctx->lanes);
	add(21, ctx->distinct_bytes);
	add(22, ctx->sectors);
	return 0;
}

SEC("gpu/mem/*")
int of_threads(struct egpu_mem *ctx)
{
	COMMON(ctx, 32, OWN_THREAD(ctx));
	add(48, ctx->address & 0xff);
	add(49, ctx->bytes);
	add(50, ctx->space * 16 + ctx->op);
	add(51, ctx->value_bytes);
	add(52, ctx->value[0]);
	add(53, ctx->value[1] + ctx->value[2] + ctx->value[3]);
	return 0;
}

SEC("gpu.warp/exit/*")
int at_exits(struct egpu_warp *ctx)
{
	COMMON(ctx, 64, egpu_lane_read(31, thread.x));
	add(80, ctx->mask);
	add(81, ctx->lanes);
	return 0;
}

SEC("gpu/entry/*")
int at_entries(struct egpu_entry *ctx)
{
	COMMON(ctx, 96, OWN_THREAD(ctx));
	return 0;
}

char _license[] SEC("license") = "GPL";
