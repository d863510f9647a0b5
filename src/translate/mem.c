/* mem.c - reading the memory that a helper is given: slots, local or global memory, or bytes known
 * now. */
#include "translate/internal.h"

#include <errno.h>
#include <string.h>

const uint8_t *tr_frozen(const struct ebpf_map *m, int64_t offset, uint32_t bytes, uint64_t *left)
{
	if (!m->frozen || !m->values || m->type != BPF_MAP_TYPE_ARRAY || m->max_entries != 1)
		return NULL;
	if (offset < 0 || offset > m->value_size || bytes > m->value_size - offset)
		return NULL;
	if (left)
		*left = m->value_size - (uint64_t)offset;
	return m->values + offset;
}

const uint8_t *tr_frozen_load(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	if (BPF_CLASS(in->code) != BPF_LDX || f->region != EBPF_REGION_MAP_VALUE || !f->fixed ||
		f->map < 0 || (uint32_t)f->map >= t->p->n_maps)
		return NULL;
	return tr_frozen(&t->p->maps[f->map], f->offset, ebpf_insn_bytes(in->code), NULL);
}

bool tr_const_pointer(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t reg,
	uint32_t *map, int64_t *offset)
{
	*offset = 0;
	for (; i > 0 && !inst->at[i].join; i--) {
		if (tr_next(t, inst, i - 1) != (int32_t)i)
			return false;
		const struct bpf_insn *in = tr_bpf(t, inst, i - 1);
		if (!(tr_defs(t, inst, i - 1) >> reg & 1))
			continue;
		if (in->code == (BPF_ALU64 | BPF_MOV | BPF_X) && !in->off) {
			reg = in->src_reg;
		} else if (in->code == (BPF_ALU64 | BPF_ADD | BPF_K)) {
			*offset += in->imm;
		} else if (ebpf_is_imm64(in) && in->src_reg == BPF_PSEUDO_MAP_VALUE &&
			   in->imm >= 0 && (uint32_t)in->imm < t->p->n_maps) {
			*map = (uint32_t)in->imm;
			*offset += (uint32_t)in[1].imm;
			return true;
		} else {
			return false;
		}
	}
	return false;
}

/* Constant bytes behind argument a, NULL when there are none. */
static const uint8_t *const_arg(
	const struct tr *t, const struct tr_inst *inst, uint32_t i, uint32_t a, uint64_t *n)
{
	uint32_t map, bytes;
	int64_t offset;
	if (tr_fact(t, inst, i)->args[a].region != EBPF_REGION_MAP_VALUE ||
		!tr_helper_arg_bytes(t, inst, i, a, &bytes))
		return NULL;
	if (bytes > TR_BY_STORE || !tr_const_pointer(t, inst, i, (uint8_t)(a + 1), &map, &offset))
		return NULL;
	return tr_frozen(&t->p->maps[map], offset, bytes, n);
}

/* Frame and offset of a stack argument whose place is known. */
static struct tr_inst *stack_arg(const struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	if (f->args[a].region != EBPF_REGION_STACK || f->args[a].frame == 255 || !f->args[a].fixed)
		return NULL;
	return tr_frame_at(t, inst, f->args[a].frame);
}

bool tr_mem_needs_reg(const struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a)
{
	uint64_t n;
	if (tr_fact(t, inst, i)->args[a].region == EBPF_REGION_STACK)
		return !stack_arg(t, inst, i, a);
	return !const_arg(t, inst, i, a, &n);
}

static uint32_t alignment(int64_t offset)
{
	return offset & 1 ? 1 : offset & 2 ? 2 : offset & 4 ? 4 : 8;
}

