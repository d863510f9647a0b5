// SPDX-License-Identifier: Apache-2.0
/* What helpers answer, error by error, on one thread. */
#include <egpu/probe.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u8[13]);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} percpu SEC(".maps");

struct odd_key {
	__u8 b[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2);
	__type(key, struct odd_key);
	__type(value, __u16);
} odd SEC(".maps");

struct wide_key {
	__u64 w[9];
};

struct wide_value {
	__u64 w[12];
	__u32 tail;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, struct wide_key);
	__type(value, struct wide_value);
} wide SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

__s64 results[48];
struct wide_value source;

#define SAY(at, what) results[at] = (what)

static __always_inline void arrays(void)
{
	__u8 value[13] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 };
	__u32 key = 1, beyond = 3;
	__u64 eight = 8;
	SAY(0, bpf_map_update_elem(&array, &key, value, BPF_ANY));
	SAY(1, bpf_map_update_elem(&array, &key, value, BPF_NOEXIST));
	SAY(2, bpf_map_update_elem(&array, &beyond, value, BPF_EXIST));
	SAY(3, bpf_map_update_elem(&array, &key, value, 8));
	SAY(4, bpf_map_delete_elem(&array, &key));
	SAY(5, bpf_map_lookup_elem(&array, &beyond) != 0);
	__u8 *v = bpf_map_lookup_elem(&array, &key);
	if (v)
		SAY(6, v[0] + v[7] * 256 + v[12] * 65536);
	SAY(7, bpf_map_update_elem(&percpu, &key, &eight, BPF_EXIST));
	__u64 *p = bpf_map_lookup_elem(&percpu, &key);
	if (p)
		SAY(8, *p);
}

static __always_inline void hashes(void)
{
	struct odd_key a = { { 1, 2, 3, 4, 5 } }, b = { { 1, 2, 3, 4, 6 } }, c = { { 0 } };
	__u16 value = 0x1234;
	SAY(10, bpf_map_update_elem(&odd, &a, &value, BPF_EXIST));
	SAY(11, bpf_map_update_elem(&odd, &a, &value, BPF_NOEXIST));
	SAY(12, bpf_map_update_elem(&odd, &a, &value, BPF_NOEXIST));
	SAY(13, bpf_map_update_elem(&odd, &b, &value, BPF_ANY));
	SAY(14, bpf_map_update_elem(&odd, &c, &value, BPF_ANY)); /* full */
	SAY(15, bpf_map_delete_elem(&odd, &a));
	SAY(16, bpf_map_delete_elem(&odd, &a));
	SAY(17, bpf_map_lookup_elem(&odd, &a) != 0);
	SAY(18, bpf_map_update_elem(&odd, &a, &value, BPF_EXIST));
	SAY(19, bpf_map_update_elem(&odd, &c, &value, BPF_ANY));
	SAY(20, bpf_map_update_elem(&odd, &a, &value, BPF_ANY)); /* full again, and its own slot is dead */
	SAY(21, bpf_map_delete_elem(&odd, &c));
	value = 0x5678;
	SAY(22, bpf_map_update_elem(&odd, &a, &value, BPF_NOEXIST));
	__u16 *v = bpf_map_lookup_elem(&odd, &a);
	if (v)
		SAY(23, *v);
	SAY(24, bpf_map_update_elem(&odd, &a, &value, 8));
}

static __always_inline void wides(void)
{
	struct wide_key key;
	__builtin_memset(&key, 0, sizeof(key));
	key.w[0] = 7;
	key.w[8] = 9;
	source.w[0] = 100;
	source.w[11] = 111;
	source.tail = 5;
	SAY(30, bpf_map_update_elem(&wide, &key, &source, BPF_ANY));
	struct wide_value *v = bpf_map_lookup_elem(&wide, &key);
	if (v)
		SAY(31, v->w[0] * 1000000 + v->w[11] * 1000 + v->tail);
	key.w[8] = 10;
	SAY(32, bpf_map_lookup_elem(&wide, &key) != 0);
	SAY(33, bpf_map_delete_elem(&wide, &key));
	key.w[8] = 9;
	SAY(34, bpf_map_delete_elem(&wide, &key));
}

static __always_inline void rings(void)
{
	SAY(40, bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE));
	SAY(41, bpf_ringbuf_output(&ring, &source, sizeof(source), 0));
	SAY(42, bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA));
	SAY(43, bpf_ringbuf_query(&ring, BPF_RB_PROD_POS) * 1000 + bpf_ringbuf_query(&ring, BPF_RB_CONS_POS));
	SAY(44, bpf_ringbuf_output(&ring, &source, sizeof(source), 4));
	void *too_large = bpf_ringbuf_reserve(&ring, 8000, 0);
	if (too_large)
		bpf_ringbuf_discard(too_large, 0);
	else
		SAY(45, 1);
	void *flagged = bpf_ringbuf_reserve(&ring, 8, 1);
	if (flagged)
		bpf_ringbuf_discard(flagged, 0);
	else
		SAY(46, 1);
	SAY(47, 77);
}

SEC("gpu/entry")
int helpers(struct egpu_entry *ctx)
{
	arrays();
	hashes();
	wides();
	rings();
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
