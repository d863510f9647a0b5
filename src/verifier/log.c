/* log.c - the failing path, told as the kernel tells it.
 *
 *	; return a[i]; @ probe.bpf.c:12
 *	4: (79) r0 = *(u64 *)(r1 +0)            ; R0_w=scalar() R1=map_value(map=arr,ks=4,vs=48)
 *
 * Nothing is written while paths are explored. When one fails it is walked once more, its forks decided as they were.
 */
#include "verifier/state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_HEAD = 400, LOG_TAIL = 1000, LOG_COLUMN = 40, LOG_TRAIL = 20000 };

const char *vtype_name(uint8_t type)
{
	static const char *const names[] = { "?", "scalar", "ctx", "fp", "map_ptr", "map_value", "map_value_or_null", "ringbuf_mem",
		"ringbuf_mem_or_null", "mem", "map_key", "func" };
	return type < sizeof(names) / sizeof(names[0]) ? names[type] : "?";
}

static void log_signed(struct buf *b, int64_t n)
{
	if (n >= -UINT16_MAX && n <= UINT16_MAX)
		buf_printf(b, "%" PRId64, n);
	else
		buf_printf(b, "0x%" PRIx64, (uint64_t)n);
}

/* "smin=umin=3,umax=9,var_off=(0x0; 0xf)": what differs from knowing nothing, equal numbers together. */
static bool log_range(struct buf *b, const struct range *r, bool comma)
{
	struct {
		const char *name;
		int64_t value;
		bool plain;
	} f[8] = {
		{ "smin", r->b64.smin, r->b64.smin == INT64_MIN },
		{ "smax", r->b64.smax, r->b64.smax == INT64_MAX },
		{ "umin", (int64_t)r->b64.umin, !r->b64.umin },
		{ "umax", (int64_t)r->b64.umax, r->b64.umax == UINT64_MAX },
		{ "smin32", r->b32.smin, r->b32.smin == INT32_MIN },
		{ "smax32", r->b32.smax, r->b32.smax == INT32_MAX },
		{ "umin32", (int64_t)r->b32.umin, !r->b32.umin },
		{ "umax32", (int64_t)r->b32.umax, r->b32.umax == UINT32_MAX },
	};
	for (int k = 0; k < 8; k++) {
		if (f[k].plain)
			continue;
		buf_printf(b, "%s%s=", comma ? "," : "", f[k].name);
		for (int j = k + 1; j < 8; j++)
			if (!f[j].plain && f[j].value == f[k].value) {
				buf_printf(b, "%s=", f[j].name);
				f[j].plain = true;
			}
		log_signed(b, f[k].value);
		comma = true;
	}
	if (r->bits.mask != UINT64_MAX) {
		buf_printf(b, "%svar_off=(0x%" PRIx64 "; 0x%" PRIx64 ")", comma ? "," : "", r->bits.value, r->bits.mask);
		comma = true;
	}
	return comma;
}

static void log_scalar(struct buf *b, const struct vreg *r)
{
	if (range_is_const(&r->r)) {
		log_signed(b, r->r.b64.smin);
		return;
	}
	buf_puts(b, "scalar(");
	if (r->id)
		buf_printf(b, "id=%u", r->id);
	log_range(b, &r->r, r->id != 0);
	buf_puts(b, ")");
}

static void log_reg(struct verifier *v, struct buf *b, const struct vreg *r, uint32_t frame)
{
	bool fixed = range_is_const(&r->r) && !r->r.bits.value, comma = false;
	if (r->type == V_SCALAR) {
		log_scalar(b, r);
		return;
	}
	buf_puts(b, vtype_name(r->type));
	if (r->type == V_STACK && r->frame != frame)
		buf_printf(b, "[%u]", r->frame);
	if (r->type == V_STACK && fixed) {
		buf_printf(b, "%d", r->off);
		return;
	}
	buf_puts(b, "(");
	if (is_or_null(r)) {
		buf_printf(b, "id=%u", r->id);
		comma = true;
	}
	if (r->map >= 0) {
		const struct ebpf_map *m = &v->p->maps[r->map];
		buf_printf(b, "%smap=%s,ks=%u,vs=%u", comma ? "," : "", m->name ? m->name : "?", m->key_size, m->value_size);
		comma = true;
	}
	if (r->ref) {
		buf_printf(b, "%sref_obj_id=%u", comma ? "," : "", r->ref);
		comma = true;
	}
	if (r->bytes) {
		buf_printf(b, "%ssz=%u", comma ? "," : "", r->bytes);
		comma = true;
	}
	if (r->off) {
		buf_printf(b, "%soff=%d", comma ? "," : "", r->off);
		comma = true;
	}
	if (!fixed)
		log_range(b, &r->r, comma);
	buf_puts(b, ")");
}