static int stack_mem(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a, struct tr_mem *out)
{
	struct tr_inst *owner = stack_arg(t, inst, i, a);
	out->kind = TR_MEM_LOCAL;
	if (!owner) {
		out->base = tr_reg(inst, a + 1);
		out->align =
			tr_fact(t, inst, i)->args[a].align ? tr_fact(t, inst, i)->args[a].align : 1;
		return 0;
	}
	out->offset = tr_fact(t, inst, i)->args[a].offset;
	uint32_t bytes;
	bool known = tr_helper_arg_bytes(t, inst, i, a, &bytes);
	if (known && !tr_frame_taken(&owner->frame, out->offset, bytes)) {
		out->kind = TR_MEM_SLOTS;
		out->frame = owner;
		return 0;
	}
	char symbol[32];
	snprintf(symbol, sizeof(symbol), "$egpu_stack%u", owner->id);
	out->base = tr_text(symbol);
	out->displacement = out->offset - owner->frame.low;
	out->align = alignment(out->displacement);
	return 0;
}

/* The key of an element, of the only map whose elements this function is called for. */
static int key_mem(struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_mem *out)
{
	bool hash = false, array = false;
	for (uint32_t pc = 0; pc < t->p->n_insns; pc++) {
		const struct ebpf_fact *f = &t->v->facts[pc];
		if (!f->reached || !f->callback || t->p->insns[pc].imm != EBPF_FUNC_for_each_map_elem)
			continue;
		bool is_hash = f->map >= 0 && map_is_hash(t->p->maps[f->map].type);
		hash |= is_hash;
		array |= !is_hash;
	}
	if (hash && array)
		return tr_unsupported(t, inst->at[i].pc,
			"keys of hash maps and of arrays are walked in one program; copy the key to the stack first");
	out->kind = hash ? TR_MEM_GLOBAL : TR_MEM_LOCAL;
	out->is_volatile = hash;
	out->align = hash ? 8 : 4;
	return 0;
}

int tr_mem_set(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a, struct tr_name value)
{
	struct tr_mem m;
	int err = tr_mem_arg(t, inst, i, a, &m);
	if (err)
		return err;
	if (m.kind == TR_MEM_SLOTS)
		tr_store_slots(t, &m.frame->frame, m.offset, 8, value);
	else
		tr_emit(t, "st.%s.u64 [%s+%d], %s;", m.kind == TR_MEM_LOCAL ? "local" : "global", m.base.s, m.displacement, value.s);
	return 0;
}

int tr_mem_arg(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a, struct tr_mem *out)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	*out = (struct tr_mem){ .kind = TR_MEM_GLOBAL, .base = tr_reg(inst, a + 1), .align = 1 };
	switch (f->args[a].region) {
	case EBPF_REGION_STACK:
		return stack_mem(t, inst, i, a, out);
	case EBPF_REGION_MAP_VALUE:
		out->bytes = const_arg(t, inst, i, a, &out->n_bytes);
		if (out->bytes)
			out->kind = TR_MEM_CONST;
		out->is_volatile = true;
		break;
	case EBPF_REGION_RECORD:
	case EBPF_REGION_MEMORY:
		break;
	case EBPF_REGION_KEY:
		return key_mem(t, inst, i, out);
	default:
		return tr_unsupported(
			t, inst->at[i].pc, "a helper is given memory of an unknown kind");
	}
	if (f->args[a].align)
		out->align = f->args[a].align;
	return 0;
}

/* acc |= piece << shift, where acc is empty at first. */
static void join(struct tr *t, struct tr_name *acc, bool *any, struct tr_name piece, uint32_t shift)
{
	if (shift) {
		struct tr_name s = tr_t64(t);
		tr_emit(t, "shl.b64 %s, %s, %u;", s.s, piece.s, shift);
		piece = s;
	}
	if (*any) {
		struct tr_name o = tr_t64(t);
		tr_emit(t, "or.b64 %s, %s, %s;", o.s, acc->s, piece.s);
		piece = o;
	}
	*acc = piece;
	*any = true;
}

