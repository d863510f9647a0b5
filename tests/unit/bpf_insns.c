/* Instructions as text: the kernel's spelling, for every class, and text for any bytes at all. */
#include "bpf/insns.h"
#include "tap.h"

static const struct ebpf_map maps[] = { { .name = "counts" } };

static void shows(uint64_t bytes, const char *want)
{
	struct bpf_insn insns[2] = { 0 };
	memcpy(insns, &bytes, 8);
	insns[1].imm = 4;
	struct ebpf_program p = { .insns = insns, .n_insns = 2, .maps = maps, .n_maps = 1 };
	struct buf b = { 0 };
	ebpf_insn_print(&p, 0, &b);
	is_str(b.data, want, "%s", want);
	buf_free(&b);
}

int main(void)
{
	shows(0x0000000000101161, "(61) r1 = *(u32 *)(r1 +16)");
	shows(0x0000000000030015, "(15) if r0 == 0x0 goto pc+3");
	shows(0xfffffffffffd2156, "(56) if w1 != 0xffffffff goto pc-3");
	shows(0x000000000000210f, "(0f) r1 += r2");
	shows(0xffffffff00000204, "(04) w2 += -1");
	shows(0x000000000001213f, "(3f) r1 s/= r2");
	shows(0x00000000000821bf, "(bf) r1 = (s8)r2");
	shows(0x0000000000000187, "(87) r1 = -r1");
	shows(0x00000010000001dc, "(dc) r1 = be16 r1");
	shows(0x00000020000001d7, "(d7) r1 = bswap32 r1");
	shows(0x00000000fffc1a63, "(63) *(u32 *)(r10 -4) = r1");
	shows(0x00000007fff80a7a, "(7a) *(u64 *)(r10 -8) = 7");
	shows(0x0000000000001091, "(91) r0 = *(s8 *)(r1 +0)");
	shows(0x00000000000012db, "(db) lock *(u64 *)(r2 +0) += r1");
	shows(0x00000001000012db, "(db) r1 = atomic64_fetch_add((u64 *)(r2 +0), r1)");
	shows(0x000000f1000812c3, "(c3) r0 = atomic_cmpxchg((u32 *)(r2 +8), r0, r1)");
	shows(0x000000e1000012c3, "(c3) r1 = atomic_xchg((u32 *)(r2 +0), r1)");
	shows(0x0000000500000118, "(18) r1 = 0x400000005");
	shows(0x0000000000001118, "(18) r1 = map[counts]");
	shows(0x0000000000002118, "(18) r1 = map[counts][0]+4");
	shows(0x0000000900001118, "(18) r1 = map[?]");
	shows(0x0000000100000085, "(85) call bpf_map_lookup_elem#1");
	shows(0x0000000500001085, "(85) call pc+5");
	shows(0x0000000000050005, "(05) goto pc+5");
	shows(0x0000000500000006, "(06) gotol pc+5");
	shows(0x0000000000000095, "(95) exit");
	uint64_t seed = 1;
	struct buf b = { 0 };
	bool text = true;
	for (int i = 0; i < 100000; i++) {
		struct bpf_insn insn;
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		memcpy(&insn, &seed, 8);
		struct ebpf_program p = { .insns = &insn, .n_insns = 1 };
		buf_reset(&b);
		ebpf_insn_print(&p, 0, &b);
		text = text && b.len > 5;
	}
	ok(text, "any bytes give text");
	buf_free(&b);
	return tap_done();
}
