/* access.c - loads, stores, atomics and the memory that helpers read.
 *
 * Every access is aligned to its size on all paths: a GPU cannot do others. Pointers are stored on the stack only, whole.
 */
#include "verifier/state.h"

#include <errno.h>

enum access { READ = 1, WRITE = 2 };

int read_reg(struct verifier *v, uint32_t reg, struct vreg **out)
{
	*out = &frame_now(v)->regs[reg];
	if ((*out)->type == V_UNSET)
		return refuse(v, EACCES, "uninit", "R%u !read_ok; set it on every path that comes here", reg);
	return 0;
}

int check_written(struct verifier *v, uint32_t reg)
{
	return reg == 10 ? refuse(v, EACCES, "insn", "frame pointer is read only; copy r10 to another register") : 0;
}

/* The stack. */

struct span { /* bytes [low, high) from the frame's top that an access may touch */
	struct vframe *frame;
	int64_t low, high;
	bool fixed;
};

static uint8_t *stack_byte(struct vframe *f, int64_t off)
{
	return &f->slots[(uint64_t)(-off - 1) / 8].kind[(uint64_t)(off + EBPF_STACK_BYTES) % 8];
}

static struct vslot *stack_slot(struct vframe *f, int64_t off)
{
	return &f->slots[(uint64_t)(-off - 1) / 8];
}

static bool holds_pointer(const struct vslot *s)
{
	return s->kind[0] == SLOT_SPILL && is_pointer(&s->spill);
}

static uint32_t spill_bytes(const struct vslot *s)
{
	uint32_t n = 0;
	while (n < 8 && s->kind[n] == SLOT_SPILL)
		n++;
	return n;
}

/* Makes the slots down to `low` part of the frame. */
static int stack_grow(struct verifier *v, struct vframe *f, int64_t low)
{
	uint32_t need = (uint32_t)((-low + 7) / 8), total = 0;
	struct subprog *s = &v->subprogs[f->subprog];
	if (s->depth < (uint32_t)-low)
		s->depth = (uint32_t)-low;
	if (need <= f->n_slots)
		return 0;
	for (; f->n_slots < need; f->n_slots++)
		f->slots[f->n_slots] = (struct vslot){ .live = 0 };
	for (uint32_t k = 0; k < v->cur.n_frames; k++)
		total += v->cur.frames[k].n_slots * 8;
	if (total > EBPF_STACK_BYTES)
		return refuse(v, EACCES, "stack", "combined stack size of calls is %u. Too large; at most %d bytes are allowed", total, EBPF_STACK_BYTES);
	return 0;
}

static int stack_span(struct verifier *v, const struct vreg *ptr, uint32_t reg, int32_t off, uint64_t bytes, enum access how, struct span *out)
{
	const char *what = how & WRITE ? "write to" : "read from";
	const struct bounds *b = &ptr->r.b64;
	out->frame = &v->cur.frames[ptr->frame];
	out->fixed = range_is_const(&ptr->r);
	if (!out->fixed && (b->smin <= -MAX_VAR_OFF || b->smax >= MAX_VAR_OFF))
		return refuse(v, EACCES, "oob", "invalid unbounded variable-offset %s stack R%u; check the index against the size of the array", what, reg);
	out->low = (int64_t)ptr->off + off + b->smin;
	out->high = (int64_t)ptr->off + off + b->smax + (int64_t)bytes;
	if (out->low >= -EBPF_STACK_BYTES && out->high <= 0)
		return stack_grow(v, out->frame, out->low);
	if (out->fixed)
		return refuse(v, EACCES, "oob", "invalid %s stack R%u off=%lld size=%llu; the stack is fp-%d to fp-1", what, reg,
			(long long)out->low, (unsigned long long)bytes, EBPF_STACK_BYTES);
	return refuse(v, EACCES, "oob", "invalid variable-offset %s stack R%u off=%lld..%lld size=%llu; check the index against the size of the array",
		what, reg, (long long)out->low, (long long)(out->high - (int64_t)bytes), (unsigned long long)bytes);
}

static int uninitialised(struct verifier *v, uint32_t reg, int64_t low, int64_t at, uint64_t bytes)
{
	return refuse(v, EACCES, "uninit", "invalid read from stack R%u off %lld+%lld size %llu: uninitialised; write these bytes on every path first",
		reg, (long long)low, (long long)(at - low), (unsigned long long)bytes);
}

