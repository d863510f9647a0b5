/* Maps and globals of many types, for the dump; trace_printk. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

enum color { RED, GREEN = 7 };

struct value {
	__u64 hits;
	__u32 small[3];
	enum color color;
	char name[8];
	union {
		__u32 word;
		float real;
	};
	__u32 a : 3, b : 5;
};

struct key {
	__u32 block, lane;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct value);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct key);
	__type(value, __u64);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} per_cpu SEC(".maps");

const volatile __u32 limit = 2;
char text[8] = "hello";
__s32 negative = -5;
enum color color = GREEN;
__u64 total;

SEC("gpu/entry")
int on_entry(struct egpu_entry *ctx)
{
	__u32 one = 1;
	__u64 *v, first = 1;
	struct key key = { ctx->block.x, ctx->lane };
	struct value *a = bpf_map_lookup_elem(&array, &one);
	if (a) {
		__sync_fetch_and_add(&a->hits, 1);
		a->small[2] = 9;
		a->color = GREEN;
		a->name[0] = 'x';
		a->word = 0x40490fdb;
	}
	v = bpf_map_lookup_elem(&per_cpu, &one);
	if (v)
		(*v)++;
	total++;
	if (ctx->thread.x < limit)
		bpf_map_update_elem(&hash, &key, &first, 0);
	if (ctx->thread.x == 5 && ctx->block.x == 1)
		bpf_printk("block %u thread %d launch %llu\n", ctx->block.x, -(int)ctx->thread.x, ctx->launch);
	return 0;
}
