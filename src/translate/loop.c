/* loop.c - bpf_loop and bpf_for_each_map_elem: a loop around the function's body, which is an
 * instance like that of any call.
 *
 *	k = 0
 * top:	if k == limit or no element is left: done
 *	the function's arguments; its body
 *	k = k + 1; if it returned 0: top
 * done:	r0 = k
 *
 * A hash map is walked slot by slot; elements that come and go meanwhile may be met or not. A key
 * of an array is a copy in local memory.
 */
#include "translate/internal.h"

enum { E2BIG_ = -7, EINVAL_ = -22 };

static bool is_each(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return tr_bpf(t, inst, i)->imm == EBPF_FUNC_for_each_map_elem;
}

static uint16_t wants(const struct tr *t, const struct tr_inst *callee)
{
	return callee->at[t->index_of[t->funcs[callee->func].entry]].live_in;
}

uint16_t tr_loop_uses(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	bool each = is_each(t, inst, i);
	uint16_t uses = 0, args = wants(t, inst->at[i].callee);
	if (!each && !f->args[0].constant)
		uses |= 1 << 1;
	if (args >> (each ? 4 : 2) & 1)
		uses |= 1 << 3;
	if (!f->args[3].constant)
		uses |= 1 << 4;
	return uses;
}

struct loop {
	struct tr *t;
	struct tr_inst *inst, *callee;
	uint32_t i;
	struct tr_name k, top, done;
	uint16_t args; /* that the function reads */
};

static void label(struct tr *t, struct tr_name name)
{
	buf_printf(&t->body, "%s:\n", name.s);
}

/* Goes to done with an error as the result where a condition holds. */
static void fail_if(struct loop *l, const char *compare, struct tr_name value, int64_t with, int err)
{
	struct tr_name p = tr_pred(l->t), v = tr_t64(l->t);
	tr_emit(l->t, "mov.u64 %s, %s;", v.s, value.s);
	tr_emit(l->t, "setp.%s.u64 %s, %s, %lld;", compare, p.s, v.s, (long long)with);
	tr_emit(l->t, "@%s mov.u64 %s, %d;", p.s, l->k.s, err);
	tr_emit(l->t, "@%s bra %s;", p.s, l->done.s);
}

static void start(struct loop *l)
{
	const struct ebpf_fact *f = tr_fact(l->t, l->inst, l->i);
	tr_emit(l->t, "mov.u64 %s, 0;", l->k.s);
	if (!f->args[3].constant || f->args[3].value)
		fail_if(l, "ne", tr_scalar_arg(l->t, l->inst, l->i, 3), 0, EINVAL_);
}

static void give(struct loop *l, uint32_t r, struct tr_name value)
{
	if (l->args >> r & 1)
		tr_emit(l->t, "mov.u64 %s, %s;", tr_reg(l->callee, r).s, value.s);
}

static int body(struct loop *l)
{
	struct tr *t = l->t;
	int err = tr_lower_callee(t, l->inst, l->i);
	struct tr_name p = tr_pred(t);
	tr_emit(t, "add.s64 %s, %s, 1;", l->k.s, l->k.s);
	tr_emit(t, "setp.eq.u64 %s, %s, 0;", p.s, tr_reg(l->callee, 0).s);
	tr_emit(t, "@%s bra %s;", p.s, l->top.s);
	return err;
}

static void leave_at(struct loop *l, struct tr_name limit)
{
	struct tr_name p = tr_pred(l->t);
	label(l->t, l->top);
	tr_emit(l->t, "setp.ge.u64 %s, %s, %s;", p.s, l->k.s, limit.s);
	tr_emit(l->t, "@%s bra %s;", p.s, l->done.s);
}

static int lower_loop(struct loop *l)
{
	struct tr *t = l->t;
	struct tr_name n = tr_t64(t);
	tr_emit(t, "mov.u64 %s, %s;", n.s, tr_scalar_arg(t, l->inst, l->i, 0).s);
	tr_emit(t, "and.b64 %s, %s, 0xffffffff;", n.s, n.s);
	fail_if(l, "gt", n, EBPF_MAX_LOOPS, E2BIG_);
	leave_at(l, n);
	give(l, 1, l->k);
	give(l, 2, tr_reg(l->inst, 3));
	return body(l);
}

