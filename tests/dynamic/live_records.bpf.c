/* Ring buffers and bpf_printk inside a kernel that runs: every record says enough to be checked by itself. */
#include <egpu/probe.bpf.h>

enum { WORDS = 6 };

enum { TRIED, TICKETS, DISCARDED, WRONG, COUNTS };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct record {
	__u64 ticket, words, word[WORDS]; /* word i is ticket * (i + 3) */
};
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} small SEC(".maps");

static __attribute__((always_inline)) __u64 count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &which);
	return n ? __sync_fetch_and_add(n, 1) : 0;
}

/* One in eight is discarded. */
SEC("gpu.warp/block")
int submit(struct egpu_warp *ctx)
{
	count(TRIED);
	struct record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r)
		return 0;
	__u64 t = count(TICKETS);
	r->ticket = t;
	r->words = WORDS;
	for (int i = 0; i < WORDS; i++)
		r->word[i] = t * (i + 3);
	if (t % 8 == 7) {
		count(DISCARDED);
		bpf_ringbuf_discard(r, 0);
		return 0;
	}
	bpf_ringbuf_submit(r, 0);
	return 0;
}

/* Records of 24 to 48 bytes by every lane. */
SEC("gpu/block")
int output(struct egpu_block *ctx)
{
	struct record r = {};
	__u64 t = count(TICKETS);
	__u32 n = (t & 3) + 1;
	count(TRIED);
	r.ticket = t;
	r.words = n;
	for (int i = 0; i < WORDS; i++)
		r.word[i] = t * (i + 3);
	if (bpf_ringbuf_output(&small, &r, 16 + 8 * n, 0) > 0)
		count(WRONG);
	if (bpf_ringbuf_query(&small, 1) != 4096)
		count(WRONG);
	return 0;
}

SEC("gpu.warp/block")
int print(struct egpu_warp *ctx)
{
	__u64 t = count(TICKETS);
	if (t < 16)
		bpf_printk("ticket %llu of 100%% on %u", t, ctx->sm);
	return 0;
}

char _license[] SEC("license") = "GPL";
