/* cost.c - what a kernel does and what its programs add, counted in the variant's text; and what that may cost.
 *
 * Counted is what one warp does that takes every way: instructions by their kind, each as often as its loops let suppose (LOOP
 * passes each). In a program what its inputs decide is decided here too, by the constants that the splice sets: most of the programs
 * that ask for a state space are empty at the other sites, and the compiler sees that as well. What functions do that are called
 * counts at each call.
 *
 * instrument_estimate() makes a slowdown of it: what programs add by what the kernel does, both in issue slots of the H200. Its figures were fitted to what an H200 took for the kernels and programs of the benchmark
 * (docs/performance.md has both); a kernel that waits for something else than it seems to is off by more.
 */
#include <errno.h>
#include <string.h>

#include "base/table.h"
#include "instrument/instrument.h"
#include "ptx/cfg.h"

enum { LOOP = 64, MAX_DEPTH = 3, VECTOR_BYTES = 16, MAX_CALLS = 16, WARPS_OF_BLOCK = 8,
	GROUPS_OF_ADDRESSES = 8, /* lanes usually have as many times more addresses than they have sectors */
};

static const char marker[] = "{ // egpu site ", plain[] = "{ // egpu plain";

struct counting {
	struct arena *arena;
	const struct ptx_module *m;
	struct table *done; /* name of a function -> struct instrument_cost */
	bool failed;
};

/* One function. */
struct walk {
	struct counting *c;
	const struct ptx_func *f;
	struct ptx_cfg cfg;
	uint8_t *depth; /* per block: loops around it */
	struct instrument_cost cost;
	/* The access to shared memory before: ptxas joins neighbours. */
	const char *base;
	int64_t next;
	uint32_t joined;
	bool ours; /* a program's function: all of it is the program's */
};

/* -- how often --------------------------------------------------------------------------- */

static bool opens(const struct walk *w, uint32_t i, const char *with)
{
	const struct ptx_stmt *s = &w->f->stmts[i];
	uint32_t at = s->span.begin;

	return s->kind == PTX_STMT_OPEN && w->c->m->size - at > strlen(with) && !memcmp(w->c->m->text + at, with, strlen(with));
}

/* What goes round in our text: a way to a hash map's slot, a lane's share of several sites. Most are through at once; a program's own loops
 * are not among these. */
static bool goes_round_once(const struct walk *w, uint32_t head)
{
	for (uint32_t i = w->cfg.blocks[head].first; i <= w->cfg.blocks[head].last; i++) {
		const struct ptx_stmt *s = &w->f->stmts[i];
		/* $egpu_probed may stand before a loop of the kernel's own. */
		if (s->kind == PTX_STMT_LABEL && (w->ours || (!strncmp(s->name, "$egpu_", 6) && strncmp(s->name, "$egpu_f", 7) && strcmp(s->name, "$egpu_probed"))))
			return true;
	}
	return false;
}

static void deepen(struct walk *w, const uint32_t *blocks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		w->depth[blocks[i]] += w->depth[blocks[i]] < MAX_DEPTH;
}

static bool find_depths(struct walk *w)
{
	struct arena *a = w->c->arena;
	bool *in;
	uint32_t *queue;

	if (ptx_cfg_build(a, w->f, &w->cfg) || ptx_cfg_dominators(a, &w->cfg))
		return false;
	w->depth = arena_array(a, w->cfg.n_blocks + 1, sizeof(*w->depth));
	in = arena_array(a, w->cfg.n_blocks + 1, sizeof(*in));
	queue = arena_array(a, w->cfg.n_blocks + 1, sizeof(*queue));
	if (!w->depth || !in || !queue)
		return false;
	for (uint32_t b = 0; b < w->cfg.n_blocks; b++) {
		if (w->cfg.blocks[b].loop_head && !goes_round_once(w, b))
			deepen(w, queue, ptx_cfg_loop(&w->cfg, b, in, queue));
	}
	return true;
}

