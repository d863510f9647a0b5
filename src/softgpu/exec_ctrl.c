/* exec_ctrl.c - branches, calls, returns and the ends of threads. */
#include "softgpu/internal.h"

#include <string.h>

SG_HANDLER(sg_bra)
{
	if (mask == w->mask)
		w->pc = in->target;
	else if (in->target < w->pc) {
		/* The smaller pc goes on as the current path. */
		sg_split(w, w->mask & ~mask, w->pc);
		w->pc = in->target;
	} else {
		sg_split(w, mask, in->target);
	}
}

/* Lanes of mask whose value equals that of its first lane. */
static uint32_t same_as_first(const uint64_t *v, uint32_t mask)
{
	uint64_t first = v[__builtin_ctz(mask)];
	uint32_t same = 0;
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		same |= (uint32_t)(v[i] == first) << i;
	}
	return same;
}

/* brx.idx: a is the index register, list the targets. */
SG_HANDLER(sg_brx)
{
	const uint32_t *a = sg_op(w, in->a);
	uint64_t index[32];
	for (int i = 0; i < 32; i++)
		index[i] = a[i];
	uint32_t next = w->pc;
	if (mask != w->mask)
		sg_split(w, w->mask & ~mask, next);
	while (mask) {
		uint32_t same = same_as_first(index, mask);
		uint64_t k = index[__builtin_ctz(mask)];
		if (k >= (uint64_t)in->imm) {
			sg_fault(w, in, CUDA_ERROR_LAUNCH_FAILED, __builtin_ctz(mask),
				"index %llu is past the %lld branch targets", (unsigned long long)k,
				(long long)in->imm);
			return;
		}
		mask &= ~same;
		if (mask)
			sg_split(w, same, in->list[k]);
		else
			w->pc = in->list[k];
	}
	sg_resched(w);
}

/* -- calls ------------------------------------------------------------------- */

static const struct sg_call *call_of(const struct sg_insn *in)
{
	return (const struct sg_call *)(const void *)in->list;
}

/* Bytes of one lane of a parameter, wherever it is kept. */
static void arg_read(uint8_t *regs, const struct sg_warp *w, const struct sg_frame *f,
	const struct sg_arg *a, int lane, uint8_t *out, uint32_t bytes)
{
	if (!a->width) {
		memcpy(out, f->param + (size_t)lane * f->func->param_bytes + a->offset, bytes);
	} else if (a->width == 1) {
		const uint32_t *p = sg_op(w, a->reg);
		out[0] = *p >> lane & 1;
	} else {
		const uint8_t *p = a->reg >> 30 ? sg_op(w, a->reg) : regs + a->reg;
		memcpy(out, p + (size_t)lane * a->width, bytes < a->width ? bytes : a->width);
	}
}