/* All bytes of the span are set and none is part of a pointer. *zero: all are known to be 0. */
static int stack_readable(struct verifier *v, const struct span *s, uint32_t reg, uint64_t bytes, bool *zero)
{
	*zero = true;
	for (int64_t at = s->low; at < s->high; at++) {
		struct vslot *slot = stack_slot(s->frame, at);
		uint8_t kind = *stack_byte(s->frame, at);
		if (kind == SLOT_UNSET)
			return uninitialised(v, reg, s->low, at, bytes);
		if (kind == SLOT_PART || (kind == SLOT_SPILL && is_pointer(&slot->spill)))
			return refuse(v, EACCES, "leak", "invalid read from stack R%u off %lld: part of a pointer that %s kept there", reg, (long long)at,
				kind == SLOT_PART ? "was" : "is");
		if (kind == SLOT_MISC || (kind == SLOT_SPILL && !range_is_value(&slot->spill.r, 0)))
			*zero = false;
		int err = node_mark(v, slot->live, MARK_READ);
		if (err)
			return err;
	}
	return 0;
}

static int stack_read(struct verifier *v, const struct span *s, uint32_t reg, uint32_t bytes, struct vreg *out)
{
	struct vslot *slot = stack_slot(s->frame, s->low);
	bool start = s->fixed && s->low % 8 == 0;
	int err = 0;
	if (s->fixed && holds_pointer(slot)) {
		if (bytes != 8)
			return refuse(v, EACCES, "leak", "invalid size of register fill; a pointer is read back whole");
		*out = slot->spill;
		return node_mark(v, slot->live, MARK_READ);
	}
	if (start && spill_bytes(slot) >= bytes) {
		*out = slot->spill;
		range_zext(&out->r, bytes);
		if (!range_equal(&out->r, &slot->spill.r))
			forget_equals(out);
		return node_mark(v, slot->live, MARK_READ);
	}
	bool zero;
	err = stack_readable(v, s, reg, bytes, &zero);
	if (err)
		return err;
	*out = scalar_unknown();
	range_zext(&out->r, bytes);
	if (!zero)
		return 0;
	/* The bytes are 0 because of constants that were kept: those must count when states are compared. */
	for (int64_t at = s->low; at < s->high && !err; at++)
		if (*stack_byte(s->frame, at) == SLOT_SPILL)
			err = mark_precise(v, &stack_slot(s->frame, at)->spill);
	*out = scalar_const(0);
	return err;
}

/* What was kept in the slot as a register is from now on bytes; those of a pointer tell an address. */
static void slot_scrub(struct vslot *s)
{
	uint8_t left = holds_pointer(s) ? SLOT_PART : SLOT_MISC;
	for (int k = 0; k < 8; k++)
		if (s->kind[k] == SLOT_SPILL)
			s->kind[k] = left;
}

static int check_spill(struct verifier *v, const struct span *s, uint32_t bytes, const struct vreg *value)
{
	if (!s->fixed || bytes != 8)
		return refuse(v, EACCES, "leak", "invalid size of register spill; a pointer is kept whole, at an offset known in advance");
	if (value->type == V_STACK && s->frame != frame_now(v))
		return refuse(v, EACCES, "leak", "cannot spill pointers to stack into stack frame of the caller");
	return 0;
}

static int stack_write(struct verifier *v, const struct span *s, uint32_t bytes, const struct vreg *value)
{
	int err = is_pointer(value) ? check_spill(v, s, bytes, value) : 0;
	if (err)
		return err;
	if (s->fixed && s->low % 8 == 0) {
		struct vslot *slot = stack_slot(s->frame, s->low);
		slot_scrub(slot);
		for (uint32_t k = 0; k < bytes; k++)
			slot->kind[k] = SLOT_SPILL;
		slot->spill = *value;
		if (bytes == 8) {
			slot->live = 0; /* nothing of what was there can be read any more */
		} else {
			range_zext(&slot->spill.r, bytes);
			if (!range_equal(&slot->spill.r, &value->r))
				forget_equals(&slot->spill);
		}
		return 0;
	}
	bool zero = range_is_value(&value->r, 0);
	if (zero)
		err = mark_precise(v, value);
	for (int64_t at = s->low; at < s->high && !err; at++) {
		struct vslot *slot = stack_slot(s->frame, at);
		uint8_t *kind = stack_byte(s->frame, at);
		if (!s->fixed && holds_pointer(slot))
			return refuse(v, EACCES, "leak", "attempt to corrupt spilled pointer on stack; write at an offset known in advance");
		slot_scrub(slot);
		if (s->fixed)
			*kind = zero ? SLOT_ZERO : SLOT_MISC;
		else if (*kind == SLOT_ZERO && !zero) /* this byte may be written, or not; unset stays unset */
			*kind = SLOT_MISC;
	}
	return err;
}

