/* call.c - helpers, calls of subprograms, exits. */
#include "map/layout.h"
#include "verifier/state.h"

#include <errno.h>
#include <string.h>

struct call {
	const struct ebpf_helper *helper;
	const struct ebpf_map *map;
	int32_t map_index;
	uint32_t size;	  /* of an allocation */
	uint32_t release; /* reservation that the call ends */
	bool known;	  /* the looked-up value exists */
	uint32_t func;	  /* the function given */
	uint64_t limit;	  /* most times that it is called */
	uint64_t copied;  /* most bytes that the helper reads */
};

static bool map_fits(const struct ebpf_helper *h, uint32_t type)
{
	bool ring = (h->number >= 130 && h->number <= 134) || h->number == EBPF_FUNC_egpu_access || h->number == BPF_FUNC_perf_event_output;
	bool push = h->number == BPF_FUNC_map_push_elem, pop = h->number == BPF_FUNC_map_pop_elem, peek = h->number == BPF_FUNC_map_peek_elem;
	bool stackid = h->number == BPF_FUNC_get_stackid;
	switch (type) {
	case BPF_MAP_TYPE_STACK_TRACE:
		return stackid;
	case BPF_MAP_TYPE_QUEUE:
	case BPF_MAP_TYPE_STACK:
		return push || pop || peek;
	case BPF_MAP_TYPE_BLOOM_FILTER:
		return push || peek;
	case BPF_MAP_TYPE_RINGBUF:
		return ring;
	case BPF_MAP_TYPE_HASH:
	case BPF_MAP_TYPE_ARRAY:
	case BPF_MAP_TYPE_PERCPU_HASH:
	case BPF_MAP_TYPE_PERCPU_ARRAY:
	case BPF_MAP_TYPE_LRU_HASH:
	case BPF_MAP_TYPE_LRU_PERCPU_HASH:
		return !ring && !push && !pop && !peek && !stackid;
	default:
		return false;
	}
}

static int arg_map(struct verifier *v, struct call *c, uint32_t reg, const struct vreg *r)
{
	if (r->type != V_MAP)
		return refuse(v, EACCES, "type", "R%u type=%s expected=map_ptr", reg, vtype_name(r->type));
	c->map_index = r->map;
	c->map = &v->p->maps[r->map];
	fact_map(v, r->map);
	if (!map_fits(c->helper, c->map->type))
		return refuse(v, EINVAL, "map", "cannot pass map_type %u into func bpf_%s#%u", c->map->type, c->helper->name, c->helper->number);
	bool warp = v->p->context == EBPF_CONTEXT_WARP || v->p->context == EBPF_CONTEXT_WARP_MEM;
	if (warp && map_threads_of(c->map))
		return refuse(v, EINVAL, "map", "'%s' has an element for each thread, and this program runs once per warp; use gpu/ in the place of gpu.warp/",
			c->map->name ? c->map->name : "the map");
	bool writes = c->helper->number == BPF_FUNC_map_update_elem || c->helper->number == BPF_FUNC_map_delete_elem ||
		      c->helper->number == BPF_FUNC_map_push_elem || c->helper->number == BPF_FUNC_map_pop_elem;
	if (writes && (c->map->frozen || (c->map->flags & BPF_F_RDONLY_PROG)))
		return refuse(v, EACCES, "map", "write into map forbidden; '%s' is read-only", c->map->name ? c->map->name : "the map");
	return 0;
}

/* Memory of a size that the map gives. */
static int arg_map_memory(struct verifier *v, struct call *c, uint32_t reg, uint32_t bytes, int arg)
{
	if (!c->map)
		return refuse(v, EACCES, "type", "R%u has no map before it", reg);
	c->copied += bytes;
	return check_helper_memory(v, reg, bytes, arg);
}

/* The helper reads the site from it. */
static int arg_ctx(struct verifier *v, uint32_t reg, const struct vreg *r)
{
	if (r->type != V_CTX || v->p->context == EBPF_CONTEXT_NONE)
		return refuse(v, EACCES, "type", "R%u type=%s expected=ctx", reg, vtype_name(r->type));
	if (r->off || !range_is_value(&r->r, 0))
		return refuse(v, EACCES, "ctx", "R%u is ctx and something; hand over the context as the program was given it", reg);
	v->out->fields |= 1ull << EBPF_FIELD_SITE;
	return 0;
}