static struct tr_name slots_word(struct tr *t, const struct tr_mem *m, uint32_t at, uint32_t bytes)
{
	const struct tr_frame *f = &m->frame->frame;
	int32_t start = m->offset + (int32_t)at, end = start + (int32_t)bytes;
	struct tr_name acc = tr_text("0");
	bool any = false;
	for (uint32_t k = 0; k < f->n_atoms; k++) {
		const struct tr_atom *a = &f->atoms[k];
		int32_t last = a->offset + (int32_t)a->bytes;
		int32_t lo = a->offset > start ? a->offset : start, hi = last < end ? last : end;
		if (lo >= hi)
			continue;
		char reg[32];
		snprintf(reg, sizeof(reg), "%%egpu_rs%u", a->reg);
		struct tr_name piece = tr_text(reg);
		if (lo > a->offset || hi < last) {
			struct tr_name cut = tr_t64(t);
			tr_emit(t, "shr.u64 %s, %s, %u;", cut.s, piece.s,
				8 * (uint32_t)(lo - a->offset));
			if (hi < last)
				tr_emit(t, "and.b64 %s, %s, 0x%llx;", cut.s, cut.s,
					(unsigned long long)tr_mask((uint32_t)(hi - lo)));
			piece = cut;
		}
		join(t, &acc, &any, piece, 8 * (uint32_t)(lo - start));
	}
	return acc;
}

static struct tr_name memory_word(struct tr *t, const struct tr_mem *m, uint32_t at, uint32_t bytes)
{
	struct tr_name acc = tr_text("0");
	bool any = false;
	for (uint32_t done = 0; done < bytes;) {
		uint32_t n = alignment(at + done);
		if (n > m->align)
			n = m->align;
		while (n > bytes - done)
			n /= 2;
		struct tr_name piece = tr_t64(t);
		tr_emit(t, "ld%s.%s.u%u %s, [%s+%d];", m->is_volatile ? ".volatile" : "",
			m->kind == TR_MEM_LOCAL ? "local" : "global", n * 8, piece.s, m->base.s,
			m->displacement + (int32_t)(at + done));
		join(t, &acc, &any, piece, 8 * done);
		done += n;
	}
	return acc;
}

struct tr_name tr_mem_word(struct tr *t, const struct tr_mem *m, uint32_t at, uint32_t bytes)
{
	if (m->kind == TR_MEM_SLOTS)
		return slots_word(t, m, at, bytes);
	if (m->kind != TR_MEM_CONST)
		return memory_word(t, m, at, bytes);
	uint64_t value = 0;
	for (uint32_t k = 0; k < bytes && at + k < m->n_bytes; k++)
		value |= (uint64_t)m->bytes[at + k] << (8 * k);
	return tr_imm((int64_t)value);
}

struct tr_name tr_mem_generic(struct tr *t, const struct tr_mem *m)
{
	struct tr_name r = tr_t64(t);
	if (m->kind == TR_MEM_LOCAL && m->base.s[0] == '$') {
		tr_emit(t, "mov.u64 %s, %s;", r.s, m->base.s);
		tr_emit(t, "add.s64 %s, %s, %d;", r.s, r.s, m->displacement);
	} else {
		tr_emit(t, "add.s64 %s, %s, %d;", r.s, m->base.s, m->displacement);
	}
	if (m->kind == TR_MEM_LOCAL)
		tr_emit(t, "cvta.local.u64 %s, %s;", r.s, r.s);
	return r; /* a global address is its own generic address */
}

void tr_mem_copy_call(struct tr *t, const struct tr_mem *m, const char *to, int32_t displacement,
	const char *bytes)
{
	struct tr_name dst = tr_t64(t);
	tr_emit(t, "add.s64 %s, %s, %d;", dst.s, to, displacement);
	struct tr_name args[3] = { dst, tr_mem_generic(t, m), tr_text(bytes) };
	tr_emit_call(t, tr_copy_func(t), NULL, args, 3);
}

