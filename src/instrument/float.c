/* float.c - products that a probe parts from their sum. ptxas fuses an unrounded mul with a later
 * unrounded add or sub of the same block; control flow between them ends that, and the last bit may
 * change. So a probe between the two is moved behind the sum where that changes nothing it sees.
 *
 * "The same block" is ptxas's, after it has put blocks in a row, turned short branches into guards
 * and unrolled loops. So a product is followed over the ends of blocks, along every way on which
 * its register keeps it.
 *
 * Before it fuses, ptxas also moves a sum alone behind control flow, to where its value is used. A
 * probe behind the sum would open that way, so it holds the sums before it: see products_held.
 */
#include <string.h>

#include "instrument/variant.h"

enum {
	NONE = UINT32_MAX,
	MAX_WAYS = 4096, /* pairs over blocks looked at; beyond, every probe of the function parts
			    something */
	MAX_STEPS = 1 << 24, /* in the search for counters; beyond, all before a loop parts */
};

/* Statements at one end of a pair that another block may hold the other end of. */
struct ends {
	uint32_t *at;
	size_t n, cap;
};

/* What is known of a register at a place of the text. */
struct holds {
	struct holds *next;   /* of all */
	struct holds *same;   /* a register that it is copied to or from: the others' head, or NULL */
	struct holds *others; /* of a head: those whose `same` it is */
	struct holds *sibling;
	uint32_t block;         /* the last that has written it for certain */
	uint32_t product;       /* in that block, or at least not behind it: the mul, or NONE */
	uint32_t passed;        /* the last block in which it holds a copy from before that block */
	struct ends products;   /* in it at the end of their block */
	struct ends sums;       /* that read it from before their block */
	struct ends uses;       /* other instructions that do */
	struct ends written_in; /* blocks that write it for certain */
};

