/* lower.c - one eBPF instruction at a time to PTX: jumps, memory, atomics, calls; arithmetic is alu.c's.
 *
 * r0..r10 are .b64 registers.
 */
#include "translate/internal.h"

#include <errno.h>

/* -- jumps ------------------------------------------------------------------- */

static const char *compare_name(uint8_t op, const char **kind)
{
	*kind = "u";
	switch (op) {
	case BPF_JEQ:
		return "eq";
	case BPF_JNE:
	case BPF_JSET:
		return "ne";
	case BPF_JGT:
		return "gt";
	case BPF_JGE:
		return "ge";
	case BPF_JLT:
		return "lt";
	case BPF_JLE:
		return "le";
	}
	*kind = "s";
	switch (op) {
	case BPF_JSGT:
		return "gt";
	case BPF_JSGE:
		return "ge";
	case BPF_JSLT:
		return "lt";
	case BPF_JSLE:
		return "le";
	default:
		return NULL;
	}
}

/* Whether the register before i is the result of the look-up made last, in the same block. */
static bool is_found(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t reg)
{
	if (t->found.inst != inst)
		return false;
	for (; i > t->found.at && !inst->at[i].join && tr_next(t, inst, i - 1) == (int32_t)i; i--) {
		const struct bpf_insn *in = tr_bpf(t, inst, i - 1);
		if (i - 1 == t->found.at)
			return reg == BPF_REG_0;
		if (!(tr_defs(t, inst, i - 1) >> reg & 1))
			continue;
		if (in->code != (BPF_ALU64 | BPF_MOV | BPF_X) || in->off)
			return false;
		reg = in->src_reg;
	}
	return false;
}

/* The question whether an array has the value: asked of the index. Of a pointer, ptxas cannot know the answer even where the index
 * is a constant. */
static bool lower_null_check(struct tr *t, struct tr_inst *inst, uint32_t i, int32_t to)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	bool none = in->code == (BPF_JMP | BPF_JEQ | BPF_K), some = in->code == (BPF_JMP | BPF_JNE | BPF_K);
	if ((!none && !some) || in->imm || !is_found(t, inst, i, in->dst_reg))
		return false;
	tr_emit(t, "@%s%s bra %s;", none ? "!" : "", t->found.ok.s, tr_at_label(inst, (uint32_t)to).s);
	return true;
}

static int lower_branch(struct tr *t, struct tr_inst *inst, uint32_t i, int32_t to)
{
	if (lower_null_check(t, inst, i, to))
		return 0;
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	bool wide = BPF_CLASS(in->code) == BPF_JMP;
	uint32_t bits = wide ? 64 : 32;
	const char *kind, *compare = compare_name(BPF_OP(in->code), &kind);
	if (!compare)
		return tr_unsupported(t, inst->at[i].pc, "unknown jump");
	struct tr_name a = tr_reg(inst, in->dst_reg), p = tr_pred(t);
	if (!wide)
		a = tr_low32(t, a);
	struct tr_name b = wide ? tr_src64(inst, in) : tr_src32(t, inst, in);
	if (BPF_OP(in->code) == BPF_JSET) {
		struct tr_name both = wide ? tr_t64(t) : tr_t32(t);
		tr_emit(t, "and.b%u %s, %s, %s;", bits, both.s, a.s, b.s);
		a = both;
		b = tr_text("0");
	}
	tr_emit(t, "setp.%s.%s%u %s, %s, %s;", compare, kind, bits, p.s, a.s, b.s);
	tr_emit(t, "@%s bra %s;", p.s, tr_at_label(inst, (uint32_t)to).s);
	return 0;
}

/* Where one way is never taken, the verifier has decided. */
static int lower_jump(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	int32_t to = tr_jump(t, inst, i), next = tr_next(t, inst, i);
	if (BPF_OP(tr_bpf(t, inst, i)->code) == BPF_JA || next < 0) {
		if (to < 0)
			return tr_unsupported(t, inst->at[i].pc, "leads nowhere");
		if (to != (int32_t)i + 1)
			tr_emit(t, "bra %s;", tr_at_label(inst, (uint32_t)to).s);
		return 0;
	}
	return to < 0 ? 0 : lower_branch(t, inst, i, to);
}

/* -- memory ------------------------------------------------------------------ */

/* Address operand and state space of an access that has one. */
struct place {
	const char *space;
	struct tr_name base;
	int32_t displacement;
};

static int find_place(struct tr *t, struct tr_inst *inst, uint32_t i, struct place *out)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	*out = (struct place){ "global", tr_reg(inst, tr_base_reg(in)), in->off };
	switch (tr_fact(t, inst, i)->region) {
	case EBPF_REGION_STACK:
		out->space = "local";
		return 0;
	case EBPF_REGION_MAP_VALUE:
	case EBPF_REGION_RECORD:
	case EBPF_REGION_MEMORY:
		return 0;
	case EBPF_REGION_KEY:
		if (tr_fact(t, inst, i)->map < 0)
			break;
		if (!map_is_hash(t->p->maps[tr_fact(t, inst, i)->map].type))
			out->space = "local";
		return 0;
	}
	return tr_unsupported(t, inst->at[i].pc, "memory of an unknown kind");
}

