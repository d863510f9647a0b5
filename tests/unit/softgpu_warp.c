/* Operations between lanes, divergence and reconvergence. */
#include "softgpu_run.h"

#define ENTRY                                                                                      \
	PTX_HEAD ".visible .entry k(.param .u64 out)\n{\n"                                         \
		 ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>;\n"                        \
		 "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r9, %laneid;"            \
		 "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;\n"

static uint32_t got[1024];

/* body leaves a value in %r0, which is stored by every thread. */
static CUresult go(const char *body, uint32_t block)
{
	char *text = malloc(strlen(body) + 4096);
	uint64_t out = alloc(block * 4);
	sprintf(text, "%s%s\nst.global.u32 [%%rd3], %%r0;\nret;\n}\n", ENTRY, body);
	memset((void *)out, 0xee, block * 4);
	CUresult e = run_ptx(text, 1, block, 0, &out);
	memcpy(got, (void *)out, block * 4);
	sg_mem_free(device, out);
	free(text);
	return e;
}

static void each(const char *what, const char *body, uint32_t block, uint32_t (*want)(uint32_t))
{
	CUresult e = go(body, block);
	uint32_t bad = 0, first = 0;
	for (uint32_t i = block; i--;)
		if (got[i] != want(i)) {
			bad++;
			first = i;
		}
	if (!ok(e == CUDA_SUCCESS && !bad, "%s", what))
		printf("#   error %d, thread %u has 0x%x, want 0x%x (%u wrong)\n", e, first,
			got[first], want(first), bad);
}

static uint32_t lane(uint32_t i)
{
	return i & 31;
}
static uint32_t down4(uint32_t i)
{
	return (i & 31) + 4 < 32 ? (i & 31) + 4 : i & 31;
}
static uint32_t up3(uint32_t i)
{
	return (i & 31) >= 3 ? (i & 31) - 3 : i & 31;
}
static uint32_t xor5(uint32_t i)
{
	return (i & 31) ^ 5;
}
static uint32_t seg8(uint32_t i)
{
	return (i & 24) + 2;
}
static uint32_t in_range(uint32_t i)
{
	return (i & 31) < 28;
}
static uint32_t even(uint32_t i)
{
	return 0x55555555;
}
static uint32_t one(uint32_t i)
{
	return 1;
}
static uint32_t zero(uint32_t i)
{
	return 0;
}
static uint32_t mod4(uint32_t i)
{
	return 0x11111111u << (i & 3);
}
static uint32_t full(uint32_t i)
{
	return 0xffffffff;
}
static uint32_t sum(uint32_t i)
{
	return 496;
}
static uint32_t halves(uint32_t i)
{
	return i < 16 ? 0xffff : 0xffff0000;
}
static uint32_t halfsum(uint32_t i)
{
	return i < 16 ? 120 : 376;
}
static uint32_t leader(uint32_t i)
{
	return i == 3 ? 103 : 3;
}
static uint32_t active20(uint32_t i)
{
	return 0xfffff;
}
static uint32_t masks(uint32_t i)
{
	return (1u << i) ^ (0xffffffffu << i) ^ ((1u << i) - 1) ^ ~((1u << i) - 1);
}

