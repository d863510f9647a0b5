/* decode_operand.c - operands: registers, literals, symbols and addresses. */
#include "softgpu/decode.h"

#include <stdlib.h>
#include <string.h>

struct special {
	const char *name;
	uint8_t base, slot, width, bits;
};

#define W(name, slot)                                                                              \
	{                                                                                          \
		name, 2, slot, 4, 32                                                               \
	}
#define B(name, slot)                                                                              \
	{                                                                                          \
		name, 3, slot, 4, 32                                                               \
	}
static const struct special specials[] = {
	W("%tid.x", SG_S_TIDX),
	W("%tid.y", SG_S_TIDY),
	W("%tid.z", SG_S_TIDZ),
	W("%warpid", SG_S_WARPID),
	B("%ntid.x", SG_B_NTIDX),
	B("%ntid.y", SG_B_NTIDY),
	B("%ntid.z", SG_B_NTIDZ),
	B("%ctaid.x", SG_B_CTAIDX),
	B("%ctaid.y", SG_B_CTAIDY),
	B("%ctaid.z", SG_B_CTAIDZ),
	B("%nctaid.x", SG_B_NCTAIDX),
	B("%nctaid.y", SG_B_NCTAIDY),
	B("%nctaid.z", SG_B_NCTAIDZ),
	B("%laneid", SG_B_LANEID),
	B("%nwarpid", SG_B_NWARPID),
	B("%smid", SG_B_SMID),
	B("%nsmid", SG_B_NSMID),
	{ "%gridid", 3, SG_B_GRIDID, 8, 64 },
	B("%lanemask_eq", SG_B_LM_EQ),
	B("%lanemask_le", SG_B_LM_LE),
	B("%lanemask_lt", SG_B_LM_LT),
	B("%lanemask_ge", SG_B_LM_GE),
	B("%lanemask_gt", SG_B_LM_GT),
	B("%dynamic_smem_size", SG_B_DYN_SMEM),
	B("%total_smem_size", SG_B_TOTAL_SMEM),
	B("%aggr_smem_size", SG_B_TOTAL_SMEM),
	B("%clusterid.x", SG_B_CLUSTERX),
	B("%clusterid.y", SG_B_CLUSTERY),
	B("%clusterid.z", SG_B_CLUSTERZ),
	B("%nclusterid.x", SG_B_NCLUSTERX),
	B("%nclusterid.y", SG_B_NCLUSTERY),
	B("%nclusterid.z", SG_B_NCLUSTERZ),
	B("%cluster_ctaid.x", SG_B_CCTAIDX),
	B("%cluster_ctaid.y", SG_B_CCTAIDY),
	B("%cluster_ctaid.z", SG_B_CCTAIDZ),
	B("%cluster_nctaid.x", SG_B_CNCTAIDX),
	B("%cluster_nctaid.y", SG_B_CNCTAIDY),
	B("%cluster_nctaid.z", SG_B_CNCTAIDZ),
	B("%cluster_ctarank", SG_B_CRANK),
	B("%cluster_nctarank", SG_B_CNRANK),
	{ "%current_graph_exec", 3, SG_B_ZERO, 8, 64 }, /* no graph launches from the device */
	{ "%is_explicit_cluster", 3, SG_B_EXPLICIT_CLUSTER, 1, 1 },
	B("%envreg1", SG_B_ENVREG1),
	B("%envreg2", SG_B_ENVREG2),
	B("%tid.w", SG_B_ZERO),
	B("%ntid.w", SG_B_ZERO),
	B("%ctaid.w", SG_B_ZERO),
	B("%nctaid.w", SG_B_ZERO),
	B("%reserved_smem_offset_begin", SG_B_ZERO),
	B("%reserved_smem_offset_end", SG_B_ZERO),
	B("%reserved_smem_offset_cap", SG_B_ZERO),
	B("%reserved_smem_offset_0", SG_B_ZERO),
	B("%reserved_smem_offset_1", SG_B_ZERO),
};