/* dst = bytes [shift, shift + bytes) of a register of `width` bytes, zero- or sign-extended. */
static void extract(struct tr *t, struct tr_name dst, struct tr_name src, uint32_t shift,
	uint32_t width, uint32_t bytes, bool is_signed)
{
	if (is_signed) {
		tr_emit(t, "shl.b64 %s, %s, %u;", dst.s, src.s, 64 - 8 * (shift + bytes));
		tr_emit(t, "shr.s64 %s, %s, %u;", dst.s, dst.s, 64 - 8 * bytes);
		return;
	}
	if (shift)
		tr_emit(t, "shr.u64 %s, %s, %u;", dst.s, src.s, 8 * shift);
	else
		tr_emit(t, "mov.u64 %s, %s;", dst.s, src.s);
	if (shift + bytes < width)
		tr_emit(t, "and.b64 %s, %s, 0x%llx;", dst.s, dst.s,
			(unsigned long long)tr_mask(bytes));
}

static int load_param(struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_name dst,
	uint32_t bytes, bool is_signed)
{
	uint32_t at = (uint32_t)tr_fact(t, inst, i)->offset - EBPF_PARAM_OFFSET;
	uint32_t index = at / 8, shift = at % 8;
	if (index >= EBPF_PARAM_COUNT || shift + bytes > 8)
		return tr_unsupported(t, inst->at[i].pc, "no field of the context is there");
	if (shift + bytes > t->param_bytes[index])
		t->param_bytes[index] = (uint8_t)(shift + bytes <= 1   ? 1
						  : shift + bytes <= 2 ? 2
						  : shift + bytes <= 4 ? 4
								       : 8);
	char src[32];
	snprintf(src, sizeof(src), "%%egpu_param%u", index);
	extract(t, dst, tr_text(src), shift, 8, bytes, is_signed);
	return 0;
}

/* dst = bytes [shift, shift + bytes) of a field. */
static void load_field(struct tr *t, int field, uint32_t shift, uint32_t bytes, bool is_signed, struct tr_name dst)
{
	const struct ebpf_field_row *row = &ebpf_fields[field];
	t->fields |= 1ull << field;
	char src[40];
	snprintf(src, sizeof(src), "%%egpu_%s", row->name);
	if (row->bytes == 8) {
		extract(t, dst, tr_text(src), shift, 8, bytes, is_signed);
		return;
	}
	tr_emit(t, "cvt.u64.u32 %s, %s;", dst.s, src);
	if (shift || bytes < 4 || is_signed)
		extract(t, dst, dst, shift, 4, bytes, is_signed);
}

/* `c ? ctx->thread.x : ctx->block.x` is one load by one of two offsets to clang. The base holds the offset here, and fields that the program reads
 * at all are compared with it. */
static int load_some_field(struct tr *t, struct tr_inst *inst, uint32_t i, bool is_signed)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	uint32_t bytes = ebpf_insn_bytes(in->code), shift;
	bool has_params = t->p->context == EBPF_CONTEXT_ENTRY || t->p->context == EBPF_CONTEXT_EXIT;
	struct tr_name all = tr_t64(t), one = tr_t64(t), p = tr_pred(t);
	if (f->low < 0 || f->high + (int64_t)bytes > ebpf_context_bytes(t->p->context) || (has_params && f->high + (int64_t)bytes > EBPF_PARAM_OFFSET))
		return tr_unsupported(t, inst->at[i].pc, "the offset into the context varies");
	tr_emit(t, "mov.u64 %s, 0;", all.s);
	for (int32_t at = f->low; at <= f->high; at++) {
		int field = ebpf_field_at(t->p->context, (uint32_t)at, bytes, &shift);
		if (field < 0 || !(t->v->fields >> field & 1))
			continue;
		load_field(t, field, shift, bytes, is_signed, one);
		tr_emit(t, "setp.eq.u64 %s, %s, %d;", p.s, tr_reg(inst, in->src_reg).s, at - in->off);
		tr_emit(t, "selp.b64 %s, %s, %s, %s;", all.s, one.s, all.s, p.s);
	}
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, in->dst_reg).s, all.s);
	return 0;
}

static int load_context(struct tr *t, struct tr_inst *inst, uint32_t i, bool is_signed)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	uint32_t bytes = ebpf_insn_bytes(in->code), shift;
	struct tr_name dst = tr_reg(inst, in->dst_reg);
	if (!f->fixed || f->offset < 0)
		return load_some_field(t, inst, i, is_signed);
	enum ebpf_context ctx = t->p->context;
	int field = ebpf_field_at(ctx, (uint32_t)f->offset, bytes, &shift);
	bool has_params = ctx == EBPF_CONTEXT_ENTRY || ctx == EBPF_CONTEXT_EXIT;
	if (field < 0 && has_params && f->offset >= EBPF_PARAM_OFFSET)
		return load_param(t, inst, i, dst, bytes, is_signed);
	if (field < 0 && (uint32_t)f->offset + bytes <= ebpf_context_bytes(ctx)) {
		tr_emit(t, "mov.u64 %s, 0;", dst.s); /* reserved bytes read as zero */
		return 0;
	}
	if (field < 0)
		return tr_unsupported(t, inst->at[i].pc, "no field of the context is there");
	load_field(t, field, shift, bytes, is_signed, dst);
	return 0;
}