bool stack_constant(struct verifier *v, const struct vreg *ptr, uint32_t *value, int *err)
{
	*err = 0;
	if (ptr->type != V_STACK || !range_is_const(&ptr->r))
		return false;
	int64_t low = ptr->off + ptr->r.b64.smin;
	struct vframe *f = &v->cur.frames[ptr->frame];
	struct vslot *slot = stack_slot(f, low);
	if (low % 8 == 0 && spill_bytes(slot) >= 4) {
		if (slot->spill.type != V_SCALAR || !range_is_const(&slot->spill.r))
			return false;
		*value = (uint32_t)slot->spill.r.bits.value;
		*err = mark_precise(v, &slot->spill);
		return true;
	}
	for (int64_t at = low; at < low + 4; at++)
		if (*stack_byte(f, at) != SLOT_ZERO)
			return false;
	*value = 0;
	return true;
}

/* Everything else. */

static int check_aligned(struct verifier *v, const struct vreg *ptr, int32_t off, uint32_t bytes)
{
	if (tnum_aligned(ptr->r.bits, (int64_t)ptr->off + off, bytes))
		return 0;
	const char *what = ptr->type == V_STACK ? "stack" : ptr->type == V_CTX ? "context" : ptr->type == V_RECORD ? "record" : "value";
	return refuse(v, EACCES, "align", "misaligned %s access off %d+%d size %u; a GPU reads and writes at multiples of the size only", what,
		ptr->off, off, bytes);
}

static uint32_t region_bytes(const struct verifier *v, const struct vreg *ptr)
{
	return ptr->type == V_VALUE ? v->p->maps[ptr->map].value_size : ptr->bytes;
}

/* [off, off + bytes) of a map value, record or buffer, wherever the variable part of the pointer is. */
static int check_bounds(struct verifier *v, const struct vreg *ptr, uint32_t reg, int32_t off, uint64_t bytes)
{
	int64_t at = (int64_t)ptr->off + off, size = region_bytes(v, ptr), smin = ptr->r.b64.smin;
	uint64_t umax = ptr->r.b64.umax;
	const char *name = ptr->type == V_VALUE ? v->p->maps[ptr->map].name : NULL;
	if (smin < 0 && (smin == INT64_MIN || at + smin < 0))
		return refuse(v, EACCES, "oob", "R%u min value is negative, either use unsigned index or do a if (index >=0) check.", reg);
	if (at + smin < 0 || at + smin + (int64_t)bytes > size)
		return refuse(v, EACCES, "oob", "R%u min value is outside of the allowed memory range: off=%lld size=%llu of %lld bytes%s%s", reg,
			(long long)(at + smin), (unsigned long long)bytes, (long long)size, name ? " of a value of " : "", name ? name : "");
	if (umax >= MAX_VAR_OFF)
		return refuse(v, EACCES, "oob", "R%u unbounded memory access, make sure to bounds check any such access", reg);
	if (at + (int64_t)umax + (int64_t)bytes > size)
		return refuse(v, EACCES, "oob", "R%u max value is outside of the allowed memory range: off=%lld size=%llu of %lld bytes%s%s; check the index against the size",
			reg, (long long)(at + (int64_t)umax), (unsigned long long)bytes, (long long)size, name ? " of a value of " : "", name ? name : "");
	return 0;
}

static int check_map_rights(struct verifier *v, const struct ebpf_map *m, enum access how, int64_t off, uint64_t bytes)
{
	if ((how & WRITE) && (m->frozen || (m->flags & BPF_F_RDONLY_PROG)))
		return refuse(v, EACCES, "map", "write into map forbidden, value_size=%u off=%lld size=%llu; it is read-only", m->value_size,
			(long long)off, (unsigned long long)bytes);
	if ((how & READ) && (m->flags & BPF_F_WRONLY_PROG))
		return refuse(v, EACCES, "map", "read from map forbidden, value_size=%u off=%lld size=%llu; it is write-only", m->value_size,
			(long long)off, (unsigned long long)bytes);
	return 0;
}