static void test_lanes(void)
{
	each("%laneid", "mov.u32 %r0, %laneid;", 64, lane);
	each("lane masks",
		"mov.u32 %r2, %lanemask_eq; mov.u32 %r3, %lanemask_ge; mov.u32 %r4, %lanemask_lt; "
		"mov.u32 %r5,"
		" %lanemask_lt; not.b32 %r5, %r5; xor.b32 %r0, %r2, %r3; xor.b32 %r0, %r0, %r4; "
		"xor.b32 %r0, %r0, %r5;",
		32, masks);
	each("shfl.down", "shfl.sync.down.b32 %r0, %r9, 4, 31, -1;", 64, down4);
	each("shfl.down's predicate",
		"shfl.sync.down.b32 %r2|%p1, %r9, 4, 31, -1; selp.u32 %r0, 1, 0, %p1;", 32,
		in_range);
	each("shfl.up", "shfl.sync.up.b32 %r0, %r9, 3, 0, -1;", 32, up3);
	each("shfl.bfly", "shfl.sync.bfly.b32 %r0, %r9, 5, 31, -1;", 32, xor5);
	each("shfl.idx in segments of 8", "shfl.sync.idx.b32 %r0, %r9, 2, 0x1807, -1;", 32, seg8);
	each("vote.ballot",
		"and.b32 %r2, %r9, 1; setp.eq.u32 %p1, %r2, 0; vote.sync.ballot.b32 %r0, %p1, -1;",
		32, even);
	each("vote.ballot of a negated predicate",
		"and.b32 %r2, %r9, 1; setp.eq.u32 %p1, %r2, 1; vote.sync.ballot.b32 %r0, !%p1, -1;",
		32, even);
	each("vote.any",
		"setp.eq.u32 %p1, %r9, 7; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, "
		"%p2;",
		32, one);
	each("vote.all",
		"setp.ne.u32 %p1, %r9, 7; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, "
		"%p2;",
		32, zero);
	each("vote.uni",
		"setp.eq.u32 %p1, %r9, 77; vote.sync.uni.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, "
		"%p2;",
		32, one);
	each("match.any", "and.b32 %r2, %r9, 3; match.any.sync.b32 %r0, %r2, -1;", 32, mod4);
	each("match.all.b64",
		"mov.u64 %rd4, 5; match.all.sync.b64 %r0|%p1, %rd4, -1; @!%p1 mov.u32 %r0, 1;", 32,
		full);
	each("match.all of different values", "match.all.sync.b32 %r0|%p1, %r9, -1;", 32, zero);
	each("redux.add", "redux.sync.add.u32 %r0, %r9, -1;", 32, sum);
	each("activemask", "activemask.b32 %r0;", 32, full);
	each("activemask of a short warp", "activemask.b32 %r0;", 20, active20);
	each("elect",
		"elect.sync %r0|%p1, 0xfffffff8; @%p1 add.s32 %r0, %r0, 100; setp.lt.u32 %p2, %r9, "
		"3; @%p2 mov.u32 %r0, 3;",
		32, leader);
}

/* Member masks of half warps, reached from different branches. */
static void test_groups(void)
{
	each("halves vote apart",
		"setp.lt.u32 %p1, %r9, 16; selp.b32 %r2, 0xffff, 0xffff0000, %p1; "
		"vote.sync.ballot.b32 %r0, 1, %r2;",
		32, halves);
	each("halves in two branches",
		"setp.lt.u32 %p1, %r9, 16; @%p1 bra A; redux.sync.add.u32 %r0, %r9, 0xffff0000; "
		"bra B;"
		" A: redux.sync.add.u32 %r0, %r9, 0xffff; B:",
		32, halfsum);
	each("one operation reached from two branches waits for both",
		"setp.lt.u32 %p1, %r9, 16; @%p1 bra A; add.s32 %r2, %r9, 0; redux.sync.add.u32 "
		"%r0, %r2, -1; bra B;"
		" A: redux.sync.add.u32 %r0, %r9, -1; B:",
		32, sum);
	each("lanes that exited are not waited for",
		"setp.ge.u32 %p1, %r9, 20; @%p1 bra E; bra C; E: mov.u32 %r0, 0xfffff; "
		"st.global.u32 [%rd3], %r0; exit;"
		" C: activemask.b32 %r3; vote.sync.ballot.b32 %r0, 1, -1;",
		32, active20);
	each("bar.warp.sync joins branches",
		"setp.lt.u32 %p1, %r9, 16; @%p1 bra A; bra B; A: nanosleep.u32 10; B:"
		" bar.warp.sync -1; activemask.b32 %r0;",
		32, full);
}

static uint32_t collatz(uint32_t i)
{
	uint32_t n = i + 1, steps = 0;
	while (n != 1) {
		n = n & 1 ? 3 * n + 1 : n / 2;
		steps++;
	}
	return steps;
}
static uint32_t switched(uint32_t i)
{
	return (i & 3) == 0 ? 10 : (i & 3) == 1 ? 21 : (i & 3) == 2 ? 32 : 43;
}
static uint32_t nested(uint32_t i)
{
	return (i & 1 ? 1 : 2) * (i & 2 ? 10 : 100) + (i & 4 ? 1000 : 0);
}