/* As libbpf's programs hand it on; there is nothing for it here. */
static int arg_ctx_unused(struct verifier *v, uint32_t reg, const struct vreg *r)
{
	if (r->type == V_SCALAR && range_is_value(&r->r, 0))
		return mark_precise(v, r);
	if (r->type == V_CTX && !r->off && range_is_value(&r->r, 0))
		return 0;
	return refuse(v, EACCES, "type", "R%u type=%s expected=ctx; hand over the context as the program was given it, or NULL", reg, vtype_name(r->type));
}

/* What is popped or peeked; a Bloom filter is asked for a value instead. */
static int arg_value_out(struct verifier *v, struct call *c, uint32_t reg, int arg)
{
	if (!c->map || c->map->type == BPF_MAP_TYPE_BLOOM_FILTER)
		return arg_map_memory(v, c, reg, c->map ? c->map->value_size : 0, arg);
	c->copied += c->map->value_size;
	return check_helper_out(v, reg, c->map->value_size, 1, arg);
}

static int check_scalar(struct verifier *v, uint32_t reg, const struct vreg *r)
{
	if (is_pointer(r))
		return refuse(v, EACCES, "type", "R%u type=%s expected=scalar", reg, vtype_name(r->type));
	return 0;
}

/* The register holds the size of the memory that the register before it points to. */
static int arg_size(struct verifier *v, struct call *c, uint32_t reg, struct vreg *r, int arg)
{
	int err = check_scalar(v, reg, r);
	if (err)
		return err;
	if (r->r.b64.smin < 0)
		return refuse(v, EACCES, "size", "R%u min value is negative, either use unsigned or 'var &= const'", reg);
	if (!r->r.b64.umin)
		return refuse(v, EACCES, "size", "R%u invalid zero-sized read; make the size at least 1", reg);
	if (r->r.b64.umax >= MAX_VAR_OFF)
		return refuse(v, EACCES, "size", "R%u unbounded memory access, use 'var &= const' or 'if (var < const)'", reg);
	c->copied += r->r.b64.umax;
	err = check_helper_memory(v, reg - 1, r->r.b64.umax, arg - 1);
	if (!err)
		err = mark_precise(v, r);
	if (!err)
		fact_scalar(v, arg, r, true);
	return err;
}

static int arg_const_size(struct verifier *v, struct call *c, uint32_t reg, struct vreg *r, int arg)
{
	int err = check_scalar(v, reg, r);
	if (err)
		return err;
	if (!range_is_const(&r->r))
		return refuse(v, EACCES, "size", "R%u is not a known constant; reserve a fixed size or use bpf_ringbuf_output", reg);
	if (r->r.bits.value >= MAX_VAR_OFF)
		return refuse(v, EACCES, "size", "R%u is too large a record", reg);
	c->size = (uint32_t)r->r.bits.value;
	err = mark_precise(v, r);
	if (!err)
		fact_scalar(v, arg, r, true);
	return err;
}

static int arg_record(struct verifier *v, struct call *c, uint32_t reg, const struct vreg *r)
{
	if (r->type != V_RECORD)
		return refuse(v, EACCES, r->type == V_RECORD_OR_NULL ? "null" : "type", "R%u type=%s expected=ringbuf_mem%s", reg, vtype_name(r->type),
			r->type == V_RECORD_OR_NULL ? "; check it against NULL first" : "");
	if (r->off || !range_is_value(&r->r, 0))
		return refuse(v, EACCES, "ref", "R%u must have zero offset when passed to release func; pass what bpf_ringbuf_reserve returned", reg);
	c->release = r->ref;
	/* Its ring and its size. */
	struct vreg size = { .type = V_SCALAR, .map = -1, .r = range_const(r->bytes) };
	fact_map(v, r->map);
	fact_scalar(v, (int)reg - 1, &size, true);
	return fact_memory(v, r, 0, (int)reg - 1);
}

static int arg_func(struct verifier *v, struct call *c, uint32_t reg, const struct vreg *r)
{
	if (r->type != V_FUNC)
		return refuse(v, EACCES, "type", "R%u type=%s expected=func", reg, vtype_name(r->type));
	c->func = (uint32_t)r->off;
	return 0;
}