static bool find_special(const char *name, struct sg_opnd *out)
{
	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
		const struct special *s = &specials[i];
		if (strcmp(s->name, name))
			continue;
		*out = (struct sg_opnd){ (uint32_t)s->base << 30 | (uint32_t)s->slot * 128,
			s->width, s->bits, 'u' };
		return true;
	}
	if (strncmp(name, "%envreg", 7) && strncmp(name, "%pm", 3))
		return false;
	bool wide = strstr(name, "_64");
	*out = (struct sg_opnd){ 3u << 30 | SG_B_ZERO * 128, wide ? 8 : 4, wide ? 64 : 32, 'u' };
	return true;
}

uint32_t sg_dec_const(struct sg_dec *c, uint64_t bits, uint8_t width)
{
	struct {
		uint64_t bits, width;
	} key = { width == 8 ? bits : (uint32_t)bits, width };
	uintptr_t known = (uintptr_t)table_get(c->consts, &key, sizeof(key));
	if (known)
		return 1u << 30 | (uint32_t)(known - 1);
	size_t at = c->pool.len;
	for (int i = 0; i < 32; i++)
		buf_add(&c->pool, &key.bits, width);
	if (c->pool.failed || c->pool.len >= 1u << 29 ||
		table_put(c->consts, &key, sizeof(key), (void *)(at + 1)))
		c->error = CUDA_ERROR_OUT_OF_MEMORY;
	return 1u << 30 | (uint32_t)at;
}

static uint8_t lane_width(uint32_t bits)
{
	return bits == 1 ? 1 : bits <= 32 ? 4 : bits <= 64 ? 8 : 16;
}

enum sg_decoded sg_dec_reg(struct sg_dec *c, const struct ptx_operand *o, struct sg_opnd *out)
{
	if (o->kind != PTX_OPERAND_REG && o->kind != PTX_OPERAND_SYMBOL)
		return DEC_UNSUPPORTED;
	if (!strcmp(o->name, "_")) {
		*out = (struct sg_opnd){ c->trash_reg, 0, 0, 'b' };
		return DEC_OK;
	}
	struct sg_sym *s = sg_dec_register(c, o->name);
	if (!s) {
		if (o->name[0] == '%' && find_special(o->name, out))
			return DEC_OK;
		if (o->name[0] == '%' &&
			(!strncmp(o->name, "%clock", 6) || !strncmp(o->name, "%globaltimer", 12)))
			return DEC_UNSUPPORTED;
		if (o->kind == PTX_OPERAND_SYMBOL)
			return DEC_UNSUPPORTED;
		sg_dec_invalid(c, "register '%s' is not declared", o->name);
		return DEC_INVALID;
	}
	uint8_t width = lane_width(s->type.bits);
	uint32_t op = s->op;
	if (o->component >= 0) {
		if (o->component >= s->vector)
			return DEC_UNSUPPORTED;
		op += (uint32_t)o->component * width * 32;
	} else if (s->vector > 1) {
		return DEC_UNSUPPORTED;
	}
	*out = (struct sg_opnd){ op, width, (uint8_t)s->type.bits, s->type.kind };
	return DEC_OK;
}

enum sg_decoded sg_dec_reg_written(
	struct sg_dec *c, const struct ptx_operand *o, struct sg_opnd *out)
{
	c->writing = true;
	enum sg_decoded r = sg_dec_reg(c, o, out);
	c->writing = false;
	return r;
}

static uint8_t class_width(char cls)
{
	switch (cls) {
	case 'p':
		return 1;
	case '8':
	case 'd':
		return 8;
	case 'x':
		return 16;
	default:
		return 4;
	}
}

