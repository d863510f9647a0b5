/* decode_ops.c - from opcode and operands to a handler: tables first, then one function an opcode.
 */
#include "softgpu/decode.h"

#include <stdlib.h>
#include <string.h>

/* -- types ------------------------------------------------------------------- */

static const struct {
	const char *name;
	uint8_t type, bits;
	char cls;
} types[] = {
	{ "u8", T_U8, 8, '4' },
	{ "s8", T_S8, 8, '4' },
	{ "b8", T_B8, 8, '4' },
	{ "u16", T_U16, 16, '2' },
	{ "s16", T_S16, 16, '2' },
	{ "b16", T_B16, 16, '2' },
	{ "u32", T_U32, 32, '4' },
	{ "s32", T_S32, 32, '4' },
	{ "b32", T_B32, 32, '4' },
	{ "u64", T_U64, 64, '8' },
	{ "s64", T_S64, 64, '8' },
	{ "b64", T_B64, 64, '8' },
	{ "b128", T_B128, 128, 'x' },
	{ "f16", T_F16, 16, '2' },
	{ "f16x2", T_F16X2, 32, '4' },
	{ "bf16", T_BF16, 16, '2' },
	{ "bf16x2", T_BF16X2, 32, '4' },
	{ "f32", T_F32, 32, 'f' },
	{ "f64", T_F64, 64, 'd' },
	{ "tf32", T_TF32, 32, '4' },
	{ "u16x2", T_U16X2, 32, '4' },
	{ "s16x2", T_S16X2, 32, '4' },
	{ "e4m3x2", T_E4M3X2, 16, '2' },
	{ "e5m2x2", T_E5M2X2, 16, '2' },
	{ "pred", T_PRED, 1, 'p' },
};

uint8_t sg_dec_type(const char *name)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(types[i].name, name))
			return types[i].type;
	return T_NONE;
}

uint32_t sg_type_bits(uint8_t type)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].type == type)
			return types[i].bits;
	return 0;
}

char sg_type_class(uint8_t type)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].type == type)
			return types[i].cls;
	return '4';
}

bool sg_type_signed(uint8_t type)
{
	return type == T_S8 || type == T_S16 || type == T_S32 || type == T_S64;
}

bool sg_type_float(uint8_t type)
{
	return type >= T_F16 && type <= T_TF32;
}

uint8_t sg_dec_types(const struct ptx_insn *p, uint8_t *before)
{
	uint8_t last = T_NONE, previous = T_NONE;
	for (uint32_t i = 0; i < p->n_mods; i++) {
		uint8_t t = sg_dec_type(p->mods[i]);
		if (t) {
			previous = last;
			last = t;
		}
	}
	if (before)
		*before = previous;
	return last;
}

/* -- instructions with a row ------------------------------------------------- */

static char sig_class(const struct sg_row *row, uint32_t i)
{
	return row->sig[i] == '*' ? row->sig[i - 1] : row->sig[i];
}

static enum sg_decoded by_row(
	struct sg_dec *c, const struct sg_row *row, const struct ptx_insn *p, struct sg_insn *in)
{
	uint32_t n = (uint32_t)strlen(row->sig);
	uint32_t *const slot[5] = { &in->d, &in->a, &in->b, &in->c, &in->e };
	if (p->n_operands != n)
		return DEC_UNSUPPORTED;
	uint8_t type = sg_dec_types(p, NULL);
	for (uint32_t i = 0; i < n; i++) {
		char cls = sig_class(row, i);
		if (cls == 'i') {
			if (p->operands[i].kind != PTX_OPERAND_INT)
				return DEC_UNSUPPORTED;
			in->imm = p->operands[i].value;
		} else if (i == 0) {
			TRY(sg_dec_dst(c, &p->operands[i], cls, slot[i]));
		} else {
			if (type == T_F32)
				cls = 'f';
			else if (type == T_F64)
				cls = 'd';
			TRY(sg_dec_src(c, &p->operands[i], cls, slot[i]));
		}
	}
	in->fn = row->fn;
	in->op = row->op;
	return DEC_OK;
}

/* -- mov --------------------------------------------------------------------- */