static void log_slot(struct verifier *v, struct buf *b, const struct vslot *s, uint32_t k, bool written, uint32_t frame)
{
	buf_printf(b, " fp-%u%s=", 8 * (k + 1), written ? "_w" : "");
	if (s->kind[0] == SLOT_SPILL && s->kind[7] == SLOT_SPILL) {
		log_reg(v, b, &s->spill, frame);
		return;
	}
	for (int i = 7; i >= 0; i--)
		buf_add(b, &"?m0rx"[s->kind[i]], 1);
	if (s->kind[0] == SLOT_SPILL) {
		buf_puts(b, ":");
		log_reg(v, b, &s->spill, frame);
	}
}

/* All that is set in the frame; with `before`, only what changed since. */
static void log_state(struct verifier *v, struct buf *b, const struct vframe *before)
{
	uint32_t frame = v->cur.n_frames - 1;
	const struct vframe *f = &v->cur.frames[frame];
	for (int k = 0; k <= 10; k++) {
		const struct vreg *r = &f->regs[k];
		bool written = before && memcmp(r, &before->regs[k], sizeof(*r));
		if (r->type == V_UNSET || (before && !written))
			continue;
		buf_printf(b, " R%d%s=", k, written ? "_w" : "");
		log_reg(v, b, r, frame);
	}
	for (uint32_t k = 0; k < f->n_slots; k++) {
		const struct vslot *s = &f->slots[k];
		bool written = before && (k >= before->n_slots || memcmp(s->kind, before->slots[k].kind, sizeof(s->kind)) ||
			memcmp(&s->spill, &before->slots[k].spill, sizeof(s->spill)));
		if (!memcmp(s->kind, (uint8_t[8]){ 0 }, 8) || (before && !written))
			continue;
		log_slot(v, b, s, k, written, frame);
	}
}