/* The bits of a literal in an operand of the class. */
static uint64_t literal(const struct ptx_operand *o, char cls)
{
	uint64_t v = (uint64_t)o->value;
	float f;
	double d;
	if (o->kind == PTX_OPERAND_FLOAT) {
		if (class_width(cls) == 4 && o->bits == 64) {
			memcpy(&d, &v, 8);
			f = (float)d;
			v = 0;
			memcpy(&v, &f, 4);
		} else if (class_width(cls) == 8 && o->bits == 32) {
			uint32_t u = (uint32_t)v;
			memcpy(&f, &u, 4);
			d = f;
			memcpy(&v, &d, 8);
		}
	} else if (cls == 'f') {
		f = (float)o->value;
		v = 0;
		memcpy(&v, &f, 4);
	} else if (cls == 'd') {
		d = (double)o->value;
		memcpy(&v, &d, 8);
	}
	return cls == '2' ? v & 0xffff : v;
}

/* The address of a symbol that is the same everywhere: variable in device memory, or function. */
static bool constant_address(struct sg_dec *c, const char *name, uint64_t *v)
{
	struct sg_sym *s = sg_dec_find(c, name);
	if (s && s->kind == SYM_GLOBAL) {
		*v = s->at;
		return true;
	}
	if (s && s->kind == SYM_PARAM) {
		*v = s->at;
		return true;
	}
	if (s)
		return false;
	const struct sg_var *var = table_gets(c->m->vars, name);
	if (var && !var->undefined && var->ptx->space != PTX_SPACE_SHARED) {
		*v = var->addr;
		return true;
	}
	const struct sg_func *f = var ? NULL : sg_dec_func(c, name);
	if (!f)
		return false;
	*v = SG_WIN_FUNC << 32 | (uint64_t)(f->index + 1) * 16;
	return true;
}

static bool declared(struct sg_dec *c, const char *name)
{
	return sg_dec_find(c, name) || table_gets(c->m->vars, name) || sg_dec_func(c, name);
}

enum sg_decoded sg_dec_src(struct sg_dec *c, const struct ptx_operand *o, char cls, uint32_t *op)
{
	struct sg_opnd r;
	uint64_t v;
	uint8_t width = class_width(cls);
	switch (o->kind) {
	case PTX_OPERAND_INT:
	case PTX_OPERAND_FLOAT:
		if (width == 16)
			return DEC_UNSUPPORTED;
		v = width == 1 ? (o->value ? SG_FULL : 0) : literal(o, cls);
		*op = sg_dec_const(c, v, width == 8 ? 8 : 4);
		return DEC_OK;
	case PTX_OPERAND_SYMBOL:
		if (constant_address(c, o->name, &v)) {
			*op = sg_dec_const(c, v + (uint64_t)o->value, width == 8 ? 8 : 4);
			return DEC_OK;
		}
		if (!declared(c, o->name)) {
			sg_dec_invalid(c, "'%s' is not declared", o->name);
			return DEC_INVALID;
		}
		return DEC_UNSUPPORTED;
	case PTX_OPERAND_REG:
		if (o->negated && cls != 'p')
			return DEC_UNSUPPORTED;
		TRY(sg_dec_reg(c, o, &r));
		if (r.width != width)
			return DEC_UNSUPPORTED;
		*op = r.op;
		return DEC_OK;
	default:
		return DEC_UNSUPPORTED;
	}
}

enum sg_decoded sg_dec_dst(struct sg_dec *c, const struct ptx_operand *o, char cls, uint32_t *op)
{
	struct sg_opnd r;
	if (o->kind != PTX_OPERAND_REG)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_reg_written(c, o, &r));
	if (r.op >> 30)
		return DEC_UNSUPPORTED;
	if (!r.width) {
		*op = cls == 'p' ? c->trash_pred : c->trash_reg;
		return DEC_OK;
	}
	if (r.width != class_width(cls))
		return DEC_UNSUPPORTED;
	*op = r.op;
	return DEC_OK;
}

