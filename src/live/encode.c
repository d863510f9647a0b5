/* encode.c - a verified program as the data that the device's interpreter runs. */
#include <errno.h>
#include <string.h>

#include "bpf/helpers.h"
#include "bpf/insns.h"
#include "live/program.h"
#include "map/layout.h"

int live_point_of(enum ebpf_point point, enum live_point *out, uint32_t *ops, struct diag *d)
{
	*ops = ~0u;
	switch (point) {
	case EBPF_POINT_ENTRY:
		*out = LIVE_ENTRY;
		return 0;
	case EBPF_POINT_EXIT:
		*out = LIVE_EXIT;
		return 0;
	case EBPF_POINT_BLOCK:
		*out = LIVE_LOOP;
		return 0;
	case EBPF_POINT_ACCESS:
		*ops = 1u << 1 | 1u << 2;
		*out = LIVE_MEM;
		return 0;
	case EBPF_POINT_LOAD:
	case EBPF_POINT_STORE:
	case EBPF_POINT_ATOMIC:
		*ops = 1u << (point - EBPF_POINT_LOAD + 1); /* enum egpu_op */
		/* fallthrough */
	case EBPF_POINT_MEM:
		*out = LIVE_MEM;
		return 0;
	default:
		return diag_set(d, EOPNOTSUPP,
			"gpu/%s has no guard in a running kernel: use entry, exit, block (loop heads), load, store, atomic, access or mem, or "
			"attach without --live",
			ebpf_point_name(point));
	}
}

/* Helpers that the interpreter knows: those of a GPU that do not perturb. */
static int check_helper(const struct ebpf_helper *h, uint32_t at, struct diag *d)
{
	if (h->class == EBPF_CLASS_PERTURB || h->number == EBPF_FUNC_egpu_access || h->number == BPF_FUNC_get_current_pid_tgid ||
		h->number == BPF_FUNC_perf_event_output)
		return diag_set(d, EOPNOTSUPP, "instruction %u: bpf_%s is not there inside a running kernel; count in a map, or attach without --live",
			at, h->name);
	return 0;
}

struct encoder {
	const struct ebpf_program *p;
	const struct verifier_result *v;
	const struct ebpf_update *updates;
	uint32_t n_updates;
	struct buf relocs, insns;
	uint32_t n_relocs;
	uint32_t trace; /* as in struct live_object */
	struct diag *d;
};

static uint32_t frame_depth(const struct encoder *e, uint32_t at)
{
	uint32_t depth = 0;

	for (uint32_t i = 0; i < e->v->n_subprogs && e->v->subprogs[i].start <= at; i++)
		depth = e->v->subprogs[i].depth;
	return (depth + 7) / 8 * 8;
}

static void put(struct encoder *e, const struct bpf_insn *i)
{
	buf_add(&e->insns, (const char *)i, sizeof(*i));
}

/* The interpreter knows the maps that most programs have. */
static int check_map(const struct encoder *e, const struct bpf_insn *i, uint32_t at)
{
	const struct ebpf_map *m = i->src_reg && i->src_reg != BPF_PSEUDO_FUNC ? &e->p->maps[i->imm] : NULL;

	if (!m || (m->type == BPF_MAP_TYPE_ARRAY && !map_threads_of(m)) || m->type == BPF_MAP_TYPE_PERCPU_ARRAY || m->type == BPF_MAP_TYPE_HASH ||
		m->type == BPF_MAP_TYPE_RINGBUF)
		return 0;
	return diag_set(e->d, EOPNOTSUPP, "instruction %u: map %s is of a type that is not there inside a running kernel; use an ARRAY, PERCPU_ARRAY, HASH "
		"or RINGBUF, or attach without --live", at, m->name ? m->name : "(no name)");
}

static void put_imm64(struct encoder *e, uint32_t at)
{
	struct bpf_insn lo = e->p->insns[at], hi = e->p->insns[at + 1];
	struct live_reloc r = { .insn = at };

	if (lo.src_reg == BPF_PSEUDO_FUNC) {
		lo.imm += (int32_t)at + 1;
	} else if (lo.src_reg) {
		bool value = lo.src_reg == BPF_PSEUDO_MAP_VALUE;
		r.map = e->p->maps[lo.imm].id;
		r.offset = value ? MAP_IMAGE_HEADER + (uint64_t)(uint32_t)hi.imm : 0;
		buf_add(&e->relocs, (const char *)&r, sizeof(r));
		e->n_relocs++;
		lo.imm = hi.imm = 0;
	}
	lo.src_reg = 0;
	put(e, &lo);
	put(e, &hi);
}