static int bad_pointer(struct verifier *v, uint32_t reg, const struct vreg *ptr)
{
	if (is_or_null(ptr))
		return refuse(v, EACCES, "null", "R%u invalid mem access '%s'; check it against NULL first", reg, vtype_name(ptr->type));
	return refuse(v, EACCES, "type", "R%u invalid mem access '%s'", reg, vtype_name(ptr->type));
}

static int check_context(struct verifier *v, const struct vreg *ptr, uint32_t reg, int32_t off, uint32_t bytes, enum access how)
{
	enum ebpf_context ctx = v->p->context;
	int64_t at = (int64_t)ptr->off + off + ptr->r.b64.smin;
	if (v->p->opaque)
		return refuse(v, EACCES, "ctx",
			"a GPU thread has no such context (struct pt_regs); helpers 502 to 511 tell where it is, or take struct egpu_entry * (at the exit "
			"egpu_exit) in a gpu/ section, which has parameters too");
	if (!range_is_const(&ptr->r))
		return refuse(v, EACCES, "ctx", "variable ctx access of R%u; read the fields at constant offsets (unroll the loop)", reg);
	if (how & WRITE)
		return refuse(v, EACCES, "ctx", "invalid bpf_context access off=%lld size=%u; contexts are read-only", (long long)at, bytes);
	bool params = ctx == EBPF_CONTEXT_ENTRY || ctx == EBPF_CONTEXT_EXIT;
	if (params && at >= EBPF_PARAM_OFFSET && at % 8 + bytes <= 8 && at + bytes <= EBPF_PARAM_OFFSET + 8 * EBPF_PARAM_COUNT)
		return 0;
	uint32_t shift;
	int field = at < 0 || at > INT32_MAX ? -1 : ebpf_field_at(ctx, (uint32_t)at, bytes, &shift);
	if (field < 0)
		return refuse(v, EACCES, "ctx", "invalid bpf_context access off=%lld size=%u; no field of struct %s covers it", (long long)at, bytes,
			ebpf_context_struct(ctx));
	bool warp = ctx == EBPF_CONTEXT_WARP || ctx == EBPF_CONTEXT_WARP_MEM;
	if (warp && (field == EBPF_FIELD_THREAD_X || field == EBPF_FIELD_THREAD_Y || field == EBPF_FIELD_THREAD_Z))
		return refuse(v, EACCES, "ctx",
			"%s differs between the lanes of a warp, for which this program runs once; write egpu_lane_read(lane, thread.%c)",
			ebpf_fields[field].name, "xyz"[field - EBPF_FIELD_THREAD_X]);
	v->out->fields |= 1ull << field;
	return 0;
}

/* Outside the stack: the region, its bounds, its rights, alignment. */
static int check_region(struct verifier *v, const struct vreg *ptr, uint32_t reg, int32_t off, uint32_t bytes, enum access how)
{
	int err;
	switch (ptr->type) {
	case V_CTX:
		err = check_context(v, ptr, reg, off, bytes, how);
		break;
	case V_VALUE:
		err = check_map_rights(v, &v->p->maps[ptr->map], how, (int64_t)ptr->off + off, bytes);
		if (!err)
			err = check_bounds(v, ptr, reg, off, bytes);
		break;
	case V_KEY:
		if (how & WRITE)
			return refuse(v, EACCES, "map", "write to change key R%u not allowed; keys are read-only", reg);
		err = check_bounds(v, ptr, reg, off, bytes);
		break;
	case V_RECORD:
	case V_MEMORY:
		err = check_bounds(v, ptr, reg, off, bytes);
		break;
	case V_MAP:
		return refuse(v, EACCES, "type", "R%u invalid mem access 'map_ptr'; look a key up to reach its value", reg);
	default:
		return bad_pointer(v, reg, ptr);
	}
	/* A test-run's buffer is read and written byte by byte where it has to be; atomics cannot. */
	bool any_alignment = ptr->type == V_MEMORY && how != (READ | WRITE);
	if (!err && !any_alignment)
		err = check_aligned(v, ptr, off, bytes);
	return err ? err : fact_memory(v, ptr, off, NO_ARG);
}

/* The stack's counterpart. */
static int check_stack(struct verifier *v, const struct vreg *ptr, uint32_t reg, int32_t off, uint32_t bytes, enum access how, struct span *span)
{
	int err = stack_span(v, ptr, reg, off, bytes, how, span);
	if (!err)
		err = check_aligned(v, ptr, off, bytes);
	return err ? err : fact_memory(v, ptr, off, NO_ARG);
}