static int lower_array(struct loop *l, const struct ebpf_map *m)
{
	struct tr *t = l->t;
	struct tr_name index = tr_t32(t);
	leave_at(l, tr_imm(m->max_entries));
	tr_emit(t, "cvt.u32.u64 %s, %s;", index.s, l->k.s);
	if (l->args >> 2 & 1) {
		uint32_t key = t->n_keys++;
		tr_emit(t, "st.local.u32 [$egpu_key%u], %s;", key, index.s);
		tr_emit(t, "mov.u64 %s, $egpu_key%u;", tr_reg(l->callee, 2).s, key);
	}
	if (l->args >> 3 & 1)
		give(l, 3, tr_array_value(t, m, index));
	give(l, 4, tr_reg(l->inst, 3));
	return body(l);
}

/* The value of the slot before `next`, whose head is at `at`: of a per-CPU map this multiprocessor's. */
static void give_value(struct loop *l, const struct ebpf_map *m, struct tr_name next, struct tr_name at)
{
	struct tr *t = l->t;
	struct tr_name r3 = tr_reg(l->callee, 3);
	if (map_is_per_cpu(m->type)) {
		struct tr_name slot = tr_t32(t);
		tr_emit(t, "sub.u32 %s, %s, 1;", slot.s, next.s);
		tr_emit(t, "mov.u64 %s, %s;", r3.s, tr_hash_cpu_value(t, m, slot).s);
	} else {
		tr_emit(t, "add.s64 %s, %s, %llu;", r3.s, at.s, (unsigned long long)(8 + map_round_up(m->key_size, 8)));
	}
}

static int lower_hash(struct loop *l, const struct ebpf_map *m)
{
	struct tr *t = l->t;
	struct tr_name slot = tr_t32(t), state = tr_t32(t), p = tr_pred(t), at = tr_t64(t),
		       base = tr_map_base(t, m);
	tr_emit(t, "mov.u32 %s, 0;", slot.s);
	label(t, l->top);
	tr_emit(t, "setp.ge.u32 %s, %s, %llu;", p.s, slot.s, (unsigned long long)map_hash_slots(m->max_entries));
	tr_emit(t, "@%s bra %s;", p.s, l->done.s);
	tr_emit(t, "mad.wide.u32 %s, %s, %llu, %s;", at.s, slot.s, (unsigned long long)
		map_hash_slot_bytes(m->type, m->key_size, m->value_size), base.s);
	tr_emit(t, "add.s64 %s, %s, %d;", at.s, at.s, MAP_IMAGE_HEADER);
	tr_emit(t, "add.u32 %s, %s, 1;", slot.s, slot.s);
	tr_emit(t, "ld.volatile.global.u32 %s, [%s];", state.s, at.s);
	tr_emit(t, "and.b32 %s, %s, %d;", state.s, state.s, MAP_SLOT_STATE);
	tr_emit(t, "setp.ne.u32 %s, %s, %d;", p.s, state.s, MAP_SLOT_LIVE);
	tr_emit(t, "@%s bra %s;", p.s, l->top.s);
	if (l->args >> 2 & 1)
		tr_emit(t, "add.s64 %s, %s, 8;", tr_reg(l->callee, 2).s, at.s);
	if (l->args >> 3 & 1)
		give_value(l, m, slot, at);
	give(l, 4, tr_reg(l->inst, 3));
	return body(l);
}

static int lower_each(struct loop *l)
{
	const struct ebpf_map *m = tr_map_arg(l->t, l->inst, l->i);
	if (!m)
		return tr_unsupported(
			l->t, l->inst->at[l->i].pc, "which map is used differs between paths");
	if (l->args >> 1 & 1)
		give(l, 1, tr_map_base(l->t, m));
	return map_is_hash(m->type) ? lower_hash(l, m) : lower_array(l, m);
}

int tr_loop_lower(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct loop l = { .t = t, .inst = inst, .i = i, .callee = inst->at[i].callee };
	l.args = l.callee ? wants(t, l.callee) : 0;
	l.k = tr_t64(t);
	l.top = tr_label(t);
	l.done = tr_label(t);
	start(&l);
	/* Without a callee the count is 0 on every path. */
	int err = !l.callee ? 0 : is_each(t, inst, i) ? lower_each(&l) : lower_loop(&l);
	label(t, l.done);
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, l.k.s);
	return err;
}
