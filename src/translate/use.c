/* use.c - how a program uses the values of its maps: whether it only adds to them, and in words of which width.
 *
 * Requires idiom and live; leaves use. An addition is an atomic add or a load-add-store whose old value nobody reads. Anything else
 * that touches a value, also by a helper, makes the map an ordinary one; so does an access that may be to several maps, for all of
 * them.
 */
#include "translate/internal.h"

#include <errno.h>

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

/* An offset that varies may be any word of the value. */
static void add(struct tr *t, const struct ebpf_fact *f, uint32_t bytes)
{
	if (f->map < 0) {
		other(t, -1, true);
		return;
	}
	uint64_t words = f->fixed ? 1ull << ((uint32_t)f->offset / 8 & 63) : UINT64_MAX;
	struct ebpf_map_use *use = use_of(t, f->map);
	use->added = true;
	*(bytes == 8 ? &use->whole : &use->halves) |= words;
}

static void memory(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	const struct tr_insn *at = &inst->at[i];
	if (f->region != EBPF_REGION_MAP_VALUE || at->role == TR_RMW_LOAD)
		return;
	if (at->role == TR_RMW_STORE) {
		if (at->rmw->tracked || at->rmw->bytes < 4)
			other(t, f->map, true);
		else
			add(t, f, at->rmw->bytes);
		return;
	}
	bool adds = tr_is_atomic(in) && (in->imm & ~BPF_FETCH) == BPF_ADD &&
		    !(in->imm & BPF_FETCH && at->live_out >> in->src_reg & 1);
	if (adds)
		add(t, f, ebpf_insn_bytes(in->code));
	else if (!(f->map >= 0 && t->p->maps[f->map].frozen))
		other(t, f->map, tr_is_store(in));
}

/* Keys of a hash map come and go; what that does to values is the map's business. */
static bool inserts(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	int32_t helper = tr_bpf(t, inst, i)->imm, map = tr_fact(t, inst, i)->map;
	if (map < 0 || !map_is_hash(t->p->maps[map].type) ||
		(helper != BPF_FUNC_map_update_elem && helper != BPF_FUNC_map_delete_elem))
		return false;
	return use_of(t, map)->inserted = true;
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
			other(t, f->map, true);
		if (f->args[a].region != EBPF_REGION_MAP_VALUE)
			continue;
		if (!tr_const_pointer(t, inst, i, (uint8_t)(a + 1), &map, &offset))
			other(t, -1, true);
		else if (!t->p->maps[map].frozen)
			other(t, (int32_t)map, true);
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

bool tr_only_adds(const struct tr *t, const struct ebpf_map *m)
{
	const struct ebpf_map_use *use = &t->use[m->id];
	return m->type == BPF_MAP_TYPE_ARRAY && use->added && !use->other && !(use->whole & use->halves);
}
