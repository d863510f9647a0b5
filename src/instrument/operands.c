/* operands.c - the fields of blocks, branches, barriers, calls and instructions. Operands are read
 * before the instruction runs. */
#include <string.h>

#include "instrument/variant.h"

#define BIT(f) (UINT64_C(1) << EBPF_FIELD_##f)

static bool reads(const struct inputs *in, uint64_t fields)
{
	return in->fields & fields;
}

static void set32(const struct inputs *in, struct buf *b, enum ebpf_field field, uint32_t value)
{
	if (in->fields >> field & 1)
		buf_printf(b, "\tmov.b32 %%egpu_%s, %u;\n", ebpf_fields[field].name, value);
}

static void emit_block(const struct inputs *in, struct buf *b)
{
	const struct ptx_cfg *cfg = &in->spot->place->cfg;
	uint32_t index = cfg->block_of[in->spot->stmt];

	set32(in, b, EBPF_FIELD_BLOCK_INDEX, index);
	set32(in, b, EBPF_FIELD_BLOCK_INSNS, cfg->blocks[index].n_insns);
	set32(in, b, EBPF_FIELD_LOOP_HEAD, cfg->blocks[index].loop_head);
}

static void emit_branch(const struct inputs *in, struct buf *b, const struct ptx_insn *insn)
{
	if (reads(in, BIT(TAKEN)))
		buf_printf(b, "\tselp.b32 %%egpu_taken, %d, %d, %s;\n", !insn->pred_negated,
			insn->pred_negated, insn->pred);
	set32(in, b, EBPF_FIELD_TARGET, in->spot->place->cfg.target_of[in->spot->stmt]);
}

/* 32 bits of an operand that is a register or a number; else 0. */
static void emit_small(
	const struct inputs *in, struct buf *b, enum ebpf_field field, const struct ptx_operand *op)
{
	const char *name = ebpf_fields[field].name;
	uint32_t bits = op && op->reg ? op->reg->type.bits : 0;

	if (!(in->fields >> field & 1))
		return;
	if (op && op->kind == PTX_OPERAND_REG && bits == 32)
		buf_printf(b, "\tmov.b32 %%egpu_%s, %s;\n", name, op->name);
	else
		buf_printf(b, "\tmov.b32 %%egpu_%s, %u;\n", name,
			op && op->kind == PTX_OPERAND_INT ? (uint32_t)op->value : 0);
}

static const struct ptx_operand *operand(const struct ptx_insn *insn, uint32_t i)
{
	return i < insn->n_operands ? &insn->operands[i] : NULL;
}

static void emit_memory_barrier(const struct inputs *in, struct buf *b, const struct ptx_insn *insn)
{
	const struct ptx_operand *op = NULL;

	for (uint32_t i = 0; i < insn->n_operands && !op; i++)
		op = insn->operands[i].kind == PTX_OPERAND_ADDRESS ? &insn->operands[i] : NULL;
	if (!reads(in, BIT(BARRIER_ID)))
		return;
	uint32_t bits = op && op->reg ? op->reg->type.bits : 0;
	if (op && op->base_is_reg && bits == 64)
		buf_printf(b, "\tcvt.u32.u64 %%egpu_barrier_id, %s;\n", op->name);
	else if (op && op->name)
		buf_printf(b, "\tmov.u32 %%egpu_barrier_id, %s;\n", op->name);
	else
		buf_puts(b, "\tmov.b32 %egpu_barrier_id, 0;\n");
	if (op && op->value)
		buf_printf(b, "\tadd.s32 %%egpu_barrier_id, %%egpu_barrier_id, %d;\n",
			(int32_t)op->value);
}

static void emit_barrier(const struct inputs *in, struct buf *b, const struct ptx_insn *insn)
{
	uint32_t kind = barrier_kind(insn), first = 0;

	set32(in, b, EBPF_FIELD_BARRIER_KIND, kind);
	if (kind == 4) {
		emit_memory_barrier(in, b, insn);
		set32(in, b, EBPF_FIELD_BARRIER_THREADS, 0);
		return;
	}
	/* bar.red has its result before the barrier's number. */
	if (ptx_insn_has_mod(insn, "red"))
		first = 1;
	emit_small(in, b, EBPF_FIELD_BARRIER_ID, kind == 3 ? NULL : operand(insn, first));
	/* bar.red's last operand is a predicate; a barrier of all threads has no number of them. */
	const struct ptx_operand *threads = kind == 1 ? operand(insn, first + 1) : NULL;
	if (threads && threads->reg && threads->reg->type.kind == 'p')
		threads = NULL;
	emit_small(in, b, EBPF_FIELD_BARRIER_THREADS, threads);
}

static uint32_t name_hash(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return hash;
}

/* -- operands of any instruction -- */

static bool first_is_written(const struct ptx_insn *insn)
{
	static const char *const none[] = { "st", "red", "bra", "brx", "call", "bar", "barrier",
		"prefetch", "prefetchu", "membar", "fence", "stmatrix", "nanosleep", "trap",
		"setmaxnreg", "cp" };

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		if (!strcmp(insn->base, none[i]))
			return false;
	}
	return insn->n_operands && insn->operands[0].kind != PTX_OPERAND_ADDRESS &&
	       insn->operands[0].kind != PTX_OPERAND_MULTI;
}

