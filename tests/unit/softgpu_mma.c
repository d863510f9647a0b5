/* Matrix instructions against a plain product: fragments are loaded by the layout PTX documents. */
#include "softgpu_run.h"

/* A is 16 x k (row-major), B is k x 8 (column-major), C is 16 x 8; elements are small integers, so
 * every type is exact. */
struct shape {
	const char *opcode;
	const char *types; /* letters of A and B: h half, b bfloat, t tf32, s int8 */
	uint32_t k, n_a, n_b;
};

static uint32_t encode(char type, int v)
{
	float f = (float)v;
	uint32_t u;
	memcpy(&u, &f, 4);
	switch (type) {
	case 'h': {
		/* Small integers only. */
		uint32_t sign = u >> 31, e = (u >> 23 & 255), m = u >> 13 & 1023;
		return v ? sign << 15 | (e - 112) << 10 | m : 0;
	}
	case 'b':
		return u >> 16;
	case 't':
		return u;
	default:
		return (uint32_t)v & 255;
	}
}

static int value_a(uint32_t i, uint32_t k)
{
	return (int)((i * 3 + k * 5) % 7) - 3;
}
static int value_b(uint32_t k, uint32_t j)
{
	return (int)((k * 2 + j * 3) % 5) - 2;
}
static int value_c(uint32_t i, uint32_t j)
{
	return (int)(i + j * 2) - 9;
}

static void test_shape(const struct shape *s)
{
	uint32_t bits = s->types[0] == 't' ? 32 : s->types[0] == 's' ? 8 : 16, e = 32 / bits;
	uint32_t n = s->n_a + s->n_b + 4;
	uint64_t buf = alloc(32 * 16 * 4);
	uint32_t *v = (uint32_t *)buf;
	bool integer = bits == 8;
	char text[4096], regs[3][64];
	for (uint32_t lane = 0; lane < 32; lane++) {
		uint32_t g = lane / 4, t = lane % 4, *r = v + lane * 16;
		for (uint32_t x = 0; x < s->n_a; x++)
			for (uint32_t i = 0; i < e; i++)
				r[x] |= encode(s->types[0],
						value_a(g + 8 * (x % 2), x / 2 * 4 * e + t * e + i))
					<< (bits % 32 * i);
		for (uint32_t x = 0; x < s->n_b; x++)
			for (uint32_t i = 0; i < e; i++)
				r[s->n_a + x] |=
					encode(s->types[0], value_b(x * 4 * e + t * e + i, g))
					<< (bits % 32 * i);
		for (uint32_t x = 0; x < 4; x++) {
			int c = value_c(g + 8 * (x / 2), t * 2 + x % 2);
			float f = (float)c;
			memcpy(&r[s->n_a + s->n_b + x], integer ? (void *)&c : (void *)&f, 4);
		}
	}
	size_t at[3] = { 0 };
	for (uint32_t x = 0; x < n; x++) {
		int which = x < s->n_a ? 0 : x < s->n_a + s->n_b ? 1 : 2;
		at[which] += (size_t)sprintf(regs[which] + at[which], "%s%%%c%u",
			at[which] ? "," : "", which == 2 && !integer ? 'f' : 'r', x);
	}
	size_t len = (size_t)sprintf(text,
		PTX_HEAD ".visible .entry k(.param .u64 p)\n{ .reg .b32 %%r<20>; .reg .f32 "
			 "%%f<20>; .reg .b64"
			 " %%rd<4>; .reg .pred %%q;\n ld.param.u64 %%rd1, [p]; mov.u32 %%r19, "
			 "%%tid.x; mul.wide.u32 %%rd2, %%r19, 64; add.s64 %%rd1, %%rd1, %%rd2;\n");
	for (uint32_t x = 0; x < n; x++)
		len += (size_t)sprintf(text + len, " ld.global.b32 %%%c%u, [%%rd1+%u];\n",
			x >= s->n_a + s->n_b && !integer ? 'f' : 'r', x, x * 4);
	/* Half of the lanes take a longer way. */
	len += (size_t)sprintf(text + len,
		" setp.lt.u32 %%q, %%r19, 13; @%%q bra L; nanosleep.u32 1; L:\n %s {%s}, {%s}, "
		"{%s}, {%s};\n",
		s->opcode, regs[2], regs[0], regs[1], regs[2]);
	for (uint32_t x = 0; x < 4; x++)
		len += (size_t)sprintf(text + len, " st.global.b32 [%%rd1+%u], %%%c%u;\n", x * 4,
			integer ? 'r' : 'f', s->n_a + s->n_b + x);
	sprintf(text + len, "ret; }\n");
	CUresult err = run_ptx(text, 1, 32, 0, &buf);
	uint32_t bad = 0;
	for (uint32_t lane = 0; lane < 32; lane++) {
		for (uint32_t x = 0; x < 4; x++) {
			uint32_t i = lane / 4 + 8 * (x / 2), j = lane % 4 * 2 + x % 2;
			int want = value_c(i, j);
			for (uint32_t k = 0; k < s->k; k++)
				want += value_a(i, k) * value_b(k, j);
			float f;
			memcpy(&f, &v[lane * 16 + x], 4);
			bad += integer ? (int)v[lane * 16 + x] != want : f != (float)want;
		}
	}
	if (!ok(err == CUDA_SUCCESS && !bad, "%s", s->opcode))
		printf("#   error %d, %u wrong\n", err, bad);
	sg_mem_free(device, buf);
}