/* A value of a map that nobody can change: the bytes themselves. */
static bool frozen_value(const struct verifier *v, const struct vreg *ptr, int32_t off, uint32_t bytes, uint64_t *out)
{
	if (ptr->type != V_VALUE || !range_is_const(&ptr->r))
		return false;
	const struct ebpf_map *m = &v->p->maps[ptr->map];
	if (!m->frozen || !m->values || m->max_entries != 1)
		return false;
	int64_t at = (int64_t)ptr->off + off + ptr->r.b64.smin;
	*out = 0;
	for (uint32_t k = 0; k < bytes; k++)
		*out |= (uint64_t)m->values[at + k] << (8 * k);
	return true;
}

int step_load(struct verifier *v, const struct bpf_insn *i)
{
	uint32_t bytes = ebpf_insn_bytes(i->code);
	uint64_t value;
	struct vreg *ptr, out;
	int err = read_reg(v, i->src_reg, &ptr);
	if (!err)
		err = check_written(v, i->dst_reg);
	if (err)
		return err;
	if (ptr->type == V_STACK) {
		struct span span;
		err = check_stack(v, ptr, i->src_reg, i->off, bytes, READ, &span);
		if (!err)
			err = stack_read(v, &span, i->src_reg, bytes, &out);
	} else {
		err = check_region(v, ptr, i->src_reg, i->off, bytes, READ);
		if (!err) {
			out = frozen_value(v, ptr, i->off, bytes, &value) ? scalar_const(value) : scalar_unknown();
			range_zext(&out.r, bytes);
		}
	}
	if (err)
		return err;
	if (BPF_MODE(i->code) == EBPF_MEMSX) {
		struct range before = out.r;
		range_sext(&out.r, bytes);
		if (!range_equal(&before, &out.r))
			forget_equals(&out);
	}
	frame_now(v)->regs[i->dst_reg] = out;
	return 0;
}

static int leaks(struct verifier *v, uint32_t reg, const struct vreg *ptr)
{
	const char *where = ptr->type == V_VALUE ? "map" : ptr->type == V_CTX ? "ctx" : "mem";
	return refuse(v, EACCES, "leak", "R%u leaks addr into %s; store numbers there, not pointers", reg, where);
}

int step_store(struct verifier *v, const struct bpf_insn *i)
{
	uint32_t bytes = ebpf_insn_bytes(i->code);
	struct vreg *ptr, *value, imm = scalar_const((uint64_t)(int64_t)i->imm);
	bool reg = BPF_CLASS(i->code) == BPF_STX;
	int err = reg ? read_reg(v, i->src_reg, &value) : 0;
	if (!err)
		err = read_reg(v, i->dst_reg, &ptr);
	if (err)
		return err;
	if (!reg)
		value = &imm;
	if (ptr->type == V_STACK) {
		struct span span;
		link_scalar(v, value);
		err = check_stack(v, ptr, i->dst_reg, i->off, bytes, WRITE, &span);
		return err ? err : stack_write(v, &span, bytes, value);
	}
	/* Where a value is stored to the map value that it was loaded from, without an atomic: lanes may lose updates. The rule that
	 * tells those from the `*v += x` which the translator makes atomic belongs here, before the store is let through. */
	err = check_region(v, ptr, i->dst_reg, i->off, bytes, WRITE);
	return !err && is_pointer(value) ? leaks(v, i->src_reg, ptr) : err;
}

static int atomic_operand(struct verifier *v, uint32_t reg, const struct vreg *ptr)
{
	struct vreg *value;
	int err = read_reg(v, reg, &value);
	return !err && is_pointer(value) ? leaks(v, reg, ptr) : err;
}

/* *old: what was there before; the stack is the lane's own, so nobody else can have changed it. */
static int atomic_stack(struct verifier *v, const struct bpf_insn *i, const struct vreg *ptr, uint32_t bytes, struct vreg *old)
{
	struct span span;
	struct vreg unknown = scalar_unknown();
	int err = check_stack(v, ptr, i->dst_reg, i->off, bytes, READ | WRITE, &span);
	if (!err && !span.fixed)
		return refuse(v, EACCES, "stack", "variable offset stack pointer cannot be passed to an atomic; the stack is private, use a load and a store");
	if (!err && holds_pointer(stack_slot(span.frame, span.low)))
		return refuse(v, EACCES, "leak", "attempt to corrupt spilled pointer on stack; atomics work on numbers");
	if (!err)
		err = stack_read(v, &span, i->dst_reg, bytes, old);
	return err ? err : stack_write(v, &span, bytes, &unknown);
}