struct pairs {
	struct variant *v;
	const struct place *place;
	struct table *holds; /* struct reg_key -> struct holds */
	struct holds *list;
	uint32_t *parted;  /* differences, then sums */
	bool *sums, *summed; /* per statement: adds to a product; is a product that is added to */
	uint8_t *reached, *again; /* per block: from the product, to the sum */
	uint8_t *written;  /* per block: the register gets another value there */
	uint32_t *stack;
	uint32_t n_ways, n_steps;
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

/* div.full and div.approx end with a product. One that is clamped is rounded first. */
static bool gives_product(const struct ptx_insn *insn)
{
	if (!strcmp(insn->base, "div"))
		return ptx_insn_has_mod(insn, "full") || ptx_insn_has_mod(insn, "approx");
	return !strcmp(insn->base, "mul") && is_unrounded(insn) && !ptx_insn_has_mod(insn, "sat");
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
	*h = (struct holds){ .next = p->list, .block = NONE, .product = NONE, .passed = NONE };
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

static struct holds *head_of(struct holds *h)
{
	while (h->same)
		h = h->same;
	return h;
}

static void join(struct holds *a, struct holds *b)
{
	a = head_of(a);
	b = head_of(b);
	if (a == b)
		return;
	b->same = a;
	b->sibling = a->others;
	a->others = b;
}

/* -- within a block -- */

/* A probe before any of the statements behind `from`, up to and with `to`, parts the two. */
static void add_pair(struct pairs *p, uint32_t from, uint32_t to)
{
	p->parted[from + 1]++;
	p->parted[to + 1]--;
	p->summed[from] = p->sums[to] = true;
}

/* The register has a new value: the product of `product`, or none. */
static void set(struct pairs *p, struct holds *h, const struct ptx_insn *insn, uint32_t stmt, uint32_t product)
{
	uint32_t block = p->place->cfg.block_of[stmt];
	struct ends *ends = &h->products;

	if (!insn->pred) {
		while (ends->n && p->place->cfg.block_of[ends->at[ends->n - 1]] == block)
			ends->n--;
		if (h->block != block)
			add_end(p, &h->written_in, block);
		h->block = block;
	}
	if (product != NONE || !insn->pred)
		h->product = product;
	if (product != NONE)
		add_end(p, ends, product);
}

/* Its product, if one of this block. */
static uint32_t product_of(const struct pairs *p, const struct holds *h, uint32_t block)
{
	return h->product != NONE && p->place->cfg.block_of[h->product] == block ? h->product : NONE;
}

static void visit(struct pairs *p, const struct ptx_insn *insn, uint32_t stmt)
{
	const char *base = insn->base;
	uint32_t block = p->place->cfg.block_of[stmt], moved = NONE;
	bool adds = (!strcmp(base, "add") || !strcmp(base, "sub")) && is_unrounded(insn);
	bool moves = !strcmp(base, "mov") || !strcmp(base, "neg"), passes = false;
	struct holds *to = insn->n_operands && strcmp(base, "st") ? holds_of(p, &insn->operands[0]) : NULL;

	for (uint32_t i = 1; i < insn->n_operands; i++) {
		struct holds *h = holds_of(p, &insn->operands[i]);
		if (!h)
			continue;
		bool from_before = h->block != block || h->passed == block;
		moved = product_of(p, h, block);
		if (adds && moved != NONE)
			add_pair(p, moved, stmt);
		if (from_before && !moves)
			add_end(p, adds ? &h->sums : &h->uses, stmt);
		if (moves && to) {
			join(to, h);
			passes = from_before;
		}
	}
	if (!to)
		return;
	set(p, to, insn, stmt, gives_product(insn) ? stmt : moves ? moved : NONE);
	to->passed = passes ? block : insn->pred ? to->passed : NONE;
}

/* -- over the ends of blocks -- */

/* Sets `bit` in the blocks that control comes to from block `b`, or comes to it from, while the register
 * keeps its value. */
static void reach(struct pairs *p, uint32_t b, uint8_t bit)
{
	const struct ptx_cfg *g = &p->place->cfg;
	uint32_t n = 0;

	p->stack[n++] = b;
	while (n) {
		uint32_t at = p->stack[--n], n_next = bit == 1 ? g->blocks[at].n_succ : g->blocks[at].n_pred;
		for (uint32_t i = 0; i < n_next; i++) {
			uint32_t next = bit == 1 ? g->blocks[at].succ[i] : g->blocks[at].pred[i];
			if (p->reached[next] & bit)
				continue;
			p->reached[next] |= bit;
			if (!p->written[next])
				p->stack[n++] = next;
		}
	}
}

static bool is_constant(const struct ptx_insn *insn)
{
	bool constant = insn->n_operands > 1 && insn->operands[0].kind == PTX_OPERAND_REG && ptx_insn_type(insn).kind != 'f';

	for (uint32_t i = 1; i < insn->n_operands; i++)
		constant &= insn->operands[i].kind == PTX_OPERAND_INT;
	return constant;
}

static bool reads(const struct ptx_insn *insn, const struct ptx_operand *reg)
{
	for (uint32_t i = 0; i < insn->n_operands; i++) {
		const struct ptx_operand *op = &insn->operands[i];
		if (op->reg == reg->reg && op->name && !strcmp(op->name, reg->name))
			return true;
	}
	return false;
}

/* How often a loop runs is known when its counter begins with a constant, and no longer when control
 * flow lies between that and the loop. Then it is unrolled in another way. */
static void part_counters(struct pairs *p, uint32_t first, uint32_t last)
{
	const struct ptx_stmt *stmts = p->place->func->stmts;

	for (uint32_t i = 0; i < first; i++) {
		bool read = false;
		if (!stmts[i].insn || !is_constant(stmts[i].insn))
			continue;
		for (uint32_t k = first; k <= last && !read; k++)
			read = (stmts[k].insn && reads(stmts[k].insn, &stmts[i].insn->operands[0])) || ++p->n_steps > MAX_STEPS;
		if (!read)
			continue;
		p->parted[i + 1]++;
		p->parted[first]--;
		return;
	}
}

/* The whole of every block of a loop on the way: with a probe in it it may not be unrolled. */
static void part_loop(struct pairs *p, uint32_t from, uint32_t to)
{
	const struct ptx_cfg *g = &p->place->cfg;
	uint32_t first = NONE, last = 0;

	p->reached[from] = p->reached[to] = 3;
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		const struct ptx_block *b = &g->blocks[i];
		if (p->reached[i] != 3)
			continue;
		p->parted[b->first]++;
		p->parted[b->last + 1]--;
		first = b->first < first ? b->first : first;
		last = b->last > last ? b->last : last;
	}
	part_counters(p, first, last);
}

/* What lies on the way in the text as well: ptxas makes guards of short branches. */
static void part_way(struct pairs *p, uint32_t product, uint32_t sum)
{
	const struct ptx_cfg *g = &p->place->cfg;

	if (product < sum)
		add_pair(p, product, sum);
	if (product >= sum) {
		p->parted[product + 1]++;
		p->parted[g->blocks[g->block_of[product]].last + 1]--;
		p->parted[g->blocks[g->block_of[sum]].first]++;
		p->parted[sum + 1]--;
	}
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		if (p->reached[i] != 3 || i == g->block_of[product] || i == g->block_of[sum])
			continue;
		p->parted[g->blocks[i].first]++;
		p->parted[g->blocks[i].last + 1]--;
	}
}

