/* decode_mem.c - loads, stores, atomics, copies, fences. */
#include "softgpu/decode.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	uint8_t space;
} spaces[] = {
	{ "global", SP_GLOBAL },
	{ "const", SP_GLOBAL },
	{ "shared", SP_SHARED },
	{ "shared::cta", SP_SHARED },
	{ "shared::cluster", SP_SHARED },
	{ "local", SP_LOCAL },
};

/* Modifiers of an access: space, vector, ordering. What only hints at caching is passed over. */
static void access_mods(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->n = 1;
	for (uint32_t i = 0; i < p->n_mods; i++) {
		const char *m = p->mods[i];
		for (size_t k = 0; k < sizeof(spaces) / sizeof(spaces[0]); k++)
			if (!strcmp(m, spaces[k].name))
				in->space = spaces[k].space;
		if (!strcmp(m, "param"))
			in->space = c->f->is_entry ? SP_KERNEL_PARAM : SP_FRAME_PARAM;
		else if (!strcmp(m, "param::entry"))
			in->space = SP_KERNEL_PARAM;
		else if (!strcmp(m, "param::func"))
			in->space = SP_FRAME_PARAM;
		else if (m[0] == 'v' && m[1] >= '1' && m[1] <= '9' && !m[2])
			in->n = (uint8_t)(m[1] - '0');
		else if (!strcmp(m, "volatile") || !strcmp(m, "relaxed") || !strcmp(m, "mmio"))
			in->flags |= SG_SPIN;
		else if (!strcmp(m, "acquire"))
			in->flags |= SG_SPIN | SG_ACQUIRE;
		else if (!strcmp(m, "release") || !strcmp(m, "acq_rel"))
			in->flags |= SG_RELEASE;
	}
	in->type = sg_dec_types(p, NULL);
	in->bytes = (uint8_t)(sg_type_bits(in->type) / 8);
}

/* The data operand of a load or store as a list of n registers with lanes of one width. */
static enum sg_decoded data_list(
	struct sg_dec *c, const struct ptx_operand *o, struct sg_insn *in, bool store)
{
	const struct ptx_operand *sub = o->kind == PTX_OPERAND_VECTOR ? o->sub : o;
	uint32_t n = o->kind == PTX_OPERAND_VECTOR ? o->n_sub : 1;
	uint32_t *list = arena_array(c->arena, in->n, sizeof(*list));
	struct sg_opnd whole;
	if (!list)
		return DEC_INVALID;
	in->list = list;
	/* A vector register stands for its elements. */
	if (n == 1 && in->n > 1 && o->kind == PTX_OPERAND_REG) {
		struct ptx_operand e = *o;
		for (uint32_t i = 0; i < in->n; i++) {
			e.component = (int8_t)i;
			TRY(sg_dec_reg(c, &e, &whole));
			list[i] = whole.op;
			in->width = whole.width;
			in->reg_bits = whole.bits;
		}
		return whole.width >= 4 ? DEC_OK : DEC_UNSUPPORTED;
	}
	if (n != in->n)
		return DEC_UNSUPPORTED;
	bool any = false;
	for (uint32_t i = 0; i < n; i++) {
		struct sg_opnd r = { 0 };
		if (sub[i].kind != PTX_OPERAND_REG)
			continue;
		TRY(store ? sg_dec_reg(c, &sub[i], &r) : sg_dec_reg_written(c, &sub[i], &r));
		list[i] = r.op;
		if (!r.width)
			continue;
		if (r.width < 4 || (any && r.width != in->width) || (!store && r.op >> 30))
			return DEC_UNSUPPORTED;
		any = true;
		in->width = r.width;
		in->reg_bits = r.bits;
	}
	if (!any) {
		in->width = in->bytes > 4 ? 8 : 4;
		in->reg_bits = in->bytes * 8;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (sub[i].kind == PTX_OPERAND_REG)
			continue;
		if (!store)
			return DEC_UNSUPPORTED;
		/* Literals take the lanes that the registers have. */
		char cls = in->type == T_F32   ? 'f'
			   : in->type == T_F64 ? 'd'
			   : in->width == 8    ? '8'
					       : '4';
		TRY(sg_dec_src(c, &sub[i], cls, &list[i]));
	}
	return in->width * 8u >= in->bytes * 8u ? DEC_OK : DEC_UNSUPPORTED;
}