/* Joins the atoms of a slot access. */
static void load_slots(struct tr *t, struct tr_inst *owner, int32_t offset, uint32_t bytes,
	struct tr_name dst, bool is_signed)
{
	struct tr_mem m = { .kind = TR_MEM_SLOTS, .frame = owner, .offset = offset };
	struct tr_name word = tr_mem_word(t, &m, 0, bytes);
	if (is_signed)
		extract(t, dst, word, 0, 8, bytes, true);
	else
		tr_emit(t, "mov.u64 %s, %s;", dst.s, word.s);
}

/* Splits a value over the atoms of a slot access; each atom keeps its value zero-extended. */
void tr_store_slots(
	struct tr *t, const struct tr_frame *f, int32_t offset, uint32_t bytes, struct tr_name src)
{
	for (uint32_t k = 0; k < f->n_atoms; k++) {
		const struct tr_atom *a = &f->atoms[k];
		if (a->offset < offset || a->offset >= offset + (int32_t)bytes)
			continue;
		uint32_t shift = (uint32_t)(a->offset - offset) * 8;
		if (shift)
			tr_emit(t, "shr.u64 %%egpu_rs%u, %s, %u;", a->reg, src.s, shift);
		else
			tr_emit(t, "mov.u64 %%egpu_rs%u, %s;", a->reg, src.s);
		if (a->bytes < 8 && shift + 8 * a->bytes < 64)
			tr_emit(t, "and.b64 %%egpu_rs%u, %%egpu_rs%u, 0x%llx;", a->reg, a->reg,
				(unsigned long long)tr_mask(a->bytes));
	}
}

static const struct ebpf_map *map_touched(const struct tr *t, const struct ebpf_fact *f)
{
	bool ok = f->region == EBPF_REGION_MAP_VALUE && f->map >= 0 &&
		  (uint32_t)f->map < t->p->n_maps;
	return ok ? &t->p->maps[f->map] : NULL;
}

/* A constant of a frozen map. */
static bool load_frozen(
	struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_name dst, bool is_signed)
{
	uint32_t bytes = ebpf_insn_bytes(tr_bpf(t, inst, i)->code);
	const uint8_t *at = tr_frozen_load(t, inst, i);
	if (!at)
		return false;
	uint64_t value = 0;
	for (uint32_t k = 0; k < bytes; k++)
		value |= (uint64_t)at[k] << (8 * k);
	if (is_signed && bytes < 8 && value >> (8 * bytes - 1) & 1)
		value |= ~tr_mask(bytes);
	tr_emit(t, "mov.u64 %s, %s;", dst.s, tr_imm((int64_t)value).s);
	return true;
}

/* A test-run's buffer may be accessed at any alignment; it is for correctness only, so that unknown
 * counts as none. */
static bool byte_by_byte(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	uint32_t bytes = ebpf_insn_bytes(tr_bpf(t, inst, i)->code);
	return f->region == EBPF_REGION_MEMORY && bytes > 1 &&
	       (!f->fixed || (uint32_t)f->offset % bytes);
}

static void load_bytes(
	struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_name dst, bool is_signed)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	uint32_t bytes = ebpf_insn_bytes(in->code);
	struct tr_mem m = { .kind = TR_MEM_GLOBAL,
		.base = tr_reg(inst, in->src_reg),
		.displacement = in->off,
		.align = 1 };
	extract(t, dst, tr_mem_word(t, &m, 0, bytes), 0, 8, bytes, is_signed);
}

static void store_bytes(struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_name src)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	struct tr_name rest = tr_t64(t);
	tr_emit(t, "mov.u64 %s, %s;", rest.s, src.s);
	for (int32_t k = 0; k < (int32_t)ebpf_insn_bytes(in->code); k++) {
		tr_emit(t, "st.global.u8 [%s+%d], %s;", tr_reg(inst, in->dst_reg).s, in->off + k,
			rest.s);
		tr_emit(t, "shr.u64 %s, %s, 8;", rest.s, rest.s);
	}
}

static int lower_load(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	bool is_signed = BPF_MODE(in->code) == EBPF_MEMSX;
	uint32_t bytes = ebpf_insn_bytes(in->code);
	struct tr_name dst = tr_reg(inst, in->dst_reg);
	struct tr_inst *owner;
	if (BPF_MODE(in->code) != BPF_MEM && !is_signed)
		return tr_unsupported(t, inst->at[i].pc, "unknown kind of load");
	if (f->region == EBPF_REGION_CONTEXT)
		return load_context(t, inst, i, is_signed);
	if (f->region == EBPF_REGION_STACK && tr_in_slots(t, inst, i, &owner)) {
		load_slots(t, owner, tr_stack_offset(t, inst, i), bytes, dst, is_signed);
		return 0;
	}
	if (load_frozen(t, inst, i, dst, is_signed))
		return 0;
	if (byte_by_byte(t, inst, i)) {
		load_bytes(t, inst, i, dst, is_signed);
		return 0;
	}
	struct place at;
	int err = find_place(t, inst, i, &at);
	if (err)
		return err;
	/* Other threads and the host write map values: past the L1 cache, which nobody keeps
	 * coherent. */
	const struct ebpf_map *m = map_touched(t, f);
	bool shared = f->region == EBPF_REGION_MAP_VALUE && !(m && m->frozen);
	tr_emit(t, "ld%s.%s.%c%u %s, [%s+%d];", shared ? ".volatile" : "", at.space,
		is_signed ? 's' : 'u', bytes * 8, dst.s, at.base.s, at.displacement);
	return 0;
}