/* Whether control comes from one block to another, whatever the register has then. */
static bool comes_to(struct pairs *p, uint32_t from, uint32_t to)
{
	uint8_t *way = p->reached;

	p->reached = p->again;
	memset(p->reached, 0, p->place->cfg.n_blocks);
	memset(p->written, 0, p->place->cfg.n_blocks);
	reach(p, from, 1);
	p->reached = way;
	return p->again[to] & 1;
}

/* `use` is a sum, or something else. A product that something else wants is not fused, until the loop is
 * unrolled and its last round has nothing else. */
static void pair_over_blocks(struct pairs *p, uint32_t product, uint32_t use, bool is_sum)
{
	const struct ptx_cfg *g = &p->place->cfg;
	uint32_t from = g->block_of[product], to = g->block_of[use];

	if (!is_sum && product < use)
		return;
	memset(p->reached, 0, g->n_blocks);
	reach(p, from, 1);
	if (!(p->reached[to] & 1))
		return;
	reach(p, to, 2);
	if (is_sum)
		p->summed[product] = p->sums[use] = true;
	if (product >= use && comes_to(p, to, from))
		part_loop(p, from, to);
	else if (is_sum)
		part_way(p, product, use);
}

static void mark_written(struct pairs *p, const struct holds *h)
{
	memset(p->written, 0, p->place->cfg.n_blocks);
	if (h->others)
		return; /* another register may still have the product */
	for (size_t i = 0; i < h->written_in.n; i++)
		p->written[h->written_in.at[i]] = 1;
}

static void pair_ends(struct pairs *p, struct holds *head, const struct ends *products, const struct ends *uses, bool are_sums)
{
	for (size_t i = 0; i < products->n; i++) {
		for (size_t k = 0; k < uses->n; k++) {
			if (!are_sums && (!p->summed[products->at[i]] || products->at[i] < uses->at[k]))
				continue;
			if (++p->n_ways > MAX_WAYS || p->place->cfg.unknown_targets) {
				p->parted[0]++;
				p->parted[p->place->func->n_stmts]--;
				return;
			}
			mark_written(p, head);
			pair_over_blocks(p, products->at[i], uses->at[k], are_sums);
		}
	}
}

/* Every register that is a copy of the head's, itself included: `next` of a head is NULL. */
static struct holds *next_copy(struct holds *h)
{
	if (h->others)
		return h->others;
	while (h && !h->sibling)
		h = h->same;
	return h ? h->sibling : NULL;
}

static void pair_copies(struct pairs *p, struct holds *head, bool sums)
{
	for (struct holds *a = head; a; a = next_copy(a)) {
		for (struct holds *b = head; a->products.n && b; b = next_copy(b))
			pair_ends(p, head, &a->products, sums ? &b->sums : &b->uses, sums);
	}
}

static bool pairs_init(struct pairs *p, struct variant *v, const struct place *place)
{
	struct arena *a = v->arena;
	uint32_t n = place->cfg.n_blocks;

	*p = (struct pairs){ .v = v, .place = place, .holds = table_new() };
	p->parted = arena_array(a, (size_t)place->func->n_stmts + 2, sizeof(*p->parted));
	p->sums = arena_array(a, (size_t)place->func->n_stmts + 1, sizeof(*p->sums));
	p->summed = arena_array(a, (size_t)place->func->n_stmts + 1, sizeof(*p->summed));
	p->reached = arena_array(a, (size_t)n + 1, sizeof(*p->reached));
	p->again = arena_array(a, (size_t)n + 1, sizeof(*p->again));
	p->written = arena_array(a, (size_t)n + 1, sizeof(*p->written));
	p->stack = arena_array(a, (size_t)n + 1, sizeof(*p->stack));
	return p->holds && p->parted && p->sums && p->summed && p->reached && p->again && p->written && p->stack;
}

bool products_find(struct variant *v, const struct place *place, struct products *out)
{
	const struct ptx_func *f = place->func;
	struct pairs p;

	p.failed = !pairs_init(&p, v, place);
	for (uint32_t i = 0; !p.failed && i < f->n_stmts; i++) {
		if (f->stmts[i].insn)
			visit(&p, f->stmts[i].insn, i);
	}
	for (int sums = 1; sums >= 0; sums--) {
		for (struct holds *h = p.list; !p.failed && h; h = h->next) {
			if (!h->same)
				pair_copies(&p, h, sums);
		}
	}
	for (uint32_t i = 1; !p.failed && i <= f->n_stmts; i++)
		p.parted[i] += p.parted[i - 1];
	table_free(p.holds);
	*out = (struct products){ .parted = p.parted, .sums = p.sums };
	for (uint32_t i = 0; !p.failed && i < f->n_stmts; i++)
		out->any |= p.sums[i];
	out->probed = arena_array(v->arena, (size_t)f->n_stmts + 1, sizeof(*out->probed));
	p.failed |= !out->probed;
	return p.failed ? no_memory(v) : true;
}