/* A ld_imm64 of the ring buffer that a record is of, for the call at `at`. */
static int find_ring(const struct encoder *e, uint32_t at, int16_t *off)
{
	int32_t map = e->v->facts[at].map;

	for (uint32_t i = 0; map >= 0 && i < e->p->n_insns; i++) {
		const struct bpf_insn *in = &e->p->insns[i];
		if (!ebpf_is_imm64(in))
			continue;
		if (in->src_reg == BPF_PSEUDO_MAP_FD && in->imm == map) {
			*off = (int16_t)(uint16_t)i;
			return 0;
		}
		i++;
	}
	return diag_set(e->d, EOPNOTSUPP, "instruction %u: which ring buffer the record is of differs between paths", at);
}

static int find_trace(struct encoder *e, uint32_t at)
{
	for (uint32_t k = 0; k < e->p->n_maps; k++)
		if (e->p->maps[k].type == BPF_MAP_TYPE_RINGBUF && e->p->maps[k].name && !strcmp(e->p->maps[k].name, "egpu_trace"))
			e->trace = e->p->maps[k].id + 1;
	return e->trace ? 0 : diag_set(e->d, EOPNOTSUPP, "instruction %u: the program has no ring buffer \"egpu_trace\" to print to", at);
}

static int put_call(struct encoder *e, uint32_t at)
{
	struct bpf_insn i = e->p->insns[at];
	const struct ebpf_helper *h = i.src_reg ? NULL : ebpf_helper_by_number((uint32_t)i.imm);
	int err = h ? check_helper(h, at, e->d) : 0;

	if (i.src_reg == BPF_PSEUDO_CALL || ebpf_helper_calls_back(h))
		i.off = (int16_t)frame_depth(e, at);
	if (!err && h && (h->number == BPF_FUNC_ringbuf_submit || h->number == BPF_FUNC_ringbuf_discard))
		err = find_ring(e, at, &i.off);
	if (!err && h && (h->number == BPF_FUNC_trace_printk || h->number == EBPF_FUNC_puts))
		err = find_trace(e, at);
	put(e, &i);
	return err;
}

/* The context is nowhere in memory: most of it is special registers. */
static int put_load(struct encoder *e, uint32_t at)
{
	const struct ebpf_fact *f = &e->v->facts[at];
	struct bpf_insn i = e->p->insns[at];

	if (f->reached && f->region == EBPF_REGION_CONTEXT) {
		if (!f->fixed || BPF_MODE(i.code) != BPF_MEM)
			return diag_set(e->d, EOPNOTSUPP, "instruction %u: which field of the context it reads differs between paths", at);
		i.code = (uint8_t)(BPF_LDX | BPF_SIZE(i.code) | LIVE_CONTEXT_MODE << 5);
		i.imm = f->offset;
	}
	put(e, &i);
	return 0;
}

static const struct ebpf_update *update_at(const struct encoder *e, uint32_t at)
{
	for (uint32_t k = 0; k < e->n_updates; k++)
		if (e->updates[k].store == at || (e->updates[k].load == at && e->updates[k].op == EBPF_UPDATE_ADD))
			return &e->updates[k];
	return NULL;
}

/* *v += x: from 0 instead of the loaded value, what is added is in the register that would be stored. if (x < *v) *v = x: the store alone. */
static int put_update(struct encoder *e, const struct ebpf_update *u, uint32_t at)
{
	static const uint8_t ops[] = { [EBPF_UPDATE_ADD] = BPF_ADD, [EBPF_UPDATE_MIN_U] = LIVE_MIN_U, [EBPF_UPDATE_MIN_S] = LIVE_MIN_S,
		[EBPF_UPDATE_MAX_U] = LIVE_MAX_U, [EBPF_UPDATE_MAX_S] = LIVE_MAX_S };
	struct bpf_insn i = e->p->insns[at];

	if (u->op == EBPF_UPDATE_OTHER)
		return diag_set(e->d, EOPNOTSUPP, "instruction %u: a sum whose value is used, or of 1 or 2 bytes, is not atomic inside a running kernel; write "
			"__sync_fetch_and_add(p, n), or attach without --live", at);
	if (u->store == at) {
		i.code = (uint8_t)(BPF_STX | BPF_SIZE(i.code) | BPF_ATOMIC);
		i.imm = ops[u->op];
	} else {
		i = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = i.dst_reg };
	}
	put(e, &i);
	return 0;
}