/* The value a store writes: a register or a constant. */
static struct tr_name stored(const struct tr_inst *inst, const struct bpf_insn *in)
{
	return BPF_CLASS(in->code) == BPF_STX ? tr_reg(inst, in->src_reg) : tr_imm(in->imm);
}

static int lower_store(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	uint32_t bytes = ebpf_insn_bytes(in->code);
	struct tr_name src = stored(inst, in);
	struct tr_inst *owner;
	if (BPF_MODE(in->code) != BPF_MEM)
		return tr_unsupported(t, inst->at[i].pc, "unknown kind of store");
	if (tr_fact(t, inst, i)->region == EBPF_REGION_STACK && tr_in_slots(t, inst, i, &owner)) {
		tr_store_slots(t, &owner->frame, tr_stack_offset(t, inst, i), bytes, src);
		return 0;
	}
	if (byte_by_byte(t, inst, i)) {
		store_bytes(t, inst, i, src);
		return 0;
	}
	struct place at;
	int err = find_place(t, inst, i, &at);
	if (err)
		return err;
	if (BPF_CLASS(in->code) == BPF_ST && bytes < 8)
		src = tr_imm((int64_t)((uint64_t)in->imm & tr_mask(bytes)));
	/* Beside an insertion of the same key, which this thread has not acquired (hash.c). */
	const struct ebpf_map *m = map_touched(t, tr_fact(t, inst, i));
	tr_emit(t, "st%s.%s.u%u [%s+%d], %s;", m && map_is_hash(m->type) ? ".volatile" : "", at.space, bytes * 8, at.base.s,
		at.displacement, src.s);
	return 0;
}

/* -- atomics ----------------------------------------------------------------- */

static const char *atomic_name(int32_t imm, bool wide)
{
	switch (imm & ~BPF_FETCH) {
	case BPF_ADD:
		return wide ? "add.u64" : "add.u32";
	case BPF_OR:
		return wide ? "or.b64" : "or.b32";
	case BPF_AND:
		return wide ? "and.b64" : "and.b32";
	case BPF_XOR:
		return wide ? "xor.b64" : "xor.b32";
	default:
		return NULL;
	}
}

/* On the stack, which is the thread's own: load, operate, store. `old` is zero-extended. */
static int lower_stack_atomic(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	uint32_t bytes = ebpf_insn_bytes(in->code);
	struct tr_name src = tr_reg(inst, in->src_reg), r0 = tr_reg(inst, 0), old = tr_t64(t),
		       new = tr_t64(t);
	struct tr_inst *owner;
	bool slots = tr_in_slots(t, inst, i, &owner);
	struct place at;
	int err = slots ? 0 : find_place(t, inst, i, &at);
	if (err)
		return err;
	if (slots)
		load_slots(t, owner, tr_stack_offset(t, inst, i), bytes, old, false);
	else
		tr_emit(t, "ld.local.u%u %s, [%s+%d];", bytes * 8, old.s, at.base.s,
			at.displacement);
	if (in->imm == BPF_CMPXCHG) {
		struct tr_name want = r0, p = tr_pred(t);
		if (bytes == 4) {
			want = tr_t64(t);
			tr_emit(t, "and.b64 %s, %s, 0xffffffff;", want.s, r0.s);
		}
		tr_emit(t, "setp.eq.u64 %s, %s, %s;", p.s, old.s, want.s);
		tr_emit(t, "selp.b64 %s, %s, %s, %s;", new.s, src.s, old.s, p.s);
	} else if (in->imm == BPF_XCHG) {
		tr_emit(t, "mov.u64 %s, %s;", new.s, src.s);
	} else {
		tr_emit(t, "%s %s, %s, %s;", atomic_name(in->imm, true), new.s, old.s, src.s);
	}
	if (slots)
		tr_store_slots(t, &owner->frame, tr_stack_offset(t, inst, i), bytes, new);
	else
		tr_emit(t, "st.local.u%u [%s+%d], %s;", bytes * 8, at.base.s, at.displacement,
			new.s);
	if (in->imm & BPF_FETCH)
		tr_emit(t, "mov.u64 %s, %s;", in->imm == BPF_CMPXCHG ? r0.s : src.s, old.s);
	return 0;
}

/* The operand of a 32- or 64-bit atomic. */
static struct tr_name atomic_operand(struct tr *t, struct tr_name reg, bool wide)
{
	return wide ? reg : tr_low32(t, reg);
}

