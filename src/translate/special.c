/* special.c - helpers that read a GPU's special registers, and those that slow or stop a thread.
 *
 * Stopping is a function of its own by the name __egpu_perturb_*, so that a check of the spliced text sees
 * at a glance what a fragment can do to its kernel.
 */
#include "translate/internal.h"

enum { SPINS = 1 << 20 };

static void set_r0(struct tr *t, const struct tr_inst *inst, const char *reg, bool wide)
{
	struct tr_name r0 = tr_reg(inst, 0), w;
	if (wide) {
		tr_emit(t, "mov.u64 %s, %s;", r0.s, reg);
		return;
	}
	w = tr_t32(t);
	tr_emit(t, "mov.u32 %s, %s;", w.s, reg);
	tr_emit(t, "cvt.u64.u32 %s, %s;", r0.s, w.s);
}

static int three(struct tr *t, struct tr_inst *inst, uint32_t i, const char *reg)
{
	for (uint32_t k = 0; k < 3; k++) {
		struct tr_name w = tr_t32(t), d = tr_t64(t);
		tr_emit(t, "mov.u32 %s, %s.%c;", w.s, reg, "xyz"[k]);
		tr_emit(t, "cvt.u64.u32 %s, %s;", d.s, w.s);
		int err = tr_mem_set(t, inst, i, k, d);
		if (err)
			return err;
	}
	tr_emit(t, "mov.u64 %s, 0;", tr_reg(inst, 0).s);
	return 0;
}

static struct tr_name special32(struct tr *t, const char *reg)
{
	struct tr_name w = tr_t32(t);
	tr_emit(t, "mov.u32 %s, %s;", w.s, reg);
	return w;
}

/* What the lane has handed over. */
static int lane_field(struct tr *t, struct tr_inst *inst, uint32_t i, int field)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	uint32_t bytes = ebpf_fields[field].bytes;
	struct tr_name at = tr_t64(t), lane = tr_t64(t);
	t->gathered |= 1ull << field;
	if (f->args[0].constant) {
		tr_emit(t, "ld.local.u%u %s, [$egpu_lanes_%s+%u];", bytes * 8, tr_reg(inst, 0).s, ebpf_fields[field].name,
			(uint32_t)(f->args[0].value & 31) * bytes);
		return 0;
	}
	tr_emit(t, "and.b64 %s, %s, 31;", lane.s, tr_scalar_arg(t, inst, i, 0).s);
	tr_emit(t, "mov.u64 %s, $egpu_lanes_%s;", at.s, ebpf_fields[field].name);
	tr_emit(t, "mad.lo.s64 %s, %s, %u, %s;", at.s, lane.s, bytes, at.s);
	tr_emit(t, "ld.local.u%u %s, [%s];", bytes * 8, tr_reg(inst, 0).s, at.s);
	return 0;
}

/* The coordinates of the lane's thread follow from its place in the block. */
static int lane_read(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	int field = f->args[1].constant ? ebpf_lane_field(t->p->context, f->args[1].value) : -1;
	if (field < 0)
		return tr_unsupported(t, inst->at[i].pc, "the field is not known");
	if (!(EBPF_COORDINATES >> field & 1))
		return lane_field(t, inst, i, field);
	struct tr_name linear = special32(t, "%tid.z"), lane = tr_t32(t), lane64 = tr_t64(t),
		       x = special32(t, "%ntid.x"), y = special32(t, "%ntid.y");
	tr_emit(t, "mad.lo.u32 %s, %s, %s, %s;", linear.s, linear.s, y.s, special32(t, "%tid.y").s);
	tr_emit(t, "mad.lo.u32 %s, %s, %s, %s;", linear.s, linear.s, x.s, special32(t, "%tid.x").s);
	tr_emit(t, "mov.u64 %s, %s;", lane64.s, tr_scalar_arg(t, inst, i, 0).s);
	tr_emit(t, "cvt.u32.u64 %s, %s;", lane.s, lane64.s);
	tr_emit(t, "and.b32 %s, %s, 31;", lane.s, lane.s);
	tr_emit(t, "and.b32 %s, %s, 0xffffffe0;", linear.s, linear.s);
	tr_emit(t, "or.b32 %s, %s, %s;", linear.s, linear.s, lane.s);
	if (field != EBPF_FIELD_THREAD_X)
		tr_emit(t, "div.u32 %s, %s, %s;", linear.s, linear.s, x.s);
	if (field == EBPF_FIELD_THREAD_X)
		tr_emit(t, "rem.u32 %s, %s, %s;", linear.s, linear.s, x.s);
	else
		tr_emit(t, "%s.u32 %s, %s, %s;", field == EBPF_FIELD_THREAD_Y ? "rem" : "div", linear.s,
			linear.s, y.s);
	tr_emit(t, "cvt.u64.u32 %s, %s;", tr_reg(inst, 0).s, linear.s);
	return 0;
}

