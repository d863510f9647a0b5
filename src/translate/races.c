/* races.c - refuses updates of shared memory that lose some when GPU threads meet.
 *
 * A map value or a global is shared by all threads, per-CPU ones by those of a multiprocessor. An update
 * that loads it, computes and stores to the same place loses what others wrote in between:
 *
 *	x = *v; *v = x | 4;		the stored value comes from the loaded one
 *	if (x > *v) *v = y;		or the store is made because of it
 *
 * What idiom.c and extreme.c made atomic is exempt, as are the stack, ring records and elements that a map has for each thread, which are the thread's own, stores of
 * constants behind a check (a flag set twice is set), and whole programs that say so (allow_races).
 *
 * Forward over all instances, into functions and back: for each register and 8-byte stack slot where its pointer came from (an origin: the
 * instruction that made it, or one of several), how far it has been moved since, and from which loads its value. Two accesses are to the same
 * place when origin and offset are; of one of several origins they may be, within one map. Loads beyond
 * the 64th share the bits of the first ones, which can only find more. Not followed: values that a function leaves in its
 * caller's stack. A program that is too large to be looked at is refused.
 */
#include "translate/internal.h"

#include <errno.h>
#include <string.h>

enum { GROUPS = 64, MAX_N = 32768, CELLS = TR_REGS + EBPF_STACK_BYTES / 8, MAP_ORIGIN = 1 << 24, SEVERAL = 1 << 25 };

/* Moved by ways of different lengths. */
#define NOT_KNOWN INT32_MIN

struct cells {
	int32_t origin[CELLS]; /* 0: none; SEVERAL: one of them */
	int32_t moved[CELLS];  /* since then; NOT_KNOWN */
	uint64_t from[CELLS];  /* loads, a bit each */
	uint64_t taken, passed; /* loads whose value decided a branch that was taken, not taken */
	uint16_t constant;
	bool seen;
};

struct load {
	struct tr_inst *inst;
	uint32_t at;	/* index in it */
	int32_t origin, moved; /* of its pointer */
	uint8_t op;	/* BPF_ALU operation seen last on its value; BPF_MOV: none */
};

struct races {
	struct tr *t;
	struct tr_inst *inst; /* the one looked at */
	uint32_t *first;      /* by instance: where its instructions begin in the arrays below */
	struct cells *in;     /* before each instruction */
	struct cells *results; /* by instance: r0 of it where it returns */
	uint32_t *load_of;    /* 1 + number of a load of shared memory */
	struct load *loads;
	uint32_t n_loads;
	bool changed;
};

static uint64_t group(uint32_t load)
{
	return 1ull << load % GROUPS;
}

static uint32_t number(const struct races *r, uint32_t i)
{
	return r->first[r->inst->id] + i;
}

static struct cells *before(const struct races *r, uint32_t i)
{
	return &r->in[number(r, i)];
}

/* What the instruction makes a pointer of. */
static int32_t made_here(const struct races *r, uint32_t i)
{
	return (int32_t)number(r, i) + 1;
}

static bool shared(const struct races *r, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(r->t, r->inst, i);
	const struct ebpf_map *m = f->map >= 0 ? &r->t->p->maps[f->map] : NULL;
	return f->region == EBPF_REGION_MAP_VALUE && !(m && (m->frozen || map_threads_of(m)));
}

/* The cell of an own slot that a stack access of a known place touches; -1. */
static int32_t slot_cell(const struct races *r, uint32_t i)
{
	struct tr_inst *owner = tr_frame_owner(r->t, r->inst, i);
	const struct bpf_insn *in = tr_bpf(r->t, r->inst, i);
	if (owner != r->inst || (tr_base_reg(in) != 10 && !tr_fact(r->t, r->inst, i)->fixed))
		return -1;
	int32_t o = tr_stack_offset(r->t, r->inst, i);
	return o < 0 && o >= -EBPF_STACK_BYTES ? TR_REGS + (-o - 1) / 8 : -1;
}

