/* float.c - products that a probe parts from their sum. ptxas fuses an unrounded mul with a later
 * unrounded add or sub of the same block; control flow between them ends that, and the last bit may
 * change. So a probe between the two is moved behind the sum where that changes nothing it sees.
 *
 * "The same block" is ptxas's, after it has put blocks in a row, turned short branches into guards
 * and unrolled loops. So pairs are found in the order of the text, over the ends of blocks, and
 * also where control comes back: a product at the end of a loop's body with the sum at its start.
 */
#include <string.h>

#include "instrument/variant.h"

enum {
	NONE = UINT32_MAX,
	MAX_WAYS = 512, /* pairs of blocks looked at; beyond, every probe of the function parts
			   something */
};

/* Statements at one end of a pair that another block may hold the other end of. */
struct ends {
	uint32_t *at;
	size_t n, cap;
};

/* What is known of a register at a place of the text. */
struct holds {
	struct holds *next;   /* of all */
	uint32_t product;     /* the mul whose result it holds, or NONE */
	uint32_t block;       /* the last that has written it for certain */
	struct ends products; /* in it at the end of their block */
	struct ends sums;     /* that read it from before their block */
};

struct pairs {
	struct variant *v;
	const struct place *place;
	struct table *holds; /* struct reg_key -> struct holds */
	struct holds *list;
	uint32_t *parted;   /* differences, then sums */
	struct table *ways; /* pairs of blocks that are done */
	uint8_t *reached;   /* per block: from the product, to the sum */
	uint32_t *stack;
	bool failed;
};

/* Scopes may declare a name again: the declaration tells the registers apart. */
struct reg_key {
	const struct ptx_reg *decl;
	uint64_t name;
};

static bool is_unrounded(const struct ptx_insn *insn)
{
	static const char *const modes[] = { "rn", "rz", "rm", "rp", "rna" };
	struct ptx_type type = ptx_insn_type(insn);

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (ptx_insn_has_mod(insn, modes[i]))
			return false;
	}
	return type.kind == 'f' || (type.kind == 'o' && type.name && strchr(type.name, 'f'));
}

/* div.full and div.approx end with a product. */
static bool gives_product(const struct ptx_insn *insn)
{
	if (!strcmp(insn->base, "div"))
		return ptx_insn_has_mod(insn, "full") || ptx_insn_has_mod(insn, "approx");
	return !strcmp(insn->base, "mul") && is_unrounded(insn);
}

static struct holds *holds_of(struct pairs *p, const struct ptx_operand *op)
{
	struct reg_key key = { op->reg, 0 };

	if (op->kind != PTX_OPERAND_REG || !op->name)
		return NULL;
	key.name = hash_bytes(op->name, strlen(op->name), (uint64_t)(op->component + 1));
	struct holds *h = table_get(p->holds, &key, sizeof(key));
	if (h)
		return h;
	h = arena_alloc(p->v->arena, sizeof(*h));
	if (!h || table_put(p->holds, &key, sizeof(key), h)) {
		p->failed = true;
		return NULL;
	}
	*h = (struct holds){ .next = p->list, .product = NONE, .block = NONE };
	p->list = h;
	return h;
}

static void add_end(struct pairs *p, struct ends *ends, uint32_t stmt)
{
	uint32_t *at = arena_grow(p->v->arena, ends->at, ends->n, &ends->cap, sizeof(*at));

	if (!at) {
		p->failed = true;
		return;
	}
	ends->at = at;
	at[ends->n++] = stmt;
}

/* A probe before any of the statements behind `from`, up to and with `to`, parts the two. */
static void add_pair(struct pairs *p, uint32_t from, uint32_t to)
{
	p->parted[from + 1]++;
	p->parted[to + 1]--;
}

/* The register has a new value: the product of `product`, or none. */
static void set(struct pairs *p, struct holds *h, const struct ptx_insn *insn, uint32_t stmt,
	uint32_t product)
{
	const uint32_t *block_of = p->place->cfg.block_of;
	struct ends *ends = &h->products;

	if (!insn->pred) {
		while (ends->n && block_of[ends->at[ends->n - 1]] == block_of[stmt])
			ends->n--;
		h->block = block_of[stmt];
	}
	h->product = product;
	if (product != NONE)
		add_end(p, ends, product);
}

static void visit(struct pairs *p, const struct ptx_insn *insn, uint32_t stmt)
{
	const char *base = insn->base;
	bool adds = (!strcmp(base, "add") || !strcmp(base, "sub")) && is_unrounded(insn);
	bool moves = !strcmp(base, "mov") || !strcmp(base, "neg");
	uint32_t moved = NONE;

	for (uint32_t i = 1; (adds || moves) && i < insn->n_operands; i++) {
		struct holds *h = holds_of(p, &insn->operands[i]);
		if (!h)
			continue;
		if (h->product != NONE && adds)
			add_pair(p, h->product, stmt);
		if (adds && h->block != p->place->cfg.block_of[stmt])
			add_end(p, &h->sums, stmt);
		moved = h->product;
	}
	struct holds *to =
		insn->n_operands && strcmp(base, "st") ? holds_of(p, &insn->operands[0]) : NULL;
	if (to)
		set(p, to, insn, stmt, gives_product(insn) ? stmt : moves ? moved : NONE);
}

/* -- pairs with the sum before the product in the text -- */

