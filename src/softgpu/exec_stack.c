/* exec_stack.c - alloca, stacksave, stackrestore: local memory whose size the program decides.
 *
 * Each lane has a stack of its own, apart from the frames, at local addresses from SG_STACK_BASE
 * on. Its end is the stack pointer of stacksave. A frame notes where it was when the frame first
 * takes something; returning goes back there.
 */
#include "softgpu/internal.h"

#include <stdlib.h>
#include <string.h>

#define SMALLEST 1024u
#define UNMARKED UINT32_MAX

void *sg_stack_at(const struct sg_warp *w, uint32_t lane, uint64_t addr, uint32_t bytes)
{
	const struct sg_stack *s = w->stack;
	uint64_t off = addr - SG_STACK_BASE;
	return s && off <= s->top[lane] && bytes <= s->top[lane] - off
		       ? s->mem + (size_t)lane * s->room + off
		       : NULL;
}

void sg_stack_free(struct sg_warp *w)
{
	if (!w->stack)
		return;
	atomic_fetch_sub(&w->block->grid->dev->frame_bytes, 32ull * w->stack->room);
	free(w->stack->mem);
	free(w->stack);
	w->stack = NULL;
}

/* Lanes leave a frame. */
void sg_stack_leave(struct sg_warp *w, struct sg_frame *f, uint32_t mask)
{
	for (uint32_t m = f->marks ? mask : 0; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		if (f->marks[i] != UNMARKED)
			w->stack->top[i] = f->marks[i];
	}
	if (f->live)
		return;
	free(f->marks);
	f->marks = NULL;
}

static bool grow(struct sg_warp *w, uint64_t need)
{
	struct sg_stack *s = w->stack;
	_Atomic uint64_t *all = &w->block->grid->dev->frame_bytes;
	uint32_t room = s->room ? s->room : SMALLEST;
	if (need > SG_MAX_LOCAL)
		return false;
	while (room < need)
		room *= 2;
	if (room == s->room)
		return true;
	uint64_t more = 32ull * (room - s->room);
	uint8_t *mem = NULL;
	if (atomic_fetch_add(all, more) + more <= SG_MAX_FRAMES)
		mem = aligned_alloc(64, 32ull * room);
	if (!mem) {
		atomic_fetch_sub(all, more);
		return false;
	}
	memset(mem, 0, 32ull * room);
	for (size_t i = 0; i < 32; i++)
		if (s->top[i])
			memcpy(mem + i * room, s->mem + i * s->room, s->top[i]);
	free(s->mem);
	s->mem = mem;
	s->room = room;
	return true;
}

/* The stack, and the frame's marks in it. A lane is marked when it comes: it may be in a function
 * that this frame calls while others are here. */
static bool prepare(struct sg_warp *w, uint32_t mask)
{
	struct sg_frame *f = w->frame;
	if (!w->stack)
		w->stack = calloc(1, sizeof(*w->stack));
	if (!w->stack)
		return false;
	if (!f->marks && (f->marks = malloc(sizeof(w->stack->top))))
		memset(f->marks, 0xff, sizeof(w->stack->top));
	for (uint32_t m = f->marks ? mask : 0; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		if (f->marks[i] == UNMARKED)
			f->marks[i] = w->stack->top[i];
	}
	return f->marks;
}

static uint64_t value(struct sg_warp *w, uint32_t op, uint8_t width, int lane)
{
	const void *p = sg_op(w, op);
	return width == 8 ? ((const uint64_t *)p)[lane] : ((const uint32_t *)p)[lane];
}

static void result(struct sg_warp *w, const struct sg_insn *in, int lane, uint64_t v)
{
	void *p = sg_op(w, in->d);
	if (in->width == 8)
		((uint64_t *)p)[lane] = v;
	else
		((uint32_t *)p)[lane] = (uint32_t)v;
}

static void overflow(struct sg_warp *w, const struct sg_insn *in, int lane, uint64_t bytes)
{
	sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, lane, "stack overflow (alloca of %llu bytes)",
		(unsigned long long)bytes);
}

/* d: address, a: bytes, imm: alignment */
SG_HANDLER(sg_alloca)
{
	bool ready = prepare(w, mask);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		uint64_t bytes = value(w, in->a, in->width, i), align = (uint64_t)in->imm;
		uint64_t at = ready ? (w->stack->top[i] + align - 1) & ~(align - 1) : 0;
		if (!ready || bytes > SG_MAX_LOCAL || !grow(w, at + bytes)) {
			overflow(w, in, i, bytes);
			return;
		}
		w->stack->top[i] = (uint32_t)(at + bytes);
		result(w, in, i, SG_STACK_BASE + at);
	}
}

SG_HANDLER(sg_stacksave)
{
	const struct sg_stack *s = w->stack;
	SG_LANES(mask, result(w, in, i, SG_STACK_BASE + (s ? s->top[i] : 0)););
}

SG_HANDLER(sg_stackrestore)
{
	bool ready = prepare(w, mask);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		uint64_t to = value(w, in->a, in->width, i) - SG_STACK_BASE;
		if (!ready || to > w->stack->top[i]) {
			sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, i,
				"stackrestore to 0x%llx, which no stacksave gave",
				(unsigned long long)(to + SG_STACK_BASE));
			return;
		}
		w->stack->top[i] = (uint32_t)to;
	}
}