static enum sg_decoded mov_clock(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	const char *name = p->operands[1].name;
	bool timer = !strncmp(name, "%globaltimer", 12);
	if (!timer && strncmp(name, "%clock", 6))
		return DEC_UNSUPPORTED;
	in->fn = sg_mov_clock;
	in->op = timer;
	in->sub = !!strstr(name, "_hi");
	in->width = sg_type_bits(sg_dec_types(p, NULL)) == 64 ? 8 : 4;
	return sg_dec_dst(c, &p->operands[0], in->width == 8 ? '8' : '4', &in->d);
}

static uint32_t *vector_ops(struct sg_dec *c, const struct ptx_operand *o)
{
	return o->n_sub && o->n_sub <= 8 ? arena_array(c->arena, o->n_sub, sizeof(uint32_t)) : NULL;
}

/* d = {a, b, ...} or {a, b, ...} = d, of `bits` bits in all. */
static enum sg_decoded mov_vector(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in, uint32_t bits)
{
	bool pack = p->operands[1].kind == PTX_OPERAND_VECTOR;
	const struct ptx_operand *v = &p->operands[pack ? 1 : 0], *r = &p->operands[pack ? 0 : 1];
	uint32_t *list = vector_ops(c, v);
	if (!list || bits < 16 || bits % (8 * v->n_sub))
		return DEC_UNSUPPORTED;
	in->n = (uint8_t)v->n_sub;
	in->bytes = (uint8_t)(bits / 8 / v->n_sub);
	in->width = bits <= 32 ? 4 : bits == 64 ? 8 : 16;
	char whole = bits <= 32 ? '4' : bits == 64 ? '8' : 'x', part = in->bytes > 4 ? '8' : '4';
	if (in->bytes > 8)
		return DEC_UNSUPPORTED;
	for (uint32_t i = 0; i < v->n_sub; i++)
		TRY(pack ? sg_dec_src(c, &v->sub[i], part, &list[i])
			 : sg_dec_dst(c, &v->sub[i], part, &list[i]));
	in->list = list;
	in->fn = pack ? sg_mov_pack : sg_mov_unpack;
	return pack ? sg_dec_dst(c, r, whole, &in->d) : sg_dec_src(c, r, whole, &in->a);
}

/* The address of a shared or local variable, which differs by kernel or by frame. */
static enum sg_decoded variable_address(struct sg_dec *c, const struct ptx_operand *dst,
	const struct ptx_operand *src, struct sg_insn *in, uint32_t bits)
{
	struct ptx_operand o = {
		.kind = PTX_OPERAND_ADDRESS, .name = src->name, .value = src->value, .component = -1
	};
	TRY(sg_dec_address(c, &o, in));
	if (in->addr == SG_ADDR_REG)
		return DEC_UNSUPPORTED;
	in->fn = sg_mov_address;
	in->width = bits == 64 ? 8 : 4;
	return sg_dec_dst(c, dst, bits == 64 ? '8' : '4', &in->d);
}

static bool is_variable(struct sg_dec *c, const struct ptx_operand *o)
{
	if (o->kind != PTX_OPERAND_SYMBOL)
		return false;
	const struct sg_sym *s = sg_dec_find(c, o->name);
	const struct sg_var *v = s ? NULL : table_gets(c->m->vars, o->name);
	return s ? s->kind == SYM_LOCAL || s->kind == SYM_SHARED
		 : v && v->ptx->space == PTX_SPACE_SHARED;
}