int step_atomic(struct verifier *v, const struct bpf_insn *i)
{
	uint32_t bytes = ebpf_insn_bytes(i->code);
	struct vreg *ptr;
	int err = read_reg(v, i->dst_reg, &ptr);
	if (!err)
		err = atomic_operand(v, i->src_reg, ptr);
	if (!err && i->imm == BPF_CMPXCHG)
		err = atomic_operand(v, 0, ptr);
	if (!err && ptr->type == V_CTX)
		err = refuse(v, EACCES, "ctx", "BPF_ATOMIC stores into R%d ctx is not allowed", i->dst_reg);
	uint32_t result = i->imm == BPF_CMPXCHG ? 0 : i->src_reg;
	if (!err && (i->imm & BPF_FETCH))
		err = check_written(v, result);
	if (err)
		return err;
	struct vreg old = scalar_unknown();
	range_zext(&old.r, bytes);
	err = ptr->type == V_STACK ? atomic_stack(v, i, ptr, bytes, &old) :
		check_region(v, ptr, i->dst_reg, i->off, bytes, READ | WRITE);
	if (!err && (i->imm & BPF_FETCH))
		frame_now(v)->regs[result] = old;
	return err;
}

/* Unknown bytes at a fixed place of the stack, slot by slot. */
static int stack_set(struct verifier *v, const struct span *s)
{
	struct vreg unknown = scalar_unknown();
	int err = 0;
	for (struct span one = *s; one.low < s->high && !err; one.low = one.high) {
		one.high = one.low - ((one.low % 8) + 8) % 8 + 8;
		if (one.high > s->high)
			one.high = s->high;
		err = stack_write(v, &one, (uint32_t)(one.high - one.low), &unknown);
	}
	return err;
}

int check_helper_out(struct verifier *v, uint32_t reg, uint32_t bytes, uint32_t align, int arg)
{
	struct vreg *ptr = &frame_now(v)->regs[reg];
	struct span span;
	int err;
	switch (ptr->type) {
	case V_STACK:
		err = stack_span(v, ptr, reg, 0, bytes, WRITE, &span);
		if (!err)
			err = check_aligned(v, ptr, 0, align);
		if (!err && !span.fixed)
			return refuse(v, EACCES, "stack", "R%u is a variable place of the stack; give the helper a variable of its own", reg);
		if (!err)
			err = stack_set(v, &span);
		break;
	case V_VALUE:
	case V_RECORD:
		err = ptr->type == V_VALUE ? check_map_rights(v, &v->p->maps[ptr->map], WRITE, ptr->off, bytes) : 0;
		if (!err)
			err = check_bounds(v, ptr, reg, 0, bytes);
		if (!err)
			err = check_aligned(v, ptr, 0, align);
		break;
	default:
		return refuse(v, EACCES, is_or_null(ptr) ? "null" : "type", "R%u type=%s expected=fp, map_value, ringbuf_mem%s", reg,
			vtype_name(ptr->type), is_or_null(ptr) ? "; check it against NULL first" : "");
	}
	return err ? err : fact_memory(v, ptr, 0, arg);
}

int check_helper_memory(struct verifier *v, uint32_t reg, uint64_t bytes, int arg)
{
	struct vreg *ptr = &frame_now(v)->regs[reg];
	struct span span;
	bool zero;
	int err;
	switch (ptr->type) {
	case V_STACK:
		err = stack_span(v, ptr, reg, 0, bytes, READ, &span);
		if (!err)
			err = stack_readable(v, &span, reg, bytes, &zero);
		break;
	case V_VALUE:
		err = check_map_rights(v, &v->p->maps[ptr->map], READ, ptr->off, bytes);
		if (!err)
			err = check_bounds(v, ptr, reg, 0, bytes);
		break;
	case V_RECORD:
	case V_MEMORY:
	case V_KEY:
		err = check_bounds(v, ptr, reg, 0, bytes);
		break;
	default:
		return refuse(v, EACCES, is_or_null(ptr) ? "null" : "type", "R%u type=%s expected=fp, map_value, ringbuf_mem, mem%s", reg,
			vtype_name(ptr->type), is_or_null(ptr) ? "; check it against NULL first" : "");
	}
	return err ? err : fact_memory(v, ptr, 0, arg);
}
