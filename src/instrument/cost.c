/* cost.c - what a kernel does and what its programs add, counted in the variant's text; and what that may cost.
 *
 * Counted is what one warp does that takes every way: instructions by their kind, and how many loops are around them. In a program what its inputs decide is decided here too, by the constants that the splice sets: most of the programs
 * that ask for a state space are empty at the other sites, and the compiler sees that as well. What functions do that are called
 * counts at each call.
 *
 * instrument_estimate() makes a slowdown of it: what programs add by what the kernel does, in what is issued and in what memory is asked. Its figures were fitted to what an H200 took
 * (docs/performance.md); a kernel that waits for something else than it seems to is off by more.
 */
#include <errno.h>
#include <string.h>

#include "base/table.h"
#include "instrument/instrument.h"
#include "ptx/cfg.h"

enum { MAX_DEPTH = INSTRUMENT_DEPTHS - 1, VECTOR_BYTES = 16, MAX_CALLS = 16, WARPS_OF_BLOCK = 8,
	GROUPS_OF_ADDRESSES = 8, /* lanes usually have as many times more addresses than they have sectors */
};

static const char marker[] = "{ // egpu site ", plain[] = "{ // egpu plain", choice[] = "{ // egpu site sample";

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
	uint8_t *depth; /* per block: loops around it, */
	double *times;  /* and how often those that say it go round */
	struct table *loaded; /* registers whose value comes out of memory */
	struct table *written; /* register -> struct written */
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

/* Where a register is written; of more than two nobody asks. */
struct written {
	const struct ptx_insn *insn[2];
	uint32_t block[2], n;
};

static bool is_named(const struct ptx_operand *op, const char *name)
{
	return op->kind == PTX_OPERAND_REG && op->name && !strcmp(op->name, name);
}

static void add_written(struct walk *w, uint32_t stmt, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		add_written(w, stmt, &op->sub[i]);
	if (op->kind != PTX_OPERAND_REG || !op->name)
		return;
	struct written *r = table_gets(w->written, op->name);
	if (!r) {
		r = arena_alloc(w->c->arena, sizeof(*r));
		w->c->failed |= !r || table_puts(w->written, op->name, r);
	}
	if (r && r->n < 2) {
		r->insn[r->n] = w->f->stmts[stmt].insn;
		r->block[r->n] = w->cfg.block_of[stmt];
	}
	if (r)
		r->n++;
}

static bool find_written(struct walk *w)
{
	w->written = table_new();
	for (uint32_t i = 0; w->written && i < w->f->n_stmts; i++) {
		if (opens(w, i, plain))
			i = w->f->stmts[i].match; /* the same again */
		const struct ptx_insn *insn = w->f->stmts[i].insn;
		if (insn && insn->n_operands)
			add_written(w, i, &insn->operands[0]);
	}
	return w->written;
}

/* The only writes to a register: one in the marked blocks, for all lanes, and at most one elsewhere. False: there are others. */
static bool writes_of(const struct walk *w, const bool *in, const char *name, const struct ptx_insn **inner, const struct ptx_insn **before)
{
	const struct written *r = table_gets(w->written, name);

	*inner = *before = NULL;
	for (uint32_t i = 0; r && i < r->n && i < 2; i++)
		*(in[r->block[i]] ? inner : before) = r->insn[i];
	return r && *inner && r->n == 1u + (*before != NULL) && !(*inner)->pred && is_named(&(*inner)->operands[0], name);
}