static enum sg_decoded dec_mov(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint8_t type = sg_dec_types(p, NULL);
	uint32_t bits = sg_type_bits(type);
	if (p->n_operands != 2 || !bits)
		return DEC_UNSUPPORTED;
	if (type == T_PRED) {
		in->fn = sg_pred_logic;
		TRY(sg_dec_dst(c, &p->operands[0], 'p', &in->d));
		TRY(sg_dec_pred(c, &p->operands[1], in, SG_NOT_A, &in->a));
		in->b = in->a;
		return DEC_OK;
	}
	if (p->operands[0].kind == PTX_OPERAND_VECTOR || p->operands[1].kind == PTX_OPERAND_VECTOR)
		return mov_vector(c, p, in, bits);
	if (is_variable(c, &p->operands[1]))
		return variable_address(c, &p->operands[0], &p->operands[1], in, bits);
	if (p->operands[1].kind == PTX_OPERAND_REG && !sg_dec_register(c, p->operands[1].name) &&
		mov_clock(c, p, in) == DEC_OK)
		return DEC_OK;
	if (p->operands[1].kind == PTX_OPERAND_SYMBOL && sg_dec_func(c, p->operands[1].name) &&
		!sg_dec_note(c, &c->f->callees, &c->f->n_callees,
			sg_dec_func(c, p->operands[1].name)->index))
		return DEC_INVALID;
	if (bits == 128) {
		/* Two planes: as a pair of 64-bit moves packed into one. */
		struct sg_opnd d, a;
		TRY(sg_dec_reg(c, &p->operands[0], &d));
		TRY(sg_dec_reg(c, &p->operands[1], &a));
		uint32_t *list = arena_array(c->arena, 2, sizeof(*list));
		if (!list || d.width != 16 || a.width != 16)
			return DEC_UNSUPPORTED;
		list[0] = a.op;
		list[1] = a.op + 256;
		*in = (struct sg_insn){ .fn = sg_mov_pack,
			.d = d.op,
			.list = list,
			.n = 2,
			.bytes = 8,
			.width = 16,
			.line = in->line,
			.opcode = in->opcode };
		return DEC_OK;
	}
	char cls = sg_type_class(type);
	struct sg_opnd special;
	/* A 32-bit special register may be moved to a 64-bit one (%gridid, %clusterid in old code).
	 */
	if (bits == 64 && p->operands[1].kind == PTX_OPERAND_REG &&
		sg_dec_reg(c, &p->operands[1], &special) == DEC_OK && special.op >> 30 &&
		special.width == 4) {
		TRY(sg_dec_dst(c, &p->operands[0], '8', &in->d));
		in->a = special.op;
		in->fn = sg_cvt_fast(T_U64, T_U32, 8, 4);
		return DEC_OK;
	}
	if (bits == 32 && p->operands[1].kind == PTX_OPERAND_REG &&
		!strcmp(p->operands[1].name, "%gridid")) {
		TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
		TRY(sg_dec_reg(c, &p->operands[1], &special));
		in->a = special.op;
		in->fn = sg_cvt_fast(T_U32, T_U64, 4, 8);
		return DEC_OK;
	}
	in->fn = bits == 64 ? sg_mov64 : sg_mov32;
	TRY(sg_dec_dst(c, &p->operands[0], cls, &in->d));
	return sg_dec_src(c, &p->operands[1], cls, &in->a);
}

/* -- cvta, isspacep, cvt ------------------------------------------------------ */

/* The window a space has in the generic one; 0: it is device memory. */
static int64_t window_of(const struct ptx_insn *p, bool *known)
{
	*known = true;
	for (uint32_t i = 0; i < p->n_mods; i++) {
		const char *m = p->mods[i];
		if (!strcmp(m, "global"))
			return 0;
		if (!strcmp(m, "const"))
			return 1;
		if (!strncmp(m, "shared", 6))
			return SG_WIN_SHARED;
		if (!strcmp(m, "local"))
			return SG_WIN_LOCAL;
		if (!strncmp(m, "param", 5))
			return SG_WIN_PARAM;
	}
	*known = false;
	return 0;
}

static enum sg_decoded dec_cvta(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	bool known, to = ptx_insn_has_mod(p, "to");
	int64_t window = window_of(p, &known);
	uint32_t bits = sg_type_bits(sg_dec_types(p, NULL));
	if (!known || p->n_operands != 2 || bits != 64)
		return DEC_UNSUPPORTED;
	if (is_variable(c, &p->operands[1])) {
		if (!to)
			in->flags |= SG_SYNC;
		return variable_address(c, &p->operands[0], &p->operands[1], in, bits);
	}
	TRY(sg_dec_dst(c, &p->operands[0], '8', &in->d));
	TRY(sg_dec_src(c, &p->operands[1], '8', &in->a));
	in->fn = window > 1 ? sg_cvta : sg_mov64;
	in->imm = window;
	in->sub = to;
	in->width = 8;
	return DEC_OK;
}

static enum sg_decoded dec_isspacep(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	bool known;
	in->imm = window_of(p, &known);
	in->sub = ptx_insn_has_mod(p, "shared") || ptx_insn_has_mod(p, "shared::cta");
	if (!known || p->n_operands != 2)
		return DEC_UNSUPPORTED;
	in->fn = sg_isspacep;
	TRY(sg_dec_dst(c, &p->operands[0], 'p', &in->d));
	return sg_dec_src(c, &p->operands[1], '8', &in->a);
}