/* red, in as few lanes as do it all. */
static void emit_red(struct tr *t, const struct tr_inst *inst, uint32_t i, const struct tr_sum *sum, const struct place *at, const char *name)
{
	struct tr_lead lead;
	if (tr_join(t, inst, i, at->base, at->displacement, sum))
		return;
	tr_elect(t, sum, &lead);
	struct tr_name base = lead.nudged ? tr_nudge(t, at->base, lead.nudge) : at->base;
	if (lead.all)
		tr_emit(t, "red.global.%s [%s+%d], %s;", name, base.s, at->displacement, lead.value.s);
	else
		tr_emit(t, "@%s red.global.%s [%s+%d], %s;", lead.pred.s, name, base.s, at->displacement, lead.value.s);
}

static bool is_uniform(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t reg)
{
	return tr_fact(t, inst, i)->uniform >> reg & 1;
}

/* Ring records and the memory of a test are one lane's own. */
static void lower_reduction(struct tr *t, struct tr_inst *inst, uint32_t i, const struct place *at,
	const char *name, struct tr_name src)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	if (tr_fact(t, inst, i)->region != EBPF_REGION_MAP_VALUE) {
		tr_emit(t, "red.global.%s [%s+%d], %s;", name, at->base.s, at->displacement, src.s);
		return;
	}
	int32_t op = in->imm & ~BPF_FETCH;
	struct tr_sum sum = { .op = op == BPF_ADD ? TR_ADD : op == BPF_AND ? TR_AND : op == BPF_OR ? TR_OR : TR_XOR,
		.wide = BPF_SIZE(in->code) == BPF_DW,
		.same_address = is_uniform(t, inst, i, in->dst_reg),
		.same_value = is_uniform(t, inst, i, in->src_reg),
		.bits = tr_known_bits(t, inst, i, in->src_reg),
		.address = at->base,
		.value = src };
	tr_weigh_sum(t, inst, i, &sum);
	emit_red(t, inst, i, &sum, at, name);
}

static int lower_atomic(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	bool wide = BPF_SIZE(in->code) == BPF_DW,
	     is_exchange = in->imm == BPF_XCHG || in->imm == BPF_CMPXCHG;
	const char *name = is_exchange ? "" : atomic_name(in->imm, wide);
	if (!name || (!wide && BPF_SIZE(in->code) != BPF_W))
		return tr_unsupported(t, inst->at[i].pc, "unknown atomic operation");
	if (tr_fact(t, inst, i)->region == EBPF_REGION_STACK)
		return lower_stack_atomic(t, inst, i);
	struct place at;
	int err = find_place(t, inst, i, &at);
	if (err)
		return err;
	uint32_t result = in->imm == BPF_CMPXCHG ? BPF_REG_0 : in->src_reg;
	struct tr_name src = atomic_operand(t, tr_reg(inst, in->src_reg), wide);
	if (!tr_wants_old(&inst->at[i], in) && !is_exchange) {
		lower_reduction(t, inst, i, &at, name, src);
		return 0;
	}
	struct tr_name old = wide ? tr_t64(t) : tr_t32(t);
	if (in->imm == BPF_CMPXCHG)
		tr_emit(t, "atom.global.cas.b%u %s, [%s+%d], %s, %s;", wide ? 64 : 32, old.s,
			at.base.s, at.displacement, atomic_operand(t, tr_reg(inst, 0), wide).s,
			src.s);
	else if (in->imm == BPF_XCHG)
		tr_emit(t, "atom.global.exch.b%u %s, [%s+%d], %s;", wide ? 64 : 32, old.s,
			at.base.s, at.displacement, src.s);
	else
		tr_emit(t, "atom.global.%s %s, [%s+%d], %s;", name, old.s, at.base.s,
			at.displacement, src.s);
	tr_emit(t, "%s %s, %s;", wide ? "mov.u64" : "cvt.u64.u32", tr_reg(inst, result).s, old.s);
	return 0;
}

/* -- load-add-store ---------------------------------------------------------- */

static struct tr_name delta_of(const struct tr_rmw *rmw, uint32_t reg)
{
	char s[32];
	snprintf(s, sizeof(s), "%%egpu_rd%u", rmw->delta[reg]);
	return tr_text(s);
}

static void lower_rmw_load(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct tr_rmw *rmw = inst->at[i].rmw;
	if (rmw->op == TR_ADD && !rmw->constant)
		tr_emit(t, "mov.u64 %s, 0;", delta_of(rmw, tr_bpf(t, inst, i)->dst_reg).s);
}

static void lower_rmw_step(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct tr_rmw *rmw = inst->at[i].rmw;
	if (rmw->op != TR_ADD || rmw->constant)
		return;
	struct tr_name dst = delta_of(rmw, in->dst_reg);
	if (BPF_OP(in->code) == BPF_MOV)
		tr_emit(t, "mov.u64 %s, %s;", dst.s, delta_of(rmw, in->src_reg).s);
	else if (inst->at[i].dst_tracked)
		tr_emit(t, "%s.s64 %s, %s, %s;", BPF_OP(in->code) == BPF_ADD ? "add" : "sub", dst.s,
			dst.s, tr_src64(inst, in).s);
	else
		tr_emit(t, "add.s64 %s, %s, %s;", dst.s, tr_reg(inst, in->dst_reg).s,
			delta_of(rmw, in->src_reg).s);
}