static void test_divergence(void)
{
	each("a loop of a different length in each lane",
		"add.s32 %r2, %r1, 1; mov.u32 %r0, 0; L: setp.eq.u32 %p1, %r2, 1; @%p1 bra E; "
		"and.b32 %r3, %r2, 1;"
		" setp.eq.u32 %p2, %r3, 1; @%p2 bra O; shr.u32 %r2, %r2, 1; bra.uni N; O: "
		"mad.lo.u32 %r2, %r2, 3, 1;"
		" N: add.s32 %r0, %r0, 1; bra.uni L; E:",
		1024, collatz);
	each("brx.idx",
		"and.b32 %r2, %r9, 3; T: .branchtargets A, B, C, D; brx.idx %r2, T; A: mov.u32 "
		"%r0, 10; bra E;"
		" B: mov.u32 %r0, 21; bra E; C: mov.u32 %r0, 32; bra E; D: mov.u32 %r0, 43; E:",
		64, switched);
	each("nested branches",
		"mov.u32 %r0, 2; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra A; bra B; "
		"A: mov.u32 %r0, 1; B: and.b32 %r2,"
		" %r1, 2; setp.ne.u32 %p2, %r2, 0; @!%p2 bra C; mul.lo.u32 %r0, %r0, 10; bra D; C: "
		"mul.lo.u32 %r0, %r0, 100;"
		" D: and.b32 %r2, %r1, 4; setp.ne.u32 %p3, %r2, 0; @%p3 add.s32 %r0, %r0, 1000;",
		96, nested);
	each("branches join",
		"and.b32 %r2, %r9, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra A; nanosleep.u32 1; bra B; "
		"A: nanosleep.u32 1;"
		" nanosleep.u32 1; B: activemask.b32 %r0;",
		32, full);
	each("a loop's lanes join at its end",
		"mov.u32 %r2, 0; L: add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r9; @%p1 bra L; "
		"activemask.b32 %r0;",
		32, full);
}

/* A lock whose holder has much to do: the others of its warp, which only spin, must not have most of the time. Each lane counts its tries. */
static void test_long_turn(void)
{
	CUresult e = go("mov.u32 %r0, 0; st.global.u32 [%rd3], %r0; .shared .align 4 .b32 lock, ready;\n"
			"mov.u32 %r2, lock; setp.eq.u32 %p1, %r9, 0; @%p1 st.shared.u32 [lock], %r0; bar.warp.sync 0xffffffff;\n"
			"TRY: add.u32 %r0, %r0, 1;\n"
			"atom.shared.cas.b32 %r3, [%r2], 0, 1; setp.ne.u32 %p2, %r3, 0; @%p2 bra TRY;\n"
			"mov.u32 %r4, 20000;\n"
			"WORK: sub.u32 %r4, %r4, 1; setp.ne.u32 %p3, %r4, 0; @%p3 bra WORK;\n"
			"membar.cta; atom.shared.exch.b32 %r3, [%r2], 0;\n", 32);
	uint64_t tries = 0;
	for (int i = 0; i < 32; i++)
		tries += got[i];
	ok(e == CUDA_SUCCESS && tries >= 32, "lanes take a lock in turn");
	ok(tries < 32 * 32 * 400, "and do not wait the longer for it by their waiting (%llu tries)", (unsigned long long)tries);
}

int main(void)
{
	device_open(1, 0);
	test_lanes();
	test_groups();
	test_divergence();
	test_long_turn();
	sg_device_free(device);
	/* Shuffled: joins are not promised, everything that waits is. */
	for (uint32_t seed = 1; seed < 6; seed++) {
		device_open(2, seed);
		test_groups();
		each("a loop of a different length in each lane, shuffled",
			"add.s32 %r2, %r1, 1; mov.u32 %r0, 0; L: setp.eq.u32 %p1, %r2, 1; @%p1 bra "
			"E; and.b32 %r3, %r2, 1;"
			" setp.eq.u32 %p2, %r3, 1; @%p2 bra O; shr.u32 %r2, %r2, 1; bra.uni N; O: "
			"mad.lo.u32 %r2, %r2, 3, 1;"
			" N: add.s32 %r0, %r0, 1; bra.uni L; E:",
			1024, collatz);
		sg_device_free(device);
	}
	return tap_done();
}