static bool cvt_mods(const struct ptx_insn *p, struct sg_insn *in)
{
	static const struct {
		const char *name;
		uint8_t rnd;
		uint32_t flag;
	} known[] = {
		{ "rn", SG_RN, 0 },
		{ "rz", SG_RZ, 0 },
		{ "rm", SG_RM, 0 },
		{ "rp", SG_RP, 0 },
		{ "rna", SG_RNA, 0 },
		{ "rni", SG_RNI, 0 },
		{ "rzi", SG_RZI, 0 },
		{ "rmi", SG_RMI, 0 },
		{ "rpi", SG_RPI, 0 },
		{ "ftz", 0, SG_FTZ },
		{ "sat", 0, SG_SAT },
		{ "relu", 0, SG_RELU },
		{ "satfinite", 0, SG_SATFINITE },
	};
	for (uint32_t i = 0; i < p->n_mods; i++) {
		bool found = sg_dec_type(p->mods[i]) != T_NONE;
		for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
			if (strcmp(known[k].name, p->mods[i]))
				continue;
			found = true;
			in->flags |= known[k].flag;
			if (!known[k].flag)
				in->rnd = known[k].rnd;
		}
		if (!found)
			return false;
	}
	return true;
}

static enum sg_decoded cvt_pair(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if ((in->type != T_F16X2 && in->type != T_BF16X2) || in->type2 != T_F32)
		return DEC_UNSUPPORTED;
	sg_handler fast = in->rnd == SG_RN && !in->flags ? sg_half_cvt(in->type, T_F32) : NULL;
	in->fn = fast ? fast : sg_cvt_pack;
	TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
	TRY(sg_dec_src(c, &p->operands[1], 'f', &in->a));
	return sg_dec_src(c, &p->operands[2], 'f', &in->b);
}

static bool is_fp8(uint8_t type)
{
	return type == T_E4M3X2 || type == T_E5M2X2;
}

static enum sg_decoded cvt_fp8(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	bool pair = in->type2 == T_F32;
	in->fn = sg_cvt_fp8;
	if (in->rnd != SG_RN || p->n_operands != (pair ? 3 : 2))
		return DEC_UNSUPPORTED;
	if (is_fp8(in->type) ? in->type2 != T_F32 && in->type2 != T_F16X2 : in->type != T_F16X2)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_dst(c, &p->operands[0], sg_type_class(in->type), &in->d));
	TRY(sg_dec_src(c, &p->operands[1], sg_type_class(in->type2), &in->a));
	in->b = in->a;
	return pair ? sg_dec_src(c, &p->operands[2], 'f', &in->b) : DEC_OK;
}

/* cvt.pack.sat.TYPE.s32{.b32} d, a, b{, c}: n bits of each. */
static enum sg_decoded cvt_saturate(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	const char *t = p->n_mods > 2 ? p->mods[2] : "";
	const char *digits = t + (*t != 0);
	in->n = !strcmp(digits, "16")  ? 16
		: !strcmp(digits, "8") ? 8
		: !strcmp(digits, "4") ? 4
		: !strcmp(digits, "2") ? 2
				       : 0;
	in->sub = *t == 's';
	in->fn = sg_cvt_saturate;
	if (!in->n || (*t != 's' && *t != 'u') || strcmp(p->mods[1], "sat") ||
		p->n_operands != (in->n == 16 ? 3 : 4))
		return DEC_UNSUPPORTED;
	TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
	TRY(sg_dec_src(c, &p->operands[1], '4', &in->a));
	TRY(sg_dec_src(c, &p->operands[2], '4', &in->b));
	in->c = in->a;
	return in->n == 16 ? DEC_OK : sg_dec_src(c, &p->operands[3], '4', &in->c);
}

