/* Loads and stores of every space and width, generic addresses, atomics within and across blocks.
 */
#include "softgpu_run.h"

#define ENTRY                                                                                      \
	PTX_HEAD ".shared .align 16 .b8 sh[256];\n.visible .entry k(.param .u64 out, .param "      \
		 ".align 8 .b8 blob[24])\n{\n"                                                     \
		 ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .b16 %h<9>; .reg "   \
		 ".f32 %f<9>; .reg .f64 %d<9>;\n"                                                  \
		 ".local .align 16 .b8 loc[64];\n"                                                 \
		 "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 "  \
		 "%r3, %ntid.x;"                                                                   \
		 "mad.lo.s32 %r4, %r2, %r3, %r1; mul.wide.u32 %rd2, %r4, 16; add.s64 %rd3, %rd1, " \
		 "%rd2;\n"

struct params {
	uint64_t out;
	uint8_t blob[24];
};

static CUresult go(const char *body, uint32_t grid, uint32_t block, void *data, size_t bytes)
{
	char *text = malloc(strlen(body) + 4096);
	struct params p = { alloc(bytes), { 0 } };
	for (int i = 0; i < 24; i++)
		p.blob[i] = (uint8_t)(i + 1);
	memcpy((void *)p.out, data, bytes);
	sprintf(text, "%s%s\nret;\n}\n", ENTRY, body);
	CUresult e = run_ptx(text, grid, block, 0, &p);
	memcpy(data, (void *)p.out, bytes);
	sg_mem_free(device, p.out);
	free(text);
	return e;
}

/* body leaves a 64-bit value in %rd0; every lane must have want. */
static void value(const char *body, uint64_t want, const char *what)
{
	uint64_t v[64] = { 0 };
	char text[4096];
	snprintf(text, sizeof(text), "%s st.global.u64 [%%rd3], %%rd0;", body);
	CUresult e = go(text, 1, 32, v, sizeof(v));
	uint32_t bad = 0;
	for (int i = 0; i < 32; i++)
		bad += v[i * 2] != want;
	if (!ok(e == CUDA_SUCCESS && !bad, "%s", what))
		printf("#   error %d, got %llx want %llx\n", e, (unsigned long long)v[0],
			(unsigned long long)want);
}

static void test_widths(void)
{
	value("mov.u64 %rd4, -2; st.global.u64 [%rd3], %rd4; ld.global.s8 %rd0, [%rd3];",
		(uint64_t)-2, "ld.s8 to 64 bits");
	value("mov.u64 %rd4, -2; st.global.u8 [%rd3], %rd4; ld.global.u64 %rd0, [%rd3];", 0xfe,
		"st.u8 writes one byte");
	value("mov.u32 %r5, 0x12345678; st.global.u16 [%rd3+2], %r5; ld.global.u32 %rd0, [%rd3];",
		0x56780000, "st.u16 at +2");
	value("mov.u32 %r5, -3; st.global.u32 [%rd3], %r5; ld.global.s16 %h1, [%rd3]; cvt.s64.s16 "
	      "%rd0, %h1;",
		(uint64_t)-3, "ld.s16 to 16 bits");
	value("mov.u64 %rd4, 7; mov.u64 %rd5, 9; st.global.v2.u64 [%rd3], {%rd4, %rd5}; "
	      "ld.global.v4.u32 {%r5, %r6, %r7, %r8},"
	      " [%rd3]; add.s32 %r5, %r5, %r7; cvt.u64.u32 %rd0, %r5;",
		16, "v2.u64 read as v4.u32");
	value("st.global.v4.b32 [%rd3], {1, 2, 3, 4}; ld.global.nc.L2::128B.v2.b64 {_, %rd0}, "
	      "[%rd3];",
		0x400000003, "literals, a cache hint and a sink");
	value("st.global.v4.b8 [%rd3], {1, 2, 3, 4}; ld.volatile.global.u32 %rd0, [%rd3];",
		0x04030201, "v4 of bytes");
	value("ld.param.u64 %rd0, [blob+8];", 0x100f0e0d0c0b0a09, "a parameter at an offset");
	value("ld.param.v2.u32 {%r5, %r6}, [blob]; cvt.u64.u32 %rd0, %r6;", 0x08070605,
		"a vector of a parameter");
	value("mov.b64 %rd4, blob; cvt.u64.u32 %rd5, %r1; and.b64 %rd5, %rd5, 0; add.s64 %rd4, "
	      "%rd4, %rd5;"
	      " ld.param.u8 %rd0, [%rd4+5];",
		6, "a parameter by register");
	value("mov.b64 %rd4, blob; cvta.param.u64 %rd5, %rd4; ld.u8 %rd0, [%rd5+23];", 24,
		"a parameter by generic address");
	value("mov.b32 %r5, 0f3FC00000; st.global.f32 [%rd3], 0f3FC00000; ld.global.f32 %f1, "
	      "[%rd3]; cvt.f64.f32 %d1, %f1;"
	      " mov.b64 %rd0, %d1;",
		0x3ff8000000000000, "a float literal stored");
}