/* A loop that counts from one number to another, and says so where it is left: how often it goes round; 0: another. */
static double times_of(const struct walk *w, const bool *in, const struct ptx_insn *leaves)
{
	const struct ptx_insn *test, *step, *begin;

	if (!leaves->pred || !writes_of(w, in, leaves->pred, &test, &begin) || strcmp(test->base, "setp") || test->n_operands != 3 ||
		test->operands[1].kind != PTX_OPERAND_REG || test->operands[2].kind != PTX_OPERAND_INT)
		return 0;
	const char *counter = test->operands[1].name;
	if (!writes_of(w, in, counter, &step, &begin) || !begin || begin->pred || strcmp(begin->base, "mov") || begin->n_operands != 2 ||
		begin->operands[1].kind != PTX_OPERAND_INT)
		return 0;
	if (strcmp(step->base, "add") || step->n_operands != 3 || !is_named(&step->operands[1], counter) || step->operands[2].kind != PTX_OPERAND_INT || !step->operands[2].value)
		return 0;
	double n = ((double)test->operands[2].value - (double)begin->operands[1].value) / (double)step->operands[2].value;
	return n >= 1 && n <= 1e6 ? n : 0;
}

/* Of the marked loop. */
static double times_round(const struct walk *w, uint32_t head, const bool *in)
{
	double n = 0;

	for (uint32_t b = 0; b < w->cfg.n_blocks && !n; b++) {
		uint32_t end = in[b] ? ptx_block_end(w->f, &w->cfg.blocks[b]) : PTX_NO_BLOCK;
		bool back = false;
		for (uint32_t k = 0; k < w->cfg.blocks[b].n_succ; k++)
			back |= w->cfg.blocks[b].succ[k] == head;
		if (end != PTX_NO_BLOCK && (back || b == head) && !strcmp(w->f->stmts[end].insn->base, "bra"))
			n = times_of(w, in, w->f->stmts[end].insn);
	}
	return n;
}

static void deepen(struct walk *w, double times, const uint32_t *blocks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (times > 0)
			w->times[blocks[i]] *= times;
		else
			w->depth[blocks[i]] += w->depth[blocks[i]] < MAX_DEPTH;
	}
}

static bool find_depths(struct walk *w)
{
	struct arena *a = w->c->arena;
	bool *in;
	uint32_t *queue;

	if (ptx_cfg_build(a, w->f, &w->cfg) || ptx_cfg_dominators(a, &w->cfg))
		return false;
	w->depth = arena_array(a, w->cfg.n_blocks + 1, sizeof(*w->depth));
	w->times = arena_array(a, w->cfg.n_blocks + 1, sizeof(*w->times));
	in = arena_array(a, w->cfg.n_blocks + 1, sizeof(*in));
	queue = arena_array(a, w->cfg.n_blocks + 1, sizeof(*queue));
	if (!w->depth || !w->times || !in || !queue || !find_written(w))
		return false;
	for (uint32_t b = 0; b < w->cfg.n_blocks; b++)
		w->times[b] = 1;
	for (uint32_t b = 0; b < w->cfg.n_blocks; b++) {
		if (!w->cfg.blocks[b].loop_head || goes_round_once(w, b))
			continue;
		uint32_t n = ptx_cfg_loop(&w->cfg, b, in, queue);
		deepen(w, times_round(w, b, in), queue, n);
	}
	return true;
}

/* What a statement's executions are counted in, */
static struct instrument_work *count_at(struct walk *w, uint32_t stmt)
{
	return &w->cost.in[w->depth[w->cfg.block_of[stmt]]];
}

/* and how many there are each time. */
static double passes(const struct walk *w, uint32_t stmt)
{
	return w->times[w->cfg.block_of[stmt]];
}

/* -- what comes out of memory --------------------------------------------------------------- */

static bool reads_loaded(const struct walk *w, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		if (reads_loaded(w, &op->sub[i]))
			return true;
	return op->name && table_gets(w->loaded, op->name);
}

static void put_loaded(struct walk *w, const struct ptx_operand *op, bool *changed)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		put_loaded(w, &op->sub[i], changed);
	if (op->kind != PTX_OPERAND_REG || !op->name || table_gets(w->loaded, op->name))
		return;
	*changed = true;
	w->c->failed |= table_puts(w->loaded, op->name, w) != 0;
}