/* Sets `bit` in the blocks that control comes to from block `b`, or comes to it from. */
static void reach(struct pairs *p, uint32_t b, uint8_t bit)
{
	const struct ptx_cfg *g = &p->place->cfg;
	uint32_t n = 0;

	p->stack[n++] = b;
	while (n) {
		const struct ptx_block *at = &g->blocks[p->stack[--n]];
		uint32_t n_next = bit == 1 ? at->n_succ : at->n_pred;
		for (uint32_t i = 0; i < n_next; i++) {
			uint32_t next = bit == 1 ? at->succ[i] : at->pred[i];
			if (p->reached[next] & bit)
				continue;
			p->reached[next] |= bit;
			p->stack[n++] = next;
		}
	}
}

static void part_block(struct pairs *p, const struct ptx_block *b)
{
	p->parted[b->first]++;
	p->parted[b->last + 1]--;
}

/* Every block on a way from the product to the sum: with a probe in a loop it may not be unrolled.
 */
static void part_way(struct pairs *p, uint32_t from, uint32_t to)
{
	const struct ptx_cfg *g = &p->place->cfg;
	uint32_t way[2] = { from, to };

	if (table_get(p->ways, way, sizeof(way)))
		return;
	if (table_put(p->ways, way, sizeof(way), p))
		p->failed = true;
	memset(p->reached, 0, g->n_blocks);
	reach(p, from, 1);
	reach(p, to, 2);
	if (!(p->reached[to] & 1))
		return;
	p->reached[from] = p->reached[to] = 3;
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		if (p->reached[i] == 3)
			part_block(p, &g->blocks[i]);
	}
}

static void part_back(struct pairs *p, const struct holds *h)
{
	const struct ptx_cfg *g = &p->place->cfg;

	for (size_t i = 0; i < h->products.n; i++) {
		uint32_t from = h->products.at[i];
		for (size_t k = 0; k < h->sums.n && h->sums.at[k] <= from; k++) {
			if (g->unknown_targets || table_count(p->ways) > MAX_WAYS) {
				p->parted[0]++;
				p->parted[p->place->func->n_stmts]--;
				return;
			}
			part_way(p, g->block_of[from], g->block_of[h->sums.at[k]]);
		}
	}
}

/* No probe is moved past one. */
static bool keeps_order(const struct ptx_insn *insn)
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

static bool pairs_init(struct pairs *p, struct variant *v, const struct place *place)
{
	struct arena *a = v->arena;
	uint32_t n = place->cfg.n_blocks;

	*p = (struct pairs){ .v = v, .place = place, .holds = table_new(), .ways = table_new() };
	p->parted = arena_array(a, (size_t)place->func->n_stmts + 2, sizeof(*p->parted));
	p->reached = arena_array(a, (size_t)n + 1, sizeof(*p->reached));
	p->stack = arena_array(a, (size_t)n + 1, sizeof(*p->stack));
	return p->holds && p->ways && p->parted && p->reached && p->stack;
}

const uint32_t *products_parted(struct variant *v, const struct place *place)
{
	const struct ptx_func *f = place->func;
	struct pairs p;

	p.failed = !pairs_init(&p, v, place);
	for (uint32_t i = 0; !p.failed && i < f->n_stmts; i++) {
		if (f->stmts[i].insn)
			visit(&p, f->stmts[i].insn, i);
	}
	for (const struct holds *h = p.list; !p.failed && h; h = h->next)
		part_back(&p, h);
	for (uint32_t i = 1; !p.failed && i <= f->n_stmts; i++)
		p.parted[i] += p.parted[i - 1];
	table_free(p.holds);
	table_free(p.ways);
	if (p.failed)
		no_memory(v);
	return p.failed ? NULL : p.parted;
}

/* -- moving a probe behind the sums -- */

static bool names_reg(const struct ptx_operand *op, const char *name)
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

/* The operands that an instruction reads: a load's first one is only written. */
static bool disturbs(
	const struct ptx_insn *writer, const struct ptx_insn *site, const struct ptx_access *access)
{
	bool writes = access->op == PTX_ACCESS_LOAD || access->op == PTX_ACCESS_ATOMIC;

	for (uint32_t i = 0; i < site->n_operands; i++) {
		bool written = writes && !i && site->operands[0].kind != PTX_OPERAND_ADDRESS;
		if (!written && writes_any(writer, &site->operands[i]))
			return true;
	}
	return false;
}

/* A probe reads its instruction's operands, so it may run later as long as they keep their values,
 * in the same block and the same scope. A guarded instruction stays: ptxas makes one branch of its
 * guard and the probe's, around what lies between as well (seen: the pair was split). */
bool sink_past_products(
	const struct place *place, const uint32_t *parted, const struct spot *spot, uint32_t *to)
{
	const struct ptx_func *f = place->func;
	uint32_t block = place->cfg.block_of[spot->stmt];
	const struct ptx_insn *site = f->stmts[spot->stmt].insn;
	uint32_t depth = 0;

	for (uint32_t i = spot->stmt; !site->pred && i < f->n_stmts; i++) {
		const struct ptx_stmt *s = &f->stmts[i];
		if (!depth && !parted[i] && place->cfg.block_of[i] == block) {
			*to = i;
			return true;
		}
		if (place->cfg.block_of[i] != block || (s->kind == PTX_STMT_CLOSE && !depth--))
			return false;
		depth += s->kind == PTX_STMT_OPEN;
		if (s->insn && (keeps_order(s->insn) || disturbs(s->insn, site, &spot->access)))
			return false;
	}
	return false;
}
