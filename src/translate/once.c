/* once.c - a program at a kernel's entry that does the same in all threads of a block runs in one
 * of them, for all.
 *
 * Every thread of a block passes the entry exactly once. Where nothing that the program reads
 * differs between them, each thread takes the same path with the same values, and running them all
 * is as good as running them in step: what they add to a word is the addend times their number,
 * what they or and and is as good once, an insertion that one did finds the others' work done. So
 * thread (0, 0, 0) runs the program, and additions are multiplied (warp.c).
 *
 * What may be read: fields that name the block, the launch or the site; parameters; the stack;
 * frozen maps; where a key lies. What may be done: additions and bit operations whose old value
 * nobody reads, and updates and deletions whose result nobody reads.
 */
#include "translate/internal.h"

#define BIT(id) (1ull << EBPF_FIELD_##id)
/* Fields that are the same in all threads of a block. */
#define OF_BLOCK                                                                                   \
	(BIT(SITE) | BIT(KERNEL) | BIT(LAUNCH) | BIT(BLOCK_DIM_X) | BIT(BLOCK_DIM_Y) |             \
		BIT(BLOCK_DIM_Z) | BIT(BLOCK_X) | BIT(BLOCK_Y) | BIT(BLOCK_Z) | BIT(GRID_DIM_X) |  \
		BIT(GRID_DIM_Y) | BIT(GRID_DIM_Z) | BIT(CLUSTER_X) | BIT(CLUSTER_Y) |              \
		BIT(CLUSTER_Z) | BIT(CLUSTER_DIM_X) | BIT(CLUSTER_DIM_Y) | BIT(CLUSTER_DIM_Z) |    \
		BIT(CLUSTER_RANK_X) | BIT(CLUSTER_RANK_Y) | BIT(CLUSTER_RANK_Z))

static bool same_load(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	switch (f->region) {
	case EBPF_REGION_CONTEXT:
	case EBPF_REGION_STACK:
		return true;
	case EBPF_REGION_MAP_VALUE:
		return inst->at[i].role == TR_RMW_LOAD ||
		       (f->map >= 0 && t->p->maps[f->map].frozen);
	default:
		return false;
	}
}

static bool same_store(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct tr_insn *at = &inst->at[i];
	uint8_t region = tr_fact(t, inst, i)->region;
	int32_t op = in->imm & ~BPF_FETCH;
	if (region == EBPF_REGION_STACK)
		return true;
	if (region != EBPF_REGION_MAP_VALUE)
		return false;
	if (at->role == TR_RMW_STORE)
		return tr_rmw_adds(at->rmw);
	return tr_is_atomic(in) &&
	       (op == BPF_ADD || op == BPF_OR || op == BPF_AND || op == BPF_XOR) &&
	       !tr_wants_old(at, in);
}

/* One whose element a key alone finds. */
static bool is_shared_array(const struct ebpf_map *m)
{
	return map_is_array(m->type) && !map_threads_of(m);
}

static bool same_call(struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_map *m;
	if (in->src_reg)
		return inst->at[i].callee;
	if (inst->at[i].callee)
		return false;
	switch (in->imm) {
	case BPF_FUNC_map_lookup_elem:
		break;
	case BPF_FUNC_map_update_elem:
	case BPF_FUNC_map_delete_elem:
		/* What one thread begins the others would find. */
		if (inst->at[i].live_out & 1 || inst->at[i].begins.other)
			return false;
		break;
	default:
		return false;
	}
	m = tr_map_arg(t, inst, i);
	if (m && m->type == BPF_MAP_TYPE_HASH)
		return in->imm != BPF_FUNC_map_update_elem || tr_hash_update_inline(t, m);
	return m && is_shared_array(m);
}

static bool same(struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	switch (BPF_CLASS(in->code)) {
	case BPF_LDX:
		return same_load(t, inst, i);
	case BPF_ST:
	case BPF_STX:
		return same_store(t, inst, i);
	default:
		return !tr_is_call(in) || same_call(t, inst, i);
	}
}

static bool all(struct tr *t, bool (*good)(struct tr *, const struct tr_inst *, uint32_t))
{
	for (size_t k = 0; k < t->n_insts; k++)
		for (uint32_t i = 0; i < t->insts[k]->n; i++)
			if (!t->insts[k]->at[i].dead && !good(t, t->insts[k], i))
				return false;
	return true;
}