static void test_spaces(void)
{
	value("mul.wide.u32 %rd4, %r1, 8; mov.u64 %rd5, sh; add.s64 %rd5, %rd5, %rd4; cvt.u64.u32 "
	      "%rd6, %r1;"
	      " st.shared.u64 [%rd5], %rd6; bar.sync 0; xor.b32 %r5, %r1, 31; mul.wide.u32 %rd7, "
	      "%r5, 8; mov.u64 %rd8, sh;"
	      " cvta.shared.u64 %rd8, %rd8; add.s64 %rd8, %rd8, %rd7; ld.u64 %rd9, [%rd8]; add.s64 "
	      "%rd0, %rd9, %rd6;",
		31, "shared memory through its generic address");
	value("mov.u32 %r5, sh; shl.b32 %r6, %r1, 2; add.s32 %r5, %r5, %r6; st.shared.u32 [%r5+8], "
	      "5;"
	      " ld.shared.u32 %rd0, [%r5+8];",
		5, "shared memory by 32-bit address");
	value("st.shared.u32 [sh+4], 9; ld.shared.u32 %rd0, [sh+4];", 9,
		"a shared symbol with an offset");
	value("mov.u64 %rd4, loc; cvta.local.u64 %rd5, %rd4; st.local.u32 [%rd4+4], %r1; add.s32 "
	      "%r6, %r1, 1;"
	      " st.u32 [%rd5+8], %r6; ld.local.u32 %r7, [loc+8]; ld.u32 %r8, [%rd5+4]; sub.s32 "
	      "%r9, %r7, %r8;"
	      " cvt.u64.u32 %rd0, %r9;",
		1, "local memory of each lane");
	value("mov.u64 %rd4, loc; cvta.local.u64 %rd5, %rd4; cvta.to.local.u64 %rd6, %rd5; sub.s64 "
	      "%rd7, %rd6, %rd4;"
	      " isspacep.local %p1, %rd5; isspacep.shared %p2, %rd5; isspacep.global %p3, %rd3; "
	      "selp.b64 %rd8, 1, 0, %p1;"
	      " selp.b64 %rd9, 2, 0, %p2; selp.b64 %rd10, 4, 0, %p3; or.b64 %rd0, %rd8, %rd9; "
	      "or.b64 %rd0, %rd0, %rd10;"
	      " add.s64 %rd0, %rd0, %rd7;",
		5, "isspacep tells windows apart");
	value("st.global.u32 [%rd3], 77; cvta.global.u64 %rd4, %rd3; mov.u64 %rd5, sh; "
	      "cp.async.ca.shared.global [%rd5], [%rd4], 4;"
	      " cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %rd0, [sh];",
		77, "cp.async");
	value("mov.u64 %rd4, -1; st.global.v2.u64 [%rd3], {%rd4, %rd4}; mov.u32 %r5, 4; "
	      "cp.async.cg.shared.global [sh], [%rd3], 16,"
	      " %r5; cp.async.wait_all; ld.shared.u64 %rd0, [sh];",
		0xffffffff, "cp.async with a source size fills with zeros");
}