/* What is handed on to the function: memory of this program's own. */
static int arg_stack(struct verifier *v, uint32_t reg, const struct vreg *r)
{
	if (r->type == V_STACK)
		return 0;
	if (r->type == V_SCALAR && range_is_value(&r->r, 0))
		return mark_precise(v, r);
	return refuse(v, EACCES, "type", "R%u type=%s expected=fp; hand over a variable on the stack, or 0", reg, vtype_name(r->type));
}

static int arg_const(struct verifier *v, uint32_t reg, struct vreg *r, int arg)
{
	int err = check_scalar(v, reg, r);
	if (!err && !range_is_const(&r->r))
		err = refuse(v, EACCES, "type", "R%u is not a known constant", reg);
	if (!err)
		err = mark_precise(v, r);
	if (!err)
		fact_scalar(v, arg, r, true);
	return err;
}

/* Characters that the translator has to know: those of one frozen array, the same on all paths. */
static int arg_string(struct verifier *v, struct call *c, uint32_t reg, struct vreg *r, int arg)
{
	const struct ebpf_map *m = r->type == V_VALUE ? &v->p->maps[r->map] : NULL;
	if (is_or_null(r))
		return refuse(v, EACCES, "null", "R%u invalid mem access '%s'; check it against NULL first", reg, vtype_name(r->type));
	if (!m || !m->frozen || !m->values || m->max_entries != 1 || !range_is_const(&r->r))
		return refuse(v, EACCES, "type", "R%u type=%s expected=a constant string; write the text as a literal, or bpf_printk(\"%%s\", ...)", reg,
			vtype_name(r->type));
	int64_t at = (int64_t)r->off + r->r.b64.smin;
	const uint8_t *end = at < 0 || at >= m->value_size ? NULL : memchr(m->values + at, 0, m->value_size - (uint64_t)at);
	if (!end)
		return refuse(v, EACCES, "oob", "R%u leads to no string: no zero byte follows at offset %lld of '%s', which has %u bytes", reg,
			(long long)at, m->name ? m->name : "the map", m->value_size);
	uint64_t bytes = (uint64_t)(end - m->values) - (uint64_t)at + 1;
	if (bytes > EBPF_MAX_STRING)
		return refuse(v, EACCES, "size", "R%u leads to a string of %llu bytes, and at most %d are printed; print it in pieces", reg,
			(unsigned long long)bytes, EBPF_MAX_STRING);
	struct ebpf_fact *f = &v->out->facts[v->cur.insn];
	if (v->flow[v->cur.insn].called && (f->map != r->map || !f->args[arg].fixed || f->args[arg].offset != at))
		return refuse(v, EINVAL, "type", "this call is given different strings on different paths; write a call for each");
	struct vreg size = { .type = V_SCALAR, .map = -1, .r = range_const(bytes) };
	c->copied += bytes;
	fact_map(v, r->map);
	fact_scalar(v, arg, &size, true);
	int err = mark_precise(v, r);
	return err ? err : fact_memory(v, r, 0, arg);
}

/* A field of another lane: one that differs between lanes. Which point it is is not known yet. */
static int arg_field(struct verifier *v, uint32_t reg, struct vreg *r, int arg)
{
	int err = arg_const(v, reg, r, arg);
	if (err)
		return err;
	int field = ebpf_lane_field(v->p->context, r->r.bits.value);
	const char *more = v->p->context == EBPF_CONTEXT_WARP_MEM ? ", address, space and value[] can, and at load_done cycles"
			   : v->p->context == EBPF_CONTEXT_WARP  ? " can, at branch taken, at barrier id and threads, at insn value[]"
								  : " can";
	if (field < 0)
		return refuse(v, EACCES, "ctx", "R%u=%llu is no field that can be read of another lane; thread.x, thread.y, thread.z%s", reg,
			(unsigned long long)r->r.bits.value, more);
	v->out->gathered |= 1ull << field;
	return 0;
}

