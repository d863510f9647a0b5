/* Every kind of hash map under contention; what must hold in the end is in tests/cli/maps.t and tests/device/maps.t.
 * SCALE: how much larger the tables, and how many more the keys. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct name {
	__u32 thread, round, again;
};

#define HASH(name_, type_, entries_, key_, value_)                                                 \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_##type_);                                                \
		__uint(max_entries, entries_);                                                     \
		__type(key, key_);                                                                 \
		__type(value, value_);                                                             \
	} name_ SEC(".maps")

#ifndef SCALE
#define SCALE 1
#endif
enum { CHURN_KEYS = 3001 * SCALE };

HASH(few, HASH, 50, __u32, __u64);
HASH(churn, HASH, 1000 * SCALE, __u64, __u64);
HASH(own, HASH, 600 * SCALE, struct name, struct name);
HASH(lru, LRU_HASH, 128 * SCALE, __u32, __u64);
HASH(cpu, PERCPU_HASH, 50, __u32, __u64);
HASH(lru_cpu, LRU_PERCPU_HASH, 100 * SCALE, __u64, __u64);

const volatile __u32 rounds = 4;
__u64 operations, few_added, few_missed, inserted, existed, full, deleted, missing, odd;
__u64 own_made, own_full, own_lost, own_wrong, own_stuck, lru_refused, cpu_added, cpu_missed, lru_cpu_refused;

#define COUNT(what) __sync_fetch_and_add(&what, 1)

static __attribute__((always_inline)) void count_few(__u32 key)
{
	__u64 none = 0, *v = bpf_map_lookup_elem(&few, &key);
	if (!v) {
		bpf_map_update_elem(&few, &key, &none, BPF_NOEXIST);
		v = bpf_map_lookup_elem(&few, &key);
	}
	if (v) {
		__sync_fetch_and_add(v, 3);
		COUNT(few_added);
	} else {
		COUNT(few_missed);
	}
}

/* A table that is full most of the time, keys come and go. */
static __attribute__((always_inline)) void come_and_go(__u64 key, __u32 come)
{
	long err = come ? bpf_map_update_elem(&churn, &key, &key, BPF_NOEXIST) : bpf_map_delete_elem(&churn, &key);
	if (come && !err)
		COUNT(inserted);
	else if (come && err == -17)
		COUNT(existed);
	else if (come && err == -7)
		COUNT(full);
	else if (!come && !err)
		COUNT(deleted);
	else if (!come && err == -2)
		COUNT(missing);
	else
		COUNT(odd);
}

/* A key that nobody else knows is there from its insertion to its deletion, with its value. */
static __attribute__((always_inline)) void keep_own(__u32 thread, __u32 round)
{
	struct name key = { thread, round, ~thread }, *v;
	long err = bpf_map_update_elem(&own, &key, &key, BPF_NOEXIST);
	if (err) {
		COUNT(own_full);
		if (err != -7)
			COUNT(odd);
		return;
	}
	COUNT(own_made);
	v = bpf_map_lookup_elem(&own, &key);
	if (!v)
		COUNT(own_lost);
	else if (v->thread != thread || v->round != round || v->again != ~thread)
		COUNT(own_wrong);
	if (bpf_map_delete_elem(&own, &key))
		COUNT(own_stuck);
}

static __attribute__((always_inline)) void add_cpu(__u32 key)
{
	__u64 none = 0, *v = bpf_map_lookup_elem(&cpu, &key);
	if (!v) {
		bpf_map_update_elem(&cpu, &key, &none, BPF_NOEXIST);
		v = bpf_map_lookup_elem(&cpu, &key);
	}
	if (v) {
		__sync_fetch_and_add(v, 1);
		COUNT(cpu_added);
	} else {
		COUNT(cpu_missed);
	}
}

static __attribute__((always_inline)) void touch(__u32 x)
{
	__u32 key = x % 4 ? x / 4 % (20 * SCALE) : x / 4 % (5000 * SCALE); /* hot keys, and a stream of cold ones */
	__u64 wide = key, one = 1, *v = bpf_map_lookup_elem(&lru, &key);
	if (v)
		__sync_fetch_and_add(v, 1);
	else if (bpf_map_update_elem(&lru, &key, &one, BPF_ANY))
		COUNT(lru_refused);
	if (!bpf_map_lookup_elem(&lru_cpu, &wide) && bpf_map_update_elem(&lru_cpu, &wide, &one, BPF_ANY))
		COUNT(lru_cpu_refused);
}

SEC("gpu/entry")
int hashes(struct egpu_entry *ctx)
{
	__u32 thread = ctx->block.x * ctx->block_dim.x + ctx->thread.x;
	for (__u32 r = 0; r < rounds && r < 64; r++) {
		__u32 x = (thread * 64 + r) * 0x9e3779b1u;
		x ^= x >> 15;
		x *= 0x85ebca77u;
		x ^= x >> 13;
		count_few(x % 50);
		come_and_go(x % CHURN_KEYS, (x >> 16) % 3);
		keep_own(thread, r);
		add_cpu(x % 47);
		touch(x);
		__sync_fetch_and_add(&operations, 12);
	}
	return 0;
}