static void test_atomics(void)
{
	struct {
		const char *text;
		uint64_t before, want;
		const char *what;
	} t[] = {
		{ "red.global.add.u32 [%rd1], 1;", 5, 5 + 4096, "red.add.u32" },
		{ "atom.global.add.u64 %rd4, [%rd1], 3;", 0, 3 * 4096, "atom.add.u64" },
		{ "atom.add.s32 %r5, [%rd1], -1;", 4096, 0, "generic atom.add.s32" },
		{ "atom.global.add.f32 %f1, [%rd1], 0f3F800000;", 0, 0x45800000, "atom.add.f32" },
		{ "atom.global.add.f64 %d1, [%rd1], 0d3FF0000000000000;", 0, 0x40b0000000000000,
			"atom.add.f64" },
		{ "atom.global.max.s32 %r5, [%rd1], %r4;", 0, 4095, "atom.max.s32" },
		{ "neg.s32 %r6, %r4; atom.global.min.s32 %r5, [%rd1], %r6;", 0, (uint32_t)-4095,
			"atom.min.s32" },
		{ "atom.global.inc.u32 %r5, [%rd1], 99;", 0, 4096 % 100, "atom.inc wraps" },
		{ "atom.global.dec.u32 %r5, [%rd1], 99;", 0, 100 - 4096 % 100, "atom.dec wraps" },
		{ "and.b32 %r6, %r4, 31; shl.b32 %r6, 1, %r6; red.global.or.b32 [%rd1], %r6;", 0,
			0xffffffff, "red.or" },
		{ "red.relaxed.gpu.global.xor.b32 [%rd1], 1;", 1, 1, "red.xor" },
		{ "red.global.and.b64 [%rd1], 0xf0;", 0xff, 0xf0, "red.and.b64" },
		{ "L: ld.volatile.global.u32 %r5, [%rd1]; add.s32 %r6, %r5, 1; atom.global.cas.b32 "
		  "%r7, [%rd1], %r5, %r6;"
		  " setp.ne.s32 %p1, %r7, %r5; @%p1 bra L;",
			0, 4096, "a compare-and-swap loop" },
		{ "mov.b32 %r6, 0x3c000000; atom.global.add.noftz.f16x2 %r5, [%rd1], %r6;", 0,
			0x68000000, "f16x2 add saturates at 2048" },
		{ "red.global.add.v2.f32 [%rd1], {0f3F800000, 0f40000000};", 0, 0x4600000045800000,
			"red.v2.f32" },
	};
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		uint64_t v[2] = { t[i].before, 0 };
		CUresult e = go(t[i].text, 32, 128, v, sizeof(v));
		if (!ok(e == CUDA_SUCCESS && v[0] == t[i].want, "%s over 32 blocks", t[i].what))
			printf("#   error %d, got %llx want %llx\n", e, (unsigned long long)v[0],
				(unsigned long long)t[i].want);
	}
	uint64_t v[256] = { 0 };
	go("setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [sh], 0; bar.sync 0; mov.u64 %rd4, sh; "
	   "atom.shared.add.u32 %r5, [%rd4], 1;"
	   " bar.sync 0; ld.shared.u32 %r6, [sh]; cvt.u64.u32 %rd0, %r6; st.global.u64 [%rd3], "
	   "%rd0; cvt.u64.u32 %rd0, %r5;"
	   " st.global.u64 [%rd3+8], %rd0;",
		1, 128, v, sizeof(v));
	uint64_t sum = 0, bad = 0;
	for (int i = 0; i < 128; i++) {
		bad += v[i * 2] != 128;
		sum += v[i * 2 + 1];
	}
	ok(!bad && sum == 127 * 64, "shared atomics hand out every number once");
}