static int arg_delay(struct verifier *v, uint32_t reg, struct vreg *r, int arg)
{
	int err = check_scalar(v, reg, r);
	if (!err && r->r.b64.umax > EBPF_MAX_DELAY_NS)
		err = refuse(v, EACCES, "size", "R%u may be more than %d ns; delay shorter, or check it against a constant", reg, EBPF_MAX_DELAY_NS);
	if (!err)
		err = mark_precise(v, r);
	if (!err)
		fact_scalar(v, arg, r, true);
	return err;
}

/* A number of no consequence to safety: flags. Where they are constant the translator gets to know them. */
static int arg_any(struct verifier *v, uint32_t reg, struct vreg *r, int arg)
{
	if (is_pointer(r))
		return refuse(v, EACCES, "leak", "R%u leaks addr into helper function; pass a number", reg);
	bool constant = range_is_const(&r->r);
	int err = constant ? mark_precise(v, r) : 0;
	if (!err) {
		struct vreg any = scalar_unknown();
		fact_scalar(v, arg, constant ? r : &any, constant);
	}
	return err;
}

static int check_arg(struct verifier *v, struct call *c, int arg)
{
	uint32_t reg = (uint32_t)arg + 1;
	struct vreg *r;
	enum ebpf_arg kind = (enum ebpf_arg)c->helper->args[arg];
	int err = kind == EBPF_ARG_NONE ? 0 : read_reg(v, reg, &r);
	if (err)
		return err;
	switch (kind) {
	case EBPF_ARG_MAP:
		return arg_map(v, c, reg, r);
	case EBPF_ARG_KEY:
		return arg_map_memory(v, c, reg, c->map ? c->map->key_size : 0, arg);
	case EBPF_ARG_VALUE:
		return arg_map_memory(v, c, reg, c->map ? c->map->value_size : 0, arg);
	case EBPF_ARG_CTX:
		return arg_ctx(v, reg, r);
	case EBPF_ARG_CTX_UNUSED:
		return arg_ctx_unused(v, reg, r);
	case EBPF_ARG_VALUE_OUT:
		return arg_value_out(v, c, reg, arg);
	case EBPF_ARG_SIZE:
		return arg_size(v, c, reg, r, arg);
	case EBPF_ARG_CONST_SIZE:
		return arg_const_size(v, c, reg, r, arg);
	case EBPF_ARG_RING_RECORD:
		return arg_record(v, c, reg, r);
	case EBPF_ARG_ANY:
		return arg_any(v, reg, r, arg);
	case EBPF_ARG_FUNC:
		return arg_func(v, c, reg, r);
	case EBPF_ARG_STACK:
		return arg_stack(v, reg, r);
	case EBPF_ARG_OUT:
		return check_helper_out(v, reg, 8, 8, arg);
	case EBPF_ARG_CONST:
		return c->helper->number == EBPF_FUNC_egpu_lane_read ? arg_field(v, reg, r, arg) : arg_const(v, reg, r, arg);
	case EBPF_ARG_STRING:
		return arg_string(v, c, reg, r, arg);
	case EBPF_ARG_DELAY:
		return arg_delay(v, reg, r, arg);
	default: /* NONE; MEM is looked at with its size */
		return 0;
	}
}

/* An array entry whose index is known and exists: the look-up cannot fail. (Of one with an element for each thread there may be more threads.) */
static int find_known(struct verifier *v, struct call *c)
{
	uint32_t key;
	int err = 0;
	bool array = c->map && map_is_array(c->map->type) && !map_threads_of(c->map);
	if (array && c->map->key_size == 4 && stack_constant(v, &frame_now(v)->regs[2], &key, &err))
		c->known = key < c->map->max_entries;
	return err;
}

/* Every copy of a released record becomes unusable. */
static void release(struct verifier *v, uint32_t ref)
{
	for (uint32_t f = 0; f < v->cur.n_frames; f++) {
		struct vframe *frame = &v->cur.frames[f];
		for (uint32_t k = 0; k < 10; k++)
			if (frame->regs[k].ref == ref && frame->regs[k].type != V_UNSET)
				frame->regs[k] = (struct vreg){ .type = V_UNSET, .map = -1 };
		for (uint32_t k = 0; k < frame->n_slots; k++)
			if (frame->slots[k].kind[0] == SLOT_SPILL && frame->slots[k].spill.ref == ref)
				for (int b = 0; b < 8; b++)
					frame->slots[k].kind[b] = SLOT_UNSET;
	}
	for (uint32_t k = 0; k < v->cur.n_refs; k++)
		if (v->cur.refs[k].id == ref)
			v->cur.refs[k--] = v->cur.refs[--v->cur.n_refs];
}