static const struct ebpf_line *line_of(const struct ebpf_program *p, uint32_t insn)
{
	uint32_t low = 0, high = p->lines ? p->n_lines : 0;
	while (low < high) {
		uint32_t mid = (low + high) / 2;
		if (p->lines[mid].insn <= insn)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? &p->lines[low - 1] : NULL;
}

static void log_line(struct verifier *v, const struct ebpf_line *l)
{
	const char *text = l->text ? l->text : "";
	text += strspn(text, " \t");
	buf_printf(v->log, "; %s @ %s:%u\n", text, l->file ? l->file : "?", l->line);
}

static void log_insn(struct verifier *v, uint32_t insn, size_t *start)
{
	*start = v->log->len;
	buf_printf(v->log, "%u: ", insn);
	ebpf_insn_print(v->p, insn, v->log);
}

/* The changes that an instruction made, behind it. */
static void log_changes(struct verifier *v, const struct vframe *before, size_t start)
{
	struct buf b = { 0 };
	bool all = v->opts.log_level > 1 || !before;
	log_state(v, &b, all ? NULL : before);
	if (b.len) {
		size_t width = v->log->len - start;
		buf_printf(v->log, "%*s;", width < LOG_COLUMN ? (int)(LOG_COLUMN - width) : 1, "");
		buf_add(v->log, b.data, b.len);
	}
	v->log->failed |= b.failed;
	buf_puts(v->log, "\n");
	buf_free(&b);
}

static void log_path(struct verifier *v)
{
	struct vframe *before = malloc(sizeof(*before));
	const struct ebpf_line *shown = NULL;
	uint32_t n = v->path_insns;
	v->replay = true;
	v->resumed = false;
	v->n_decisions = 0;
	start_path(v);
	buf_puts(v->log, "0:");
	log_state(v, v->log, NULL);
	buf_puts(v->log, "\n");
	for (uint32_t k = 0; k < n && before; k++) {
		uint32_t insn = v->cur.insn, frames = v->cur.n_frames;
		bool last = k + 1 == n && v->in_step, show = k < LOG_HEAD || k + LOG_TAIL >= n;
		const struct ebpf_line *l = line_of(v->p, insn);
		size_t start = 0;
		if (k == LOG_HEAD && !show)
			buf_printf(v->log, "(%u instructions of this path are left out)\n", n - LOG_HEAD - LOG_TAIL);
		if (show && l && l != shown)
			log_line(v, l);
		shown = l;
		if (show)
			log_insn(v, insn, &start);
		widen_again(v, k);
		*before = *frame_now(v);
		if (last || step(v) < 0) {
			if (show)
				buf_puts(v->log, "\n");
			break;
		}
		if (show)
			log_changes(v, v->cur.n_frames == frames ? before : NULL, start);
	}
	free(before);
}

void log_step(struct verifier *v, uint32_t insn)
{
	struct buf *log = v->log;
	const struct ebpf_line *l = line_of(v->p, insn);
	size_t start;
	if (v->trail_insns++ >= LOG_TRAIL || v->trail.failed)
		return;
	v->log = &v->trail;
	if (l && l->insn == insn)
		log_line(v, l);
	log_insn(v, insn, &start);
	log_changes(v, NULL, start);
	v->log = log;
}

/* What is the same in all lanes, instruction by instruction. */
static void log_uniform(struct verifier *v)
{
	buf_puts(v->log, "uniform before each instruction (r: registers; '|': lanes are split):\n");
	for (uint32_t at = 0; at < v->p->n_insns; at++) {
		const struct ebpf_fact *f = &v->out->facts[at];
		size_t start = v->log->len;
		if (!f->reached || v->flow[at].second)
			continue;
		buf_printf(v->log, "%u: ", at);
		ebpf_insn_print(v->p, at, v->log);
		size_t width = v->log->len - start;
		buf_printf(v->log, "%*s%c", width < LOG_COLUMN ? (int)(LOG_COLUMN - width) : 1, "", f->converged ? ';' : '|');
		for (uint32_t r = 0; r < 10; r++)
			if ((f->uniform & v->flow[at].live) >> r & 1)
				buf_printf(v->log, " r%u", r);
		buf_puts(v->log, "\n");
	}
}

void log_failure(struct verifier *v)
{
	const struct ebpf_line *l = line_of(v->p, v->out->failed_insn);
	if (v->log && v->opts.log_level && v->err != ENOMEM) {
		if (v->path_insns) {
			int err = v->err;
			v->err = 0;
			log_path(v);
			v->err = err;
		} else if (v->flow && v->out->failed_insn < v->p->n_insns) {
			size_t start;
			if (l)
				log_line(v, l);
			log_insn(v, v->out->failed_insn, &start);
			buf_puts(v->log, "\n");
		}
	}
	if (v->log)
		buf_printf(v->log, "%s\n", v->reason);
	diag_set_at(v->d, v->err, l ? l->line : 0, l ? l->column : 0, "%s", v->reason);
}

void log_success(struct verifier *v)
{
	if (v->log && v->opts.log_level > 1) {
		buf_add(v->log, v->trail.data ? v->trail.data : "", v->trail.len);
		if (v->trail_insns > LOG_TRAIL)
			buf_printf(v->log, "(%u further instructions are left out)\n", v->trail_insns - LOG_TRAIL);
		log_uniform(v);
	}
	if (v->log && v->opts.log_level)
		buf_printf(v->log, "processed %u insns (limit %u) peak_states %u longest run %" PRIu64 " insns stack depth %u\n",
			v->out->processed_insns, v->opts.max_states_insns, v->out->peak_states, v->out->max_run_insns, v->out->stack_bytes);
}
