/* facts.c - what the translator may rely on, joined over all paths.
 *
 * A path that ends at a remembered state adds nothing of its own: pointers are compared with region, map, frame and
 * constant offset, and the scalars recorded here were marked precise by the caller.
 */
#include "verifier/state.h"

#include <errno.h>

static uint8_t region_of(const struct vreg *ptr)
{
	switch (ptr->type) {
	case V_CTX:
		return EBPF_REGION_CONTEXT;
	case V_STACK:
		return EBPF_REGION_STACK;
	case V_VALUE:
		return EBPF_REGION_MAP_VALUE;
	case V_RECORD:
		return EBPF_REGION_RECORD;
	case V_KEY:
		return EBPF_REGION_KEY;
	default:
		return EBPF_REGION_MEMORY;
	}
}

/* Fields that an instruction and an argument have in common. */
struct place {
	uint8_t *region, *frame;
	bool *fixed;
	int32_t *offset;
};

static int join_place(struct verifier *v, struct place p, const struct vreg *ptr, int32_t off)
{
	uint8_t region = region_of(ptr);
	bool fixed = range_is_const(&ptr->r);
	int32_t at = fixed ? ptr->off + off + (int32_t)ptr->r.b64.smin : 0;
	if (!*p.region) {
		*p.region = region;
		*p.frame = ptr->frame;
		*p.fixed = fixed;
		*p.offset = at;
		return 0;
	}
	if (*p.region != region)
		return refuse(v, EINVAL, "type",
			"same insn cannot be used with different pointers: here %s; give each kind of memory an access of its own", vtype_name(ptr->type));
	if (*p.frame != ptr->frame)
		*p.frame = 255;
	if (!fixed || at != *p.offset) {
		*p.fixed = false;
		*p.offset = 0;
	}
	return 0;
}

static uint8_t alignment(const struct vreg *ptr, int32_t off)
{
	for (uint8_t n = 8; n > 1; n /= 2)
		if (tnum_aligned(ptr->r.bits, (int64_t)ptr->off + off, n))
			return n;
	return 1;
}

int fact_memory(struct verifier *v, const struct vreg *ptr, int32_t off, int arg)
{
	struct ebpf_fact *f = &v->out->facts[v->cur.insn];
	if (arg == NO_ARG) {
		int32_t map = ptr->type == V_VALUE || ptr->type == V_KEY ? ptr->map : -1;
		int32_t low = ptr->off + off + (int32_t)ptr->r.b64.smin, high = ptr->off + off + (int32_t)ptr->r.b64.smax;
		f->low = !f->region || low < f->low ? low : f->low;
		f->high = !f->region || high > f->high ? high : f->high;
		f->map = !f->region || f->map == map ? map : -1;
		return join_place(v, (struct place){ &f->region, &f->frame, &f->fixed, &f->offset }, ptr, off);
	}
	uint8_t *a = &f->args[arg].align, align = alignment(ptr, off);
	if (!*a || align < *a)
		*a = align;
	if (f->args[arg].region && f->args[arg].region != region_of(ptr))
		v->out->mixed = v->cur.insn + 1;
	return join_place(v, (struct place){ &f->args[arg].region, &f->args[arg].frame, &f->args[arg].fixed, &f->args[arg].offset }, ptr, off);
}

void fact_map(struct verifier *v, int32_t map)
{
	struct ebpf_fact *f = &v->out->facts[v->cur.insn];
	f->map = !v->flow[v->cur.insn].called || f->map == map ? map : -1;
}

void fact_scalar(struct verifier *v, int arg, const struct vreg *r, bool constant)
{
	struct ebpf_fact *f = &v->out->facts[v->cur.insn];
	bool first = !v->flow[v->cur.insn].called;
	uint64_t value = r->r.bits.value;
	constant = constant && range_is_const(&r->r);
	if (first) {
		f->args[arg].constant = constant;
		f->args[arg].value = constant ? value : 0;
		f->args[arg].max = r->r.b64.umax;
		return;
	}
	if (!constant || value != f->args[arg].value) {
		f->args[arg].constant = false;
		f->args[arg].value = 0;
	}
	if (r->r.b64.umax > f->args[arg].max)
		f->args[arg].max = r->r.b64.umax;
}

int fact_callback(struct verifier *v, uint32_t start)
{
	struct ebpf_fact *f = &v->out->facts[v->cur.insn];
	if (f->callback && f->callback != start)
		return refuse(v, EINVAL, "callback", "this call is given different functions on different paths; write a call for each");
	f->callback = start;
	return 0;
}

void fact_called(struct verifier *v)
{
	v->flow[v->cur.insn].called = true;
}