/* An addition to part of a word: the whole word is compared and swapped until nobody came between. A value never crosses a word.
 * The address stays a sum with the map's, as the check of the spliced text wants it. */
static struct tr_name lower_narrow_add(struct tr *t, const struct place *at, uint32_t bits, const struct tr_lead *lead)
{
	struct tr_name word = tr_t64(t), low = tr_t64(t), shift = tr_t32(t), mask = tr_t32(t), add = tr_t32(t),
		       old = tr_t32(t), new = tr_t32(t), seen = tr_t32(t), rest = tr_t32(t), p = tr_pred(t),
		       again = tr_label(t), done = tr_label(t);
	uint32_t all = bits == 8 ? 0xff : 0xffff;
	if (!lead->all)
		tr_emit(t, "@!%s bra %s;", lead->pred.s, done.s);
	tr_emit(t, "add.s64 %s, %s, %d;", word.s, at->base.s, at->displacement);
	tr_emit(t, "and.b64 %s, %s, 3;", low.s, word.s);
	tr_emit(t, "sub.s64 %s, %s, %s;", word.s, word.s, low.s);
	tr_emit(t, "cvt.u32.u64 %s, %s;", shift.s, low.s);
	tr_emit(t, "shl.b32 %s, %s, 3;", shift.s, shift.s);
	tr_emit(t, "mov.u32 %s, 0x%x;", mask.s, all);
	tr_emit(t, "shl.b32 %s, %s, %s;", mask.s, mask.s, shift.s);
	tr_emit(t, "shl.b32 %s, %s, %s;", add.s, lead->value.s, shift.s);
	tr_emit(t, "ld.volatile.global.u32 %s, [%s];", seen.s, word.s);
	buf_printf(&t->body, "%s:\n", again.s);
	tr_emit(t, "mov.u32 %s, %s;", old.s, seen.s);
	tr_emit(t, "add.u32 %s, %s, %s;", new.s, old.s, add.s);
	tr_emit(t, "and.b32 %s, %s, %s;", new.s, new.s, mask.s);
	tr_emit(t, "not.b32 %s, %s;", rest.s, mask.s);
	tr_emit(t, "and.b32 %s, %s, %s;", rest.s, rest.s, old.s);
	tr_emit(t, "or.b32 %s, %s, %s;", new.s, new.s, rest.s);
	tr_emit(t, "atom.global.cas.b32 %s, [%s], %s, %s;", seen.s, word.s, old.s, new.s);
	tr_emit(t, "setp.ne.u32 %s, %s, %s;", p.s, seen.s, old.s);
	tr_emit(t, "@%s bra %s;", p.s, again.s);
	buf_printf(&t->body, "%s:\n", done.s);
	tr_emit(t, "shr.u32 %s, %s, %s;", old.s, old.s, shift.s);
	tr_emit(t, "and.b32 %s, %s, 0x%x;", old.s, old.s, all);
	return old;
}

/* The way with the store. */
static void lower_rmw_jump(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	if (inst->at[i].rmw->jumps)
		tr_emit(t, "bra %s;", tr_at_label(inst, (uint32_t)tr_jump(t, inst, i)).s);
}

static int lower_extreme(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	static const char *const names[2][2][2] = { { { "min.u32", "min.s32" }, { "min.u64", "min.s64" } },
		{ { "max.u32", "max.s32" }, { "max.u64", "max.s64" } } };
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct tr_rmw *rmw = inst->at[i].rmw;
	bool wide = rmw->bytes == 8;
	struct place at;
	int err = find_place(t, inst, i, &at);
	if (err)
		return err;
	struct tr_sum sum = { .op = rmw->op,
		.is_signed = rmw->is_signed,
		.wide = wide,
		.same_address = is_uniform(t, inst, i, in->dst_reg),
		.same_value = rmw->uniform && is_uniform(t, inst, i, in->src_reg),
		.address = at.base,
		.value = atomic_operand(t, tr_reg(inst, in->src_reg), wide) };
	emit_red(t, inst, i, &sum, &at, names[rmw->op == TR_MAX][wide][rmw->is_signed]);
	return 0;
}