static void test_host_range(void)
{
	uint32_t *host = calloc(64, 4);
	uint64_t p[4] = { (uintptr_t)host };
	char text[2048];
	sprintf(text, "%s st.global.u32 [%%rd3], %%r1; ret; }", ENTRY);
	is_int(sg_mem_register(device, host, 256), CUDA_SUCCESS, "host memory registers");
	is_int(sg_mem_register(device, host + 1, 4), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
		"and not twice");
	is_int(run_ptx(text, 1, 16, 0, p), CUDA_SUCCESS, "a kernel writes it");
	is_int(host[15 * 4], 15, "at its own address");
	stderr_capture();
	is_int(run_ptx(text, 1, 17, 0, p), CUDA_ERROR_ILLEGAL_ADDRESS, "its end is exact");
	stderr_end();
	uint64_t base;
	size_t bytes;
	bool is_host;
	ok(sg_mem_range(device, (uintptr_t)host + 8, &base, &bytes, &is_host) && is_host &&
			bytes == 256,
		"its range is known");
	is_int(sg_mem_unregister(device, host), CUDA_SUCCESS, "it unregisters");
	stderr_capture();
	is_int(run_ptx(text, 1, 16, 0, p), CUDA_ERROR_ILLEGAL_ADDRESS, "and is out of reach");
	stderr_end();
	free(host);
}

static void test_allocator(void)
{
	uint64_t a[1000], x;
	size_t free_bytes, total;
	for (int i = 0; i < 1000; i++)
		a[i] = alloc((size_t)i * 7 + 1);
	uint32_t bad = 0;
	for (int i = 0; i < 1000; i++) {
		bad += a[i] % 256 != 0 || !sg_mem_check(device, a[i], (size_t)i * 7 + 1);
		bad += sg_mem_check(device, a[i], (size_t)i * 7 + 2);
	}
	is_int(bad, 0, "allocations are aligned and exactly bounded");
	for (int i = 0; i < 1000; i += 2)
		sg_mem_free(device, a[i]);
	for (int i = 1; i < 1000; i += 2)
		sg_mem_free(device, a[i]);
	sg_mem_info(device, &free_bytes, &total);
	is_int(free_bytes, total, "all of it comes back");
	is_int(sg_mem_free(device, a[5]), CUDA_ERROR_INVALID_VALUE, "a second free is refused");
	is_int(sg_mem_alloc(device, total + 1, &x), CUDA_ERROR_OUT_OF_MEMORY, "more than there is");
	is_int(sg_mem_alloc(device, 0, &x), CUDA_ERROR_INVALID_VALUE, "nothing");
	for (int i = 0; i < 50; i++) {
		bad += sg_mem_alloc(device, total, &x) != CUDA_SUCCESS;
		sg_mem_free(device, x);
	}
	is_int(bad, 0, "all memory can be taken again and again");
}

/* What ptxas refuses, the driver refuses: orders and volatility are of memory that others can see. */
static void test_private_orders(void)
{
	static const char *const orders[] = { "volatile", "relaxed.gpu", "mmio.relaxed.sys", "acquire.sys" };
	static const char *const spaces[][2] = { { "local", "loc" }, { "param", "out" } };
	char body[256];
	uint64_t v[64];
	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < 2; k++) {
			snprintf(body, sizeof(body), "ld.%s.%s.u32 %%r5, [%s];", orders[i], spaces[k][0], spaces[k][1]);
			is_int(go(body, 1, 1, v, sizeof(v)), CUDA_ERROR_INVALID_PTX, "ld.%s.%s is refused", orders[i], spaces[k][0]);
		}
	is_int(go("st.volatile.local.u32 [loc], 1;", 1, 1, v, sizeof(v)), CUDA_ERROR_INVALID_PTX, "st.volatile.local is refused");
	is_int(go("mov.u64 %rd4, loc; cvta.local.u64 %rd5, %rd4; st.volatile.u32 [%rd5], 1;", 1, 1, v, sizeof(v)), CUDA_SUCCESS,
		"a generic address of local memory may be volatile");
}

int main(void)
{
	device_open(2, 0);
	test_private_orders();
	test_widths();
	test_spaces();
	test_atomics();
	test_host_range();
	test_allocator();
	sg_device_free(device);
	device_open(2, 77);
	test_atomics();
	sg_device_free(device);
	return tap_done();
}