enum sg_decoded sg_dec_pred(struct sg_dec *c, const struct ptx_operand *o, struct sg_insn *in,
	uint32_t flag, uint32_t *op)
{
	TRY(sg_dec_src(c, o, 'p', op));
	if (o->kind == PTX_OPERAND_REG && o->negated)
		in->flags |= flag;
	return DEC_OK;
}

enum sg_decoded sg_dec_any(
	struct sg_dec *c, const struct ptx_operand *o, uint8_t bits, uint32_t *op, uint8_t *width)
{
	struct sg_opnd r;
	if (o->kind != PTX_OPERAND_REG || !strcmp(o->name, "_")) {
		*width = bits > 32 ? 8 : 4;
		return sg_dec_src(c, o, bits > 32 ? '8' : bits == 16 ? '2' : '4', op);
	}
	if (o->negated)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_reg(c, o, &r));
	*op = r.op;
	*width = r.width;
	return r.width == 1 ? DEC_UNSUPPORTED : DEC_OK;
}

/* -- addresses --------------------------------------------------------------- */

static enum sg_decoded address_param(struct sg_dec *c, const struct sg_sym *s, struct sg_insn *in)
{
	in->space = s->own && c->f->is_entry ? SP_KERNEL_PARAM : SP_FRAME_PARAM;
	in->addr = SG_ADDR_REG;
	in->a = sg_dec_const(c, s->at, 8);
	return DEC_OK;
}

static enum sg_decoded address_symbol(
	struct sg_dec *c, const struct ptx_operand *o, struct sg_insn *in)
{
	struct sg_sym *s = sg_dec_find(c, o->name);
	const struct sg_var *var = s ? NULL : table_gets(c->m->vars, o->name);
	uint64_t v;
	if (s && s->kind == SYM_PARAM)
		return address_param(c, s, in);
	if (s && s->kind == SYM_LOCAL) {
		in->space = SP_LOCAL;
		in->addr = SG_ADDR_LOCAL;
		in->imm += (int64_t)s->at;
		return DEC_OK;
	}
	if ((s && s->kind == SYM_SHARED) || (var && var->ptx->space == PTX_SPACE_SHARED)) {
		in->space = SP_SHARED;
		in->addr = SG_ADDR_SHARED;
		in->target = s ? (uint32_t)s->at : var->shared;
		return sg_dec_note(c, &c->f->shared_vars, &c->f->n_shared_vars, in->target)
			       ? DEC_OK
			       : DEC_INVALID;
	}
	if (constant_address(c, o->name, &v)) {
		in->addr = SG_ADDR_REG;
		in->a = sg_dec_const(c, v, 8);
		return DEC_OK;
	}
	if (declared(c, o->name))
		return DEC_UNSUPPORTED;
	sg_dec_invalid(c, "'%s' is not declared", o->name);
	return DEC_INVALID;
}

enum sg_decoded sg_dec_address(struct sg_dec *c, const struct ptx_operand *o, struct sg_insn *in)
{
	struct sg_opnd r;
	struct ptx_operand base = { .kind = PTX_OPERAND_REG, .name = o->name, .component = -1 };
	if (o->kind == PTX_OPERAND_MULTI && o->n_sub == 1 && o->sub[0].component >= 0) {
		base = o->sub[0];
		in->imm = o->sub[0].value;
	} else if (o->kind != PTX_OPERAND_ADDRESS) {
		return DEC_UNSUPPORTED;
	} else {
		in->imm = o->value;
	}
	in->addr = SG_ADDR_REG;
	if (!base.name) {
		in->a = sg_dec_const(c, 0, 8);
		return DEC_OK;
	}
	if (o->kind == PTX_OPERAND_ADDRESS && !o->base_is_reg && !sg_dec_register(c, base.name))
		return address_symbol(c, o, in);
	TRY(sg_dec_reg(c, &base, &r));
	if (r.width != 4 && r.width != 8)
		return DEC_UNSUPPORTED;
	in->a = r.op;
	if (r.width == 4)
		in->flags |= SG_BASE32;
	return DEC_OK;
}
