#include "verifier/snapshot.h"

#include <stdlib.h>
#include <string.h>

static size_t align8(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

struct snapshot *snapshot_take(const struct vstate *s)
{
	size_t head = align8(sizeof(struct snapshot) + s->n_refs * sizeof(struct vref)), bytes = head;
	for (uint32_t k = 0; k < s->n_frames; k++)
		bytes += align8(sizeof(struct packed_frame)) + s->frames[k].n_slots * sizeof(struct vslot);
	struct snapshot *p = malloc(bytes);
	if (!p)
		return NULL;
	p->bytes = bytes;
	p->insn = s->insn;
	p->n_frames = s->n_frames;
	p->n_refs = s->n_refs;
	p->length = s->length;
	memcpy(p->refs, s->refs, s->n_refs * sizeof(struct vref));
	for (uint32_t k = 0; k < s->n_frames; k++) {
		const struct vframe *f = &s->frames[k];
		p->frame_at[k] = (uint32_t)head;
		struct packed_frame *out = snapshot_frame(p, k);
		memcpy(out->regs, f->regs, sizeof(out->regs));
		out->callsite = f->callsite;
		out->subprog = f->subprog;
		out->n_slots = f->n_slots;
		out->iteration = f->iteration;
		out->refs = f->refs;
		out->callback = f->callback;
		out->entered = f->entered;
		memcpy(out->slots, f->slots, f->n_slots * sizeof(struct vslot));
		head += align8(sizeof(struct packed_frame)) + f->n_slots * sizeof(struct vslot);
	}
	return p;
}

void snapshot_restore(const struct snapshot *p, struct vstate *s)
{
	s->insn = p->insn;
	s->n_frames = p->n_frames;
	s->n_refs = p->n_refs;
	s->length = p->length;
	memcpy(s->refs, p->refs, p->n_refs * sizeof(struct vref));
	for (uint32_t k = 0; k < p->n_frames; k++) {
		const struct packed_frame *in = snapshot_frame(p, k);
		struct vframe *f = &s->frames[k];
		memcpy(f->regs, in->regs, sizeof(in->regs));
		f->regs[10] = (struct vreg){ .type = V_STACK, .frame = (uint8_t)k, .map = -1, .r = range_const(0) };
		f->callsite = in->callsite;
		f->subprog = in->subprog;
		f->n_slots = in->n_slots;
		f->iteration = in->iteration;
		f->refs = in->refs;
		f->callback = in->callback;
		f->entered = in->entered;
		memcpy(f->slots, in->slots, in->n_slots * sizeof(struct vslot));
	}
}

size_t snapshot_bytes(const struct snapshot *p)
{
	return p->bytes;
}