static sg_handler fast_load(const struct sg_dec *c, const struct sg_insn *in, bool store)
{
	if (c->m->dev->check)
		return NULL;
	bool plain = in->n == 1 && in->addr == SG_ADDR_REG && in->width == in->bytes &&
		     in->space == SP_GLOBAL &&
		     !(in->flags & (SG_BASE32 | SG_SPIN | SG_ACQUIRE | SG_RELEASE));
	if (!plain || (in->bytes != 4 && in->bytes != 8))
		return NULL;
	if (store)
		return in->bytes == 4 ? sg_store_global32 : sg_store_global64;
	return in->bytes == 4 ? sg_load_global32 : sg_load_global64;
}

static bool vector_fits(const struct sg_insn *in)
{
	uint32_t bytes = (uint32_t)in->n * in->bytes;
	return in->bytes && bytes <= 32 && !(bytes & (bytes - 1));
}

/* ld and st are volatile or ordered in memory that others can see: global, shared, generic (PTX ISA, ld). */
static bool order_allowed(struct sg_dec *c, const struct ptx_insn *p)
{
	static const char *const orders[] = { "volatile", "relaxed", "acquire", "release", "mmio" };
	static const char *const private[] = { "local", "const", "param", "param::entry", "param::func" };
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		for (size_t k = 0; k < sizeof(private) / sizeof(private[0]); k++)
			if (ptx_insn_has_mod(p, orders[i]) && ptx_insn_has_mod(p, private[k]))
				return sg_dec_invalid(c, "'.%s' cannot be applied to the .%s space", orders[i], private[k]);
	return true;
}

static enum sg_decoded dec_ld(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	/* A third operand is a cache policy. */
	if (p->n_operands < 2 || p->n_operands > 3)
		return DEC_UNSUPPORTED;
	if (!order_allowed(c, p))
		return DEC_INVALID;
	access_mods(c, p, in);
	if (!vector_fits(in))
		return DEC_UNSUPPORTED;
	TRY(data_list(c, &p->operands[0], in, false));
	in->d = in->list[0];
	TRY(sg_dec_address(c, &p->operands[1], in));
	bool constant = in->addr == SG_ADDR_REG && in->a >> 30 == 1 &&
			p->operands[1].kind == PTX_OPERAND_ADDRESS;
	in->fn = sg_load;
	if (in->space == SP_KERNEL_PARAM && constant && in->n == 1 && in->bytes <= 8) {
		const struct sg_sym *s =
			p->operands[1].name ? sg_dec_find(c, p->operands[1].name) : NULL;
		if (s && s->kind == SYM_PARAM) {
			in->imm += (int64_t)s->at;
			in->fn = sg_load_param;
			return DEC_OK;
		}
	}
	sg_handler fast = fast_load(c, in, false);
	if (fast)
		in->fn = fast;
	return DEC_OK;
}

/* st.async and red.async: [address], value, [mbarrier], both in a block of the cluster. */
static enum sg_decoded store_async(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in, bool red)
{
	struct sg_bulk *b = arena_alloc(c->arena, sizeof(*b));
	if (!b)
		return DEC_INVALID;
	memset(b, 0, sizeof(*b));
	access_mods(c, p, in);
	if (!ptx_insn_has_mod(p, "shared::cluster") || p->n_operands != 3 || in->bytes < 4 ||
		in->bytes > 8 || in->n > 4 || !vector_fits(in))
		return DEC_UNSUPPORTED;
	const struct ptx_operand *v = &p->operands[1],
				 *sub = v->kind == PTX_OPERAND_VECTOR ? v->sub : v;
	if ((v->kind == PTX_OPERAND_VECTOR ? v->n_sub : 1) != in->n)
		return DEC_UNSUPPORTED;
	for (uint32_t i = 0; i < in->n; i++)
		TRY(sg_dec_src(c, &sub[i], sg_type_class(in->type), &b->values[i]));
	b->dst.space = b->bar.space = SP_SHARED;
	in->flags = 0;
	in->sub = red;
	in->width = in->bytes;
	in->fn = sg_store_async;
	in->list = (const uint32_t *)(const void *)b;
	TRY(sg_dec_address(c, &p->operands[0], &b->dst));
	return sg_dec_address(c, &p->operands[2], &b->bar);
}

static enum sg_decoded dec_st(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if (ptx_insn_has_mod(p, "async"))
		return store_async(c, p, in, false);
	if (ptx_insn_has_mod(p, "bulk"))
		return DEC_UNSUPPORTED;
	if (p->n_operands < 2 || p->n_operands > 3)
		return DEC_UNSUPPORTED;
	if (!order_allowed(c, p))
		return DEC_INVALID;
	access_mods(c, p, in);
	if (!vector_fits(in))
		return DEC_UNSUPPORTED;
	TRY(sg_dec_address(c, &p->operands[0], in));
	if (in->space == SP_KERNEL_PARAM)
		return DEC_UNSUPPORTED;
	TRY(data_list(c, &p->operands[1], in, true));
	in->b = in->list[0];
	sg_handler fast = fast_load(c, in, true);
	in->fn = fast ? fast : sg_store;
	return DEC_OK;
}

