/* decode_video.c - video instructions. */
#include "softgpu/decode.h"

#include <string.h>

static const struct {
	const char *name;
	uint8_t op;
	bool simd;
} ops[] = {
	{ "vadd", SG_V_ADD, true },
	{ "vsub", SG_V_SUB, true },
	{ "vavrg", SG_V_AVRG, true },
	{ "vabsdiff", SG_V_ABSDIFF, true },
	{ "vmin", SG_V_MIN, true },
	{ "vmax", SG_V_MAX, true },
	{ "vset", SG_V_SET, true },
	{ "vshl", SG_V_SHL, false },
	{ "vshr", SG_V_SHR, false },
	{ "vmad", SG_V_MAD, false },
};

static bool find_op(const char *base, struct sg_insn *in)
{
	size_t len = strlen(base);
	char last = base[len - 1];
	bool simd = last == '2' || last == '4';
	in->n = simd ? (uint8_t)(last - '0') : 1;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strncmp(ops[i].name, base, len - simd) || strlen(ops[i].name) != len - simd)
			continue;
		in->op = ops[i].op;
		return (!simd || ops[i].simd) && (simd || in->op != SG_V_AVRG);
	}
	return false;
}

/* The modifier into in; types gathers those of d, a, b. */
static bool modifier(const char *m, struct sg_insn *in, uint8_t *types, uint8_t *n)
{
	static const char *const cmps[] = { "eq", "ne", "lt", "le", "gt", "ge" };
	static const uint8_t codes[] = { SG_EQ, SG_NE, SG_LT, SG_LE, SG_GT, SG_GE };
	uint8_t type = sg_dec_type(m);
	if ((type == T_U32 || type == T_S32) && *n < 3) {
		types[(*n)++] = type;
		return true;
	}
	for (size_t i = 0; in->op == SG_V_SET && i < 6; i++) {
		if (!strcmp(m, cmps[i])) {
			in->rnd = codes[i];
			return true;
		}
	}
	if (!strcmp(m, "sat"))
		in->has |= SG_V_SAT;
	else if (!strcmp(m, "wrap"))
		in->has |= SG_V_WRAP;
	else if (!strcmp(m, "po"))
		in->has |= SG_V_PO;
	else if (!strcmp(m, "add"))
		in->bytes = SG_V_PLUS;
	else if (!strcmp(m, "min") && in->n == 1)
		in->bytes = SG_V_LEAST;
	else if (!strcmp(m, "max") && in->n == 1)
		in->bytes = SG_V_MOST;
	else if (in->op == SG_V_MAD && (!strcmp(m, "shr7") || !strcmp(m, "shr15")))
		in->rnd = m[3] == '7' ? 7 : 15;
	else
		return !strcmp(m, "clamp");
	return true;
}

/* A register with or without a selector: `name.b0` arrives as other text that begins with the name.
 */
static bool strip(struct sg_dec *c, const struct ptx_operand *o, struct ptx_operand *reg,
	const char **sel, uint32_t *len)
{
	*reg = *o;
	*len = 0;
	if (o->kind != PTX_OPERAND_OTHER)
		return true;
	const char *text = c->m->ptx->text + o->span.begin;
	uint32_t n = o->span.end - o->span.begin, name = o->name ? (uint32_t)strlen(o->name) : n;
	if (name >= n || strncmp(text, o->name, name) || text[name] != '.')
		return false;
	reg->kind = PTX_OPERAND_REG;
	*sel = text + name + 1;
	*len = n - name - 1;
	return true;
}

static enum sg_decoded selected(
	struct sg_dec *c, const struct ptx_operand *o, bool dst, uint32_t *op, uint32_t *sel)
{
	struct ptx_operand reg;
	const char *s = "";
	uint32_t len;
	*sel = 0;
	if (!strip(c, o, &reg, &s, &len))
		return DEC_UNSUPPORTED;
	if (len) {
		uint32_t k = (uint32_t)(s[1] - '0');
		if (len != 2 || (s[0] != 'b' && s[0] != 'h') || k > (s[0] == 'b' ? 3 : 1))
			return DEC_UNSUPPORTED;
		*sel = s[0] == 'b' ? 1 + k : 5 + k;
	}
	return dst ? sg_dec_dst(c, &reg, '4', op) : sg_dec_src(c, &reg, '4', op);
}

