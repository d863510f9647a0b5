#!/bin/sh
# Updates of shared memory that lose some when threads meet are refused, through functions too; what only looks like one is not.
. "$(dirname "$0")/lib.sh"
command -v clang >/dev/null || skip_all "no clang"

cat >"$tmp/races.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
#define N __attribute__((noinline)) static

__u64 bits, most, count, flag;
__u16 narrow;
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4); __type(key, __u32); __type(value, __u64[4]); } table SEC(".maps");

struct { __u64 first, second; } pair[2];

N __u64 *find(__u32 key) { return bpf_map_lookup_elem(&table, &key); }
N __u64 get(volatile __u64 *p) { return *p; }
N long put(volatile __u64 *p, __u64 v) { *p = v; return 0; }
N __u64 with_bit(__u64 v, __u32 n) { return v | 1ull << (n & 63); }
N long larger(volatile __u64 *p, __u64 v) { if (v > *p) *p = v; return 0; }
N long copy(volatile __u64 *to, volatile __u64 *from) { *to = *from; return 0; }
static long each(void *map, __u32 *key, __u64 *value, void *unused) { value[1] = value[1] * 3; return 0; }
static long pass(void *map, __u32 *key, __u64 *value, void *unused) { value[1] = value[2]; return 0; }

SEC("gpu/load") int r_returned(struct egpu_mem *ctx) { __u64 v = get(&bits); bits = v | 4; return 0; }
SEC("gpu/load") int r_given(struct egpu_mem *ctx) { put(&bits, bits | ctx->lane); return 0; }
SEC("gpu/load") int r_both(struct egpu_mem *ctx) { put(&bits, with_bit(get(&bits), ctx->lane)); return 0; }
SEC("gpu/load") int r_otherwise(struct egpu_mem *ctx) { if (ctx->bytes > most) most = ctx->lane; return 0; }
SEC("gpu/load") int r_narrow(struct egpu_mem *ctx) { if ((__u16)ctx->address > narrow) narrow = ctx->address; return 0; }
SEC("gpu/load") int r_decided(struct egpu_mem *ctx) { if (get(&most) < ctx->bytes) put(&most, ctx->bytes); return 0; }
SEC("gpu/load") int r_pointer(struct egpu_mem *ctx) { __u64 *p = find(1); if (p) p[2] = p[2] ^ ctx->address; return 0; }
SEC("gpu/load") int r_element(struct egpu_mem *ctx) { bpf_for_each_map_elem(&table, each, 0, 0); return 0; }
SEC("gpu/load") int r_either(struct egpu_mem *ctx) { __u64 *p = find(1), *q = find(2); if (!p || !q) return 0; if (ctx->lane & 1) p = q; p[1] = p[1] * 3; return 0; }
SEC("gpu/load") __attribute__((naked)) int r_moved(void)
{
	asm volatile("r8 = *(u32 *)(r1 + 4); r8 &= 1; r8 <<= 4; r2 = %[pair] ll; r2 += r8; r3 = *(u64 *)(r2 + 8); r2 += 8; r3 |= 4;"
		"*(u64 *)(r2 + 0) = r3; r0 = 0; exit;" ::[pair] "i"(&pair));
}

SEC("gpu/load") __attribute__((naked)) int o_neighbour(void)
{
	asm volatile("r8 = *(u32 *)(r1 + 4); r8 &= 1; r8 <<= 4; r2 = %[pair] ll; r2 += r8; r3 = *(u64 *)(r2 + 8); r2 += 8; r3 |= 4;"
		"*(u64 *)(r2 - 8) = r3; r0 = 0; exit;" ::[pair] "i"(&pair));
}
SEC("gpu/load") int o_other(struct egpu_mem *ctx) { copy(&bits, &most); return 0; }
SEC("gpu/load") int o_returned(struct egpu_mem *ctx) { bits = get(&most); return 0; }
SEC("gpu/load") int o_blind(struct egpu_mem *ctx) { put(&bits, ctx->lane); return 0; }
SEC("gpu/load") int o_inside(struct egpu_mem *ctx) { larger(&most, ctx->bytes); return 0; }
SEC("gpu/load") int o_flag(struct egpu_mem *ctx) { if (!get(&flag)) flag = 1; return 0; }
SEC("gpu/load") int o_add(struct egpu_mem *ctx) { __u64 *p = find(1); if (p) p[2] += ctx->bytes; return 0; }
SEC("gpu/load") int o_element(struct egpu_mem *ctx) { bpf_for_each_map_elem(&table, pass, 0, 0); return 0; }
SEC("gpu/load") int o_place(struct egpu_mem *ctx) { __u64 *p = find(1); if (p) p[3] = get(p); return 0; }
C
run "$egpu" verify "$tmp/races.bpf.c"
for p in returned given both otherwise narrow decided pointer element either moved; do
	says "refused: $p" "^r_$p: refused: .*another GPU thread may write there"
done
for p in other returned blind inside flag add element place neighbour; do
	says "accepted: $p" "^o_$p: accepted"
done
finish