static void set(struct cells *c, uint32_t cell, int32_t origin, uint64_t from, bool constant)
{
	c->origin[cell] = origin;
	c->moved[cell] = 0;
	c->from[cell] = from;
	if (cell < TR_REGS)
		c->constant = (uint16_t)((c->constant & ~(1u << cell)) | (unsigned)constant << cell);
}

static int32_t moved_by(int32_t so_far, int64_t more)
{
	int64_t sum = so_far + more;
	return so_far == NOT_KNOWN || sum < INT16_MIN || sum > INT16_MAX ? NOT_KNOWN : (int32_t)sum;
}

static void alu(struct races *r, struct cells *c, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(r->t, r->inst, i);
	uint8_t op = BPF_OP(in->code), d = in->dst_reg, s = in->src_reg;
	bool reg = BPF_SRC(in->code) == BPF_X && op != BPF_END && op != BPF_NEG;
	if (op == BPF_MOV) {
		if (reg) {
			bool part = in->off || BPF_CLASS(in->code) == BPF_ALU;
			int32_t by = part ? 0 : c->moved[s];
			set(c, d, part ? 0 : c->origin[s], c->from[s], c->constant >> s & 1);
			c->moved[d] = by;
		} else {
			set(c, d, 0, 0, true);
		}
		return;
	}
	int32_t by = reg || (op != BPF_ADD && op != BPF_SUB) ? 0 : moved_by(c->moved[d], op == BPF_ADD ? in->imm : -(int64_t)in->imm);
	uint64_t from = c->from[d] | (reg ? c->from[s] : 0);
	bool constant = (c->constant >> d & 1) && (!reg || (c->constant >> s & 1));
	int32_t origin = c->origin[d] || (reg && c->origin[s]) ? (reg ? made_here(r, i) : c->origin[d]) : 0;
	for (uint32_t k = 0; from && k < r->n_loads; k++)
		if (from & group(k))
			r->loads[k].op = op;
	set(c, d, origin, from, constant);
	c->moved[d] = by;
}

static void load(struct races *r, struct cells *c, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(r->t, r->inst, i);
	int32_t cell = -1;
	if (tr_fact(r->t, r->inst, i)->region == EBPF_REGION_STACK)
		cell = slot_cell(r, i);
	uint32_t k = r->load_of[number(r, i)];
	if (k) {
		r->loads[k - 1].origin = c->origin[in->src_reg];
		r->loads[k - 1].moved = c->moved[in->src_reg];
	}
	set(c, in->dst_reg, cell < 0 ? 0 : c->origin[cell], k ? group(k - 1) : cell < 0 ? 0 : c->from[cell], false);
	if (cell >= 0)
		c->moved[in->dst_reg] = c->moved[cell];
}

static void meet(struct races *r, struct cells *to, const struct cells *from)
{
	if (!to->seen) {
		*to = *from;
		to->seen = true;
		r->changed = true;
		return;
	}
	for (uint32_t k = 0; k < CELLS; k++) {
		int32_t origin = from->origin[k] && to->origin[k] != from->origin[k] && to->origin[k] ? SEVERAL : from->origin[k] ? to->origin[k] : 0;
		int32_t moved = to->moved[k] == from->moved[k] ? to->moved[k] : NOT_KNOWN;
		r->changed |= origin != to->origin[k] || moved != to->moved[k];
		to->origin[k] = origin;
		to->moved[k] = moved;
		r->changed |= (to->from[k] | from->from[k]) != to->from[k];
		to->from[k] |= from->from[k];
	}
	r->changed |= (to->taken & from->taken) != to->taken || (to->passed & from->passed) != to->passed ||
		      (to->constant & from->constant) != to->constant;
	to->taken &= from->taken;
	to->passed &= from->passed;
	to->constant &= from->constant;
}

