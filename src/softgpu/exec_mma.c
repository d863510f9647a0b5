/* exec_mma.c - warp matrix instructions: mma.sync, mma.sp, ldmatrix, stmatrix, movmatrix.
 *
 * All lanes of the warp take part; lanes that come on different paths wait for each other. Layout
 * of the fragments (PTX ISA, mma): with g = lane / 4, t = lane % 4 and e elements in a 32-bit
 * register, A register r: row g + 8 * (r % 2), columns (r / 2) * 4e + t * e + 0..e-1 B register r:
 * rows r * 4e + t * e + 0..e-1, column g C, D: rows g and g + 8, columns 2t and 2t + 1 Sums are
 * formed in double (exact integers for integer types) and rounded once; hardware's order and
 * precision are not specified.
 */
#include "softgpu/internal.h"

#include <string.h>

/* Paths that wait at one place for the rest of the warp go on when all lanes are there. */
void sg_aligned_check(struct sg_warp *w)
{
	for (uint32_t i = 0; i < w->n_paths; i++) {
		const struct sg_path *p = &w->paths[i];
		uint32_t there = 0;
		if (p->state != SG_WAIT_WARP || !p->mask || sg_path_insn(p)->fn == sg_warp_op)
			continue;
		for (uint32_t j = 0; j < w->n_paths; j++) {
			const struct sg_path *q = &w->paths[j];
			if (q->state == SG_WAIT_WARP && q->pc == p->pc && q->frame == p->frame)
				there |= q->mask;
		}
		for (uint32_t j = 0; there == w->live && j < w->n_paths; j++)
			w->paths[j].state = SG_READY;
	}
}

/* Whether the whole warp is here; if not, this path waits. */
static bool all_here(struct sg_warp *w, uint32_t mask)
{
	if (mask == w->live) {
		if (w->check)
			sg_check_warp_sync(w, mask);
		return true;
	}
	sg_wait(w, mask, SG_WAIT_WARP);
	sg_aligned_check(w);
	return false;
}

bool sg_whole_warp(struct sg_warp *w, const struct sg_insn *in, uint32_t mask)
{
	if (!all_here(w, mask))
		return false;
	if (mask == SG_FULL)
		return true;
	sg_fault(w, in, CUDA_ERROR_LAUNCH_FAILED, -1,
		"a warp of fewer than 32 threads cannot multiply matrices");
	return false;
}

double sg_matrix_element(uint8_t type, uint32_t v, uint32_t i)
{
	float f;
	uint32_t b;
	switch (type) {
	case T_F16:
		return sg_half_to_float((uint16_t)(v >> 16 * i));
	case T_BF16:
		return sg_bf16_to_float((uint16_t)(v >> 16 * i));
	case T_TF32:
		v &= 0xffffe000;
		memcpy(&f, &v, 4);
		return f;
	case T_F32:
		memcpy(&f, &v, 4);
		return f;
	case T_S32:
		return (int32_t)v;
	case T_E4M3X2:
	case T_E5M2X2:
		return sg_fp8_to_double(type, v >> 8 * i & 255);
	case T_S8:
		return (signed char)(v >> 8 * i);
	case T_U8:
		return (v >> 8 * i) & 255;
	case T_S4:
		b = v >> 4 * i & 15;
		return b & 8 ? (double)b - 16 : b;
	case T_U4:
		return v >> 4 * i & 15;
	case T_PRED:
		return v >> i & 1;
	default:
		return 0;
	}
}

struct tile {
	double a[16][256], b[256][8], c[16][8];
};

/* Row and column of element i of register r of A in a lane; e elements a register. */
static uint32_t a_row(const struct sg_mma *m, uint32_t lane, uint32_t r)
{
	return m->rows == 16 ? lane / 4 + 8 * (r % 2) : lane / 4;
}

static uint32_t a_col(const struct sg_mma *m, uint32_t lane, uint32_t r, uint32_t e)
{
	return (m->rows == 16 ? r / 2 : r) * 4 * e + lane % 4 * e;
}

/* The fragments: list holds D, A, B, C registers in this order; n_* their counts. */
static void read_operands(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_mma *m, struct tile *t)
{
	uint32_t e = m->bits == 64 ? 1 : 32 / m->bits;
	for (uint32_t r = 0; r < m->n_a + m->n_b; r++) {
		const void *reg = sg_op(w, in->list[m->n_d + r]);
		const uint32_t *v = reg;
		const double *d = reg;
		for (uint32_t lane = 0; lane < 32; lane++)
			for (uint32_t i = 0; i < e; i++) {
				uint32_t rb = r - m->n_a;
				double *at =
					r < m->n_a
						? &t->a[a_row(m, lane, r)][a_col(m, lane, r, e) + i]
						: &t->b[rb * 4 * e + lane % 4 * e + i][lane / 4];
				*at = m->bits == 64 ? d[lane]
						    : sg_matrix_element(
							      r < m->n_a ? m->type_a : m->type_b,
							      v[lane], i);
			}
	}
}