/* Once more for what loops hand back; text is seldom the other way round. */
static bool find_loaded(struct walk *w)
{
	bool changed = true;

	w->loaded = table_new();
	for (int round = 0; w->loaded && changed && round < 2; round++) {
		changed = false;
		for (uint32_t i = 0; i < w->f->n_stmts; i++) {
			const struct ptx_insn *insn = w->f->stmts[i].insn;
			struct ptx_access a;
			if (opens(w, i, marker) || opens(w, i, plain))
				i = w->f->stmts[i].match;
			if (!insn || !insn->n_operands || insn->operands[0].kind == PTX_OPERAND_ADDRESS)
				continue;
			ptx_insn_access(insn, &a);
			bool loaded = (a.op == PTX_ACCESS_LOAD || a.op == PTX_ACCESS_ATOMIC) && (a.space == PTX_SPACE_GLOBAL || a.space == PTX_SPACE_GENERIC);
			for (uint32_t k = 1; k < insn->n_operands; k++)
				loaded |= reads_loaded(w, &insn->operands[k]);
			if (loaded)
				put_loaded(w, &insn->operands[0], &changed);
		}
	}
	return w->loaded;
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

static void count_own(struct walk *w, const struct ptx_insn *insn, struct instrument_work *c, double n)
{
	struct ptx_access a;

	ptx_insn_access(insn, &a);
	bool shared = a.op != PTX_ACCESS_NONE && (a.space == PTX_SPACE_SHARED || a.space == PTX_SPACE_SHARED_CLUSTER);
	if (shared && joins(w, insn, &a))
		return;
	c->insns += n * size_of(insn);
	if (shared)
		c->shared += n;
	if (shared || a.op == PTX_ACCESS_NONE || a.space == PTX_SPACE_PARAM || a.space == PTX_SPACE_CONST)
		return;
	double bytes = n * (a.bytes ? a.bytes : 16);
	bool gathers = a.address >= 0 && a.space != PTX_SPACE_LOCAL && reads_loaded(w, &insn->operands[a.address]);
	*(gathers ? &c->gathered : &c->bytes) += bytes;
	if (a.op == PTX_ACCESS_ATOMIC)
		c->atomics += n;
}

static void count_probe(const struct ptx_insn *insn, bool every_lane, struct instrument_work *c, double n)
{
	static const char *const among_lanes[] = { "match", "redux", "shfl", "vote", NULL };
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
	struct table *inputs; /* likewise, of those that are written once, before the programs */
	struct table *again;  /* registers that are written more than once */
	uint32_t depth;	      /* of scopes */
	struct table *ahead;  /* labels that some way goes to */
	bool live;
	double share;	/* of the warps: what one thread does for its block */
	bool one_lane;	/* runs it */
};

static bool value_of(const struct known *k, const struct ptx_operand *op, uint64_t *out)
{
	bool reg = op->kind == PTX_OPERAND_REG && op->component < 0;
	const uint64_t *v = reg ? table_gets(k->values, op->name) : NULL;

	if (reg && !v)
		v = table_gets(k->inputs, op->name);

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
	if (v && k->depth == 0 && !table_gets(k->again, op->name))
		k->c->failed |= table_puts(k->inputs, op->name, v) != 0;
}

/* Which registers the statements behind `open`, up to `end`, write more than once. */
static void find_again(struct known *k, const struct ptx_func *f, uint32_t open, uint32_t end)
{
	struct table *once = table_new();

	k->c->failed |= !once;
	for (uint32_t i = open + 1; once && i < end; i++) {
		const struct ptx_insn *insn = f->stmts[i].insn;
		const char *name = insn && insn->n_operands && insn->operands[0].kind == PTX_OPERAND_REG ? insn->operands[0].name : NULL;
		if (name)
			k->c->failed |= table_puts(table_gets(once, name) ? k->again : once, name, k) != 0;
	}
	table_free(once);
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
	if (!v)
		v = table_gets(k->inputs, insn->pred);
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

/* Behind so many loops more. */
static void add_cost(struct instrument_cost *to, const struct instrument_cost *from, uint32_t around, double n)
{
	for (uint32_t d = 0; d < INSTRUMENT_DEPTHS; d++) {
		const double *all = (const double *)&from->in[d];
		double *sum = (double *)&to->in[d + around < MAX_DEPTH ? d + around : MAX_DEPTH];
		for (size_t i = 0; i < sizeof(from->in[d]) / sizeof(*all); i++)
			sum[i] += n * all[i];
	}
}

static void add_call(struct walk *w, uint32_t stmt, bool probe, double n, uint32_t depth)
{
	const struct ptx_insn *insn = w->f->stmts[stmt].insn;
	const struct instrument_cost *of = NULL;

	for (uint32_t i = 0; i < insn->n_operands && !of; i++) {
		if (insn->operands[i].kind == PTX_OPERAND_SYMBOL)
			of = cost_of(w->c, insn->operands[i].name, depth + 1);
	}
	if (!of)
		return;
	add_cost(&w->cost, of, w->depth[w->cfg.block_of[stmt]], n);
	if (probe)
		count_at(w, stmt)->probe_insns += n * 8; /* arguments, the way there and back */
}

/* How a statement of a splice runs. */
struct run {
	bool counts, every_lane;
	double n;
};

/* The splice from `open` on: what runs, and how often. False: something goes back in it. */
static bool follow_splice(struct walk *w, uint32_t open, uint32_t depth, struct run *runs)
{
	uint32_t end = w->f->stmts[open].match;
	struct known k = { .c = w->c, .values = table_new(), .inputs = table_new(), .again = table_new(), .ahead = table_new(), .live = true, .share = 1 };
	bool forward = true;

	w->c->failed |= !k.values || !k.ahead || !k.inputs || !k.again;
	if (!w->c->failed)
		find_again(&k, w->f, open, end);
	for (uint32_t i = open + 1; i < end && !w->c->failed; i++) {
		const struct ptx_stmt *s = &w->f->stmts[i];
		uint64_t value = 0;
		k.depth += s->kind == PTX_STMT_OPEN;
		k.depth -= s->kind == PTX_STMT_CLOSE;
		if (s->kind == PTX_STMT_LABEL) {
			meet_label(&k, s);
			forward &= !w->cfg.blocks[w->cfg.block_of[i]].loop_head;
		}
		if (s->kind != PTX_STMT_INSN || !k.live)
			continue;
		int guard = passes_guard(&k, s->insn);
		double n = guard ? k.share * passes(w, i) : 0;
		if (!strcmp(s->insn->base, "bra")) {
			runs[i - open] = (struct run){ guard < 0, false, n };
			follow_branch(&k, s->insn, guard);
			continue;
		}
		bool known = result_of(&k, s->insn, &value);
		runs[i - open] = (struct run){ !known, s->insn->pred && guard == 1 && !k.one_lane, n };
		if (!strcmp(s->insn->base, "call"))
			add_call(w, i, true, n, depth);
		if (s->insn->n_operands)
			set_value(&k, &s->insn->operands[0], known, value);
	}
	table_free(k.values);
	table_free(k.inputs);
	table_free(k.again);
	table_free(k.ahead);
	return forward;
}

/* Whether a register is declared in statements [open, end). */
static bool is_declared_in(const struct walk *w, uint32_t open, uint32_t end, const struct ptx_reg *reg)
{
	for (uint32_t i = open; i < end; i++) {
		const struct ptx_stmt *s = &w->f->stmts[i];
		if (s->kind == PTX_STMT_REG && reg >= s->regs && reg < s->regs + s->n_regs)
			return true;
	}
	return false;
}

/* Whether a result is used behind it, or outlives the splice. */
static bool is_wanted(const struct walk *w, uint32_t open, uint32_t end, const struct table *used, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		if (is_wanted(w, open, end, used, &op->sub[i]))
			return true;
	return op->kind == PTX_OPERAND_REG && op->name && (table_gets(used, op->name) || !is_declared_in(w, open, end, op->reg));
}

static void use(struct walk *w, struct table *used, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		use(w, used, &op->sub[i]);
	if (op->name)
		w->c->failed |= table_puts(used, op->name, w) != 0;
}

static bool has_effect(const struct ptx_insn *insn)
{
	struct ptx_access a;

	ptx_insn_access(insn, &a);
	return !insn->n_operands || ptx_insn_has_mod(insn, "volatile") || ptx_insn_has_mod(insn, "acquire") || a.op == PTX_ACCESS_STORE || a.op == PTX_ACCESS_ATOMIC || !strcmp(insn->base, "call") || !strcmp(insn->base, "bra") ||
	       insn->operands[0].kind != PTX_OPERAND_REG;
}

/* From its end back: what nothing uses the compiler leaves out, inputs of a program above all that ends at once. */
static void drop_unused(struct walk *w, uint32_t open, struct run *runs)
{
	uint32_t end = w->f->stmts[open].match;
	struct table *used = table_new();

	w->c->failed |= !used;
	for (uint32_t i = end; i-- > open + 1 && !w->c->failed;) {
		const struct ptx_insn *insn = w->f->stmts[i].insn;
		struct run *r = &runs[i - open];
		if (!insn || !r->counts)
			continue;
		bool effect = has_effect(insn);
		if (!effect && !is_wanted(w, open, end, used, &insn->operands[0])) {
			r->counts = false;
			continue;
		}
		if (!effect && !insn->pred && insn->operands[0].name)
			table_remove(used, insn->operands[0].name, strlen(insn->operands[0].name));
		for (uint32_t k = !effect; k < insn->n_operands; k++)
			use(w, used, &insn->operands[k]);
		if (insn->pred)
			w->c->failed |= table_puts(used, insn->pred, w) != 0;
	}
	table_free(used);
}

static uint32_t walk_splice(struct walk *w, uint32_t open, uint32_t depth)
{
	uint32_t end = w->f->stmts[open].match;
	struct run *runs = arena_array(w->c->arena, end - open + 1, sizeof(*runs));

	double before = count_at(w, open)->probe_insns;
	w->c->failed |= !runs;
	if (runs && follow_splice(w, open, depth, runs))
		drop_unused(w, open, runs);
	for (uint32_t i = open + 1; i < end && !w->c->failed; i++)
		if (runs[i - open].counts)
			count_probe(w->f->stmts[i].insn, runs[i - open].every_lane, count_at(w, i), runs[i - open].n);
	uint32_t b = w->cfg.block_of[open];
	if (w->depth[b] || w->times[b] > 1)
		count_at(w, open)->looped += count_at(w, open)->probe_insns - before;
	return end;
}

static void walk_function(struct walk *w, uint32_t depth)
{
	for (uint32_t i = 0; i < w->f->n_stmts && !w->c->failed; i++) {
		const struct ptx_stmt *s = &w->f->stmts[i];
		if (opens(w, i, marker)) { /* how a warp is chosen is the same work for every program, and a small one */
			i = opens(w, i, choice) ? s->match : walk_splice(w, i, depth);
			continue;
		}
		if (i + 1 < w->f->n_stmts && opens(w, i + 1, plain)) { /* what is counted is a warp with programs */
			i = w->f->stmts[i + 1].match;
			continue;
		}
		if (s->kind != PTX_STMT_INSN || !w->cfg.blocks[w->cfg.block_of[i]].reachable)
			continue;
		if (w->ours)
			count_probe(s->insn, false, &w->cost.in[0], 1);
		else
			count_own(w, s->insn, count_at(w, i), passes(w, i));
		if (!strcmp(s->insn->base, "call"))
			add_call(w, i, false, passes(w, i), depth);
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
	bool ready = known && !table_puts(c->done, name, known) && find_depths(&w) && find_loaded(&w);
	if (ready)
		walk_function(&w, depth);
	table_free(w.loaded);
	table_free(w.written);
	if (!ready) {
		c->failed = true;
		return NULL;
	}
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

struct instrument_work instrument_work(const struct instrument_cost *c, double passes)
{
	struct instrument_work sum = { 0 };
	double *to = (double *)&sum, n = 1;

	for (uint32_t d = 0; d < INSTRUMENT_DEPTHS; d++, n *= passes) {
		const double *from = (const double *)&c->in[d];
		for (size_t i = 0; i < sizeof(sum) / sizeof(*to); i++)
			to[i] += n * from[i];
	}
	return sum;
}

/* In issue slots of the H200, a warp's share: what it issues, and what the memory system does for it meanwhile; the longer of the two is what
 * it takes, with a part of the other. Fitted to 272 measured slowdowns (docs/performance.md). */
static const struct {
	double shared, byte, gathered, atomic; /* the kernel's own */
	double insn, add, atom, load, exchange; /* what programs issue */
	double added, stored, scattered;	/* and ask of memory */
	double overlap;				/* of the shorter */
} slots = { 3.3, 7.7, 70, 1000, .39, 10, 9.9, 3.9, 6.7, 9.5, 5.5, 64, .18 };

/* What the text does not tell: how often a loop goes round; whether memory is near, in caches, and atomics are on different words; and
 * what loops lose in which a program stands, of passes that ran beside each other. */
static const struct {
	double passes, few;
	double near, table, apart; /* parts of what bytes, gathered ones and atomics cost else */
	double spread, noise; /* of excesses, that much beyond what comes of these */
	double looped;	      /* of the kernel's time */
} unknown = { 64, 6, .5, .2, .3, 3.5, .03, .5 };

static double longer(double a, double b)
{
	return a > b ? a + slots.overlap * b : b + slots.overlap * a;
}

static double excess_of(const struct instrument_cost *c, double passes, bool is_near)
{
	struct instrument_work w = instrument_work(c, passes);
	double issued = w.insns + slots.shared * w.shared;
	double memory = slots.byte * w.bytes * (is_near ? unknown.near : 1) + slots.gathered * w.gathered * (is_near ? unknown.table : 1) +
			slots.atomic * w.atomics * (is_near ? unknown.apart : 1);
	double more = slots.insn * w.probe_insns + slots.add * w.adds + slots.atom * w.atoms + slots.load * w.loads + slots.exchange * w.exchanges;
	double asked = slots.added * w.adds + slots.stored * w.stores + slots.scattered * w.scattered;

	issued = issued > 1 ? issued : 1;
	return longer(issued + more, memory + asked) / longer(issued, memory) - 1;
}

static bool stands_in_loops(const struct instrument_cost *c)
{
	bool any = false;

	for (uint32_t d = 0; d < INSTRUMENT_DEPTHS; d++)
		any |= c->in[d].looped > 0;
	return any;
}

void instrument_estimate(const struct instrument_cost *cost, struct instrument_estimate *out)
{
	double excess = excess_of(cost, unknown.passes, false), least = excess, most = excess;

	for (int i = 1; i < 4; i++) {
		double other = excess_of(cost, i & 1 ? unknown.few : unknown.passes, i & 2);
		least = other < least ? other : least;
		most = other > most ? other : most;
	}
	least = least / unknown.spread - unknown.noise;
	most = most * unknown.spread + (most > 0 ? unknown.noise : 0) + (stands_in_loops(cost) ? unknown.looped : 0);
	*out = (struct instrument_estimate){ 1 + excess, 1 + (least > 0 ? least : 0), 1 + most };
}