static int put_all(struct encoder *e)
{
	for (uint32_t at = 0; at < e->p->n_insns; at++) {
		const struct bpf_insn *i = &e->p->insns[at];
		const struct ebpf_update *u = update_at(e, at);
		int err = 0;
		if (u) {
			err = put_update(e, u, at);
		} else if (ebpf_is_imm64(i)) {
			err = check_map(e, i, at);
			put_imm64(e, at++);
		} else if (i->code == (BPF_JMP | BPF_CALL))
			err = put_call(e, at);
		else if (BPF_CLASS(i->code) == BPF_LDX)
			err = put_load(e, at);
		else
			put(e, i);
		if (err)
			return err;
	}
	return 0;
}

static int check(const struct encoder *e)
{
	for (uint32_t at = 0; at < e->p->n_insns; at++) {
		const struct ebpf_fact *f = &e->v->facts[at];
		if (f->region == EBPF_REGION_CONTEXT && BPF_CLASS(e->p->insns[at].code) == BPF_LDX && f->offset >= EBPF_PARAM_OFFSET &&
			(e->p->context == EBPF_CONTEXT_ENTRY || e->p->context == EBPF_CONTEXT_EXIT))
			return diag_set(e->d, EOPNOTSUPP,
				"instruction %u reads a parameter of the kernel, which a program inside a running kernel cannot", at);
	}
	if (e->v->gathered & ~EBPF_COORDINATES)
		return diag_set(e->d, EOPNOTSUPP,
			"a program inside a running kernel reads thread.x, thread.y and thread.z of other lanes alone; write it for each thread, or "
			"attach without --live");
	if (e->p->n_insns > LIVE_MAX_INSNS)
		return diag_set(e->d, E2BIG, "a live program has at most %d instructions, not %u", LIVE_MAX_INSNS, e->p->n_insns);
	if (e->v->max_frames > LIVE_FRAMES)
		return diag_set(e->d, EOPNOTSUPP, "calls are nested %u deep; inside a running kernel at most %d", e->v->max_frames, LIVE_FRAMES);
	return 0;
}

int live_encode(const struct ebpf_program *p, const struct verifier_result *v, const struct ebpf_update *updates, uint32_t n_updates,
	enum ebpf_point point, bool warp, struct buf *out, struct diag *d)
{
	const uint64_t coverage = UINT64_C(1) << EBPF_FIELD_DISTINCT_BYTES | UINT64_C(1) << EBPF_FIELD_SECTORS;
	struct encoder e = { .p = p, .v = v, .updates = updates, .n_updates = n_updates, .d = d };
	struct live_object o = { .magic = LIVE_MAGIC, .n_insns = p->n_insns };
	enum live_point where;
	int err = live_point_of(point, &where, &o.ops, d);

	if (!err)
		err = check(&e);
	if (!err)
		err = put_all(&e);
	o.point = where;
	o.n_relocs = e.n_relocs;
	o.trace = e.trace;
	o.flags = (warp ? LIVE_WARP : 0) | (v->fields & coverage ? LIVE_WANTS_COVERAGE : 0);
	o.budget = v->max_run_insns > UINT32_MAX ? UINT32_MAX : (uint32_t)v->max_run_insns;
	if (!err) {
		buf_add(out, (const char *)&o, sizeof(o));
		buf_add(out, e.relocs.data ? e.relocs.data : "", e.relocs.len);
		buf_add(out, e.insns.data, e.insns.len);
		if (out->failed || e.relocs.failed || e.insns.failed)
			err = diag_set(d, ENOMEM, "out of memory");
	}
	buf_free(&e.relocs);
	buf_free(&e.insns);
	return err;
}

int live_add_text(struct buf *object, const struct buf *text)
{
	struct live_tail tail = { .text_bytes = (uint32_t)text->len, .magic = LIVE_MAGIC };

	buf_add(object, text->data, text->len);
	buf_add(object, (const char *)&tail, sizeof(tail));
	return object->failed || text->failed ? -ENOMEM : 0;
}