void tr_mem_copy(
	struct tr *t, const struct tr_mem *m, const char *to, int32_t displacement, uint32_t bytes)
{
	if (bytes > TR_BY_STORE && (m->kind == TR_MEM_LOCAL || m->kind == TR_MEM_GLOBAL)) {
		tr_mem_copy_call(t, m, to, displacement, tr_imm(bytes).s);
		return;
	}
	for (uint32_t at = 0; at < bytes;) {
		uint32_t left = bytes - at, n = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
		struct tr_name word = tr_mem_word(t, m, at, n);
		tr_emit(t, "st.global.u%u [%s+%d], %s;", n * 8, to, displacement + (int32_t)at,
			word.s);
		at += n;
	}
}

/* Pieces of registers: each is filled as a whole. */
static void fill_slots(struct tr *t, const struct tr_mem *to, const struct tr_mem *from, uint32_t bytes)
{
	const struct tr_frame *f = &to->frame->frame;
	for (uint32_t k = 0; k < f->n_atoms; k++) {
		const struct tr_atom *a = &f->atoms[k];
		if (a->offset < to->offset || a->offset + (int32_t)a->bytes > to->offset + (int32_t)bytes)
			continue;
		struct tr_name word = from ? memory_word(t, from, (uint32_t)(a->offset - to->offset), a->bytes) : tr_text("0");
		tr_emit(t, "mov.u64 %%egpu_rs%u, %s;", a->reg, word.s);
	}
}

static void fill_piece(struct tr *t, const struct tr_mem *to, const char *to_at, const struct tr_mem *from, uint32_t at, uint32_t bytes)
{
	struct tr_name word = from ? memory_word(t, from, at, bytes) : tr_text("0");
	tr_emit(t, "st.%s.u%u [%s+%d], %s;", to->kind == TR_MEM_LOCAL ? "local" : "global", bytes * 8, to_at, to->displacement + (int32_t)at,
		word.s);
}

/* base + n, also of a symbol. */
static struct tr_name moved(struct tr *t, struct tr_name base, struct tr_name n)
{
	struct tr_name at = tr_t64(t);
	tr_emit(t, "mov.u64 %s, %s;", at.s, base.s);
	tr_emit(t, "add.s64 %s, %s, %s;", at.s, at.s, n.s);
	return at;
}

/* All whole pieces in a loop. */
static void fill_loop(struct tr *t, const struct tr_mem *to, const struct tr_mem *from, uint32_t bytes, uint32_t piece)
{
	struct tr_name n = tr_t64(t), more = tr_pred(t), again = tr_label(t);
	tr_emit(t, "mov.u64 %s, 0;", n.s);
	buf_printf(&t->body, "%s:\n", again.s);
	struct tr_name to_at = moved(t, to->base, n);
	struct tr_mem part = from ? *from : (struct tr_mem){ 0 };
	if (from)
		part.base = moved(t, from->base, n);
	fill_piece(t, to, to_at.s, from ? &part : NULL, 0, piece);
	tr_emit(t, "add.s64 %s, %s, %u;", n.s, n.s, piece);
	tr_emit(t, "setp.lt.u64 %s, %s, %u;", more.s, n.s, bytes / piece * piece);
	tr_emit(t, "@%s bra %s;", more.s, again.s);
}

void tr_mem_fill(struct tr *t, const struct tr_mem *to, const struct tr_name *from, int32_t displacement, uint32_t bytes)
{
	struct tr_mem source = { .kind = TR_MEM_GLOBAL, .displacement = displacement, .align = 8, .is_volatile = true };
	if (from)
		source.base = *from;
	const struct tr_mem *src = from ? &source : NULL;
	if (to->kind == TR_MEM_SLOTS) {
		fill_slots(t, to, src, bytes);
		return;
	}
	uint32_t at = 0;
	if (bytes > TR_BY_STORE) {
		fill_loop(t, to, src, bytes, to->align);
		at = bytes / to->align * to->align;
	}
	while (at < bytes) {
		uint32_t n = alignment(at);
		if (n > to->align)
			n = to->align;
		while (n > bytes - at)
			n /= 2;
		fill_piece(t, to, to->base.s, src, at, n);
		at += n;
	}
}