static int lower_rmw_store(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	if (inst->at[i].rmw->op != TR_ADD)
		return lower_extreme(t, inst, i);
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct tr_rmw *rmw = inst->at[i].rmw;
	bool wide = rmw->bytes == 8;
	struct place at;
	int err = find_place(t, inst, i, &at);
	if (err)
		return err;
	struct tr_name value = tr_imm32((int32_t)rmw->addend);
	if (rmw->constant && wide)
		value = tr_imm(rmw->addend);
	else if (!rmw->constant)
		value = atomic_operand(t, delta_of(rmw, in->src_reg), wide);
	struct tr_sum sum = { .op = TR_ADD,
		.wide = wide,
		.same_address = is_uniform(t, inst, i, in->dst_reg),
		.same_value = rmw->constant || rmw->uniform,
		.constant = rmw->constant,
		.addend = rmw->addend,
		.bits = 64,
		.address = at.base,
		.value = value };
	if (tr_rmw_adds(rmw)) {
		tr_weigh_sum(t, inst, i, &sum);
		emit_red(t, inst, i, &sum, &at, wide ? "add.u64" : "add.u32");
		return 0;
	}
	struct tr_lead lead = { .all = true, .value = value };
	struct tr_name old = tr_t64(t), half = tr_t32(t);
	if (!rmw->tracked)
		tr_elect(t, &sum, &lead);
	if (wide)
		tr_emit(t, "atom.global.add.u64 %s, [%s+%d], %s;", old.s, at.base.s, at.displacement, value.s);
	else if (rmw->bytes == 4)
		tr_emit(t, "atom.global.add.u32 %s, [%s+%d], %s;", half.s, at.base.s, at.displacement, value.s);
	else
		half = lower_narrow_add(t, &at, rmw->bytes * 8, &lead);
	if (!wide && rmw->tracked)
		tr_emit(t, "cvt.u64.u32 %s, %s;", old.s, half.s);
	for (uint32_t r = 0; r < TR_REGS; r++) {
		if (!(rmw->tracked >> r & 1))
			continue;
		struct tr_name dst = tr_reg(inst, r),
			       by = rmw->constant ? tr_imm(rmw->addend) : delta_of(rmw, r);
		tr_emit(t, "add.s64 %s, %s, %s;", dst.s, old.s, by.s);
		if (!wide && !(rmw->wide >> r & 1))
			tr_emit(t, "and.b64 %s, %s, 0xffffffff;", dst.s, dst.s);
	}
	return 0;
}

/* -- constants, calls, exits ------------------------------------------------- */

static int lower_imm64(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	uint32_t pc = inst->at[i].pc;
	const struct bpf_insn *in = &t->p->insns[pc], *high = in + 1;
	struct tr_name dst = tr_reg(inst, in->dst_reg);
	if (pc + 1 >= t->p->n_insns)
		return tr_unsupported(t, pc, "its second half is missing");
	if (in->src_reg == 0) {
		uint64_t value = (uint32_t)in->imm | (uint64_t)(uint32_t)high->imm << 32;
		tr_emit(t, "mov.u64 %s, %s;", dst.s, tr_imm((int64_t)value).s);
		return 0;
	}
	if (in->src_reg == BPF_PSEUDO_FUNC) { /* the call itself knows */
		tr_emit(t, "mov.u64 %s, 0;", dst.s);
		return 0;
	}
	if (in->src_reg != BPF_PSEUDO_MAP_FD && in->src_reg != BPF_PSEUDO_MAP_VALUE)
		return tr_unsupported(t, pc, "only maps and numbers can be loaded");
	if (in->imm < 0 || (uint32_t)in->imm >= t->p->n_maps)
		return tr_unsupported(t, pc, "no such map");
	const struct ebpf_map *m = &t->p->maps[in->imm];
	struct tr_name base = tr_map_base(t, m);
	if (in->src_reg == BPF_PSEUDO_MAP_FD) {
		tr_emit(t, "mov.u64 %s, %s;", dst.s, base.s);
		return 0;
	}
	if (m->type != BPF_MAP_TYPE_ARRAY)
		return tr_unsupported(t, pc, "only values of arrays have an address");
	base = tr_replica(t, m, base);
	tr_emit(t, "add.s64 %s, %s, %lld;", dst.s, base.s,
		(long long)MAP_IMAGE_HEADER + (uint32_t)high->imm);
	return 0;
}

static void lower_body(struct tr *t, struct tr_inst *inst, int *err);

/* r10 of an instance: the top of its frame, when anything needs it. */
static void lower_prologue(struct tr *t, struct tr_inst *inst)
{
	const struct tr_frame *f = &inst->frame;
	const struct tr_insn *entry = &inst->at[t->index_of[t->funcs[inst->func].entry]];
	if (!(entry->live_in >> BPF_REG_10 & 1))
		return;
	struct tr_name r10 = tr_reg(inst, BPF_REG_10);
	if (f->low == f->high) {
		tr_emit(t, "mov.u64 %s, 0;", r10.s);
		return;
	}
	tr_emit(t, "mov.u64 %s, $egpu_stack%u;", r10.s, inst->id);
	tr_emit(t, "add.s64 %s, %s, %d;", r10.s, r10.s, -f->low);
}

static int lower_subprogram(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct tr_inst *callee = inst->at[i].callee;
	int err = 0;
	uint16_t args = callee->at[t->index_of[t->funcs[callee->func].entry]].live_in;
	for (uint32_t r = 1; r <= 5; r++)
		if (args >> r & 1)
			tr_emit(t, "mov.u64 %s, %s;", tr_reg(callee, r).s, tr_reg(inst, r).s);
	err = tr_lower_callee(t, inst, i);
	if (inst->at[i].live_out & 1)
		tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, tr_reg(callee, 0).s);
	return err;
}

int tr_lower_callee(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct tr_inst *callee = inst->at[i].callee;
	int err = 0;
	if (callee->n_callers == 1) {
		lower_body(t, callee, &err);
	} else {
		size_t k = 0;
		while (callee->callers[k].inst != inst || callee->callers[k].at != i)
			k++;
		tr_emit(t, "mov.u32 %%egpu_rcall%u, %zu;", callee->id, k);
		tr_emit(t, "bra $egpu_enter%u;", callee->id);
		buf_printf(&t->body, "$egpu_back%u_%zu:\n", callee->id, k);
	}
	return err;
}