static enum sg_decoded dec_cvt(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct sg_opnd d;
	uint8_t before, src_width;
	in->type2 = sg_dec_types(p, &before);
	in->type = before;
	if (ptx_insn_has_mod(p, "pack"))
		return cvt_saturate(c, p, in);
	if (!in->type || !cvt_mods(p, in))
		return DEC_UNSUPPORTED;
	if (is_fp8(in->type) || is_fp8(in->type2))
		return cvt_fp8(c, p, in);
	if (p->n_operands == 3)
		return cvt_pair(c, p, in);
	if (p->n_operands != 2 || in->type >= T_U16X2 || in->type2 >= T_U16X2 ||
		in->type == T_F16X2 || in->type == T_BF16X2 || in->type == T_B128)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_reg_written(c, &p->operands[0], &d));
	if (!d.width)
		d = (struct sg_opnd){ c->trash_reg, 8, 64, 'b' };
	if (d.op >> 30 || d.width < 4 || d.width > 8 || d.bits < sg_type_bits(in->type))
		return DEC_UNSUPPORTED;
	in->d = d.op;
	in->width = d.width;
	in->imm = d.bits;
	if (p->operands[1].kind == PTX_OPERAND_REG)
		TRY(sg_dec_any(
			c, &p->operands[1], (uint8_t)sg_type_bits(in->type2), &in->a, &src_width));
	else
		TRY(sg_dec_src(c, &p->operands[1], sg_type_class(in->type2), &in->a));
	if (p->operands[1].kind != PTX_OPERAND_REG)
		src_width = sg_type_bits(in->type2) == 64 ? 8 : 4;
	if (src_width > 8 || src_width * 8u < sg_type_bits(in->type2))
		return DEC_UNSUPPORTED;
	in->n = src_width;
	sg_handler fast = NULL;
	bool exact = d.bits == sg_type_bits(in->type);
	if (!in->flags &&
		(in->rnd == SG_RN || (!sg_type_float(in->type) && !sg_type_float(in->type2))) &&
		exact)
		fast = sg_cvt_fast(in->type, in->type2, d.width, src_width);
	if (!fast && !in->flags && in->rnd == SG_RZI && src_width == 4 && d.width == 4 && exact)
		fast = sg_cvt_truncate(in->type, in->type2);
	in->fn = fast ? fast : sg_cvt;
	return DEC_OK;
}

/* -- comparisons and selections ----------------------------------------------- */

static int cmp_of(const char *name)
{
	static const char *const names[] = { "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu",
		"ltu", "leu", "gtu", "geu", "num", "nan" };
	static const char *const unsigned_names[] = { "lo", "ls", "hi", "hs" };
	static const uint8_t unsigned_cmp[] = { SG_LT, SG_LE, SG_GT, SG_GE };
	for (int i = 0; i < SG_CMP_COUNT; i++)
		if (!strcmp(names[i], name))
			return i;
	for (int i = 0; i < 4; i++)
		if (!strcmp(unsigned_names[i], name))
			return unsigned_cmp[i];
	return -1;
}

static bool compare_mods(const struct ptx_insn *p, struct sg_insn *in, uint8_t type)
{
	int cmp = -1;
	for (uint32_t i = 0; i < p->n_mods; i++) {
		const char *m = p->mods[i];
		if (cmp < 0 && (cmp = cmp_of(m)) >= 0)
			continue;
		if (!strcmp(m, "and"))
			in->sub = 1;
		else if (!strcmp(m, "or"))
			in->sub = 2;
		else if (!strcmp(m, "xor"))
			in->sub = 3;
		else if (!strcmp(m, "ftz"))
			in->flags |= SG_FTZ;
		else if (!sg_dec_type(m))
			return false;
	}
	if (type == T_F64)
		in->flags &= ~(uint32_t)SG_FTZ;
	in->compare = cmp < 0 ? NULL : sg_compare_fn(type, (uint8_t)cmp);
	return in->compare != NULL;
}

static enum sg_decoded compare_sources(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	char cls = sg_type_class(in->type);
	TRY(sg_dec_src(c, &p->operands[1], cls, &in->a));
	TRY(sg_dec_src(c, &p->operands[2], cls, &in->b));
	if (!in->sub != (p->n_operands == 3))
		return DEC_UNSUPPORTED;
	return in->sub ? sg_dec_pred(c, &p->operands[3], in, SG_NOT_C, &in->c) : DEC_OK;
}