static double passes(const struct walk *w, uint32_t stmt)
{
	double n = 1;

	for (uint32_t i = 0; i < w->depth[w->cfg.block_of[stmt]]; i++)
		n *= LOOP;
	return n;
}

/* -- what an instruction is --------------------------------------------------------------- */

static bool is_one_of(const char *base, const char *const *list)
{
	for (; *list; list++) {
		if (!strcmp(base, *list))
			return true;
	}
	return false;
}

/* In machine instructions, more or less. */
static double size_of(const struct ptx_insn *insn)
{
	static const char *const nothing[] = { "mov", "ret", "exit", "cvta", NULL };
	static const char *const long_ones[] = { "div", "rem", "sqrt", "rcp", "rsqrt", "sin", "cos", "tanh", NULL };
	static const char *const matrix[] = { "mma", "wmma", "wgmma", "tcgen05", NULL };
	bool wide = ptx_insn_type(insn).bits == 64;

	if (is_one_of(insn->base, nothing))
		return 0;
	if (is_one_of(insn->base, long_ones))
		return 10;
	if (is_one_of(insn->base, matrix))
		return 32;
	if (!strcmp(insn->base, "cvt"))
		return 0.5;
	if (!wide || ptx_insn_has_mod(insn, "wide"))
		return 1;
	return !strcmp(insn->base, "mul") || !strcmp(insn->base, "mad") ? 4 : 2;
}

/* Whether it goes with the access to shared memory before it, in one instruction. */
static bool joins(struct walk *w, const struct ptx_insn *insn, const struct ptx_access *a)
{
	const struct ptx_operand *at = a->address >= 0 ? &insn->operands[a->address] : NULL;

	if (!at || !at->name || !a->bytes || insn->pred || a->op == PTX_ACCESS_ATOMIC) {
		w->base = NULL;
		return false;
	}
	bool yes = w->base && !strcmp(w->base, at->name) && w->next == at->value && w->joined + a->bytes <= VECTOR_BYTES;
	w->joined = yes ? w->joined + a->bytes : a->bytes;
	w->base = at->name;
	w->next = at->value + a->bytes;
	return yes;
}

static void count_own(struct walk *w, const struct ptx_insn *insn, double n)
{
	struct instrument_cost *c = &w->cost;
	struct ptx_access a;

	ptx_insn_access(insn, &a);
	bool shared = a.op != PTX_ACCESS_NONE && (a.space == PTX_SPACE_SHARED || a.space == PTX_SPACE_SHARED_CLUSTER);
	if (shared && joins(w, insn, &a))
		return;
	c->insns += n * size_of(insn);
	if (shared)
		c->shared += n;
	else if (a.op != PTX_ACCESS_NONE && a.space != PTX_SPACE_PARAM && a.space != PTX_SPACE_CONST)
		c->bytes += n * (a.bytes ? a.bytes : 16);
}

static void count_probe(struct walk *w, const struct ptx_insn *insn, bool every_lane, double n)
{
	static const char *const among_lanes[] = { "match", "redux", "shfl", "vote", NULL };
	struct instrument_cost *c = &w->cost;
	struct ptx_access a;

	c->probe_insns += n * size_of(insn);
	if (!strcmp(insn->base, "mul") && insn->n_operands && insn->operands[0].kind == PTX_OPERAND_REG && !strcmp(insn->operands[0].name, "%egpu_distinct_bytes"))
		c->scattered += n * (GROUPS_OF_ADDRESSES - 1);
	if (is_one_of(insn->base, among_lanes))
		c->exchanges += n;
	if (!strcmp(insn->base, "match") && ptx_insn_has_mod(insn, "any"))
		c->scattered += n;
	ptx_insn_access(insn, &a);
	if (a.op == PTX_ACCESS_NONE || a.space == PTX_SPACE_PARAM || a.space == PTX_SPACE_CONST)
		return;
	if (!strcmp(insn->base, "red") && every_lane)
		c->scattered += n;
	else if (!strcmp(insn->base, "red"))
		c->adds += n;
	else if (a.op == PTX_ACCESS_ATOMIC)
		c->atoms += n;
	else if (a.op == PTX_ACCESS_LOAD)
		c->loads += n;
	else
		c->stores += n * (a.bytes ? a.bytes : 4) / 4;
}