static void arg_write(uint8_t *regs, const struct sg_frame *f, const struct sg_arg *a, int lane,
	const uint8_t *data, uint32_t bytes)
{
	if (!a->width) {
		memcpy(f->param + (size_t)lane * f->func->param_bytes + a->offset, data, bytes);
	} else if (a->width == 1) {
		uint32_t *p = (uint32_t *)(void *)(regs + a->reg);
		*p = (*p & ~(1u << lane)) | (uint32_t)(data[0] & 1) << lane;
	} else {
		uint8_t *p = regs + a->reg + (size_t)lane * a->width;
		memset(p, 0, a->width);
		memcpy(p, data, bytes < a->width ? bytes : a->width);
	}
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Copies the parameters (or, on return, the results) of the lanes in mask. */
static void copy_args(struct sg_warp *w, const struct sg_frame *from, const struct sg_arg *src,
	const struct sg_frame *to, const struct sg_arg *dst, uint32_t n, uint32_t mask)
{
	uint8_t bytes[SG_MAX_ARG];
	sg_use(w, from);
	for (uint32_t k = 0; k < n; k++) {
		uint32_t size = least(src[k].bytes, dst[k].bytes);
		for (uint32_t m = mask; m; m &= m - 1) {
			int lane = __builtin_ctz(m);
			for (uint32_t at = 0; at < size || (!at && !size); at += SG_MAX_ARG) {
				uint32_t part = least(size - at, SG_MAX_ARG);
				struct sg_arg s = src[k], d = dst[k];
				s.offset += at;
				d.offset += at;
				memset(bytes, 0, 8);
				arg_read(from->regs, w, from, &s, lane, bytes, part);
				arg_write(to->regs, to, &d, lane, bytes, part);
			}
		}
	}
	sg_use(w, w->frame);
}

uint64_t sg_call_arg(struct sg_warp *w, const struct sg_insn *in, uint32_t k, int lane)
{
	const struct sg_call *call = call_of(in);
	uint64_t v = 0;
	if (k < call->n_args)
		arg_read(w->frame->regs, w, w->frame, &call->args[k], lane, (uint8_t *)&v,
			least(call->args[k].bytes, 8));
	return v;
}

void sg_call_result(struct sg_warp *w, const struct sg_insn *in, int lane, uint64_t v)
{
	const struct sg_call *call = call_of(in);
	if (call->n_rets)
		arg_write(w->frame->regs, w->frame, &call->rets[0], lane, (const uint8_t *)&v,
			least(call->rets[0].bytes, 8));
}

static void enter(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_func *f, uint32_t mask)
{
	const struct sg_call *call = call_of(in);
	if (f->builtin) {
		sg_builtin(w, in, f, mask);
		return;
	}
	struct sg_frame *fr = sg_frame_new(w, f, w->frame, mask);
	if (!fr) {
		sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, __builtin_ctz(mask),
			"stack overflow (%u calls deep)", w->frame->depth + 1);
		return;
	}
	fr->call = in;
	copy_args(w, w->frame, call->args, fr, f->params, least(call->n_args, f->n_params), mask);
	if (mask != w->mask)
		sg_split(w, w->mask & ~mask, w->pc);
	w->frame = fr;
	w->code = f->module->code;
	sg_use(w, fr);
	w->pc = f->pc;
	w->stop_pc = w->n_paths > 1 ? 0 : SG_NO_PC;
}

/* The function that a pointer names, or what lies there; or NULL. */
static const struct sg_func *func_at(const struct sg_warp *w, uint64_t v)
{
	const struct sg_module *m = w->frame->func->module;
	uint32_t low = (uint32_t)v;
	if (SG_WINDOW(v) != SG_WIN_FUNC)
		return sg_code_at(w->block->grid, v);
	if (low & 15 || low < 16 || low / 16 > m->n_funcs)
		return NULL;
	return m->func_list[low / 16 - 1];
}

SG_HANDLER(sg_call)
{
	if (!(in->flags & SG_CALL_INDIRECT)) {
		enter(w, in, w->frame->func->module->func_list[in->target], mask);
		return;
	}
	const uint64_t *a = sg_op(w, in->a);
	uint32_t same = same_as_first(a, mask), first = (uint32_t)__builtin_ctz(mask);
	const struct sg_func *f = func_at(w, a[first]);
	const struct sg_call *call = call_of(in);
	if (!f || f->is_entry || f->n_params != call->n_args || f->n_results != call->n_rets) {
		sg_fault(w, in, CUDA_ERROR_INVALID_PC, (int)first,
			"0x%llx is not a function with these parameters",
			(unsigned long long)a[first]);
		return;
	}
	/* The other targets come back to this instruction. */
	if (same != mask)
		sg_split(w, mask & ~same, w->pc - 1);
	enter(w, in, f, same);
}

SG_HANDLER(sg_ret)
{
	struct sg_frame *f = w->frame;
	if (!f->parent) {
		sg_lanes_exit(w, mask);
		return;
	}
	const struct sg_call *call = call_of(f->call);
	copy_args(w, f, f->func->results, f->parent, call->rets,
		least(call->n_rets, f->func->n_results), mask);
	if (mask != w->mask)
		sg_split(w, w->mask & ~mask, w->pc);
	w->frame = f->parent;
	w->code = w->frame->func->module->code;
	w->pc = (uint32_t)(f->call - w->code) + 1;
	sg_use(w, w->frame);
	sg_frame_drop(w, f, mask);
	sg_resched(w);
}

SG_HANDLER(sg_exit)
{
	sg_lanes_exit(w, mask);
}

SG_HANDLER(sg_trap)
{
	sg_fault(w, in, CUDA_ERROR_LAUNCH_FAILED, __builtin_ctz(mask), "trap");
}

/* nanosleep, and everything else that lets others run. */
SG_HANDLER(sg_yield)
{
	sg_spin(w, 64);
}

SG_HANDLER(sg_unsupported)
{
	sg_fault(
		w, in, CUDA_ERROR_NOT_SUPPORTED, -1, "this instruction is not executed by softgpu");
}
