/* exec_wmma.c - wmma: whole matrices loaded, multiplied and stored by a warp.
 *
 * PTX does not say which elements a lane holds. Here the elements of a matrix, row by row, are
 * dealt to the lanes in equal shares; registers that hardware uses for second copies repeat the
 * first ones.
 */
#include "softgpu/internal.h"

#include <string.h>

static uint32_t per_lane(const struct sg_insn *in)
{
	return (uint32_t)in->target / 32;
}

/* Host address of element e: target elements in rows of imm; sub: by columns in memory. */
static uint8_t *element_at(struct sg_warp *w, const struct sg_insn *in, const uint64_t *addr,
	uint32_t lane, uint32_t e)
{
	uint32_t cols = (uint32_t)in->e, r = e / cols, c = e % cols,
		 rows = (uint32_t)in->target / cols;
	const uint32_t *stride = in->has & 1 ? sg_op(w, in->c) : NULL;
	uint64_t ld = stride ? stride[lane] : in->sub ? rows : cols;
	uint64_t at = in->sub ? c * ld + r : r * ld + c;
	uint8_t *p =
		sg_resolve_or_fault(w, in, lane, in->space, addr[lane] + at * in->bytes, in->bytes);
	if (p && w->check)
		sg_check_access(
			w, in, lane, p, in->bytes, in->fn == sg_wmma_store ? SG_WRITE : SG_READ, e);
	return p;
}

/* list: n registers. */
SG_HANDLER(sg_wmma_load)
{
	uint64_t addr[32];
	uint32_t share = per_lane(in), each = in->bytes >= 4 ? 1 : 4u / in->bytes;
	if (!sg_whole_warp(w, in, mask))
		return;
	sg_addresses(w, in, mask, addr);
	for (uint32_t lane = 0; lane < 32; lane++) {
		uint64_t v[16] = { 0 };
		uint32_t used = share / each ? share / each : 1;
		for (uint32_t j = 0; j < share; j++) {
			const uint8_t *p = element_at(w, in, addr, lane, lane * share + j);
			uint64_t one = 0;
			if (!p)
				return;
			memcpy(&one, p, in->bytes);
			v[j / each] |= one << 8 * in->bytes * (j % each);
		}
		for (uint32_t k = 0; k < in->n; k++) {
			void *reg = sg_op(w, in->list[k]);
			if (in->bytes == 8)
				((uint64_t *)reg)[lane] = v[k % used];
			else
				((uint32_t *)reg)[lane] = (uint32_t)v[k % used];
		}
	}
}

/* Elements of less than a byte, `bytes` bits each: eight lines of e elements, by rows for A and by
 * columns for B; a lane has a quarter of a line, which is one word. */
SG_HANDLER(sg_wmma_load_lines)
{
	uint64_t addr[32];
	if (!sg_whole_warp(w, in, mask))
		return;
	sg_addresses(w, in, mask, addr);
	uint32_t *d = sg_op(w, in->list[0]);
	for (uint32_t lane = 0; lane < 32; lane++) {
		const uint32_t *stride = in->has & 1 ? sg_op(w, in->c) : NULL;
		uint64_t line = (uint64_t)(stride ? stride[lane] : in->e) * in->bytes / 8;
		const uint32_t *p = sg_resolve_or_fault(
			w, in, lane, in->space, addr[lane] + lane / 4 * line + lane % 4 * 4, 4);
		if (!p)
			return;
		if (w->check)
			sg_check_access(w, in, lane, p, 4, SG_READ, 0);
		d[lane] = *p;
	}
}

SG_HANDLER(sg_wmma_store)
{
	uint64_t addr[32];
	uint32_t share = per_lane(in), each = in->bytes >= 4 ? 1 : 4u / in->bytes;
	if (!sg_whole_warp(w, in, mask))
		return;
	sg_addresses(w, in, mask, addr);
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t j = 0; j < share; j++) {
			const void *reg = sg_op(w, in->list[j / each]);
			uint64_t v = in->bytes == 8 ? ((const uint64_t *)reg)[lane]
						    : ((const uint32_t *)reg)[lane];
			uint8_t *p = element_at(w, in, addr, lane, lane * share + j);
			if (!p)
				return;
			v >>= 8 * in->bytes * (j % each);
			memcpy(p, &v, in->bytes);
		}
}

/* A fragment of `total` elements as numbers. */
static void read_fragment(struct sg_warp *w, const uint32_t *list, uint8_t type, uint32_t bits,
	uint32_t total, double *out)
{
	uint32_t share = total / 32, each = bits >= 32 ? 1 : 32 / bits;
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t j = 0; j < share; j++) {
			const void *reg = sg_op(w, list[j / each]);
			out[lane * share + j] =
				type == T_F64 ? ((const double *)reg)[lane]
					      : sg_matrix_element(type,
							((const uint32_t *)reg)[lane], j % each);
		}
}

static uint32_t bits_of(uint8_t type)
{
	return type == T_F64                     ? 64
	       : type == T_F16 || type == T_BF16 ? 16
	       : type == T_S8 || type == T_U8    ? 8
						 : 32;
}

static void write_fragment(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_mma *m, const double *d)
{
	uint32_t share = m->rows * m->cols / 32u;
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t j = 0; j < share; j++) {
			double v = d[lane * share + j];
			void *reg = sg_op(w, in->list[m->type_d == T_F16 ? j / 2 : j]);
			uint32_t *r = reg;
			if (m->type_d == T_F64)
				((double *)reg)[lane] = v;
			else if (m->type_d == T_F16 && j % 2)
				r[lane] = (r[lane] & 0xffff) | sg_matrix_result(in, T_F16, v) << 16;
			else
				r[lane] = sg_matrix_result(in, m->type_d, v);
		}
}

SG_HANDLER(sg_wmma_mma)
{
	const struct sg_mma *m = in->mma;
	double a[1024], b[1024], c[256];
	if (!sg_whole_warp(w, in, mask))
		return;
	const uint32_t *list = in->list + m->n_d;
	read_fragment(w, list, m->type_a, m->bits, m->rows * m->k, a);
	read_fragment(w, list + m->n_a, m->type_b, m->bits, m->cols * m->k, b);
	read_fragment(
		w, list + m->n_a + m->n_b, m->type_c, bits_of(m->type_c), m->rows * m->cols, c);
	for (uint32_t i = 0; i < m->rows; i++)
		for (uint32_t j = 0; j < m->cols; j++) {
			double *sum = &c[i * m->cols + j];
			for (uint32_t x = 0; x < m->k; x++) {
				/* Elements of less than a byte are by columns. */
				double v = a[i * m->k + x],
				       u = m->bits < 8 ? b[j * m->k + x] : b[x * m->cols + j];
				if (m->type_d == T_F64)
					*sum = in->rnd == SG_RN
						       ? __builtin_fma(v, u, *sum)
						       : sg_fma_rounded(v, u, *sum, in->rnd);
				else
					*sum += m->exclusive ? v != u : v * u;
			}
		}
	write_fragment(w, in, m, c);
}