/* Row and column of accumulator element k (of 4, or 2 of 8 rows) in a lane. */
#define C_ROW(lane, k) ((lane) / 4 + 8 * ((k) / 2))
#define C_COL(lane, k) ((lane) % 4 * 2 + (k) % 2)

static void read_c(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_mma *m, struct tile *t)
{
	const uint32_t *list = in->list + m->n_d + m->n_a + m->n_b;
	for (uint32_t k = 0; k < m->rows / 4u; k++) {
		const void *reg = sg_op(w, list[m->type_c == T_F16 ? k / 2 : k]);
		const uint32_t *v = reg;
		const double *d = reg;
		for (uint32_t lane = 0; lane < 32; lane++)
			t->c[C_ROW(lane, k)][C_COL(lane, k)] =
				m->type_c == T_F64 ? d[lane]
						   : sg_matrix_element(m->type_c, v[lane], k % 2);
	}
}

static uint32_t saturate(double v)
{
	return (uint32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v);
}

uint32_t sg_matrix_result(const struct sg_insn *in, uint8_t type, double v)
{
	if (type == T_F16)
		return (uint32_t)sg_pack_double(v, 5, 10, SG_RN);
	if (type == T_S32)
		return in->flags & SG_SAT ? saturate(v) : (uint32_t)(int64_t)v;
	float f = (float)v;
	uint32_t bits;
	memcpy(&bits, &f, 4);
	return f != f ? 0x7fffffff : bits;
}

static void write_d(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_mma *m, const struct tile *t)
{
	for (uint32_t k = 0; k < m->rows / 4u; k++) {
		void *reg = sg_op(w, in->list[m->type_d == T_F16 ? k / 2 : k]);
		uint32_t *d = reg;
		double *wide = reg;
		for (uint32_t lane = 0; lane < 32; lane++) {
			double v = t->c[C_ROW(lane, k)][C_COL(lane, k)];
			if (m->type_d == T_F64) {
				wide[lane] = v;
				continue;
			}
			uint32_t r = sg_matrix_result(in, m->type_d, v);
			if (m->type_d == T_F16)
				d[lane] = k % 2 ? (d[lane] & 0xffff) | r << 16 : r;
			else
				d[lane] = r;
		}
	}
}

static void multiply(struct tile *t, const struct sg_mma *m, uint8_t rnd)
{
	if (m->type_d != T_F64 && !m->exclusive) {
		/* The eight columns of a row at once. */
		for (uint32_t i = 0; i < m->rows; i++)
			for (uint32_t x = 0; x < m->k; x++)
				for (uint32_t j = 0; j < 8; j++)
					t->c[i][j] += t->a[i][x] * t->b[x][j];
		return;
	}
	for (uint32_t i = 0; i < m->rows; i++)
		for (uint32_t j = 0; j < 8; j++)
			for (uint32_t x = 0; x < m->k; x++) {
				double a = t->a[i][x], b = t->b[x][j];
				if (m->type_d == T_F64)
					t->c[i][j] = rnd == SG_RN ? __builtin_fma(a, b, t->c[i][j])
								  : sg_fma_rounded(
									    a, b, t->c[i][j], rnd);
				else
					t->c[i][j] += a != b;
			}
}

/* Four bits for a chunk of a row of A. With 16 and 32 bits an element a lane has the same four
 * chunks of the rows g (low half) and g + 8; with 8 and 4 bits it has eight chunks of one of them.
 */
static uint32_t metadata(const uint32_t *reg, const struct sg_mma *m, uint32_t row, uint32_t chunk)
{
	uint32_t chunks = m->k / (m->bits == 32 ? 2u : m->bits == 4 ? 8u : 4u), lane, at;
	if (m->bits >= 16) {
		lane = m->selector * (chunks / 4) + chunk / 4;
		at = row / 8 * 16 + chunk % 4 * 4;
	} else {
		lane = m->selector * 2u + chunk / 8 * 2 + row / 8;
		at = chunk % 8 * 4;
	}
	return reg[row % 8 * 4 + lane] >> at & 15;
}