static int set_result(struct verifier *v, const struct call *c)
{
	struct vframe *f = frame_now(v);
	for (int k = 0; k <= 5; k++)
		f->regs[k] = (struct vreg){ .type = V_UNSET, .map = -1 };
	struct vreg *r = &f->regs[0];
	switch (c->helper->ret) {
	case EBPF_RET_VOID:
		return 0;
	case EBPF_RET_VALUE_OR_NULL:
		*r = (struct vreg){ .type = c->known ? V_VALUE : V_VALUE_OR_NULL, .map = c->map_index, .r = range_const(0) };
		r->id = c->known ? 0 : ++v->next_id;
		return 0;
	case EBPF_RET_RECORD_OR_NULL:
		*r = (struct vreg){ .type = V_RECORD_OR_NULL, .map = c->map_index, .bytes = c->size, .r = range_const(0) };
		r->id = r->ref = ++v->next_id;
		if (v->cur.n_refs == MAX_REFS)
			return refuse(v, E2BIG, "ref", "more than %d records are reserved at once; submit or discard them first", MAX_REFS);
		v->cur.refs[v->cur.n_refs++] = (struct vref){ r->ref, v->cur.insn };
		return 0;
	default:
		*r = scalar_unknown();
		return 0;
	}
}

/* Whether the program may call it at all: where it runs, and what it does to others. */
static int check_helper(struct verifier *v, const struct ebpf_helper *h, uint32_t number)
{
	enum ebpf_context c = v->p->context;
	const char *name, *why = ebpf_helper_refused(number, &name);
	if (why)
		return refuse(v, EINVAL, "helper", "func bpf_%s#%u does not exist on a GPU: %s", name, number, why);
	if (!h)
		return refuse(v, EINVAL, "helper", "unknown func #%d; no helper of this number exists on a GPU", (int)number);
	bool warp = c == EBPF_CONTEXT_WARP || c == EBPF_CONTEXT_WARP_MEM;
	if (c != EBPF_CONTEXT_NONE && !(h->where & (warp ? EBPF_WHERE_WARP : EBPF_WHERE_THREAD)))
		return refuse(v, EACCES, "helper", warp ? "func bpf_%s#%u is for programs that run in each thread; a gpu.warp/ program reads lanes with "
			"bpf_egpu_lane_read" : "func bpf_%s#%u is for programs that run once per warp (gpu.warp/)", h->name, number);
	if (h->class == EBPF_CLASS_PERTURB && !v->opts.allow_perturb)
		return refuse(v, EACCES, "perturb", "func bpf_%s#%u changes what the probed kernel does; allow it with --allow-perturb", h->name, number);
	if (h->ret == EBPF_RET_NEVER && v->cur.n_refs)
		return refuse(v, EACCES, "ref", "func bpf_%s#%u would leave a reserved record behind (id=%u alloc_insn=%u); submit or discard it first", h->name,
			number, v->cur.refs[0].id, v->cur.refs[0].insn);
	return 0;
}

/* How often at most the function is called. */
static int loop_limit(struct verifier *v, struct call *c)
{
	struct vreg *r1 = &frame_now(v)->regs[1];
	if (c->helper->number == EBPF_FUNC_for_each_map_elem) {
		if (map_threads_of(c->map))
			return refuse(v, EINVAL, "map", "'%s' has elements of all threads, and a thread sees only its own; look them up one by one",
				c->map->name ? c->map->name : "the map");
		switch (c->map->type) {
		case BPF_MAP_TYPE_ARRAY:
		case BPF_MAP_TYPE_PERCPU_ARRAY:
		case BPF_MAP_TYPE_HASH:
		case BPF_MAP_TYPE_PERCPU_HASH:
		case BPF_MAP_TYPE_LRU_HASH:
		case BPF_MAP_TYPE_LRU_PERCPU_HASH:
			break;
		default:
			return refuse(v, EINVAL, "map", "cannot pass map_type %u into func bpf_%s#%u", c->map->type, c->helper->name, c->helper->number);
		}
		c->limit = c->map->max_entries;
		return 0;
	}
	c->limit = r1->r.b64.umax < EBPF_MAX_LOOPS ? r1->r.b64.umax : EBPF_MAX_LOOPS;
	return mark_precise(v, r1);
}

