/* decode_bulk.c - cp.async.bulk and cp.reduce.async.bulk; forms with tensor maps are not executed.
 */
#include "softgpu/decode.h"

#include <string.h>

static bool is_shared(const char *m)
{
	return !strncmp(m, "shared::", 8);
}

/* The first space among the modifiers is the destination's, the second the source's. */
static bool spaces(const struct ptx_insn *p, struct sg_bulk *b)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->n_mods; i++) {
		const char *m = p->mods[i];
		uint8_t space = is_shared(m) ? SP_SHARED : SP_GLOBAL;
		if (!is_shared(m) && strcmp(m, "global"))
			continue;
		if (n == 0)
			b->dst.space = space;
		else
			b->src.space = space;
		n++;
	}
	b->bar.space = SP_SHARED;
	return n == 2;
}

static bool reduction(const struct ptx_insn *p, struct sg_insn *in)
{
	static const struct {
		const char *name;
		uint8_t op;
	} ops[] = { { "add", SG_A_ADD }, { "min", SG_A_MIN }, { "max", SG_A_MAX },
		{ "inc", SG_A_INC }, { "dec", SG_A_DEC }, { "and", SG_A_AND }, { "or", SG_A_OR },
		{ "xor", SG_A_XOR } };
	in->type = sg_dec_types(p, NULL);
	in->bytes = (uint8_t)(sg_type_bits(in->type) / 8);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (!ptx_insn_has_mod(p, ops[i].name))
			continue;
		in->op = ops[i].op;
		return in->bytes == 2 || in->bytes == 4 || in->bytes == 8;
	}
	return false;
}

enum sg_decoded sg_dec_bulk(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct sg_bulk *b = arena_alloc(c->arena, sizeof(*b));
	uint32_t at = 3;
	if (!b)
		return DEC_INVALID;
	memset(b, 0, sizeof(*b));
	/* Everything is done at once: there is no group to wait for, and no cache to fill. */
	if (ptx_insn_has_mod(p, "commit_group") || ptx_insn_has_mod(p, "wait_group") ||
		ptx_insn_has_mod(p, "prefetch")) {
		in->fn = sg_nop;
		return ptx_insn_has_mod(p, "tensor") ? DEC_UNSUPPORTED : DEC_OK;
	}
	in->sub = ptx_insn_has_mod(p, "reduce");
	if (ptx_insn_has_mod(p, "tensor") || ptx_insn_has_mod(p, "cp_mask") || !spaces(p, b) ||
		p->n_operands < 3 || (in->sub && !reduction(p, in)))
		return DEC_UNSUPPORTED;
	in->fn = sg_bulk;
	in->list = (const uint32_t *)(const void *)b;
	TRY(sg_dec_address(c, &p->operands[0], &b->dst));
	TRY(sg_dec_address(c, &p->operands[1], &b->src));
	TRY(sg_dec_src(c, &p->operands[2], '4', &in->b));
	if (ptx_insn_has_mod(p, "mbarrier::complete_tx::bytes")) {
		in->has |= 1;
		if (at >= p->n_operands)
			return DEC_UNSUPPORTED;
		TRY(sg_dec_address(c, &p->operands[at++], &b->bar));
	}
	if (!ptx_insn_has_mod(p, "multicast::cluster"))
		return DEC_OK;
	in->has |= 2;
	return at < p->n_operands ? sg_dec_src(c, &p->operands[at], '2', &in->c) : DEC_UNSUPPORTED;
}