/* -- atom, red ----------------------------------------------------------------- */

static const struct {
	const char *name;
	uint8_t op;
} atoms[] = {
	{ "add", SG_A_ADD },
	{ "min", SG_A_MIN },
	{ "max", SG_A_MAX },
	{ "inc", SG_A_INC },
	{ "dec", SG_A_DEC },
	{ "and", SG_A_AND },
	{ "or", SG_A_OR },
	{ "xor", SG_A_XOR },
	{ "exch", SG_A_EXCH },
	{ "cas", SG_A_CAS },
};

static bool atom_op(const struct ptx_insn *p, uint8_t *op)
{
	for (uint32_t i = 0; i < p->n_mods; i++)
		for (size_t k = 0; k < sizeof(atoms) / sizeof(atoms[0]); k++)
			if (!strcmp(atoms[k].name, p->mods[i])) {
				*op = atoms[k].op;
				return true;
			}
	return false;
}

static bool atom_type_ok(const struct sg_insn *in)
{
	bool is_float = sg_type_float(in->type);
	bool half = in->type >= T_F16 && in->type <= T_BF16X2;
	if (in->bytes == 16)
		return in->n == 1 && (in->op == SG_A_EXCH || in->op == SG_A_CAS);
	if (in->bytes != 2 && in->bytes != 4 && in->bytes != 8)
		return false;
	if (in->op == SG_A_INC || in->op == SG_A_DEC)
		return in->type == T_U32;
	if (is_float)
		return in->op == SG_A_ADD || (half && (in->op == SG_A_MIN || in->op == SG_A_MAX));
	return true;
}

static enum sg_decoded atom_vector(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in, bool red)
{
	uint32_t *list = arena_array(c->arena, in->n * 2u, sizeof(*list));
	char cls = sg_type_class(in->type);
	const struct ptx_operand *d = &p->operands[0], *s = &p->operands[red ? 1 : 2];
	if (!list || s->kind != PTX_OPERAND_VECTOR || s->n_sub != in->n ||
		(!red && (d->kind != PTX_OPERAND_VECTOR || d->n_sub != in->n)))
		return DEC_UNSUPPORTED;
	for (uint32_t i = 0; i < in->n; i++) {
		if (!red)
			TRY(sg_dec_dst(c, &d->sub[i], cls, &list[i]));
		TRY(sg_dec_src(c, &s->sub[i], cls, &list[i + (red ? 0 : in->n)]));
	}
	in->list = list;
	return DEC_OK;
}

static enum sg_decoded dec_atom(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	bool red = !strcmp(p->base, "red");
	uint32_t at = red ? 0 : 1;
	access_mods(c, p, in);
	in->sub = (in->flags & SG_ACQUIRE || ptx_insn_has_mod(p, "acq_rel") ? SG_ACQUIRES | SG_ALWAYS : 0) |
		  (in->flags & SG_RELEASE ? SG_RELEASES | SG_ALWAYS : 0);
	in->flags &= ~(uint32_t)(SG_SPIN | SG_ACQUIRE | SG_RELEASE);
	if (ptx_insn_has_mod(p, "async"))
		return atom_op(p, &in->op) && atom_type_ok(in) ? store_async(c, p, in, true)
							       : DEC_UNSUPPORTED;
	if (!atom_op(p, &in->op) || !atom_type_ok(in) ||
		!vector_fits(in))
		return DEC_UNSUPPORTED;
	if (p->n_operands < at + 2)
		return DEC_UNSUPPORTED;
	char cls = sg_type_class(in->type);
	in->width = in->bytes == 8 ? 8 : 4;
	in->fn = in->bytes == 16 ? sg_atom128 : sg_atom;
	in->has = !red;
	if (!red)
		in->flags |= SG_SPIN;
	TRY(sg_dec_address(c, &p->operands[at], in));
	if (in->space == SP_KERNEL_PARAM || in->space == SP_FRAME_PARAM)
		return DEC_UNSUPPORTED;
	if (in->n > 1)
		return atom_vector(c, p, in, red);
	if (!red)
		TRY(sg_dec_dst(c, &p->operands[0], cls, &in->d));
	TRY(sg_dec_src(c, &p->operands[at + 1], cls, &in->b));
	if (in->op == SG_A_CAS) {
		if (p->n_operands < at + 3)
			return DEC_UNSUPPORTED;
		TRY(sg_dec_src(c, &p->operands[at + 2], cls, &in->c));
	}
	return DEC_OK;
}