static int call_helper(struct verifier *v, const struct bpf_insn *i)
{
	struct call c = { .helper = ebpf_helper_by_number((uint32_t)i->imm), .map_index = -1 };
	int err = check_helper(v, c.helper, (uint32_t)i->imm);
	for (int arg = 0; arg < 5 && !err; arg++)
		err = check_arg(v, &c, arg);
	if (!err && c.helper->ret == EBPF_RET_VALUE_OR_NULL)
		err = find_known(v, &c);
	bool leave = true;
	if (!err && ebpf_helper_calls_back(c.helper))
		err = loop_limit(v, &c);
	if (!err && ebpf_helper_calls_back(c.helper))
		err = fact_callback(v, c.func);
	if (err)
		return err;
	fact_called(v);
	if (ebpf_helper_calls_back(c.helper)) {
		struct callback cb = { c.helper, c.func, c.limit, c.map_index };
		err = step_callback(v, &cb, &leave);
		if (err || !leave)
			return err;
	}
	if (c.release)
		release(v, c.release);
	v->cur.length += c.helper->cost + c.copied / EBPF_BYTES_PER_INSN;
	if (c.helper->ret == EBPF_RET_NEVER)
		return PATH_ENDED;
	err = set_result(v, &c);
	v->cur.insn++;
	return err;
}

static int call_subprog(struct verifier *v, const struct bpf_insn *i)
{
	if (v->cur.n_frames == MAX_FRAMES)
		return refuse(v, E2BIG, "stack", "the call stack of %d frames is too deep; inline some of the functions", MAX_FRAMES + 1);
	struct vframe *caller = frame_now(v), *f = &v->cur.frames[v->cur.n_frames];
	uint32_t start = v->cur.insn + 1 + (uint32_t)i->imm;
	for (uint32_t k = 0; k <= 10; k++)
		f->regs[k] = (struct vreg){ .type = V_UNSET, .map = -1 };
	for (uint32_t k = 0; k <= 5; k++) {
		if (k)
			f->regs[k] = caller->regs[k];
		caller->regs[k] = (struct vreg){ .type = V_UNSET, .map = -1 };
	}
	f->regs[10] = (struct vreg){ .type = V_STACK, .frame = (uint8_t)v->cur.n_frames, .map = -1, .r = range_const(0) };
	f->callsite = v->cur.insn;
	f->subprog = subprog_of(v, start);
	f->callback = false;
	f->n_slots = f->iteration = f->refs = 0;
	f->entered = 0;
	v->cur.n_frames++;
	v->cur.insn = start;
	v->jumps++;
	return 0;
}

int step_call(struct verifier *v, const struct bpf_insn *i)
{
	return i->src_reg == BPF_PSEUDO_CALL ? call_subprog(v, i) : call_helper(v, i);
}

static int exit_program(struct verifier *v, const struct vreg *r0)
{
	if (r0->type == V_UNSET)
		return refuse(v, EACCES, "uninit", "R0 !read_ok; return a number on every path");
	if (is_pointer(r0))
		return refuse(v, EACCES, "leak", "At program exit the register R0 leaks addr as return value; return a number");
	if (v->cur.n_refs)
		return refuse(v, EACCES, "ref",
			"Unreleased reference id=%u alloc_insn=%u; call bpf_ringbuf_submit or bpf_ringbuf_discard on every path", v->cur.refs[0].id,
			v->cur.refs[0].insn);
	return PATH_ENDED;
}

int step_exit(struct verifier *v)
{
	struct vframe *f = frame_now(v);
	struct vreg *r0 = &f->regs[0];
	if (v->cur.n_frames == 1)
		return exit_program(v, r0);
	if (f->callback)
		return callback_return(v);
	if (r0->type == V_STACK)
		return refuse(v, EACCES, "leak", "cannot return stack pointer to the caller");
	v->cur.insn = f->callsite + 1;
	v->cur.frames[v->cur.n_frames - 2].regs[0] = *r0;
	v->cur.n_frames--;
	v->jumps++;
	return 0;
}
