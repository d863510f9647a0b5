/* stack.c - keeps stack slots out of local memory.
 *
 * Every access of a known place cuts its frame at both its ends; what lies between two cuts is an
 * atom and becomes a register. A load of several atoms joins them, a store splits its value. Bytes
 * that are reached through an address (a varying offset, an unknown frame, a helper that takes
 * memory) or that would need too many atoms are left in a .local array, together with all accesses
 * that overlap them.
 */
#include "translate/internal.h"

#include <errno.h>
#include <string.h>

struct access {
	struct tr_inst *inst;
	int32_t offset;
	uint32_t bytes;
	bool helper; /* read piece by piece, so that it may have many atoms */
};

struct accesses {
	struct access *all;
	size_t n, cap;
};

static bool bit(const uint64_t *set, uint32_t at)
{
	return set[at / 64] >> (at % 64) & 1;
}

static void set_bit(uint64_t *set, uint32_t at)
{
	set[at / 64] |= 1ull << (at % 64);
}

static uint32_t at_byte(int32_t offset)
{
	return (uint32_t)(offset + EBPF_STACK_BYTES);
}

struct tr_inst *tr_frame_at(const struct tr *t, struct tr_inst *inst, uint32_t depth)
{
	if (inst->depth < 0)
		return NULL;
	while (inst && depth < (uint32_t)inst->depth) {
		struct tr_inst *up = inst->n_callers ? inst->callers[0].inst : NULL;
		for (size_t c = 1; c < inst->n_callers; c++)
			if (inst->callers[c].inst != up)
				return NULL;
		inst = up && up->depth >= 0 ? up : NULL;
	}
	return inst && depth == (uint32_t)inst->depth ? inst : NULL;
}

struct tr_inst *tr_frame_owner(const struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	if (f->region != EBPF_REGION_STACK)
		return NULL;
	if (tr_base_reg(tr_bpf(t, inst, i)) == BPF_REG_10)
		return inst;
	return f->frame == 255 ? NULL : tr_frame_at(t, inst, f->frame);
}

int32_t tr_stack_offset(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	return tr_base_reg(in) == BPF_REG_10 ? in->off : tr_fact(t, inst, i)->offset;
}

static bool known_offset(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return tr_base_reg(tr_bpf(t, inst, i)) == BPF_REG_10 || tr_fact(t, inst, i)->fixed;
}

bool tr_frame_taken(const struct tr_frame *f, int32_t offset, uint32_t bytes)
{
	for (uint32_t k = 0; k < bytes; k++)
		if (bit(f->taken, at_byte(offset) + k))
			return true;
	return false;
}

bool tr_in_slots(const struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_inst **owner)
{
	*owner = tr_frame_owner(t, inst, i);
	if (!*owner || !known_offset(t, inst, i))
		return false;
	return !tr_frame_taken(&(*owner)->frame, tr_stack_offset(t, inst, i),
		ebpf_insn_bytes(tr_bpf(t, inst, i)->code));
}

static int check_range(struct tr *t, uint32_t pc, int64_t offset, uint64_t bytes)
{
	if (offset < -EBPF_STACK_BYTES || bytes > EBPF_STACK_BYTES || offset + (int64_t)bytes > 0)
		return diag_set(t->d, EINVAL, "insn %u: stack access at %lld outside its frame", pc,
			(long long)offset);
	return 0;
}

static void take(struct tr_frame *f, int32_t offset, uint32_t bytes)
{
	for (uint32_t k = 0; k < bytes; k++)
		set_bit(f->taken, at_byte(offset) + k);
}

/* The deepest stack of the program bounds each frame. */
static void take_all(const struct tr *t, struct tr_frame *f)
{
	uint32_t bytes = (t->v->stack_bytes + 7) / 8 * 8;
	if (!bytes || bytes > EBPF_STACK_BYTES)
		bytes = EBPF_STACK_BYTES;
	take(f, -(int32_t)bytes, bytes);
}

static int add(struct tr *t, struct accesses *a, struct access new)
{
	struct access *all = arena_grow(t->arena, a->all, a->n, &a->cap, sizeof(*all));
	if (!all)
		return diag_set(t->d, ENOMEM, "out of memory");
	a->all = all;
	all[a->n++] = new;
	struct tr_frame *f = &new.inst->frame;
	set_bit(f->cut, at_byte(new.offset));
	set_bit(f->cut, at_byte(new.offset) + new.bytes);
	for (uint32_t k = 0; k < new.bytes; k++)
		set_bit(f->used, at_byte(new.offset) + k);
	return 0;
}

static int add_access(struct tr *t, struct accesses *a, struct tr_inst *inst, uint32_t i)
{
	struct tr_inst *owner = tr_frame_owner(t, inst, i);
	if (!owner) {
		t->frames_in_memory = true;
		return 0;
	}
	uint32_t bytes = ebpf_insn_bytes(tr_bpf(t, inst, i)->code);
	if (!known_offset(t, inst, i)) {
		const struct ebpf_fact *f = tr_fact(t, inst, i);
		int err = check_range(t, inst->at[i].pc, f->low, (uint64_t)(f->high - f->low) + bytes);
		if (!err)
			take(&owner->frame, f->low, (uint32_t)(f->high - f->low) + bytes);
		return err;
	}
	int32_t offset = tr_stack_offset(t, inst, i);
	int err = check_range(t, inst->at[i].pc, offset, bytes);
	return err ? err : add(t, a, (struct access){ owner, offset, bytes, false });
}