/* -- cp.async, mbarrier, fences, mapa ------------------------------------------ */

static enum sg_decoded dec_fence(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_fence;
	return DEC_OK;
}

/* An address that is used as a plain value: base in *op, offset in *imm. */
static enum sg_decoded address_value(
	struct sg_dec *c, const struct ptx_operand *o, uint32_t *op, uint32_t *imm)
{
	struct sg_insn t = { .space = SP_GLOBAL };
	TRY(sg_dec_address(c, o, &t));
	if (t.addr != SG_ADDR_REG || t.flags & SG_BASE32 || t.imm != (int32_t)t.imm)
		return DEC_UNSUPPORTED;
	*op = t.a;
	*imm = (uint32_t)t.imm;
	return DEC_OK;
}

static enum sg_decoded dec_cp(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct sg_opnd r;
	if (ptx_insn_has_mod(p, "bulk"))
		return sg_dec_bulk(c, p, in);
	if (p->n_mods < 2 || strcmp(p->mods[0], "async"))
		return DEC_UNSUPPORTED;
	if (!strcmp(p->mods[1], "commit_group") || !strcmp(p->mods[1], "wait_group") ||
		!strcmp(p->mods[1], "wait_all")) {
		in->fn = sg_nop;
		return DEC_OK;
	}
	if (!strcmp(p->mods[1], "mbarrier")) {
		/* The copies are done already: the arrival adds one and takes it away again, but
		 * for .noinc. */
		in->fn = ptx_insn_has_mod(p, "noinc") ? sg_mbarrier : sg_nop;
		in->op = 2;
		access_mods(c, p, in);
		return p->n_operands == 1 ? sg_dec_address(c, &p->operands[0], in)
					  : DEC_UNSUPPORTED;
	}
	if ((strcmp(p->mods[1], "ca") && strcmp(p->mods[1], "cg")) || p->n_operands < 3 ||
		p->operands[2].kind != PTX_OPERAND_INT)
		return DEC_UNSUPPORTED;
	int64_t n = p->operands[2].value;
	if (n != 4 && n != 8 && n != 16)
		return DEC_UNSUPPORTED;
	in->n = (uint8_t)n;
	in->space = SP_SHARED;
	in->fn = sg_cp_async;
	TRY(sg_dec_address(c, &p->operands[0], in));
	TRY(address_value(c, &p->operands[1], &in->b, &in->e));
	for (uint32_t i = 3; i < p->n_operands; i++) {
		if (p->operands[i].kind == PTX_OPERAND_REG)
			TRY(sg_dec_reg(c, &p->operands[i], &r));
		else
			r.width = 4;
		if (r.width == 4) {
			in->has |= 1;
			TRY(sg_dec_src(c, &p->operands[i], '4', &in->c));
		} else if (r.width == 1) {
			in->has |= 2;
			TRY(sg_dec_src(c, &p->operands[i], 'p', &in->d2));
		}
	}
	return DEC_OK;
}

static enum sg_decoded dec_mapa(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint32_t bits = sg_type_bits(sg_dec_types(p, NULL));
	char cls = bits == 64 ? '8' : '4';
	if (p->n_operands != 3)
		return DEC_UNSUPPORTED;
	in->fn = sg_mapa;
	in->width = bits == 64 ? 8 : 4;
	TRY(sg_dec_dst(c, &p->operands[0], cls, &in->d));
	TRY(sg_dec_src(c, &p->operands[1], cls, &in->a));
	return sg_dec_src(c, &p->operands[2], '4', &in->b);
}

static enum sg_decoded dec_ctarank(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint32_t bits = sg_type_bits(sg_dec_types(p, NULL));
	if (p->n_operands != 2)
		return DEC_UNSUPPORTED;
	in->fn = sg_ctarank;
	in->width = bits == 64 ? 8 : 4;
	TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
	return sg_dec_src(c, &p->operands[1], bits == 64 ? '8' : '4', &in->a);
}

/* Numbers as in exec_atom.c. */
static const struct {
	const char *name;
	uint8_t op;
} mbarriers[] = { { "init", 0 }, { "inval", 1 }, { "arrive", 2 }, { "arrive_drop", 3 },
	{ "test_wait", 4 }, { "try_wait", 4 }, { "expect_tx", 6 }, { "complete_tx", 7 } };