static enum sg_decoded dec_setp(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->type = sg_dec_types(p, NULL);
	bool pair = in->type == T_F16X2 || in->type == T_BF16X2;
	if (p->n_operands < 3 || p->n_operands > 4 || !compare_mods(p, in, in->type))
		return DEC_UNSUPPORTED;
	const struct ptx_operand *d = &p->operands[0];
	if (d->kind == PTX_OPERAND_PAIR) {
		TRY(sg_dec_dst(c, &d->sub[0], 'p', &in->d));
		TRY(sg_dec_dst(c, &d->sub[1], 'p', &in->d2));
		in->has = 1;
	} else {
		TRY(sg_dec_dst(c, d, 'p', &in->d));
		in->d2 = c->trash_pred;
	}
	in->fn = pair ? sg_setp_x2 : sg_setp;
	return compare_sources(c, p, in);
}

static enum sg_decoded dec_set(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint8_t dst;
	in->type = sg_dec_types(p, &dst);
	if (p->n_operands < 3 || p->n_operands > 4 || !dst || !compare_mods(p, in, in->type))
		return DEC_UNSUPPORTED;
	static const struct {
		uint8_t type;
		uint32_t value;
	} yes[] = { { T_F32, 0x3f800000 }, { T_F16, 0x3c00 }, { T_F16X2, 0x3c00 },
		{ T_BF16, 0x3f80 }, { T_BF16X2, 0x3f80 }, { T_U32, SG_FULL }, { T_S32, SG_FULL },
		{ T_U16, 0xffff }, { T_S16, 0xffff } };
	in->imm = -1;
	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		if (yes[i].type == dst)
			in->imm = yes[i].value;
	if (in->imm < 0)
		return DEC_UNSUPPORTED;
	in->fn = sg_set;
	TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
	return compare_sources(c, p, in);
}

static enum sg_decoded dec_selp(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint8_t type = sg_dec_types(p, NULL);
	uint32_t bits = sg_type_bits(type);
	if (p->n_operands != 4 || bits < 16 || bits > 64)
		return DEC_UNSUPPORTED;
	char cls = sg_type_class(type);
	in->fn = bits == 64 ? sg_selp64 : sg_selp32;
	TRY(sg_dec_dst(c, &p->operands[0], cls, &in->d));
	TRY(sg_dec_src(c, &p->operands[1], cls, &in->a));
	TRY(sg_dec_src(c, &p->operands[2], cls, &in->b));
	return sg_dec_pred(c, &p->operands[3], in, SG_NOT_C, &in->c);
}

static enum sg_decoded dec_slct(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint8_t type;
	in->type2 = sg_dec_types(p, &type);
	uint32_t bits = sg_type_bits(type);
	if (p->n_operands != 4 || bits < 16 || bits > 64)
		return DEC_UNSUPPORTED;
	char cls = sg_type_class(type);
	if (ptx_insn_has_mod(p, "ftz"))
		in->flags |= SG_FTZ;
	in->width = bits == 64 ? 8 : 4;
	in->fn = sg_slct;
	TRY(sg_dec_dst(c, &p->operands[0], cls, &in->d));
	TRY(sg_dec_src(c, &p->operands[1], cls, &in->a));
	TRY(sg_dec_src(c, &p->operands[2], cls, &in->b));
	return sg_dec_src(c, &p->operands[3], in->type2 == T_F32 ? 'f' : '4', &in->c);
}

/* and, or, xor, not of predicates; the other types have rows. */
static enum sg_decoded dec_logic(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	static const char *const names[] = { "", "and", "or", "xor", "not" };
	if (sg_dec_types(p, NULL) != T_PRED)
		return DEC_UNSUPPORTED;
	for (uint8_t i = 1; i < 5; i++)
		if (!strcmp(names[i], p->base))
			in->op = i;
	if (p->n_operands != (in->op == 4 ? 2 : 3))
		return DEC_UNSUPPORTED;
	in->fn = sg_pred_logic;
	TRY(sg_dec_dst(c, &p->operands[0], 'p', &in->d));
	TRY(sg_dec_pred(c, &p->operands[1], in, SG_NOT_A, &in->a));
	in->b = in->a;
	return in->op == 4 ? DEC_OK : sg_dec_pred(c, &p->operands[2], in, SG_NOT_C, &in->b);
}

/* -- control ------------------------------------------------------------------ */