/* -- what a program's inputs decide ------------------------------------------------------- */

struct known {
	struct counting *c;
	struct table *values; /* register -> uint64_t; none: not known */
	struct table *ahead;  /* labels that some way goes to */
	bool live;
	double share;	/* of the warps: what one thread does for its block */
	bool one_lane;	/* runs it */
};

static bool value_of(const struct known *k, const struct ptx_operand *op, uint64_t *out)
{
	const uint64_t *v = op->kind == PTX_OPERAND_REG && op->component < 0 ? table_gets(k->values, op->name) : NULL;

	if (op->kind == PTX_OPERAND_INT)
		*out = (uint64_t)op->value;
	else if (v)
		*out = *v;
	return op->kind == PTX_OPERAND_INT || v;
}

static void set_value(struct known *k, const struct ptx_operand *op, bool known, uint64_t value)
{
	uint64_t *v = known ? arena_alloc(k->c->arena, sizeof(*v)) : NULL;

	if (op->kind == PTX_OPERAND_PAIR || op->kind == PTX_OPERAND_VECTOR) {
		for (uint32_t i = 0; i < op->n_sub; i++)
			set_value(k, &op->sub[i], false, 0);
		return;
	}
	if (op->kind != PTX_OPERAND_REG || !op->name)
		return;
	if (v)
		*v = value;
	if (!v)
		table_remove(k->values, op->name, strlen(op->name));
	else
		k->c->failed |= table_puts(k->values, op->name, v) != 0;
}

