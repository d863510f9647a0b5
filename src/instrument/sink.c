/* sink.c - probes in functions where products meet their sums: where float.c says that one would part
 * the two it goes behind the sum, and what is summed before a probe is there before it.
 */
#include <string.h>

#include "instrument/variant.h"

enum {
	MAX_LOOK = 2048, /* statements that are looked at before a probe */
	MAX_HELD = 32,
};

bool keeps_order(const struct ptx_insn *insn)
{
	static const char *const bases[] = { "call", "brkpt", "bar", "barrier", "mbarrier",
		"membar", "fence", "wgmma", "tcgen05", "setmaxnreg", "griddepcontrol",
		"nanosleep" };

	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		if (!strcmp(insn->base, bases[i]))
			return true;
	}
	return ptx_insn_ends_block(insn);
}

/* -- moving a probe behind the sums -- */

bool names_reg(const struct ptx_operand *op, const char *name)
{
	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (names_reg(&op->sub[i], name))
			return true;
	}
	return op->name && !strcmp(op->name, name);
}

/* Whether the statement may write a register that the operand reads. */
static bool writes_any(const struct ptx_insn *writer, const struct ptx_operand *read)
{
	for (uint32_t i = 0; i < read->n_sub; i++) {
		if (writes_any(writer, &read->sub[i]))
			return true;
	}
	return read->name && read->reg && writer->n_operands &&
	       writer->operands[0].kind != PTX_OPERAND_ADDRESS &&
	       names_reg(&writer->operands[0], read->name);
}

/* The operands that a probe reads: a load's first one is only written. */
static bool disturbs(const struct ptx_insn *writer, const struct ptx_insn *site, const struct ptx_access *access)
{
	bool writes = access->op == PTX_ACCESS_LOAD || access->op == PTX_ACCESS_ATOMIC;

	for (uint32_t i = 0; i < site->n_operands; i++) {
		bool written = writes && !i && site->operands[0].kind != PTX_OPERAND_ADDRESS;
		if (!written && writes_any(writer, &site->operands[i]))
			return true;
	}
	return false;
}

/* Whether a probe with these fields looks at its instruction's operands. */
static bool looks(const struct ptx_insn *site, uint64_t fields)
{
	static const uint64_t constant = UINT64_C(1) << EBPF_FIELD_OP | UINT64_C(1) << EBPF_FIELD_VALUE_BYTES |
					 UINT64_C(1) << EBPF_FIELD_MASK | UINT64_C(1) << EBPF_FIELD_LANES |
					 UINT64_C(1) << EBPF_FIELD_OPERANDS;

	return !strcmp(site->base, "cp") || (fields & ~constant) >> EBPF_FIELD_ADDRESS;
}

/* A probe that reads its instruction's operands may run later as long as they keep their values, any in
 * the same block and the same scope. A guarded instruction stays: ptxas makes one branch of its
 * guard and the probe's, around what lies between as well (seen: the pair was split). */
bool sink_past_products(
	const struct place *place, const struct products *p, const struct spot *spot, uint64_t fields, uint32_t *to)
{
	const struct ptx_func *f = place->func;
	uint32_t block = place->cfg.block_of[spot->stmt];
	const struct ptx_insn *site = f->stmts[spot->stmt].insn;
	bool reads = looks(site, fields);
	uint32_t depth = 0;

	for (uint32_t i = spot->stmt; !site->pred && i < f->n_stmts; i++) {
		const struct ptx_stmt *s = &f->stmts[i];
		/* Before the label that begins the next block is the end of this one. */
		bool ends = place->cfg.block_of[i] != block;
		if (!depth && !p->parted[i] && (!ends || s->kind == PTX_STMT_LABEL)) {
			*to = i;
			return true;
		}
		if (ends || (s->kind == PTX_STMT_CLOSE && !depth--))
			return false;
		depth += s->kind == PTX_STMT_OPEN;
		if (s->insn && (keeps_order(s->insn) || (reads && disturbs(s->insn, site, &spot->access))))
			return false;
	}
	return false;
}

/* -- holding sums before a probe -- */

#define NO_SCOPE UINT32_MAX

/* Innermost open brace around the text before a statement. */
static uint32_t scope_before(const struct ptx_func *f, uint32_t stmt)
{
	for (uint32_t i = stmt; i--;) {
		if (f->stmts[i].kind == PTX_STMT_OPEN)
			return i;
		if (f->stmts[i].kind == PTX_STMT_CLOSE)
			i = f->stmts[i].match;
	}
	return NO_SCOPE;
}

static bool is_open_at(const struct ptx_func *f, uint32_t scope, uint32_t stmt)
{
	return scope == NO_SCOPE || (scope < stmt && f->stmts[scope].match >= stmt);
}

static bool same_base(const struct ptx_reg *reg, const char *name)
{
	size_t n = strlen(reg->name);

	return reg->count ? !strncmp(reg->name, name, n) : !strcmp(reg->name, name);
}

