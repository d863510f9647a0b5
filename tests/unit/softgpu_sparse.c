/* Sparse matrix products (mma.sp), mma.m8n8k4 of halves, wmma of four bits and one, products of
 * doubles with a rounding mode, movmatrix: against plain products of small integers, with the
 * fragments laid out as PTX documents them. */
#include "softgpu_run.h"

#include <fenv.h>
#include <math.h>

static uint32_t seed = 1;

static uint32_t next_random(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static uint32_t encode(char type, int v)
{
	static const uint8_t e4m3[] = { 0, 0x38, 0x40, 0x44, 0x48 };
	float f = (float)v;
	uint32_t u;
	memcpy(&u, &f, 4);
	switch (type) {
	case 'h':
		return v ? u >> 31 << 15 | ((u >> 23 & 255) - 112) << 10 | (u >> 13 & 1023) : 0;
	case 'b':
		return u >> 16;
	case 't':
		return u;
	case 'e':
		return e4m3[v < 0 ? -v : v] | (v < 0 ? 128u : 0);
	case '4':
		return (uint32_t)v & 15;
	default:
		return (uint32_t)v & 255;
	}
}

/* A kernel that loads n words a lane (of 32), runs an instruction and stores n_out words. */
static CUresult run_insn(
	const char *insn, uint64_t buf, uint32_t n, uint32_t first_out, uint32_t n_out)
{
	char text[8192];
	size_t len = (size_t)sprintf(text,
		".version 8.5\n.target sm_90\n.address_size 64\n"
		".visible .entry k(.param .u64 p)\n{ .reg .b32 %%r<40>; .reg .b64 %%rd<4>; .reg "
		".f64 "
		"%%d<20>; .reg .pred %%q;\n ld.param.u64 %%rd1, [p]; mov.u32 %%r39, %%tid.x; "
		"mul.wide.u32 %%rd2, %%r39, 128; add.s64 %%rd2, %%rd1, %%rd2;\n");
	for (uint32_t x = 0; x < n; x++)
		len += (size_t)sprintf(text + len, " ld.global.b32 %%r%u, [%%rd2+%u];\n", x, x * 4);
	/* Half of the lanes take a longer way. */
	len += (size_t)sprintf(text + len,
		" setp.lt.u32 %%q, %%r39, 13; @%%q bra L; nanosleep.u32 1; L:\n %s\n", insn);
	for (uint32_t x = 0; x < n_out; x++)
		len += (size_t)sprintf(
			text + len, " st.global.b32 [%%rd2+%u], %%r%u;\n", x * 4, first_out + x);
	sprintf(text + len, "ret; }\n");
	return run_ptx(text, 1, 32, 0, &buf);
}

static size_t put_list(char *out, uint32_t first, uint32_t n)
{
	size_t len = (size_t)sprintf(out, "{");
	for (uint32_t i = 0; i < n; i++)
		len += (size_t)sprintf(out + len, "%s%%r%u", i ? "," : "", first + i);
	return len + (size_t)sprintf(out + len, "}");
}

/* -- mma.sp ------------------------------------------------------------------------------- */

struct form {
	const char *opcode;
	char type;
	uint32_t k, selector;
};

struct product {
	int a[16][128], b[128][8], packed[16][64];
	uint8_t nibble[16][16]; /* metadata of each chunk of a row */
};

static void make_product(const struct form *f, struct product *p)
{
	uint32_t width = f->type == 't' ? 2 : f->type == '4' ? 8 : 4, unit = f->type == '4' ? 2 : 1;
	memset(p, 0, sizeof(*p));
	for (uint32_t i = 0; i < 16; i++)
		for (uint32_t c = 0; c < f->k / width; c++) {
			uint32_t x = next_random() % 3, y = x + 1 + next_random() % (3 - x);
			if (f->type == 't') {
				x = next_random() % 2;
				p->a[i][c * 2 + x] = p->packed[i][c] = (int)(next_random() % 7) - 3;
				p->nibble[i][c] = x ? 0xe : 0x4;
				continue;
			}
			p->nibble[i][c] = (uint8_t)(x | y << 2);
			for (uint32_t u = 0; u < unit; u++) {
				int v = (int)(next_random() % 7) - 3,
				    z = (int)(next_random() % 7) - 3;
				p->a[i][c * width + x * unit + u] =
					p->packed[i][c * width / 2 + u] = v;
				p->a[i][c * width + y * unit + u] =
					p->packed[i][c * width / 2 + unit + u] = z;
			}
		}
	for (uint32_t x = 0; x < f->k; x++)
		for (uint32_t j = 0; j < 8; j++)
			p->b[x][j] = (int)(next_random() % 7) - 3;
}

/* The register with the metadata of each lane; lanes that have none hold something else. */
static void put_metadata(const struct form *f, const struct product *p, uint32_t meta[32])
{
	uint32_t chunks = f->k / (f->type == 't' ? 2 : f->type == '4' ? 8 : 4);
	bool wide = f->type == 't' || f->type == 'h' || f->type == 'b';
	bool taken[32] = { 0 };
	for (uint32_t lane = 0; lane < 32; lane++)
		meta[lane] = next_random();
	for (uint32_t i = 0; i < 16; i++)
		for (uint32_t c = 0; c < chunks; c++) {
			uint32_t lane = wide ? f->selector * chunks / 4 + c / 4
					     : f->selector * 2 + c / 8 * 2 + i / 8;
			uint32_t at = wide ? i / 8 * 16 + c % 4 * 4 : c % 8 * 4;
			lane += i % 8 * 4;
			if (!taken[lane])
				meta[lane] = 0;
			taken[lane] = true;
			meta[lane] |= (uint32_t)p->nibble[i][c] << at;
		}
}

static void test_sparse(const struct form *f)
{
	uint32_t bits = f->type == 't'                     ? 32
			: f->type == '4'                   ? 4
			: f->type == 's' || f->type == 'e' ? 8
							   : 16;
	uint32_t e = 32 / bits, n = f->k / (4 * e), meta[32];
	bool integer = f->type == 's' || f->type == '4';
	uint64_t buf = alloc(32 * 128);
	uint32_t *v = (uint32_t *)buf, bad = 0;
	struct product p;
	char insn[512];
	make_product(f, &p);
	put_metadata(f, &p, meta);
	for (uint32_t lane = 0; lane < 32; lane++) {
		uint32_t g = lane / 4, t = lane % 4, *r = v + lane * 32;
		for (uint32_t x = 0; x < n; x++)
			for (uint32_t i = 0; i < e; i++) {
				uint32_t at = bits % 32 * i, col = t * e + i;
				r[x] |= encode(f->type,
						p.packed[g + 8 * (x % 2)][x / 2 * 4 * e + col])
					<< at;
				r[n + x] |= encode(f->type, p.b[x * 4 * e + col][g]) << at;
			}
		for (uint32_t x = 0; x < 4; x++) {
			int c = (int)(g + 8 * (x / 2)) - (int)(t * 2 + x % 2);
			float fc = (float)c;
			memcpy(&r[2 * n + x], integer ? (void *)&c : (void *)&fc, 4);
		}
		r[2 * n + 4] = meta[lane];
	}
	size_t len = (size_t)sprintf(insn, "%s ", f->opcode);
	len += put_list(insn + len, 2 * n, 4);
	insn[len++] = ',';
	len += put_list(insn + len, 0, n);
	insn[len++] = ',';
	len += put_list(insn + len, n, n);
	insn[len++] = ',';
	len += put_list(insn + len, 2 * n, 4);
	sprintf(insn + len, ", %%r%u, 0x%x;", 2 * n + 4, f->selector);
	CUresult err = run_insn(insn, buf, 2 * n + 5, 2 * n, 4);
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t x = 0; x < 4; x++) {
			uint32_t i = lane / 4 + 8 * (x / 2), j = lane % 4 * 2 + x % 2;
			int want = (int)i - (int)j, got;
			float fg;
			for (uint32_t k = 0; k < f->k; k++)
				want += p.a[i][k] * p.b[k][j];
			memcpy(&fg, &v[lane * 32 + x], 4);
			got = integer ? (int)v[lane * 32 + x] : (int)fg;
			bad += got != want;
		}
	if (!ok(!err && !bad, "%s, selector %u", f->opcode, f->selector))
		printf("#   error %d, %u wrong\n", err, bad);
	sg_mem_free(device, buf);
}