static bool compare(const struct ptx_insn *insn, uint64_t a, uint64_t b, bool *out)
{
	struct ptx_type t = ptx_insn_type(insn);
	int64_t sa = t.bits == 32 ? (int32_t)a : (int64_t)a, sb = t.bits == 32 ? (int32_t)b : (int64_t)b;

	if (t.bits == 32) {
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	bool is_signed = t.kind == 's', less = is_signed ? sa < sb : a < b;
	if (insn->n_mods != 2 || (t.bits != 32 && t.bits != 64))
		return false;
	const char *how = insn->mods[0];
	if (!strcmp(how, "eq") || !strcmp(how, "ne"))
		*out = (a == b) == !strcmp(how, "eq");
	else if (!strcmp(how, "lt") || !strcmp(how, "ge") || !strcmp(how, "lo") || !strcmp(how, "hs"))
		*out = less == (how[0] == 'l');
	else if (!strcmp(how, "gt") || !strcmp(how, "le") || !strcmp(how, "hi") || !strcmp(how, "ls"))
		*out = (!less && a != b) == (how[0] == 'g' || !strcmp(how, "hi"));
	else
		return false;
	return true;
}

static bool result_of(const struct known *k, const struct ptx_insn *insn, uint64_t *out)
{
	uint64_t a, b = 0;
	bool yes;

	if (insn->n_operands < 2 || insn->pred || !value_of(k, &insn->operands[1], &a) ||
		(insn->n_operands > 2 && !value_of(k, &insn->operands[2], &b)) || insn->n_operands > 3)
		return false;
	if (!strcmp(insn->base, "setp")) {
		if (!compare(insn, a, b, &yes))
			return false;
		*out = yes;
		return true;
	}
	if (!strcmp(insn->base, "mov") || !strcmp(insn->base, "cvt"))
		*out = a;
	else if (!strcmp(insn->base, "and"))
		*out = a & b;
	else if (!strcmp(insn->base, "or"))
		*out = a | b;
	else if (!strcmp(insn->base, "add"))
		*out = a + b;
	else if (!strcmp(insn->base, "sub"))
		*out = a - b;
	else
		return false;
	if (ptx_insn_type(insn).bits == 32 || (insn->n_mods && !strcmp(insn->mods[insn->n_mods - 1], "u32")))
		*out = (uint32_t)*out;
	return true;
}

/* Whether the guard lets it pass: 1, 0, or -1 when that is not known. */
static int passes_guard(const struct known *k, const struct ptx_insn *insn)
{
	const uint64_t *v = insn->pred ? table_gets(k->values, insn->pred) : NULL;

	if (!insn->pred)
		return 1;
	return v ? (*v != 0) != insn->pred_negated : -1;
}

static void forget_values(struct known *k)
{
	table_free(k->values);
	k->values = table_new();
	k->c->failed |= !k->values;
}

static void follow_branch(struct known *k, const struct ptx_insn *insn, int guard)
{
	const struct ptx_operand *to = insn->n_operands ? &insn->operands[0] : NULL;

	if (!guard || !to || to->kind != PTX_OPERAND_SYMBOL)
		return;
	if (!strcmp(to->name, "$egpu_others"))
		k->share = 1.0 / WARPS_OF_BLOCK;
	k->one_lane |= k->share < 1 || (insn->pred && !strcmp(insn->pred, "%egpu_xe"));
	k->c->failed |= table_puts(k->ahead, to->name, k) != 0;
	k->live = guard != 1;
}

static void meet_label(struct known *k, const struct ptx_stmt *s)
{
	bool goes_there = table_gets(k->ahead, s->name);

	if (goes_there)
		forget_values(k);
	k->live |= goes_there || !strncmp(s->name, "$egpu_h", 7);
	if (!strcmp(s->name, "$egpu_others"))
		k->share = 1;
}

/* -- a function --------------------------------------------------------------------------- */

static const struct instrument_cost *cost_of(struct counting *c, const char *name, uint32_t depth);

static void add_call(struct walk *w, const struct ptx_insn *insn, bool probe, double n, uint32_t depth)
{
	const struct instrument_cost *of = NULL;

	for (uint32_t i = 0; i < insn->n_operands && !of; i++) {
		if (insn->operands[i].kind == PTX_OPERAND_SYMBOL)
			of = cost_of(w->c, insn->operands[i].name, depth + 1);
	}
	if (!of)
		return;
	const double *from = (const double *)of;
	double *to = (double *)&w->cost;
	for (size_t i = 0; i < sizeof(*of) / sizeof(*from); i++)
		to[i] += n * from[i];
	if (probe)
		w->cost.probe_insns += n * 8; /* arguments, the way there and back */
}

static uint32_t walk_splice(struct walk *w, uint32_t open, uint32_t depth)
{
	uint32_t end = w->f->stmts[open].match;
	struct known k = { .c = w->c, .values = table_new(), .ahead = table_new(), .live = true, .share = 1 };

	w->c->failed |= !k.values || !k.ahead;
	for (uint32_t i = open + 1; i < end && !w->c->failed; i++) {
		const struct ptx_stmt *s = &w->f->stmts[i];
		uint64_t value = 0;
		if (s->kind == PTX_STMT_LABEL)
			meet_label(&k, s);
		if (s->kind != PTX_STMT_INSN || !k.live)
			continue;
		int guard = passes_guard(&k, s->insn);
		double n = guard ? k.share * passes(w, i) : 0;
		if (!strcmp(s->insn->base, "bra")) {
			if (guard < 0)
				count_probe(w, s->insn, false, n);
			follow_branch(&k, s->insn, guard);
			continue;
		}
		bool known = result_of(&k, s->insn, &value);
		if (!known)
			count_probe(w, s->insn, s->insn->pred && guard == 1 && !k.one_lane, n);
		if (!strcmp(s->insn->base, "call"))
			add_call(w, s->insn, true, n, depth);
		if (s->insn->n_operands)
			set_value(&k, &s->insn->operands[0], known, value);
	}
	table_free(k.values);
	table_free(k.ahead);
	return end;
}

static void walk_function(struct walk *w, uint32_t depth)
{
	for (uint32_t i = 0; i < w->f->n_stmts && !w->c->failed; i++) {
		const struct ptx_stmt *s = &w->f->stmts[i];
		if (opens(w, i, marker)) {
			i = walk_splice(w, i, depth);
			continue;
		}
		if (i + 1 < w->f->n_stmts && opens(w, i + 1, plain)) { /* what is counted is a warp with programs */
			i = w->f->stmts[i + 1].match;
			continue;
		}
		if (s->kind != PTX_STMT_INSN || !w->cfg.blocks[w->cfg.block_of[i]].reachable)
			continue;
		if (w->ours)
			count_probe(w, s->insn, false, 1);
		else
			count_own(w, s->insn, passes(w, i));
		if (!strcmp(s->insn->base, "call"))
			add_call(w, s->insn, false, passes(w, i), depth);
	}
}

/* NULL: a function of no text, or one that calls itself. */
static const struct instrument_cost *cost_of(struct counting *c, const char *name, uint32_t depth)
{
	struct instrument_cost *known = table_gets(c->done, name);
	const struct ptx_func *f = ptx_find_func(c->m, name);
	struct walk w = { .c = c, .f = f, .ours = !strncmp(name, "__egpu_", 7) };

	if (known || !f || f->is_decl || depth > MAX_CALLS || c->failed)
		return known;
	known = arena_alloc(c->arena, sizeof(*known));
	if (!known || table_puts(c->done, name, known) || !find_depths(&w)) {
		c->failed = true;
		return NULL;
	}
	walk_function(&w, depth);
	*known = w.cost;
	return known;
}

int instrument_count(const char *ptx, size_t bytes, const char *kernel, struct instrument_cost *out, struct diag *d)
{
	struct ptx_module *m;
	struct counting c = { .arena = arena_new(), .done = table_new() };
	int err = ptx_parse(ptx, bytes, &m, d);

	memset(out, 0, sizeof(*out));
	if (!err) {
		c.m = m;
		c.failed = !c.arena || !c.done;
		const struct instrument_cost *of = c.failed ? NULL : cost_of(&c, kernel, 0);
		if (c.failed)
			err = diag_set(d, ENOMEM, "out of memory");
		else if (!of)
			err = diag_set(d, ENOENT, "no kernel of this name: %s", kernel);
		else
			*out = *of;
		ptx_module_free(m);
	}
	table_free(c.done);
	arena_free(c.arena);
	return err;
}

/* Issue slots a warp, fitted to 144 measured slowdowns. What bytes cost is what memory leaves time for: a lane's share of 3.4 TB/s. Of
 * cached loads that is too much, of scattered ones too little, and the text does not tell. */
static const struct {
	double byte, probe_insn, add, atom, load, store, exchange, scattered;
	double spread; /* four of five excesses were at most so many times more or less */
} slots = { 12, 0.43, 3.8, 3, 1, 6, 10, 40, 4 };

void instrument_estimate(const struct instrument_cost *c, struct instrument_estimate *out)
{
	double own = c->insns + slots.byte * c->bytes;
	double added = slots.probe_insn * c->probe_insns + slots.add * c->adds + slots.atom * c->atoms + slots.load * c->loads +
		       slots.store * c->stores + slots.exchange * c->exchanges + slots.scattered * c->scattered;
	double excess = added / (own > 1 ? own : 1);

	out->slowdown = 1 + excess;
	out->least = 1 + excess / slots.spread;
	out->most = 1 + excess * slots.spread;
}