/* Columns of A go where the metadata says (PTX ISA, sparse matrix storage): two of four elements;
 * one of two where they have 32 bits; two pairs of four where they have 4. */
static void expand(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_mma *m, struct tile *t)
{
	const uint32_t *reg = sg_op(w, in->list[m->n_d + m->n_a + m->n_b + m->n_c]);
	uint32_t width = m->bits == 32 ? 2 : m->bits == 4 ? 8 : 4, pair = m->bits == 4 ? 2 : 1;
	for (uint32_t i = 0; i < 16; i++) {
		double packed[128];
		memcpy(packed, t->a[i], m->k / 2u * sizeof(double));
		memset(t->a[i], 0, m->k * sizeof(double));
		for (uint32_t x = 0; x < m->k / 2u; x++) {
			uint32_t chunk = x / (width / 2), k = x % (width / 2) / pair,
				 bits = metadata(reg, m, i, chunk);
			uint32_t at = m->bits == 32 ? (bits & 3) / 2 : bits >> 2 * k & 3;
			t->a[i][chunk * width + at * pair + x % pair] = packed[x];
		}
	}
}

SG_HANDLER(sg_mma)
{
	const struct sg_mma *m = in->mma;
	struct tile t;
	if (!sg_whole_warp(w, in, mask))
		return;
	read_operands(w, in, m, &t);
	if (m->sparse)
		expand(w, in, m, &t);
	read_c(w, in, m, &t);
	multiply(&t, m, in->rnd);
	write_d(w, in, m, &t);
}

/* -- ldmatrix, stmatrix: 8x8 matrices of 16-bit elements, one row address a lane ---- */

static uint16_t *row(struct sg_warp *w, const struct sg_insn *in, const uint64_t *addr, uint32_t r)
{
	return sg_resolve_or_fault(w, in, r, in->space, addr[r], 16);
}

/* n matrices; sub: transposed. List: their registers. */
SG_HANDLER(sg_ldmatrix)
{
	uint64_t addr[32];
	uint32_t out[4][32] = { 0 };
	if (!all_here(w, mask))
		return;
	sg_addresses(w, in, mask, addr);
	for (uint32_t r = 0; r < in->n * 8u; r++) {
		const uint16_t *p = mask >> r & 1 ? row(w, in, addr, r) : NULL;
		if (!p)
			return;
		if (w->check)
			sg_check_access(w, in, r, p, 16, SG_READ, 0);
		uint32_t *d = out[r / 8], y = r % 8;
		for (uint32_t x = 0; x < 8; x++) {
			/* Element (y, x) goes to half h of a lane's register. */
			uint32_t lane = in->sub ? x * 4 + y / 2 : y * 4 + x / 2,
				 h = in->sub ? y % 2 : x % 2;
			d[lane] |= (uint32_t)p[x] << 16 * h;
		}
	}
	for (uint32_t k = 0; k < in->n; k++) {
		uint32_t *d = sg_op(w, in->list[k]);
		SG_LANES(mask, d[i] = out[k][i];);
	}
}

SG_HANDLER(sg_stmatrix)
{
	uint64_t addr[32];
	if (!all_here(w, mask))
		return;
	sg_addresses(w, in, mask, addr);
	for (uint32_t r = 0; r < in->n * 8u; r++) {
		uint16_t *p = mask >> r & 1 ? row(w, in, addr, r) : NULL;
		if (!p)
			return;
		const uint32_t *v = sg_op(w, in->list[r / 8]);
		if (w->check)
			sg_check_access(w, in, r, p, 16, SG_WRITE, v[r] + r);
		uint32_t y = r % 8;
		for (uint32_t x = 0; x < 8; x++) {
			uint32_t lane = in->sub ? x * 4 + y / 2 : y * 4 + x / 2,
				 h = in->sub ? y % 2 : x % 2;
			p[x] = (uint16_t)(v[lane] >> 16 * h);
		}
	}
}

/* An 8x8 matrix of 16-bit elements, transposed among the lanes. */
SG_HANDLER(sg_movmatrix)
{
	uint32_t out[32] = { 0 };
	if (!sg_whole_warp(w, in, mask))
		return;
	const uint32_t *a = sg_op(w, in->a);
	uint32_t *d = sg_op(w, in->d);
	for (uint32_t y = 0; y < 8; y++)
		for (uint32_t x = 0; x < 8; x++)
			out[x * 4 + y / 2] |= (a[y * 4 + x / 2] >> 16 * (x % 2) & 0xffff)
					      << 16 * (y % 2);
	memcpy(d, out, sizeof(out));
}