static enum sg_decoded dec_bra(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if (p->n_operands != 1 || !p->operands[0].name)
		return DEC_UNSUPPORTED;
	in->fn = sg_bra;
	return sg_dec_label(c, p->operands[0].name, &in->target) ? DEC_OK : DEC_INVALID;
}

/* The .branchtargets, .calltargets or .callprototype statement of that name. */
static const struct ptx_stmt *find_table(const struct sg_dec *c, const char *name)
{
	const struct ptx_func *f = c->f->ptx;
	for (uint32_t i = 0; i < f->n_stmts; i++)
		if (f->stmts[i].kind == PTX_STMT_TABLE && f->stmts[i].name &&
			!strcmp(f->stmts[i].name, name))
			return &f->stmts[i];
	return NULL;
}

static enum sg_decoded dec_brx(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if (p->n_operands != 2 || !p->operands[1].name)
		return DEC_UNSUPPORTED;
	const struct ptx_stmt *t = find_table(c, p->operands[1].name);
	if (!t) {
		sg_dec_invalid(c, "branch table '%s' is not defined", p->operands[1].name);
		return DEC_INVALID;
	}
	uint32_t *list = arena_array(c->arena, t->n_targets + 1, sizeof(*list));
	if (!list)
		return DEC_INVALID;
	for (uint32_t i = 0; i < t->n_targets; i++)
		if (!sg_dec_label(c, t->targets[i], &list[i]))
			return DEC_INVALID;
	in->fn = sg_brx;
	in->list = list;
	in->imm = t->n_targets;
	return sg_dec_src(c, &p->operands[0], '4', &in->a);
}

static enum sg_decoded call_arg(struct sg_dec *c, const struct ptx_operand *o, struct sg_arg *a)
{
	const struct sg_sym *s = o->name ? sg_dec_find(c, o->name) : NULL;
	struct sg_opnd r;
	if (s && s->kind == SYM_PARAM) {
		*a = (struct sg_arg){ .offset = (uint32_t)s->at, .bytes = (uint32_t)s->bytes };
		return s->own && c->f->is_entry ? DEC_UNSUPPORTED : DEC_OK;
	}
	if (o->kind == PTX_OPERAND_INT || o->kind == PTX_OPERAND_FLOAT) {
		*a = (struct sg_arg){ .bytes = 8, .width = 8 };
		return sg_dec_src(c, o, '8', &a->reg);
	}
	TRY(sg_dec_reg(c, o, &r));
	if (!r.width)
		r.width = 8;
	if (r.width > 8)
		return DEC_UNSUPPORTED;
	*a = (struct sg_arg){ .reg = r.op, .width = r.width, .bytes = r.width };
	return DEC_OK;
}

static enum sg_decoded call_args(
	struct sg_dec *c, const struct ptx_operand *g, const struct sg_arg **out, uint32_t *n)
{
	struct sg_arg *args = arena_array(c->arena, g->n_sub + 1, sizeof(*args));
	if (!args)
		return DEC_INVALID;
	for (uint32_t i = 0; i < g->n_sub; i++)
		TRY(call_arg(c, &g->sub[i], &args[i]));
	*out = args;
	*n = g->n_sub;
	return DEC_OK;
}

static enum sg_decoded dec_call(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct sg_call *call = arena_alloc(c->arena, sizeof(*call));
	uint32_t i = 0;
	if (!call)
		return DEC_INVALID;
	if (i < p->n_operands && p->operands[i].kind == PTX_OPERAND_GROUP)
		TRY(call_args(c, &p->operands[i++], &call->rets, &call->n_rets));
	if (i >= p->n_operands || !p->operands[i].name)
		return DEC_UNSUPPORTED;
	const struct ptx_operand *callee = &p->operands[i++];
	if (i < p->n_operands && p->operands[i].kind == PTX_OPERAND_GROUP)
		TRY(call_args(c, &p->operands[i++], &call->args, &call->n_args));
	in->fn = sg_call;
	in->list = (const uint32_t *)(const void *)call;
	const struct sg_func *f =
		callee->kind == PTX_OPERAND_SYMBOL ? sg_dec_func(c, callee->name) : NULL;
	if (f) {
		in->target = f->index;
		return sg_dec_note(c, &c->f->callees, &c->f->n_callees, f->index) ? DEC_OK
										  : DEC_INVALID;
	}
	if (callee->kind == PTX_OPERAND_SYMBOL && !sg_dec_register(c, callee->name)) {
		sg_dec_invalid(c, "function '%s' is not declared", callee->name);
		return DEC_INVALID;
	}
	in->flags |= SG_CALL_INDIRECT;
	c->f->calls_pointer = true;
	return sg_dec_src(c, callee, '8', &in->a);
}