/* d.h10, d.b20: the parts that the result replaces. */
static enum sg_decoded masked(struct sg_dec *c, const struct ptx_operand *o, struct sg_insn *in)
{
	struct ptx_operand reg;
	const char *s = "";
	uint32_t len;
	if (!strip(c, o, &reg, &s, &len))
		return DEC_UNSUPPORTED;
	in->imm = (1 << in->n) - 1;
	if (len) {
		in->imm = 0;
		for (uint32_t i = 1; i < len; i++) {
			uint32_t k = (uint32_t)(s[i] - '0');
			if (k >= in->n)
				return DEC_UNSUPPORTED;
			in->imm |= 1 << k;
		}
		if (s[0] != (in->n == 2 ? 'h' : 'b') || !in->imm)
			return DEC_UNSUPPORTED;
	}
	return sg_dec_dst(c, &reg, '4', &in->d);
}

/* a.h32, b.b7531: for each part, highest first, a part of a or, counted on, of b. Without a
 * selector they are those of the operand itself, from `first`. */
static enum sg_decoded rearranged(struct sg_dec *c, const struct ptx_operand *o,
	const struct sg_insn *in, uint32_t first, uint32_t *op, uint32_t *parts)
{
	struct ptx_operand reg;
	const char *s = "";
	uint32_t len;
	if (!strip(c, o, &reg, &s, &len))
		return DEC_UNSUPPORTED;
	if (len && (len != in->n + 1u || s[0] != (in->n == 2 ? 'h' : 'b')))
		return DEC_UNSUPPORTED;
	*parts = 0;
	for (uint32_t k = 0; k < in->n; k++) {
		uint32_t which = len ? (uint32_t)(s[in->n - k] - '0') : first + k;
		if (which >= 2u * in->n)
			return DEC_UNSUPPORTED;
		*parts |= which << 4 * k;
	}
	return sg_dec_src(c, &reg, '4', op);
}

enum sg_decoded sg_dec_video(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint8_t types[3], n = 0;
	uint32_t da = 0, db = 0, dd = 0;
	if (!find_op(p->base, in) || p->n_operands < 3 || p->n_operands > 4)
		return DEC_UNSUPPORTED;
	in->bytes = SG_V_NOTHING;
	for (uint32_t i = 0; i < p->n_mods; i++)
		if (!modifier(p->mods[i], in, types, &n))
			return DEC_UNSUPPORTED;
	bool set = in->op == SG_V_SET;
	if (n != (set ? 2 : 3))
		return DEC_UNSUPPORTED;
	in->type = set ? T_U32 : types[0];
	in->type2 = types[set ? 0 : 1];
	in->sub = types[set ? 1 : 2];
	in->fn = sg_video;
	if (in->n == 1) {
		TRY(selected(c, &p->operands[0], true, &in->d, &dd));
		TRY(selected(c, &p->operands[1], false, &in->a, &da));
		TRY(selected(c, &p->operands[2], false, &in->b, &db));
		in->imm = da | db << 4 | dd << 8;
	} else {
		TRY(masked(c, &p->operands[0], in));
		TRY(rearranged(c, &p->operands[1], in, 0, &in->a, &in->e));
		TRY(rearranged(c, &p->operands[2], in, in->n, &in->b, &in->d2));
	}
	in->c = in->a;
	bool third = in->n > 1 || in->op == SG_V_MAD || in->bytes != SG_V_NOTHING || dd;
	if (third != (p->n_operands == 4))
		return DEC_UNSUPPORTED;
	return third ? sg_dec_src(c, &p->operands[3], '4', &in->c) : DEC_OK;
}