/* A function of the program begins with what it is given, where its caller stands; one that a helper calls with pointers of its own. */
static void enter(struct races *r, const struct cells *c, uint32_t i)
{
	const struct tr_inst *callee = r->inst->at[i].callee;
	bool by_helper = !tr_bpf(r->t, r->inst, i)->src_reg;
	struct cells entry = { .taken = c->taken, .passed = c->passed };
	for (uint32_t k = 1; k <= 5; k++) {
		entry.origin[k] = by_helper ? -(int32_t)(8 * callee->id + k) : c->origin[k];
		entry.moved[k] = by_helper ? 0 : c->moved[k];
		entry.from[k] = by_helper ? 0 : c->from[k];
		entry.constant |= by_helper ? 0 : c->constant & 1u << k;
	}
	meet(r, &r->in[r->first[callee->id] + r->t->index_of[r->t->funcs[callee->func].entry]], &entry);
}

static void call(struct races *r, struct cells *c, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(r->t, r->inst, i);
	const struct tr_inst *callee = r->inst->at[i].callee;
	if (callee)
		enter(r, c, i);
	for (uint32_t k = 0; k <= 5; k++)
		set(c, k, 0, 0, false);
	if (in->src_reg && callee) {
		set(c, 0, r->results[callee->id].origin[0], r->results[callee->id].from[0], r->results[callee->id].constant & 1);
		c->moved[0] = r->results[callee->id].moved[0];
	} else if (in->imm == BPF_FUNC_map_lookup_elem && !in->src_reg)
		c->origin[0] = made_here(r, i);
}