static const struct form forms[] = {
	{ "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 'h', 16, 0 },
	{ "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 'h', 16, 3 },
	{ "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 'h', 32, 0 },
	{ "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", 'b', 32, 1 },
	{ "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 't', 8, 2 },
	{ "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", 't', 16, 1 },
	{ "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 's', 32, 1 },
	{ "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32", 's', 64, 0 },
	{ "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", '4', 64, 1 },
	{ "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32", '4', 128, 0 },
	{ "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", 'e', 64, 0 },
};

/* -- m8n8k4 ------------------------------------------------------------------------------- */

struct quad {
	int a[8][4], b[4][8], c[8][8];
};

/* The fragments of a lane by the rules of the ISA; a and b by rows or columns. */
static void quad_lane(
	const struct quad *q, uint32_t lane, bool a_col, bool b_row, bool words, uint32_t *r)
{
	uint32_t line = lane % 4, own = line + (lane < 16 ? 0 : 4), up = lane < 16 ? 0 : 4;
	for (uint32_t i = 0; i < 4; i++) {
		int a = a_col ? q->a[i + up][line] : q->a[own][i];
		int b = b_row ? q->b[line][i + up] : q->b[i][own];
		r[i / 2] |= encode('h', a) << 16 * (i % 2);
		r[2 + i / 2] |= encode('h', b) << 16 * (i % 2);
	}
	for (uint32_t i = 0; i < 8; i++) {
		if (words)
			r[4 + i] = encode('t',
				q->c[(lane & 1) + (i & 2) + up][(i & 4) + (lane & 2) + (i & 1)]);
		else
			r[4 + i / 2] |= encode('h', q->c[own][i]) << 16 * (i % 2);
	}
}

static void test_quads(bool a_col, bool b_row, bool words)
{
	struct quad q[4], want[4];
	uint64_t buf = alloc(32 * 128);
	uint32_t *v = (uint32_t *)buf, bad = 0, n = words ? 8 : 4;
	char insn[512];
	int *all = (int *)q;
	for (size_t i = 0; i < sizeof(q) / (sizeof(*all)); i++)
		all[i] = (int)(next_random() % 7) - 3;
	memcpy(want, q, sizeof(q));
	for (int k = 0; k < 4; k++)
		for (int i = 0; i < 8; i++)
			for (int j = 0; j < 8; j++)
				for (int x = 0; x < 4; x++)
					want[k].c[i][j] += q[k].a[i][x] * q[k].b[x][j];
	for (uint32_t lane = 0; lane < 32; lane++)
		quad_lane(&q[lane % 16 / 4], lane, a_col, b_row, words, v + lane * 32);
	size_t len = (size_t)sprintf(insn, "mma.sync.aligned.m8n8k4.%s.%s.%s.f16.f16.%s ",
		a_col ? "col" : "row", b_row ? "row" : "col", words ? "f32" : "f16",
		words ? "f32" : "f16");
	len += put_list(insn + len, 4, n);
	len += (size_t)sprintf(insn + len, ",{%%r0,%%r1},{%%r2,%%r3},");
	len += put_list(insn + len, 4, n);
	sprintf(insn + len, ";");
	CUresult err = run_insn(insn, buf, 4 + n, 4, n);
	for (uint32_t lane = 0; lane < 32; lane++) {
		uint32_t r[12] = { 0 };
		quad_lane(&want[lane % 16 / 4], lane, a_col, b_row, words, r);
		bad += memcmp(r + 4, v + lane * 32, n * 4) != 0;
	}
	ok(!err && !bad, "%.60s", insn);
	sg_mem_free(device, buf);
}

/* -- wmma of four bits and one --------------------------------------------------------------- */

/* A by rows and B by columns in memory, with lines of `stride` elements; D by rows. */
static void test_lines(const char *type, const char *op, uint32_t bits, uint32_t k, uint32_t stride)
{
	uint64_t buf = alloc(8192);
	uint8_t *a = (uint8_t *)buf, *b = a + 2048;
	int32_t *c = (int32_t *)(buf + 4096), *d = c + 64;
	uint32_t bad = 0;
	char text[2048], shape[32];
	for (uint32_t i = 0; i < 4096; i++)
		a[i] = (uint8_t)next_random();
	for (uint32_t i = 0; i < 64; i++)
		c[i] = (int32_t)(next_random() % 100) - 50;
	sprintf(shape, "m8n8k%u", k);
	sprintf(text,
		PTX_HEAD
		".visible .entry k(.param .u64 p)\n{ .reg .b32 %%r<10>; .reg .b64 %%rd<6>;\n"
		" ld.param.u64 %%rd1, [p]; add.u64 %%rd2, %%rd1, 2048; add.u64 %%rd3, %%rd1, "
		"4096; add.u64 %%rd4, %%rd1, 4352;\n mov.u32 %%r9, %u;\n"
		" wmma.load.a.sync.aligned.row.%s.global.%s {%%r1}, [%%rd1], %%r9;\n"
		" wmma.load.b.sync.aligned.col.%s.global.%s {%%r2}, [%%rd2], %%r9;\n"
		" wmma.load.c.sync.aligned.row.%s.global.s32 {%%r3,%%r4}, [%%rd3], 8;\n"
		" wmma.mma.%ssync.aligned.row.col.%s.s32.%s.%s.s32 {%%r5,%%r6}, {%%r1}, "
		"{%%r2}, {%%r3,%%r4};\n"
		" wmma.store.d.sync.aligned.row.%s.global.s32 [%%rd4], {%%r5,%%r6}, 8;\n"
		" ret; }\n",
		stride, shape, type, shape, type, shape, op, shape, type, type, shape);
	CUresult err = run_ptx(text, 1, 32, 0, &buf);
	for (uint32_t i = 0; i < 8; i++)
		for (uint32_t j = 0; j < 8; j++) {
			int32_t want = c[i * 8 + j];
			for (uint32_t x = 0; x < k; x++) {
				uint32_t ia = (i * stride + x) * bits, ib = (j * stride + x) * bits;
				int u = a[ia / 8] >> ia % 8 & ((1 << bits) - 1);
				int w = b[ib / 8] >> ib % 8 & ((1 << bits) - 1);
				if (type[0] == 's') {
					u = u > 7 ? u - 16 : u;
					w = w > 7 ? w - 16 : w;
				}
				want += op[0] == 'x' ? u != w : u * w;
			}
			bad += d[i * 8 + j] != want;
		}
	ok(!err && !bad, "wmma %s %s, lines of %u", type, op, stride);
	sg_mem_free(device, buf);
}

/* -- doubles with a rounding mode ------------------------------------------------------------- */

static void test_rounding(const char *mode, int host)
{
	uint64_t buf = alloc(32 * 64);
	double *v = (double *)buf, a[16][4], b[4][8];
	uint32_t bad = 0;
	char text[2048];
	for (uint32_t lane = 0; lane < 32; lane++) {
		v[lane * 8] = a[lane / 4][lane % 4] = 1.0 / (3 + next_random() % 100);
		v[lane * 8 + 1] = a[lane / 4 + 8][lane % 4] = -1.0 / (3 + next_random() % 100);
		v[lane * 8 + 2] = b[lane % 4][lane / 4] = 1.0 / (7 + next_random() % 100);
	}
	sprintf(text,
		".version 7.8\n.target sm_90\n.address_size 64\n"
		".visible .entry k(.param .u64 p)\n{ .reg .b32 %%r<4>; .reg .b64 %%rd<4>; .reg "
		".f64 "
		"%%d<10>;\n ld.param.u64 %%rd1, [p]; mov.u32 %%r1, %%tid.x; mul.wide.u32 %%rd2, "
		"%%r1, "
		"64; add.s64 %%rd1, %%rd1, %%rd2;\n ld.global.f64 %%d0, [%%rd1]; ld.global.f64 "
		"%%d1, "
		"[%%rd1+8]; ld.global.f64 %%d2, [%%rd1+16]; mov.f64 %%d3, 0d0000000000000000;\n"
		" mma.sync.aligned.m16n8k4.row.col.%s.f64.f64.f64.f64 {%%d4,%%d5,%%d6,%%d7}, "
		"{%%d0,%%d1}, {%%d2}, {%%d3,%%d3,%%d3,%%d3};\n st.global.f64 [%%rd1], %%d4; "
		"st.global.f64 [%%rd1+8], %%d5; st.global.f64 [%%rd1+16], %%d6; st.global.f64 "
		"[%%rd1+24], %%d7; ret; }\n",
		mode);
	CUresult err = run_ptx(text, 1, 32, 0, &buf);
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t x = 0; x < 4; x++) {
			volatile double sum = 0;
			fesetround(host);
			for (uint32_t k = 0; k < 4; k++) {
				volatile double p = a[lane / 4 + 8 * (x / 2)][k];
				volatile double q = b[k][lane % 4 * 2 + x % 2];
				sum = fma(p, q, sum);
			}
			fesetround(FE_TONEAREST);
			bad += sum != v[lane * 8 + x];
		}
	ok(!err && !bad, "mma of doubles, .%s", mode);
	sg_mem_free(device, buf);
}

static void test_transpose(void)
{
	uint64_t buf = alloc(32 * 128);
	uint32_t *v = (uint32_t *)buf, bad = 0;
	for (uint32_t lane = 0; lane < 32; lane++) {
		uint32_t first = lane / 4 * 8 + lane % 4 * 2;
		v[lane * 32] = first | (first + 1) << 16;
	}
	CUresult err = run_insn("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;", buf, 1, 1, 1);
	for (uint32_t lane = 0; lane < 32; lane++) {
		uint32_t first = lane % 4 * 16 + lane / 4;
		bad += v[lane * 32] != (first | (first + 8) << 16);
	}
	ok(!err && !bad, "movmatrix transposes");
	sg_mem_free(device, buf);
}

int main(void)
{
	device_open(1, 4);
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
			test_sparse(&forms[i]);
	for (int i = 0; i < 8; i++)
		test_quads(i & 1, i & 2, i & 4);
	for (uint32_t stride = 1; stride < 3; stride++) {
		test_lines("s4", "", 4, 32, 32 * stride);
		test_lines("u4", "", 4, 32, 32 * stride);
		test_lines("b1", "xor.popc.", 1, 128, 128 * stride);
		test_lines("b1", "and.popc.", 1, 128, 128 * stride);
	}
	test_rounding("rz", FE_TOWARDZERO);
	test_rounding("rm", FE_DOWNWARD);
	test_rounding("rp", FE_UPWARD);
	test_rounding("rn", FE_TONEAREST);
	test_transpose();
	sg_device_free(device);
	return tap_done();
}
