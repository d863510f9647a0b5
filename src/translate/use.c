/* use.c - how a program uses the values of its maps: whether it only folds what it has into them (sums, bits, least and greatest), and
 * how each number.
 *
 * Requires begin, extreme and live; leaves use. A fold is an atomic, a load-add-store (idiom.c) or a compared store (extreme.c) whose old value
 * nobody reads. Anything else that touches a value, also by a helper, makes the map an ordinary one; so does an access that may be to several
 * maps, for all of them.
 */
#include "translate/internal.h"

#include <errno.h>
#include <string.h>

static struct ebpf_map_use *use_of(struct tr *t, int32_t map)
{
	return &t->use[t->p->maps[map].id];
}

static void other(struct tr *t, int32_t map, bool changes)
{
	for (uint32_t k = 0; k < t->p->n_maps; k++)
		if (map < 0 || (uint32_t)map == k) {
			use_of(t, (int32_t)k)->other = true;
			use_of(t, (int32_t)k)->changed |= changes;
		}
}

/* A change of numbers that nobody knows: those of a map, or of all. */
static void mix(struct tr *t, int32_t map)
{
	other(t, map, true);
	for (uint32_t k = 0; k < t->p->n_maps; k++)
		if (map < 0 || (uint32_t)map == k)
			memset(use_of(t, (int32_t)k)->fold, EBPF_FOLD_MIXED, EBPF_FOLD_HALVES);
}

/* An offset that varies may be any number of the value. */
static void fold(struct tr *t, const struct ebpf_fact *f, uint32_t bytes, uint8_t how)
{
	if (f->map < 0) {
		mix(t, -1);
		return;
	}
	struct ebpf_map_use *use = use_of(t, f->map);
	uint32_t first = f->fixed ? (uint32_t)f->offset / 4 : 0, n = f->fixed ? (bytes + 3) / 4 : EBPF_FOLD_HALVES;
	use->folded = true;
	for (uint32_t k = first; k < first + n; k++)
		use->fold[k % EBPF_FOLD_HALVES] = ebpf_fold_join(use->fold[k % EBPF_FOLD_HALVES], how);
	if (how == EBPF_FOLD_MIXED)
		other(t, f->map, true);
}

/* The fold of an atomic, or EBPF_FOLD_MIXED. */
static uint8_t fold_of(int32_t imm, bool wide)
{
	switch (imm & ~BPF_FETCH) {
	case BPF_ADD:
		return wide ? EBPF_FOLD_ADD64 : EBPF_FOLD_ADD32;
	case BPF_OR:
		return EBPF_FOLD_OR;
	case BPF_AND:
		return EBPF_FOLD_AND;
	case BPF_XOR:
		return EBPF_FOLD_XOR;
	default:
		return EBPF_FOLD_MIXED;
	}
}

static uint8_t fold_of_rmw(const struct tr_rmw *rmw)
{
	bool wide = rmw->bytes == 8;
	if (rmw->op == TR_ADD)
		return wide ? EBPF_FOLD_ADD64 : EBPF_FOLD_ADD32;
	return (uint8_t)((rmw->op == TR_MIN ? EBPF_FOLD_MIN_U32 : EBPF_FOLD_MAX_U32) + 2 * wide + rmw->is_signed);
}

static void memory(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	const struct tr_insn *at = &inst->at[i];
	bool reads = !tr_is_store(in);
	uint8_t how = EBPF_FOLD_MIXED;
	if (f->region != EBPF_REGION_MAP_VALUE || at->role == TR_RMW_LOAD || (f->map >= 0 && t->p->maps[f->map].frozen))
		return;
	if (at->role == TR_RMW_STORE && at->rmw->bytes >= 4) {
		how = fold_of_rmw(at->rmw);
		reads = at->rmw->tracked;
	} else if (tr_is_atomic(in)) {
		how = fold_of(in->imm, BPF_SIZE(in->code) == BPF_DW);
		reads = in->imm & BPF_FETCH && at->live_out >> in->src_reg & 1;
	}
	if (tr_is_store(in))
		fold(t, f, ebpf_insn_bytes(in->code), how);
	if (reads)
		other(t, f->map, false);
}

/* Keys of a hash map come and go; what that does to values is the map's business. */
static bool inserts(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	int32_t helper = tr_bpf(t, inst, i)->imm, map = f->map;
	if (map < 0 || !map_is_hash(t->p->maps[map].type) ||
		(helper != BPF_FUNC_map_update_elem && helper != BPF_FUNC_map_delete_elem))
		return false;
	bool new_only = helper == BPF_FUNC_map_update_elem &&
			((f->args[3].constant && f->args[3].value == BPF_NOEXIST) || inst->at[i].begins.other);
	use_of(t, map)->replaced |= !new_only;
	return use_of(t, map)->inserted = true;
}

/* A helper that is given values, of a map or of all, as memory. */
static void given(struct tr *t, int32_t map, bool sets)
{
	other(t, map, true);
	if (sets)
		mix(t, map);
}

/* Values given to a helper as memory, and those of the map that it works on. */
static void call(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	const struct ebpf_helper *h = in->src_reg ? NULL : ebpf_helper_by_number((uint32_t)in->imm);
	for (uint32_t a = 0; h && a < 5; a++) {
		uint32_t map;
		int64_t offset;
		if (h->args[a] == EBPF_ARG_MAP && in->imm != BPF_FUNC_map_lookup_elem && !inserts(t, inst, i))
			given(t, f->map, in->imm == BPF_FUNC_map_update_elem);
		if (f->args[a].region != EBPF_REGION_MAP_VALUE)
			continue;
		bool sets = h->args[a] == EBPF_ARG_OUT || h->args[a] == EBPF_ARG_VALUE_OUT;
		if (!tr_const_pointer(t, inst, i, (uint8_t)(a + 1), &map, &offset))
			given(t, -1, sets);
		else if (!t->p->maps[map].frozen)
			given(t, (int32_t)map, sets);
	}
}

int tr_use(struct tr *t)
{
	t->use = arena_array(t->arena, EBPF_MAX_MAPS, sizeof(*t->use));
	if (!t->use)
		return diag_set(t->d, ENOMEM, "out of memory");
	for (size_t k = 0; k < t->n_insts; k++) {
		struct tr_inst *inst = t->insts[k];
		for (uint32_t i = 0; i < inst->n; i++) {
			uint8_t class = BPF_CLASS(tr_bpf(t, inst, i)->code);
			if (inst->at[i].dead)
				continue;
			if (class == BPF_LDX || class == BPF_ST || class == BPF_STX)
				memory(t, inst, i);
			else if (tr_is_call(tr_bpf(t, inst, i)))
				call(t, inst, i);
		}
	}
	return 0;
}

bool tr_only_folds(const struct tr *t, const struct ebpf_map *m)
{
	const struct ebpf_map_use *use = &t->use[m->id];
	bool hash = m->type == BPF_MAP_TYPE_HASH;
	return (hash || (m->type == BPF_MAP_TYPE_ARRAY && !map_threads_of(m))) && use->folded && !use->other && !use->replaced && ebpf_folds_agree(use->fold, hash);
}