static bool is_wide_special(const char *name)
{
	return !strcmp(name, "%clock64") || !strcmp(name, "%globaltimer") ||
	       !strcmp(name, "%gridid") || !strcmp(name, "%current_graph_exec") ||
	       !strncmp(name, "%pm", 3);
}

/* The value of a scalar operand into %egpu_xu0; what has none in a register is 0. */
static void emit_scalar(const struct inputs *in, struct buf *b, const struct ptx_insn *insn,
	const struct ptx_operand *op)
{
	const struct ptx_reg *reg = op->reg;
	struct ptx_type type = ptx_insn_type(insn);

	if (op->kind == PTX_OPERAND_ADDRESS && op->base_is_reg && reg && reg->type.bits >= 32) {
		buf_printf(b,
			reg->type.bits == 64 ? "\tmov.b64 %%egpu_xu0, %s;\n"
					     : "\tcvt.u64.u32 %%egpu_xu0, %s;\n",
			op->name);
		if (op->value)
			buf_printf(b, "\tadd.s64 %%egpu_xu0, %%egpu_xu0, %lld;\n",
				(long long)op->value);
		return;
	}
	if (op->kind == PTX_OPERAND_REG && reg && op->component < 0 && reg->vector <= 1) {
		if (reg->type.kind == 'p')
			buf_printf(b, "\tselp.b64 %%egpu_xu0, %d, %d, %s;\n", !op->negated,
				op->negated, op->name);
		else if (reg->type.bits == 128)
			buf_printf(b, "\tmov.b128 {%%egpu_xu0, %%egpu_xu1}, %s;\n", op->name);
		else
			emit_element(in, b, op, &reg->type);
		return;
	}
	if (op->kind == PTX_OPERAND_REG && !reg && op->name[0] == '%' &&
		strcmp(op->name, "%is_explicit_cluster") && op->name[1] != 'p') {
		bool wide = is_wide_special(op->name);
		buf_printf(b, wide ? "\tmov.u64 %%egpu_xu0, %s;\n" : "\tmov.u32 %%egpu_xt1, %s;\n",
			op->name);
		if (!wide)
			buf_puts(b, "\tcvt.u64.u32 %egpu_xu0, %egpu_xt1;\n");
		return;
	}
	if ((op->kind == PTX_OPERAND_INT || op->kind == PTX_OPERAND_FLOAT) && type.bits >= 8 &&
		type.bits <= 64) {
		emit_element(in, b, op, &type);
		return;
	}
	buf_printf(b, "\tmov.b64 %%egpu_xu0, %lld;\n",
		op->kind == PTX_OPERAND_INT ? (long long)op->value : 0ll);
}

static uint32_t emit_sources(const struct inputs *in, struct buf *b, const struct ptx_insn *insn,
	const struct ptx_operand *op, uint32_t n)
{
	bool joined = op->kind == PTX_OPERAND_VECTOR || op->kind == PTX_OPERAND_GROUP ||
		      op->kind == PTX_OPERAND_MULTI;

	for (uint32_t i = 0; joined && i < op->n_sub; i++)
		n = emit_sources(in, b, insn, &op->sub[i], n);
	if (joined || n >= 4)
		return n;
	if (in->fields >> (EBPF_FIELD_VALUE0 + n) & 1) {
		emit_scalar(in, b, insn, op);
		buf_printf(b, "\tmov.b64 %%egpu_value%u, %%egpu_xu0;\n", n);
	}
	return n + 1;
}

static void emit_insn(const struct inputs *in, struct buf *b, const struct ptx_insn *insn)
{
	uint32_t n = 0;

	for (uint32_t i = first_is_written(insn); i < insn->n_operands; i++)
		n = emit_sources(in, b, insn, &insn->operands[i], n);
	set32(in, b, EBPF_FIELD_OPERANDS, n);
	for (; n < 4; n++) {
		if (in->fields >> (EBPF_FIELD_VALUE0 + n) & 1)
			buf_printf(b, "\tmov.b64 %%egpu_value%u, 0;\n", n);
	}
}

void emit_point(const struct inputs *in, struct buf *b)
{
	const struct ptx_insn *insn = in->spot->stmt == NO_STMT
					      ? NULL
					      : in->spot->place->func->stmts[in->spot->stmt].insn;
	const struct ptx_operand *target;

	switch (in->v->sites[in->ordinal].point) {
	case EBPF_POINT_BLOCK:
		emit_block(in, b);
		break;
	case EBPF_POINT_BRANCH:
		emit_branch(in, b, insn);
		break;
	case EBPF_POINT_BARRIER:
		emit_barrier(in, b, insn);
		break;
	case EBPF_POINT_CALL:
		target = call_target(insn);
		set32(in, b, EBPF_FIELD_CALLEE,
			target && target->name ? name_hash(target->name) : 0);
		break;
	case EBPF_POINT_INSN:
		emit_insn(in, b, insn);
		break;
	default:
		break;
	}
}
