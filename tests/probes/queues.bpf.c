/* Queues and stacks under contention, and Bloom filters; what must hold in the end is in tests/cli/queues.sh.
 * SCALE: how much larger the maps are; BITS: values that the test pushes to each, a power of two. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

#ifndef SCALE
#define SCALE 1
#endif
#ifndef BITS
#define BITS 65536
#endif

struct item {
	__u64 id, check;
};

#define KEYLESS(name_, type_, entries_, value_)                                                    \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_##type_);                                                \
		__uint(max_entries, entries_);                                                     \
		__type(value, value_);                                                             \
	} name_ SEC(".maps")

KEYLESS(queue, QUEUE, 1000 * SCALE, struct item);
KEYLESS(stack, STACK, 1000 * SCALE, struct item);
KEYLESS(few, QUEUE, 3, struct item);
KEYLESS(pile, STACK, 3, struct item);
KEYLESS(last, QUEUE, 64, struct item);
KEYLESS(top, STACK, 64, struct item);
KEYLESS(bloom, BLOOM_FILTER, BITS, __u64);

/* One bit for each value that was ever popped. */
enum { MAPS = 6 };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAPS *(BITS / 64));
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

const volatile __u32 rounds = 4;
__u64 operations, pushed[MAPS], refused[MAPS], popped[MAPS], empty[MAPS], busy[MAPS], busy_push[MAPS], torn, peek_busy, twice, odd, peeked;
__u64 pushed_sum[MAPS], popped_sum[MAPS];
__u64 bloom_missed, bloom_false, bloom_asked;

#define COUNT(what) __sync_fetch_and_add(&what, 1)
#define CHECK(id_) ((id_) * 0x9e3779b97f4a7c15ull ^ 0x5bd1e995)

static __attribute__((always_inline)) void count_push(__u32 map, __u64 id, long err)
{
	if (!err) {
		COUNT(pushed[map]);
		__sync_fetch_and_add(&pushed_sum[map], id * id);
	} else if (err == -7) {
		COUNT(refused[map]);
	} else if (err == -16) {
		COUNT(busy_push[map]);
	} else {
		COUNT(odd);
	}
}

static __attribute__((always_inline)) void count_pop(__u32 map, const struct item *v, long err)
{
	if (err == -2) {
		COUNT(empty[map]);
		if (v->id || v->check)
			COUNT(torn);
		return;
	}
	if (err) {
		if (err == -16)
			COUNT(busy[map]);
		else
			COUNT(odd);
		return;
	}
	COUNT(popped[map]);
	__sync_fetch_and_add(&popped_sum[map], v->id * v->id);
	if (v->check != CHECK(v->id))
		COUNT(torn);
	__u32 at = map * (BITS / 64) + ((v->id & (BITS - 1)) >> 6);
	__u64 *word = bpf_map_lookup_elem(&seen, &at), bit = 1ull << (v->id & 63);
	if (word && (__sync_fetch_and_or(word, bit) & bit))
		COUNT(twice);
}

static __attribute__((always_inline)) void count_peek(const struct item *v, long err)
{
	if (!err) {
		COUNT(peeked);
		if (v->check != CHECK(v->id))
			COUNT(torn);
	} else if (err == -16) {
		COUNT(peek_busy);
	} else if (err != -2) {
		COUNT(odd);
	}
}

#define WORK(map_, name_, flags_)                                                                  \
	do {                                                                                       \
		struct item in = { id, CHECK(id) }, out;                                           \
		if (dice & 1 << (map_ & 1))                                                        \
			count_push(map_, id, bpf_map_push_elem(&name_, &in, flags_));              \
		else                                                                               \
			count_pop(map_, &out, bpf_map_pop_elem(&name_, &out));                     \
	} while (0)

SEC("gpu/entry")
int queues(struct egpu_entry *ctx)
{
	__u64 thread = (__u64)ctx->block.x * ctx->block_dim.x + ctx->thread.x;
	for (__u32 r = 0; r < rounds && r < 64; r++) {
		__u64 id = thread * rounds + r + 1, other = id | 1ull << 63;
		__u32 dice = bpf_get_prandom_u32();
		struct item out;
		WORK(0, queue, BPF_ANY);
		WORK(1, stack, BPF_ANY);
		WORK(2, few, BPF_ANY);
		WORK(3, pile, BPF_ANY);
		WORK(4, last, BPF_EXIST);
		WORK(5, top, BPF_EXIST);
		if (dice & 4)
			count_peek(&out, bpf_map_peek_elem(&queue, &out));
		if (dice & 8)
			count_peek(&out, bpf_map_peek_elem(&top, &out));
		if (bpf_map_push_elem(&bloom, &id, BPF_ANY))
			COUNT(odd);
		if (bpf_map_peek_elem(&bloom, &id))
			COUNT(bloom_missed);
		if (!bpf_map_peek_elem(&bloom, &other))
			COUNT(bloom_false);
		COUNT(bloom_asked);
		__sync_fetch_and_add(&operations, 6);
	}
	return 0;
}