/* Whether the register's name means the same register before the statement. */
static bool is_visible(const struct ptx_func *f, const struct ptx_operand *reg, uint32_t stmt)
{
	uint32_t home = NO_SCOPE;
	bool found = false;

	for (uint32_t i = 0; i < f->n_stmts && !found; i++) {
		const struct ptx_stmt *s = &f->stmts[i];
		if (s->kind != PTX_STMT_REG || reg->reg < s->regs || reg->reg >= s->regs + s->n_regs)
			continue;
		home = scope_before(f, i);
		found = true;
	}
	if (!found || !is_open_at(f, home, stmt))
		return false;
	for (uint32_t i = home == NO_SCOPE ? 0 : home; i < stmt; i++) {
		const struct ptx_stmt *s = &f->stmts[i];
		for (uint32_t k = 0; s->kind == PTX_STMT_REG && k < s->n_regs; k++) {
			uint32_t scope = same_base(&s->regs[k], reg->name) ? scope_before(f, i) : home;
			if (scope != home && is_open_at(f, scope, stmt))
				return false;
		}
	}
	return true;
}

enum { MAX_BLOCKS = 32 };

struct look {
	const struct place *place;
	uint32_t seen[MAX_BLOCKS], n_seen; /* blocks on the way from what is looked at */
	const struct products *p;
	const struct ptx_operand *held[MAX_HELD];
	uint32_t n, left, before;
	bool all; /* nothing was left out */
};

static bool is_written(const struct look *l, const struct ptx_operand *reg, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		const struct ptx_insn *insn = l->place->func->stmts[i].insn;
		if (insn && strcmp(insn->base, "st") && writes_any(insn, reg))
			return true;
	}
	return false;
}

/* A register that has another value by now needs no holding: what that was made of is there, or is not
 * wanted. And it may be a product, which is fused only where nothing else reads it. */
static bool has_changed(const struct look *l, const struct ptx_operand *reg, uint32_t sum, uint32_t from)
{
	const struct ptx_cfg *g = &l->place->cfg;
	bool changed = is_written(l, reg, sum + 1, from);

	for (uint32_t i = 1; i < l->n_seen && !changed; i++)
		changed = is_written(l, reg, g->blocks[l->seen[i]].first, g->blocks[l->seen[i]].last + 1);
	return changed || (l->n_seen && is_written(l, reg, g->blocks[l->seen[0]].first, l->before));
}

static void hold(struct look *l, uint32_t sum, uint32_t from)
{
	const struct ptx_operand *op = &l->place->func->stmts[sum].insn->operands[0];

	if (has_changed(l, op, sum, from))
		return;
	for (uint32_t i = 0; i < l->n; i++) {
		if (l->held[i]->reg == op->reg && !strcmp(l->held[i]->name, op->name))
			return;
	}
	if (op->kind != PTX_OPERAND_REG || op->component >= 0 || l->n == MAX_HELD ||
		!is_visible(l->place->func, op, l->before))
		l->all = false;
	else
		l->held[l->n++] = op;
}

/* The sums of a block before a statement of it and behind the probe before that. True: there is none. */
static bool look_back(struct look *l, uint32_t from, uint32_t first)
{
	for (uint32_t i = from; i > first; i--) {
		if (!l->left || !--l->left) {
			l->all = false;
			return false;
		}
		if (l->p->sums[i - 1])
			hold(l, i - 1, from);
		if (l->p->probed[i - 1])
			return false;
	}
	return true;
}

static void look_at_blocks_before(struct look *l, uint32_t block)
{
	const struct ptx_cfg *g = &l->place->cfg;

	l->seen[l->n_seen++] = block;
	for (uint32_t i = 0; i < l->n_seen; i++) {
		const struct ptx_block *b = &g->blocks[l->seen[i]];
		for (uint32_t k = 0; k < b->n_pred; k++) {
			const struct ptx_block *pred = &g->blocks[b->pred[k]];
			bool known = false;
			for (uint32_t m = 1; m < l->n_seen; m++)
				known |= l->seen[m] == b->pred[k];
			if (known || !look_back(l, pred->last + 1, pred->first))
				continue;
			if (l->n_seen < MAX_BLOCKS)
				l->seen[l->n_seen++] = b->pred[k];
		}
	}
}

bool products_held(struct variant *v, const struct place *place, const struct products *p, uint32_t before,
	struct held *out)
{
	const struct ptx_func *f = place->func;
	struct look l = { .place = place, .p = p, .left = MAX_LOOK, .before = before, .all = true };
	uint32_t block = f->n_stmts ? place->cfg.block_of[before < f->n_stmts ? before : f->n_stmts - 1] : 0;

	*out = (struct held){ 0 };
	if (!f->n_stmts || !p->any)
		return true;
	if (look_back(&l, before, place->cfg.blocks[block].first))
		look_at_blocks_before(&l, block);
	out->regs = arena_array(v->arena, l.n ? l.n : 1, sizeof(*out->regs));
	if (!out->regs)
		return no_memory(v);
	for (uint32_t i = 0; i < l.n; i++)
		out->regs[i] = l.held[i];
	out->n = l.n;
	out->some_missing = !l.all;
	return true;
}

/* No launch has a device without multiprocessors, but ptxas does not know: the sums must be there before
 * control can take this branch. */
void emit_held(const struct held *held, uint32_t site, struct buf *b)
{
	if (!held->n)
		return;
	buf_printf(b, "\tld.const.u32 %%egpu_xt1, [" TABLE_NAME "+%d];\n\tsetp.eq.u32 %%egpu_xp1, %%egpu_xt1, 0;\n",
		8 * EBPF_TABLE_SMS);
	for (uint32_t i = 0; i < held->n; i++)
		buf_printf(b, "\tsetp.eq.and.b%u %%egpu_xp1, %s, 0, %%egpu_xp1;\n", held->regs[i]->reg->type.bits,
			held->regs[i]->name);
	buf_printf(b, "\t@%%egpu_xp1 bra $egpu_end%u;\n", site);
}