/* Memory argument `arg` of a helper call. */
static int add_arg(struct tr *t, struct accesses *a, struct tr_inst *inst, uint32_t i, uint32_t arg)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	uint32_t bytes;
	if (!tr_helper_arg_memory(t, inst, i, arg) || f->args[arg].region != EBPF_REGION_STACK)
		return 0;
	bool known = tr_helper_arg_bytes(t, inst, i, arg, &bytes);
	struct tr_inst *owner =
		f->args[arg].frame == 255 ? NULL : tr_frame_at(t, inst, f->args[arg].frame);
	if (!owner) {
		t->frames_in_memory = true;
		return 0;
	}
	if (!f->args[arg].fixed) {
		take_all(t, &owner->frame);
		return 0;
	}
	int32_t offset = f->args[arg].offset;
	if (!known && offset < 0) /* varying size: up to the frame's top at most */
		bytes = arg < 4 && f->args[arg + 1].max < (uint64_t) - (int64_t)offset
				? (uint32_t)f->args[arg + 1].max
				: (uint32_t)-offset;
	int err = check_range(t, inst->at[i].pc, offset, bytes);
	if (err)
		return err;
	err = add(t, a, (struct access){ owner, offset, bytes, true });
	if (!err && (!known || bytes > tr_helper_by_value(t, inst, i, arg)))
		take(&owner->frame, offset, bytes);
	return err;
}

static int add_insn(struct tr *t, struct accesses *a, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	if (tr_is_call(in) && in->src_reg == 0) {
		for (uint32_t arg = 0; arg < 5; arg++) {
			int err = add_arg(t, a, inst, i, arg);
			if (err)
				return err;
		}
		return 0;
	}
	bool memory = tr_is_store(in) || BPF_CLASS(in->code) == BPF_LDX;
	return memory && tr_fact(t, inst, i)->region == EBPF_REGION_STACK
		       ? add_access(t, a, inst, i)
		       : 0;
}

static uint32_t count_atoms(const struct access *a)
{
	uint32_t n = 1;
	for (uint32_t k = 1; k < a->bytes; k++)
		n += bit(a->inst->frame.cut, at_byte(a->offset) + k);
	return n;
}

/* Every access is either wholly in registers or wholly in memory. */
static void spread(struct accesses *a)
{
	for (size_t k = 0; k < a->n; k++)
		if (!a->all[k].helper && count_atoms(&a->all[k]) > TR_MAX_ATOMS)
			take(&a->all[k].inst->frame, a->all[k].offset, a->all[k].bytes);
	for (bool changed = true; changed;) {
		changed = false;
		for (size_t k = 0; k < a->n; k++) {
			struct access *x = &a->all[k];
			uint32_t taken = 0;
			for (uint32_t b = 0; b < x->bytes; b++)
				taken += bit(x->inst->frame.taken, at_byte(x->offset) + b);
			if (!taken || taken == x->bytes)
				continue;
			take(&x->inst->frame, x->offset, x->bytes);
			changed = true;
		}
	}
}

static int make_atoms(struct tr *t, struct tr_frame *f)
{
	size_t cap = 0;
	for (int32_t o = -EBPF_STACK_BYTES; o < 0;) {
		uint32_t b = at_byte(o), n = 1;
		if (!bit(f->used, b) || bit(f->taken, b)) {
			o += f->used[b / 64] ? 1 : 64 - (int32_t)(b % 64);
			continue;
		}
		while (n < 8 && o + (int32_t)n < 0 && bit(f->used, b + n) &&
			!bit(f->taken, b + n) && !bit(f->cut, b + n))
			n++;
		struct tr_atom *all =
			arena_grow(t->arena, f->atoms, f->n_atoms, &cap, sizeof(*all));
		if (!all)
			return diag_set(t->d, ENOMEM, "out of memory");
		f->atoms = all;
		all[f->n_atoms++] = (struct tr_atom){ o, n, t->n_slots++ };
		o += (int32_t)n;
	}
	return 0;
}

static void memory_range(struct tr_frame *f)
{
	for (int32_t o = -EBPF_STACK_BYTES; o < 0; o++) {
		uint32_t b = at_byte(o);
		if (bit(f->taken, b)) {
			if (!f->high && !f->low)
				f->low = o - (o % 8 + 8) % 8; /* down to a multiple of 8 */
			f->high = o + 1;
		} else if (!f->taken[b / 64]) {
			o += 63 - (int32_t)(b % 64);
		}
	}
}

int tr_stack(struct tr *t)
{
	struct accesses a = { 0 };
	for (size_t k = 0; k < t->n_insts; k++)
		for (uint32_t i = 0; i < t->insts[k]->n; i++) {
			int err = add_insn(t, &a, t->insts[k], i);
			if (err)
				return err;
		}
	if (t->frames_in_memory)
		for (size_t k = 0; k < t->n_insts; k++) {
			struct tr_frame *f = &t->insts[k]->frame;
			take_all(t, f);
			for (uint32_t w = 0; w < 8; w++)
				f->taken[w] |= f->used[w];
		}
	spread(&a);
	for (size_t k = 0; k < t->n_insts; k++) {
		int err = make_atoms(t, &t->insts[k]->frame);
		if (err)
			return err;
		memory_range(&t->insts[k]->frame);
	}
	return 0;
}