static enum sg_decoded dec_mbarrier(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint32_t at = 0;
	access_mods(c, p, in);
	in->flags &= ~(uint32_t)(SG_SPIN | SG_ACQUIRE | SG_RELEASE);
	if (p->n_mods && !strcmp(p->mods[0], "pending_count")) {
		if (p->n_operands != 2)
			return DEC_UNSUPPORTED;
		in->fn = sg_mbarrier_pending;
		TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
		return sg_dec_src(c, &p->operands[1], '8', &in->a);
	}
	in->op = 255;
	for (size_t k = 0; k < sizeof(mbarriers) / sizeof(mbarriers[0]) && p->n_mods; k++)
		if (!strcmp(p->mods[0], mbarriers[k].name))
			in->op = mbarriers[k].op;
	if (in->op == 255)
		return DEC_UNSUPPORTED;
	bool arrive = in->op == 2 || in->op == 3;
	if (ptx_insn_has_mod(p, "parity"))
		in->op = 5;
	if (arrive && ptx_insn_has_mod(p, "expect_tx"))
		in->op = in->op == 2 ? 9 : 10;
	in->fn = sg_mbarrier;
	in->width = in->op == 4 ? 8 : 4;
	if (arrive && p->operands[0].kind == PTX_OPERAND_REG) {
		TRY(sg_dec_dst(c, &p->operands[at++], '8', &in->d));
		in->has |= 1;
	} else if (in->op == 4 || in->op == 5) {
		TRY(sg_dec_dst(c, &p->operands[at++], 'p', &in->d));
	}
	if (at >= p->n_operands)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_address(c, &p->operands[at++], in));
	if (in->op == 9 || in->op == 10) {
		in->has &= ~2;
		return at < p->n_operands ? sg_dec_src(c, &p->operands[at], '4', &in->c)
					  : DEC_UNSUPPORTED;
	}
	if (at < p->n_operands) {
		in->has |= 2;
		TRY(sg_dec_src(c, &p->operands[at], in->width == 8 ? '8' : '4', &in->b));
	}
	return DEC_OK;
}

/* -- createpolicy: a cache policy is a number that nothing here looks at -------------------- */

static enum sg_decoded dec_createpolicy(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if (p->n_operands < 2)
		return DEC_UNSUPPORTED;
	in->fn = sg_mov64;
	in->a = sg_dec_const(c, 1ull << 60, 8);
	return sg_dec_dst(c, &p->operands[0], '8', &in->d);
}

/* -- alloca, stacksave, stackrestore ---------------------------------------------------------- */

static enum sg_decoded dec_stack(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	bool take = !strcmp(p->base, "alloca"), save = !strcmp(p->base, "stacksave");
	uint32_t bits = sg_type_bits(sg_dec_types(p, NULL));
	char cls = bits == 64 ? '8' : '4';
	if ((bits != 32 && bits != 64) || p->n_operands < (take ? 2u : 1u) ||
		p->n_operands > (take ? 3u : 1u))
		return DEC_UNSUPPORTED;
	in->width = (uint8_t)(bits / 8);
	in->fn = take ? sg_alloca : save ? sg_stacksave : sg_stackrestore;
	in->imm = 16; /* at least 8, without the third operand */
	if (p->n_operands == 3) {
		in->imm = p->operands[2].value;
		if (p->operands[2].kind != PTX_OPERAND_INT || in->imm < 1 || in->imm > 1 << 19 ||
			in->imm & (in->imm - 1))
			return DEC_UNSUPPORTED;
	}
	if (take || save)
		TRY(sg_dec_dst(c, &p->operands[0], cls, &in->d));
	return save ? DEC_OK : sg_dec_src(c, &p->operands[take ? 1 : 0], cls, &in->a);
}

const struct sg_decoder_row sg_mem_decoders[] = {
	{ "createpolicy", dec_createpolicy },
	{ "alloca", dec_stack },
	{ "stacksave", dec_stack },
	{ "stackrestore", dec_stack },
	{ "ld", dec_ld },
	{ "ldu", dec_ld },
	{ "st", dec_st },
	{ "atom", dec_atom },
	{ "red", dec_atom },
	{ "membar", dec_fence },
	{ "fence", dec_fence },
	{ "cp", dec_cp },
	{ "mapa", dec_mapa },
	{ "getctarank", dec_ctarank },
	{ "mbarrier", dec_mbarrier },
	{ NULL, NULL },
};