static const struct shape shapes[] = {
	{ "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "h", 8, 2, 1 },
	{ "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "h", 16, 4, 2 },
	{ "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "b", 16, 4, 2 },
	{ "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "t", 8, 4, 2 },
	{ "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "t", 4, 2, 1 },
	{ "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", "s", 16, 2, 1 },
	{ "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", "s", 32, 4, 2 },
};

/* A matrix goes through shared memory by stmatrix and comes back transposed by ldmatrix. */
static void test_matrix_copies(void)
{
	static const char text[] =
		PTX_HEAD ".shared .align 16 .b8 sh[1024];\n.visible .entry k(.param .u64 p)\n{ "
			 ".reg .b32 %r<20>; .reg .b64 %rd<4>;\n"
			 " ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, "
			 "16; add.s64 %rd1, %rd1, %rd2;\n"
			 " ld.global.v4.b32 {%r2,%r3,%r4,%r5}, [%rd1]; mov.u32 %r6, sh; shl.b32 "
			 "%r7, %r1, 4; add.s32 %r6, %r6, %r7;\n"
			 " stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r6], {%r2,%r3,%r4,%r5};\n"
			 " bar.sync 0; ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
			 "{%r8,%r9,%r10,%r11}, [%r6];\n"
			 " st.global.v4.b32 [%rd1], {%r8,%r9,%r10,%r11}; ret; }\n";
	uint64_t buf = alloc(512);
	uint32_t *v = (uint32_t *)buf, bad = 0;
	/* Register m of a lane holds elements (lane / 4, 2 * (lane % 4)) and the next of matrix m.
	 */
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t m = 0; m < 4; m++) {
			uint32_t first = m * 64 + lane / 4 * 8 + lane % 4 * 2;
			v[lane * 4 + m] = first | (first + 1) << 16;
		}
	is_int(run_ptx(text, 1, 32, 0, &buf), CUDA_SUCCESS, "stmatrix and ldmatrix.trans run");
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t m = 0; m < 4; m++) {
			uint32_t first = m * 64 + lane % 4 * 2 * 8 + lane / 4;
			bad += v[lane * 4 + m] != (first | (first + 8) << 16);
		}
	is_int(bad, 0, "each matrix is transposed");
	sg_mem_free(device, buf);
}

int main(void)
{
	static const uint32_t seeds[] = { 0, 4 };
	for (int i = 0; i < 2; i++) {
		device_open(1, seeds[i]);
		for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++)
			test_shape(&shapes[k]);
		test_matrix_copies();
		sg_device_free(device);
	}
	return tap_done();
}
