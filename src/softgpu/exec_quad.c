/* exec_quad.c - mma.m8n8k4 of halves: four products at once, each by a pair of quads.
 *
 * Lanes 4q..4q+3 and 4q+16..4q+19 multiply matrix q. Layout of the fragments (PTX ISA, mma.m8n8k4
 * with .f16): with r = lane % 4, plus 4 in the upper half of the warp, an A by rows has row r in
 * its four elements; an A by columns has column lane % 4, rows 0..3 or 4..7. B by columns has
 * column r; B by rows has row lane % 4, columns 0..3 or 4..7. Halves of C and D are row r; words
 * are spread (word_row, word_col).
 */
#include "softgpu/internal.h"

struct quad {
	double a[8][4], b[4][8], c[8][8];
};

static uint32_t quad_of(uint32_t lane)
{
	return lane % 16 / 4;
}

static uint32_t own_row(uint32_t lane)
{
	return lane % 4 + lane / 16 * 4;
}

static uint32_t word_row(uint32_t lane, uint32_t i)
{
	return (lane & 1) + (i & 2) + lane / 16 * 4;
}

static uint32_t word_col(uint32_t lane, uint32_t i)
{
	return (i & 4) + (lane & 2) + (i & 1);
}

static void read_ab(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_mma *m, struct quad q[4])
{
	const uint32_t *list = in->list + m->n_d;
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t i = 0; i < 4; i++) {
			struct quad *t = &q[quad_of(lane)];
			const uint32_t *a = sg_op(w, list[i / 2]), *b = sg_op(w, list[2 + i / 2]);
			double x = sg_matrix_element(T_F16, a[lane], i % 2),
			       y = sg_matrix_element(T_F16, b[lane], i % 2);
			uint32_t line = lane % 4, spread = i + lane / 16 * 4;
			if (m->a_cols)
				t->a[spread][line] = x;
			else
				t->a[own_row(lane)][i] = x;
			if (m->b_rows)
				t->b[line][spread] = y;
			else
				t->b[i][own_row(lane)] = y;
		}
}

static void read_c(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_mma *m, struct quad q[4])
{
	const uint32_t *list = in->list + m->n_d + 4;
	bool half = m->type_c == T_F16;
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t i = 0; i < 8; i++) {
			const uint32_t *r = sg_op(w, list[half ? i / 2 : i]);
			double v = sg_matrix_element(m->type_c, r[lane], half ? i % 2 : 0);
			if (half)
				q[quad_of(lane)].c[own_row(lane)][i] = v;
			else
				q[quad_of(lane)].c[word_row(lane, i)][word_col(lane, i)] = v;
		}
}

static void write_d(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_mma *m, struct quad q[4])
{
	bool half = m->type_d == T_F16;
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t i = 0; i < 8; i++) {
			uint32_t *r = sg_op(w, in->list[half ? i / 2 : i]);
			const struct quad *t = &q[quad_of(lane)];
			double v = half ? t->c[own_row(lane)][i]
					: t->c[word_row(lane, i)][word_col(lane, i)];
			uint32_t bits = sg_matrix_result(in, m->type_d, v);
			r[lane] = half && i % 2 ? (r[lane] & 0xffff) | bits << 16 : bits;
		}
}

SG_HANDLER(sg_mma_quad)
{
	const struct sg_mma *m = in->mma;
	struct quad q[4];
	if (!sg_whole_warp(w, in, mask))
		return;
	read_ab(w, in, m, q);
	read_c(w, in, m, q);
	for (uint32_t k = 0; k < 4; k++)
		for (uint32_t i = 0; i < 8; i++)
			for (uint32_t j = 0; j < 8; j++)
				for (uint32_t x = 0; x < 4; x++)
					q[k].c[i][j] += q[k].a[i][x] * q[k].b[x][j];
	write_d(w, in, m, q);
}