static void transfer(struct races *r, struct cells *c, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(r->t, r->inst, i);
	int32_t cell;
	switch (BPF_CLASS(in->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		alu(r, c, i);
		return;
	case BPF_LD:
		set(c, in->dst_reg, in->src_reg == BPF_PSEUDO_MAP_VALUE ? MAP_ORIGIN + in->imm : 0, 0, !in->src_reg);
		return;
	case BPF_LDX:
		load(r, c, i);
		return;
	case BPF_ST:
	case BPF_STX:
		if (tr_is_atomic(in)) {
			if (in->imm & BPF_FETCH)
				set(c, in->imm == BPF_CMPXCHG ? 0 : in->src_reg, 0, 0, false);
			return;
		}
		cell = tr_fact(r->t, r->inst, i)->region == EBPF_REGION_STACK ? slot_cell(r, i) : -1;
		if (cell >= 0 && BPF_CLASS(in->code) == BPF_STX) {
			set(c, (uint32_t)cell, c->origin[in->src_reg], c->from[in->src_reg], false);
			c->moved[cell] = c->moved[in->src_reg];
		} else if (cell >= 0)
			set(c, (uint32_t)cell, 0, 0, false);
		return;
	}
	if (tr_is_call(in))
		call(r, c, i);
}

/* What its function returns is not known yet: another round goes on behind the call. */
static bool waits(const struct races *r, uint32_t i)
{
	const struct tr_inst *callee = r->inst->at[i].callee;
	return callee && tr_bpf(r->t, r->inst, i)->src_reg && !r->results[callee->id].seen;
}

static uint64_t decided_by(const struct races *r, const struct cells *c, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(r->t, r->inst, i);
	return c->from[in->dst_reg] | (BPF_SRC(in->code) == BPF_X ? c->from[in->src_reg] : 0);
}

static void round_over(struct races *r)
{
	for (uint32_t i = 0; i < r->inst->n; i++) {
		if (!before(r, i)->seen)
			continue;
		struct cells out = *before(r, i);
		int32_t next = tr_next(r->t, r->inst, i), jump = tr_jump(r->t, r->inst, i);
		uint64_t by = next >= 0 && jump >= 0 ? decided_by(r, &out, i) : 0;
		transfer(r, &out, i);
		if (waits(r, i))
			continue;
		uint64_t taken = out.taken, passed = out.passed;
		if (next >= 0) {
			out.taken = taken & ~by;
			out.passed = passed | by;
			meet(r, before(r, (uint32_t)next), &out);
		}
		if (jump >= 0) {
			out.taken = taken | by;
			out.passed = passed & ~by;
			meet(r, before(r, (uint32_t)jump), &out);
		}
		if (tr_bpf(r->t, r->inst, i)->code == (BPF_JMP | BPF_EXIT))
			meet(r, &r->results[r->inst->id], &out);
	}
}

static bool same_place(const struct races *r, const struct load *load, uint32_t store, int32_t origin, int32_t moved)
{
	const struct ebpf_fact *a = tr_fact(r->t, load->inst, load->at), *b = tr_fact(r->t, r->inst, store);
	const struct bpf_insn *l = tr_bpf(r->t, load->inst, load->at), *s = tr_bpf(r->t, r->inst, store);
	int32_t n = (int32_t)ebpf_insn_bytes(l->code), m = (int32_t)ebpf_insn_bytes(s->code);
	bool several = origin == SEVERAL || load->origin == SEVERAL;
	if (!origin || !load->origin || (!several && load->origin != origin) || a->map != b->map)
		return false;
	if (a->fixed && b->fixed)
		return a->offset < b->offset + m && b->offset < a->offset + n;
	bool known = load->moved != NOT_KNOWN && moved != NOT_KNOWN;
	int32_t from = l->off + (known ? load->moved : 0), to = s->off + (known ? moved : 0);
	return from < to + m && to < from + n;
}

static const char *atomic_for(uint8_t op, bool whole)
{
	if (!whole)
		return "make it 4 or 8 bytes long, for which there are atomics";
	switch (op) {
	case BPF_OR:
		return "write __sync_fetch_and_or(p, bits)";
	case BPF_AND:
		return "write __sync_fetch_and_and(p, mask)";
	case BPF_XOR:
		return "write __sync_fetch_and_xor(p, bits)";
	case BPF_ADD:
	case BPF_SUB:
		return "write __sync_fetch_and_add(p, n)";
	default:
		return "write if (x < *p) *p = x; for a least value (or > for a greatest), else __sync_val_compare_and_swap(p, old, new), and try again a "
		       "bounded number of times when it does not return old";
	}
}

static const struct ebpf_line *line_of(const struct ebpf_program *p, uint32_t pc)
{
	const struct ebpf_line *found = NULL;
	for (uint32_t k = 0; k < p->n_lines && p->lines[k].insn <= pc; k++)
		found = &p->lines[k];
	return found;
}

static int refuse(struct races *r, uint32_t store, const struct load *load)
{
	const struct bpf_insn *in = tr_bpf(r->t, r->inst, store);
	uint32_t pc = r->inst->at[store].pc, from = load->inst->at[load->at].pc;
	const struct ebpf_line *l = line_of(r->t->p, pc);
	int32_t map = tr_fact(r->t, r->inst, store)->map;
	const char *text = l && l->text ? l->text + strspn(l->text, " \t") : "";
	struct buf where = { 0 };
	if (l)
		buf_printf(&where, "%s:%u: `%s`: ", l->file ? l->file : "?", l->line, text);
	int err = diag_set_at(r->t->d, EACCES, l ? l->line : 0, l ? l->column : 0,
		"%sinsn %u stores to '%s' what follows from the load at insn %u; another GPU thread may write there in between: "
		"%s (or --allow-races)",
		where.data ? where.data : "", pc, map >= 0 && r->t->p->maps[map].name ? r->t->p->maps[map].name : "a map", from,
		atomic_for(load->op, ebpf_insn_bytes(in->code) >= 4));
	buf_free(&where);
	return err;
}

static int check(struct races *r)
{
	for (uint32_t i = 0; i < r->inst->n; i++) {
		const struct bpf_insn *in = tr_bpf(r->t, r->inst, i);
		const struct cells *c = before(r, i);
		if (!c->seen || !tr_is_store(in) || tr_is_atomic(in) || !shared(r, i) || r->inst->at[i].role == TR_RMW_STORE)
			continue;
		bool constant = BPF_CLASS(in->code) == BPF_ST || (c->constant >> in->src_reg & 1);
		uint64_t from = BPF_CLASS(in->code) == BPF_STX ? c->from[in->src_reg] : 0;
		if (!constant)
			from |= c->taken | c->passed;
		for (uint32_t k = 0; k < r->n_loads; k++)
			if ((from & group(k)) && same_place(r, &r->loads[k], i, c->origin[in->dst_reg], c->moved[in->dst_reg]))
				return refuse(r, i, &r->loads[k]);
	}
	return 0;
}

/* Loads of shared memory, counted or noted; whether there are stores that they could race with. */
static bool find_loads(struct races *r, bool note)
{
	bool stores = false;
	r->n_loads = 0;
	for (size_t f = 0; f < r->t->n_insts; f++) {
		r->inst = r->t->insts[f];
		for (uint32_t i = 0; i < r->inst->n; i++) {
			const struct bpf_insn *in = tr_bpf(r->t, r->inst, i);
			bool load = BPF_CLASS(in->code) == BPF_LDX;
			if ((!tr_is_store(in) && !load) || !shared(r, i))
				continue;
			stores |= tr_is_store(in) && !tr_is_atomic(in) && r->inst->at[i].role != TR_RMW_STORE;
			if (load && note) {
				r->loads[r->n_loads] = (struct load){ .inst = r->inst, .at = i, .op = BPF_MOV };
				r->load_of[number(r, i)] = r->n_loads + 1;
			}
			r->n_loads += load;
		}
	}
	return stores && r->n_loads;
}

static int too_large(struct tr *t)
{
	return diag_set(t->d, E2BIG, "%s has more than %d instructions with its functions, too many to see whether what it stores to maps is lost when "
		"threads meet; use atomics and --allow-races", t->p->name, MAX_N);
}

static int follow(struct races *r)
{
	struct cells *entry = &r->in[r->t->index_of[r->t->funcs[r->t->insts[0]->func].entry]];
	entry->seen = true;
	do {
		r->changed = false;
		for (size_t f = 0; f < r->t->n_insts; f++) {
			r->inst = r->t->insts[f];
			round_over(r);
		}
	} while (r->changed);
	int err = 0;
	for (size_t f = 0; f < r->t->n_insts && !err; f++) {
		r->inst = r->t->insts[f];
		err = check(r);
	}
	return err;
}

static int races_in(struct races *r, struct arena *a, uint32_t n)
{
	struct tr *t = r->t;
	r->load_of = arena_array(a, n, sizeof(*r->load_of));
	r->loads = arena_array(a, r->n_loads, sizeof(*r->loads));
	r->in = arena_array(a, n, sizeof(*r->in));
	r->results = arena_array(a, t->n_insts, sizeof(*r->results));
	r->first = arena_array(a, t->n_insts, sizeof(*r->first));
	if (!r->load_of || !r->loads || !r->in || !r->results || !r->first)
		return diag_set(t->d, ENOMEM, "out of memory");
	for (size_t f = 1; f < t->n_insts; f++)
		r->first[f] = r->first[f - 1] + t->insts[f - 1]->n;
	find_loads(r, true);
	return follow(r);
}

/* A test-run has one thread. */
int tr_races(struct tr *t)
{
	struct races r = { .t = t };
	uint64_t n = 0;
	if (t->test || t->v->allow_races || !find_loads(&r, false))
		return 0;
	for (size_t f = 0; f < t->n_insts; f++)
		n += t->insts[f]->n;
	if (n > MAX_N)
		return too_large(t);
	struct arena *a = arena_new();
	if (!a)
		return diag_set(t->d, ENOMEM, "out of memory");
	int err = races_in(&r, a, (uint32_t)n);
	arena_free(a);
	return err;
}
