/* What each site saw, through every form of a memory point; all context fields are read. */
#include <egpu/probe.bpf.h>

struct record {
	__u64 executions, bytes, warp_requests, warp_lanes, mem, warp_mem_lanes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct record);
} records SEC(".maps");

__u64 entries, exits, warp_entries, warp_exits, sink;

#define COMMON(c)                                                                                  \
	((c)->site + (c)->lane + (c)->warp + (c)->sm + (c)->block_dim.x + (c)->block_dim.y +       \
		(c)->block_dim.z + (c)->block.x + (c)->block.y + (c)->block.z + (c)->grid_dim.x +  \
		(c)->grid_dim.y + (c)->grid_dim.z + (c)->cluster.x + (c)->cluster_dim.x +          \
		(c)->cluster_rank.x + (c)->active_mask + (c)->launch + (c)->kernel)
/* A warp has no thread of its own: its programs ask a lane. */
#define THREAD(c) ((c)->thread.x + (c)->thread.y + (c)->thread.z)
#define LANE_THREAD(c)                                                                             \
	(egpu_lane_read((c)->lane, thread.x) + egpu_lane_read((c)->lane, thread.y) +               \
		egpu_lane_read((c)->lane, thread.z))

#define LANES(name, point, type, counter, thread_of)                                               \
	SEC(point) int name(type *c)                                                               \
	{                                                                                          \
		counter;                                                                           \
		sink += COMMON(c) + thread_of(c);                                                  \
		return 0;                                                                          \
	}

LANES(on_entry, "gpu/entry", struct egpu_entry, entries++, THREAD)
LANES(on_exit, "gpu/exit", struct egpu_exit, exits++, THREAD)
LANES(on_warp_entry, "gpu.warp/entry", struct egpu_warp, warp_entries += c->lanes, LANE_THREAD)
LANES(on_warp_exit, "gpu.warp/exit", struct egpu_warp, warp_exits += c->lanes, LANE_THREAD)

#define SITE(name, point, type, change)                                                            \
	SEC(point) int name(type *c)                                                               \
	{                                                                                          \
		__u32 site = c->site;                                                              \
		struct record *r = bpf_map_lookup_elem(&records, &site);                           \
                                                                                                   \
		if (r) {                                                                           \
			change;                                                                    \
			sink += COMMON(c) + c->address + c->space + c->op;                         \
		}                                                                                  \
		return 0;                                                                          \
	}

#define LANE                                                                                       \
	r->executions++;                                                                           \
	r->bytes += c->bytes;                                                                      \
	sink += THREAD(c) + c->value[0] + c->value[1] + c->value[2] + c->value[3] + c->value_bytes
#define WARP                                                                                       \
	r->warp_requests++;                                                                        \
	r->warp_lanes += c->lanes;                                                                 \
	sink += LANE_THREAD(c) + c->mask + c->distinct_bytes + c->sectors

SITE(on_load, "gpu/load", struct egpu_mem, LANE)
SITE(on_store, "gpu/store", struct egpu_mem, LANE)
SITE(on_atomic, "gpu/atomic", struct egpu_mem, LANE)
SITE(on_mem, "gpu/mem", struct egpu_mem, r->mem++)
SITE(on_warp_load, "gpu.warp/load", struct egpu_warp_mem, WARP)
SITE(on_warp_store, "gpu.warp/store", struct egpu_warp_mem, WARP)
SITE(on_warp_atomic, "gpu.warp/atomic", struct egpu_warp_mem, WARP)
SITE(on_warp_mem, "gpu.warp/mem", struct egpu_warp_mem, r->warp_mem_lanes += c->lanes)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