static enum sg_decoded dec_ret(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_ret;
	return DEC_OK;
}

static enum sg_decoded dec_exit(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_exit;
	return DEC_OK;
}

static enum sg_decoded dec_trap(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_trap;
	return DEC_OK;
}

static enum sg_decoded dec_nop(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_nop;
	return DEC_OK;
}

static enum sg_decoded dec_yield(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_yield;
	return DEC_OK;
}

/* lop3.and.b32 d|p, a, b, c, table, q; the plain form has a row. */
static enum sg_decoded dec_lop3(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	const struct ptx_operand *d = &p->operands[0];
	in->sub = ptx_insn_has_mod(p, "and") ? 1 : ptx_insn_has_mod(p, "or") ? 2 : 0;
	if (!in->sub || p->n_operands != 6 || d->kind != PTX_OPERAND_PAIR ||
		p->operands[4].kind != PTX_OPERAND_INT)
		return DEC_UNSUPPORTED;
	in->fn = sg_lop3_pred;
	in->imm = p->operands[4].value;
	TRY(sg_dec_dst(c, &d->sub[0], '4', &in->d));
	TRY(sg_dec_dst(c, &d->sub[1], 'p', &in->d2));
	TRY(sg_dec_src(c, &p->operands[1], '4', &in->a));
	TRY(sg_dec_src(c, &p->operands[2], '4', &in->b));
	TRY(sg_dec_src(c, &p->operands[3], '4', &in->c));
	return sg_dec_pred(c, &p->operands[5], in, SG_NOT_C, &in->e);
}

static const struct sg_decoder_row decoders[] = {
	{ "lop3", dec_lop3 },
	{ "mov", dec_mov },
	{ "cvta", dec_cvta },
	{ "isspacep", dec_isspacep },
	{ "cvt", dec_cvt },
	{ "setp", dec_setp },
	{ "set", dec_set },
	{ "selp", dec_selp },
	{ "slct", dec_slct },
	{ "and", dec_logic },
	{ "or", dec_logic },
	{ "xor", dec_logic },
	{ "not", dec_logic },
	{ "bra", dec_bra },
	{ "brx", dec_brx },
	{ "call", dec_call },
	{ "ret", dec_ret },
	{ "exit", dec_exit },
	{ "trap", dec_trap },
	{ "brkpt", dec_nop },
	{ "nanosleep", dec_yield },
	{ "prefetch", dec_nop },
	{ "prefetchu", dec_nop },
	{ "discard", dec_nop },
	{ "applypriority", dec_nop },
	{ "pmevent", dec_nop },
	{ "griddepcontrol", dec_nop },
	{ "setmaxnreg", dec_nop },
};

static sg_decoder find_decoder(const struct sg_decoder_row *rows, size_t n, const char *base)
{
	for (size_t i = 0; i < n && rows[i].base; i++)
		if (!strcmp(rows[i].base, base))
			return rows[i].fn;
	return NULL;
}

enum sg_decoded sg_dec_insn(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	const struct sg_row *row = table_gets(c->rows, p->opcode);
	if (row)
		return by_row(c, row, p, in);
	sg_decoder fn = find_decoder(decoders, sizeof(decoders) / sizeof(decoders[0]), p->base);
	if (!fn && p->base[0] == 'v' && strcmp(p->base, "vote"))
		fn = sg_dec_video;
	if (!fn)
		fn = find_decoder(sg_mem_decoders, SIZE_MAX, p->base);
	if (!fn)
		fn = find_decoder(sg_float_decoders, SIZE_MAX, p->base);
	if (!fn)
		fn = find_decoder(sg_sync_decoders, SIZE_MAX, p->base);
	if (!fn)
		fn = find_decoder(sg_mma_decoders, SIZE_MAX, p->base);
	if (!fn)
		fn = find_decoder(sg_tex_decoders, SIZE_MAX, p->base);
	return fn ? fn(c, p, in) : DEC_UNSUPPORTED;
}