static int lower_call(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	if (inst->at[i].callee)
		return tr_bpf(t, inst, i)->src_reg ? lower_subprogram(t, inst, i) : tr_loop_lower(t, inst, i);
	if (tr_bpf(t, inst, i)->src_reg)
		return tr_unsupported(t, inst->at[i].pc, "kernel functions cannot be called");
	return tr_helper_lower(t, inst, i);
}

int tr_lower_insn(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	switch (BPF_CLASS(in->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		return tr_lower_alu(t, inst, i);
	case BPF_LDX:
		return lower_load(t, inst, i);
	case BPF_ST:
		return lower_store(t, inst, i);
	case BPF_STX:
		return tr_is_atomic(in) ? lower_atomic(t, inst, i) : lower_store(t, inst, i);
	case BPF_LD:
		if (ebpf_is_imm64(in))
			return lower_imm64(t, inst, i);
		return tr_unsupported(t, inst->at[i].pc, "packet loads are not for GPUs");
	}
	if (tr_is_exit(in)) {
		if (i + 1 < inst->n)
			tr_emit(t, "bra $egpu_exit%u;", inst->id);
		return 0;
	}
	if (tr_is_call(in))
		return lower_call(t, inst, i);
	if (BPF_OP(in->code) == BPF_CALL || BPF_OP(in->code) == BPF_EXIT)
		return tr_unsupported(
			t, inst->at[i].pc, "calls through registers do not exist on GPUs");
	return lower_jump(t, inst, i);
}

static int lower_at(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct tr_insn *at = &inst->at[i];
	if (at->target)
		buf_printf(&t->body, "%s:\n", tr_at_label(inst, i).s);
	if (at->dead)
		return 0;
	switch (at->role) {
	case TR_RMW_LOAD:
		lower_rmw_load(t, inst, i);
		return 0;
	case TR_RMW_STEP:
		lower_rmw_step(t, inst, i);
		return 0;
	case TR_RMW_JUMP:
		lower_rmw_jump(t, inst, i);
		return 0;
	case TR_RMW_STORE:
		return lower_rmw_store(t, inst, i);
	default:
		return tr_lower_insn(t, inst, i);
	}
}

static void lower_body(struct tr *t, struct tr_inst *inst, int *err)
{
	uint32_t entry = t->index_of[t->funcs[inst->func].entry];
	lower_prologue(t, inst);
	if (entry) /* code below the entry belongs to it: jumped back to */
		tr_emit(t, "bra %s;", tr_at_label(inst, entry).s);
	for (uint32_t i = 0; i < inst->n && !*err; i++)
		*err = lower_at(t, inst, i);
	buf_printf(&t->body, "$egpu_exit%u:\n", inst->id);
}

/* An instance with several callers stands by itself and goes back through its selector. */
static int lower_shared(struct tr *t, struct tr_inst *inst)
{
	int err = 0;
	buf_printf(&t->body, "$egpu_enter%u:\n", inst->id);
	lower_body(t, inst, &err);
	for (size_t k = 0; k + 1 < inst->n_callers; k++) {
		struct tr_name p = tr_pred(t);
		tr_emit(t, "setp.eq.u32 %s, %%egpu_rcall%u, %zu;", p.s, inst->id, k);
		tr_emit(t, "@%s bra $egpu_back%u_%zu;", p.s, inst->id, k);
	}
	tr_emit(t, "bra $egpu_back%u_%zu;", inst->id, inst->n_callers - 1);
	return err;
}

/* What main finds in its registers: r1 (and r2) are its arguments, others are never read by a
 * verified program except as arguments that trace_printk ignores. */
static void lower_entry(struct tr *t)
{
	struct tr_inst *inst = t->insts[0];
	uint16_t live = inst->at[t->index_of[0]].live_in;
	for (uint32_t r = 0; r < BPF_REG_10; r++) {
		if (!(live >> r & 1))
			continue;
		if (t->test && r == 1)
			tr_emit(t, "mov.u64 %s, %%egpu_memory;", tr_reg(inst, r).s);
		else
			tr_emit(t, "mov.u64 %s, %u;", tr_reg(inst, r).s,
				t->test && r == 2 ? t->p->memory_bytes : 0);
	}
}

void tr_lower_main(struct tr *t)
{
	lower_entry(t);
	lower_prologue(t, t->insts[0]);
}

int tr_lower(struct tr *t)
{
	int err = 0;
	tr_once(t);
	if (t->once)
		tr_once_begin(t);
	lower_entry(t);
	lower_body(t, t->insts[0], &err);
	bool any = false;
	for (size_t k = 1; k < t->n_insts; k++)
		any |= t->insts[k]->n_callers > 1;
	if (any)
		tr_emit(t, "bra $egpu_end;");
	for (size_t k = 1; k < t->n_insts && !err; k++)
		if (t->insts[k]->n_callers > 1)
			err = lower_shared(t, t->insts[k]);
	if (any)
		buf_puts(&t->body, "$egpu_end:\n");
	if (t->once)
		buf_puts(&t->body, "$egpu_others:\n");
	return err;
}