void tr_once(struct tr *t)
{
	t->once =
		t->entry && !t->one_lane && !t->test && !(t->v->fields & ~OF_BLOCK) && all(t, same);
}

/* -- anywhere in a basic block -- */

/* Fields that threads have, or sites, whatever registers hold. */
static const uint64_t of_code =
	OF_BLOCK | BIT(LANE) | BIT(WARP) | BIT(SM) | BIT(THREAD_X) | BIT(THREAD_Y) | BIT(THREAD_Z) |
	BIT(ACTIVE_MASK) | BIT(BYTES) | BIT(SPACE) | BIT(OP) | BIT(VALUE_BYTES) | BIT(MEM_MASK) |
	BIT(MEM_LANES) | BIT(BLOCK_INDEX) | BIT(BLOCK_INSNS) | BIT(LOOP_HEAD);

/* Additions to arrays can change places with each other, and nobody here sees how far they are. */
static bool only_adds(struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_map *m;
	if (tr_is_call(in) && !in->src_reg) {
		m = tr_map_arg(t, inst, i);
		return in->imm == BPF_FUNC_map_lookup_elem && m && is_shared_array(m);
	}
	if (tr_is_atomic(in) && tr_fact(t, inst, i)->region != EBPF_REGION_STACK &&
		(in->imm & ~BPF_FETCH) != BPF_ADD)
		return false;
	if (inst->at[i].role == TR_RMW_STORE && inst->at[i].rmw->op != TR_ADD)
		return false;
	return same(t, inst, i);
}

bool tr_anywhere(struct tr *t)
{
	return !t->test && !(t->v->fields & ~of_code) && all(t, only_adds);
}

bool tr_repeats(struct tr *t)
{
	return !t->one_lane && !t->once && tr_anywhere(t) && !(t->v->fields & (BIT(ACTIVE_MASK) | BIT(MEM_MASK) | BIT(MEM_LANES)));
}

/* Most warps of most blocks are through after the first question; that the answer to the second is used later (zero) keeps ptxas from asking both
 * at once. Reading a special register takes as long as ten instructions, and the block's loads wait behind this: those that are wanted later are
 * read together with those of the second question. */
void tr_once_begin(struct tr *t)
{
	struct tr_name x = tr_t32(t), y = tr_t32(t), z = tr_t32(t), sm = tr_t32(t), other = tr_pred(t);
	tr_emit(t, "mov.u32 %s, %%tid.x;", x.s);
	tr_emit(t, "setp.ne.u32 %s, %s, 0;", other.s, x.s);
	tr_emit(t, "@%s bra $egpu_others;", other.s);
	tr_emit(t, "mov.u32 %s, %%tid.y;", y.s);
	tr_emit(t, "mov.u32 %s, %%tid.z;", z.s);
	tr_emit(t, "mov.u32 %s, %%smid;", sm.s);
	tr_emit(t, "or.b32 %s, %s, %s;", y.s, y.s, z.s);
	tr_emit(t, "setp.ne.u32 %s, %s, 0;", other.s, y.s);
	tr_emit(t, "@%s bra $egpu_others;", other.s);
	t->zero = y;
	y = tr_t32(t);
	t->threads = tr_t32(t);
	t->threads64 = tr_t64(t);
	tr_emit(t, "mov.u32 %s, %%ntid.x;", t->threads.s);
	tr_emit(t, "mov.u32 %s, %%ntid.y;", y.s);
	tr_emit(t, "mov.u32 %s, %%ntid.z;", z.s);
	tr_emit(t, "mul.lo.u32 %s, %s, %s;", t->threads.s, t->threads.s, y.s);
	tr_emit(t, "mul.lo.u32 %s, %s, %s;", t->threads.s, t->threads.s, z.s);
	tr_emit(t, "cvt.u64.u32 %s, %s;", t->threads64.s, t->threads.s);
	t->slot = tr_t32(t);
	tr_emit(t, "ld.const.u32 %s, [__egpu_table+%d];", t->slot.s, 8 * EBPF_TABLE_SMS);
	tr_emit(t, "sub.u32 %s, %s, 1;", t->slot.s, t->slot.s);
	tr_emit(t, "min.u32 %s, %s, %s;", t->slot.s, t->slot.s, sm.s);
}