/* Until the clock has gone on, which a bound on the looks does not wait for when it stands. */
static int delay(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct tr_name from = tr_t64(t), now = tr_t64(t), ns = tr_t64(t), spins = tr_t32(t),
		       p = tr_pred(t), again = tr_label(t);
	tr_emit(t, "mov.u64 %s, %s;", ns.s, tr_scalar_arg(t, inst, i, 0).s);
	tr_emit(t, "mov.u64 %s, %%globaltimer;", from.s);
	tr_emit(t, "mov.u32 %s, %d;", spins.s, SPINS);
	buf_printf(&t->body, "%s:\n", again.s);
	tr_emit(t, "mov.u64 %s, %%globaltimer;", now.s);
	tr_emit(t, "sub.s64 %s, %s, %s;", now.s, now.s, from.s);
	tr_emit(t, "sub.u32 %s, %s, 1;", spins.s, spins.s);
	tr_emit(t, "setp.ne.u32 %s, %s, 0;", p.s, spins.s);
	tr_emit(t, "setp.lt.and.u64 %s, %s, %s, %s;", p.s, now.s, ns.s, p.s);
	tr_emit(t, "@%s bra %s;", p.s, again.s);
	tr_emit(t, "mov.u64 %s, 0;", tr_reg(inst, 0).s);
	return 0;
}

static int stop(struct tr *t, const char *name, const char *insn)
{
	struct buf b = { 0 };
	buf_printf(&b, ".func %s\n{\n\t%s;\n\tret;\n}\n", name, insn);
	tr_func_add(t, name, &b);
	buf_free(&b);
	tr_emit(t, "call %s;", name);
	return 0;
}

int tr_special_lower(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	switch (tr_bpf(t, inst, i)->imm) {
	case EBPF_FUNC_get_globaltimer:
		set_r0(t, inst, "%globaltimer", true);
		return 0;
	case EBPF_FUNC_get_block_idx:
		return three(t, inst, i, "%ctaid");
	case EBPF_FUNC_get_block_dim:
		return three(t, inst, i, "%ntid");
	case EBPF_FUNC_get_thread_idx:
		return three(t, inst, i, "%tid");
	case EBPF_FUNC_get_grid_dim:
		return three(t, inst, i, "%nctaid");
	case EBPF_FUNC_gpu_membar:
		tr_emit(t, "membar.sys;");
		tr_emit(t, "mov.u64 %s, 0;", tr_reg(inst, 0).s);
		return 0;
	case EBPF_FUNC_get_sm_id:
		set_r0(t, inst, "%smid", false);
		return 0;
	case EBPF_FUNC_get_warp_id:
		set_r0(t, inst, "%warpid", false);
		return 0;
	case EBPF_FUNC_get_lane_id:
		set_r0(t, inst, "%laneid", false);
		return 0;
	case EBPF_FUNC_egpu_lane_read:
		return lane_read(t, inst, i);
	case EBPF_FUNC_egpu_delay_ns:
		return delay(t, inst, i);
	case EBPF_FUNC_egpu_trap:
		return stop(t, "__egpu_perturb_trap", "trap");
	default: /* gpu_exit, egpu_thread_exit */
		return stop(t, "__egpu_perturb_exit", "exit");
	}
}
