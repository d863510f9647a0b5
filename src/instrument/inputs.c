/* inputs.c - the context fields that fragments read, computed at a site from special registers and
 * from the instruction's own operands, which are read before it runs. Private registers beside the
 * fields: %egpu_xm mask of the lanes here, %egpu_xe "not the elected lane", %egpu_xt/xu/xh/xp
 * scratch. */
#include <stdio.h>
#include <string.h>

#include "egpu/probe.bpf.h"
#include "instrument/variant.h"

#define BIT(f) (UINT64_C(1) << EBPF_FIELD_##f)

static const struct special {
	enum ebpf_field field;
	const char *reg;
	const char *without_clusters; /* NULL: the same */
} specials[] = {
	{ EBPF_FIELD_LANE, "%laneid", NULL },
	{ EBPF_FIELD_SM, "%smid", NULL },
	{ EBPF_FIELD_THREAD_X, "%tid.x", NULL },
	{ EBPF_FIELD_THREAD_Y, "%tid.y", NULL },
	{ EBPF_FIELD_THREAD_Z, "%tid.z", NULL },
	{ EBPF_FIELD_BLOCK_DIM_X, "%ntid.x", NULL },
	{ EBPF_FIELD_BLOCK_DIM_Y, "%ntid.y", NULL },
	{ EBPF_FIELD_BLOCK_DIM_Z, "%ntid.z", NULL },
	{ EBPF_FIELD_BLOCK_X, "%ctaid.x", NULL },
	{ EBPF_FIELD_BLOCK_Y, "%ctaid.y", NULL },
	{ EBPF_FIELD_BLOCK_Z, "%ctaid.z", NULL },
	{ EBPF_FIELD_GRID_DIM_X, "%nctaid.x", NULL },
	{ EBPF_FIELD_GRID_DIM_Y, "%nctaid.y", NULL },
	{ EBPF_FIELD_GRID_DIM_Z, "%nctaid.z", NULL },
	{ EBPF_FIELD_CLUSTER_X, "%clusterid.x", "%ctaid.x" },
	{ EBPF_FIELD_CLUSTER_Y, "%clusterid.y", "%ctaid.y" },
	{ EBPF_FIELD_CLUSTER_Z, "%clusterid.z", "%ctaid.z" },
	{ EBPF_FIELD_CLUSTER_DIM_X, "%cluster_nctaid.x", "1" },
	{ EBPF_FIELD_CLUSTER_DIM_Y, "%cluster_nctaid.y", "1" },
	{ EBPF_FIELD_CLUSTER_DIM_Z, "%cluster_nctaid.z", "1" },
	{ EBPF_FIELD_CLUSTER_RANK_X, "%cluster_ctaid.x", "0" },
	{ EBPF_FIELD_CLUSTER_RANK_Y, "%cluster_ctaid.y", "0" },
	{ EBPF_FIELD_CLUSTER_RANK_Z, "%cluster_ctaid.z", "0" },
};

static const uint8_t spaces[] = {
	[PTX_SPACE_GLOBAL] = EGPU_SPACE_GLOBAL,
	[PTX_SPACE_SHARED] = EGPU_SPACE_SHARED,
	[PTX_SPACE_LOCAL] = EGPU_SPACE_LOCAL,
	[PTX_SPACE_CONST] = EGPU_SPACE_CONST,
	[PTX_SPACE_PARAM] = EGPU_SPACE_PARAM,
	[PTX_SPACE_SHARED_CLUSTER] = EGPU_SPACE_SHARED_CLUSTER,
	[PTX_SPACE_TEX] = 0,
};

static const uint8_t ops[] = {
	[PTX_ACCESS_LOAD] = EGPU_OP_LOAD,
	[PTX_ACCESS_STORE] = EGPU_OP_STORE,
	[PTX_ACCESS_ATOMIC] = EGPU_OP_ATOMIC,
};

static bool reads(const struct inputs *in, uint64_t fields)
{
	return in->fields & fields;
}

static const struct ptx_insn *insn_of(const struct inputs *in)
{
	return in->spot->place->func->stmts[in->spot->stmt].insn;
}

static enum ebpf_point point_of(const struct inputs *in)
{
	return in->v->sites[in->ordinal].point;
}

static bool is_done(const struct inputs *in)
{
	return point_of(in) == EBPF_POINT_LOAD_DONE;
}

static bool needs_address(const struct inputs *in)
{
	bool generic = in->spot->access.space == PTX_SPACE_GENERIC;

	return reads(in, BIT(ADDRESS) | BIT(DISTINCT_BYTES) | BIT(SECTORS)) ||
	       (reads(in, BIT(SPACE)) && generic);
}

static bool needs_bytes(const struct inputs *in)
{
	return reads(in, BIT(BYTES)) ||
	       (in->spot->access.size >= 0 && reads(in, BIT(DISTINCT_BYTES) | BIT(SECTORS)));
}

static bool needs_mask(const struct inputs *in)
{
	return in->warp || reads(in, BIT(ACTIVE_MASK) | BIT(MASK) | BIT(LANES) | BIT(MEM_MASK) |
					     BIT(MEM_LANES) | BIT(DISTINCT_BYTES) | BIT(SECTORS));
}

static void declare_regs(struct buf *b, const struct inputs *in, uint32_t bits)
{
	const char *before = bits == 32 ? "\t.reg .b32 " : "\t.reg .b64 ";

	for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
		bool forced = (f == EBPF_FIELD_ADDRESS && needs_address(in)) ||
			      (f == EBPF_FIELD_BYTES && needs_bytes(in));
		if ((!(in->fields >> f & 1) && !forced) || ebpf_fields[f].bytes * 8u != bits)
			continue;
		buf_printf(b, "%s%%egpu_%s", before, ebpf_fields[f].name);
		before = ", ";
	}
	if (before[0] == ',')
		buf_puts(b, ";\n");
}

void emit_declarations(const struct inputs *in, struct buf *b)
{
	declare_regs(b, in, 32);
	declare_regs(b, in, 64);
	buf_puts(b, "\t.reg .pred %egpu_xe, %egpu_xp1;\n"
		    "\t.reg .b16 %egpu_xh;\n"
		    "\t.reg .b32 %egpu_xm, %egpu_xt<7>;\n"
		    "\t.reg .b64 %egpu_xu<3>;\n");
}

uint64_t fields_anywhere(void)
{
	uint64_t all = BIT(KERNEL) | BIT(WARP);

	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++)
		all |= UINT64_C(1) << specials[i].field;
	return all;
}

/* -- fields every context has -- */

static void emit_warp_number(struct buf *b)
{
	buf_puts(b, "\tmov.u32 %egpu_xt1, %tid.z;\n"
		    "\tmov.u32 %egpu_xt2, %ntid.y;\n"
		    "\tmov.u32 %egpu_xt3, %tid.y;\n"
		    "\tmad.lo.u32 %egpu_xt1, %egpu_xt1, %egpu_xt2, %egpu_xt3;\n"
		    "\tmov.u32 %egpu_xt2, %ntid.x;\n"
		    "\tmov.u32 %egpu_xt3, %tid.x;\n"
		    "\tmad.lo.u32 %egpu_xt1, %egpu_xt1, %egpu_xt2, %egpu_xt3;\n"
		    "\tshr.u32 %egpu_warp, %egpu_xt1, 5;\n");
}

static void emit_common(const struct inputs *in, struct buf *b)
{
	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
		const struct special *s = &specials[i];
		bool replaced = s->without_clusters && !in->v->target.clusters;
		if (in->fields >> s->field & 1)
			buf_printf(b, "\tmov.u32 %%egpu_%s, %s;\n", ebpf_fields[s->field].name,
				replaced ? s->without_clusters : s->reg);
	}
	if (reads(in, BIT(SITE)))
		buf_printf(b, "\tmov.b32 %%egpu_site, %u;\n", in->site);
	if (reads(in, BIT(KERNEL)))
		buf_printf(b, "\tmov.b32 %%egpu_kernel, %u;\n", in->kernel_id);
	if (reads(in, BIT(WARP)))
		emit_warp_number(b);
	if (reads(in, BIT(LAUNCH)))
		buf_puts(b, "\tld.param.u64 %egpu_launch, [" LAUNCH_PARAM "];\n");
	if (reads(in, BIT(LAUNCH)) && in->v->sampled)
		buf_puts(b, "\tand.b64 %egpu_launch, %egpu_launch, 0xffffffffff;\n");
}

_Static_assert(INSTRUMENT_WORD_ONE_IN == 40, "0xffffffffff above");

/* -- the lanes that are here -- */

static void emit_mask(const struct inputs *in, struct buf *b)
{
	static const struct {
		uint64_t bit;
		const char *text;
	} copies[] = {
		{ BIT(ACTIVE_MASK), "\tmov.b32 %egpu_active_mask, %egpu_xm;\n" },
		{ BIT(MASK), "\tmov.b32 %egpu_mask, %egpu_xm;\n" },
		{ BIT(MEM_MASK), "\tmov.b32 %egpu_mem_mask, %egpu_xm;\n" },
		{ BIT(LANES), "\tpopc.b32 %egpu_lanes, %egpu_xm;\n" },
		{ BIT(MEM_LANES), "\tpopc.b32 %egpu_mem_lanes, %egpu_xm;\n" },
	};

	if (!needs_mask(in))
		return;
	emit_active_mask(&in->v->target, b, "%egpu_xm");
	for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
		if (reads(in, copies[i].bit))
			buf_puts(b, copies[i].text);
	}
	if (in->warp) /* elected: the lowest lane, so nobody below it is here */
		buf_puts(b, "\tmov.u32 %egpu_xt0, %lanemask_lt;\n"
			    "\tand.b32 %egpu_xt1, %egpu_xt0, %egpu_xm;\n"
			    "\tsetp.ne.u32 %egpu_xe, %egpu_xt1, 0;\n");
}

/* -- the access -- */

static void add_text(const struct inputs *in, struct buf *b, struct ptx_span span)
{
	buf_add(b, in->v->m->text + span.begin, span.end - span.begin);
}

static void add_offset(struct buf *b, int64_t offset)
{
	if (offset)
		buf_printf(
			b, "\tadd.s64 %%egpu_address, %%egpu_address, %lld;\n", (long long)offset);
}

static uint32_t reg_bits(const struct ptx_operand *op)
{
	return op->reg ? op->reg->type.bits : op->var ? op->var->type.bits : 0;
}

/* 32-bit registers hold offsets into shared, local or constant windows; their sums wrap. */
static void emit_reg_address(const struct inputs *in, struct buf *b, const struct ptx_operand *op)
{
	const char *name = in->address_reg ? in->address_reg : op->name;

	if (reg_bits(op) != 32) {
		buf_printf(b, "\tmov.b64 %%egpu_address, %s;\n", name);
		add_offset(b, op->value);
		return;
	}
	buf_printf(b, "\tadd.u32 %%egpu_xt1, %s, %d;\n", name, (int32_t)(uint64_t)op->value);
	buf_puts(b, "\tcvt.u64.u32 %egpu_address, %egpu_xt1;\n");
}

static void emit_address_of(
	const struct inputs *in, struct buf *b, const struct ptx_operand *op, int64_t bound)
{
	if (bound >= 0) {
		buf_printf(b, "\tmov.b64 %%egpu_address, %%egpu_s%lld;\n", (long long)bound);
		add_offset(b, op->value);
	} else if (!op->name) {
		buf_printf(b, "\tmov.b64 %%egpu_address, %lld;\n", (long long)op->value);
	} else if (op->base_is_reg) {
		emit_reg_address(in, b, op);
	} else {
		buf_printf(b, "\tmov.u64 %%egpu_address, %s;\n", op->name);
		add_offset(b, op->value);
	}
}

static void emit_address(const struct inputs *in, struct buf *b)
{
	const struct ptx_operand *op = &insn_of(in)->operands[in->spot->access.address];

	if (is_done(in))
		buf_puts(b, "\tmov.b64 %egpu_address, " KEEP_ADDRESS ";\n");
	else
		emit_address_of(in, b, op, bound_reg(in->v, op));
}

/* Global unless one of the windows holds it. shared::cluster holds the block's own shared memory
 * too. */
static void emit_generic_space(const struct inputs *in, struct buf *b)
{
	static const struct {
		const char *window;
		int space;
		bool needs_cluster;
	} windows[] = {
		{ "const", EGPU_SPACE_CONST, false },
		{ "local", EGPU_SPACE_LOCAL, false },
		{ "shared::cluster", EGPU_SPACE_SHARED_CLUSTER, true },
		{ "shared", EGPU_SPACE_SHARED, false },
	};

	buf_printf(b, "\tmov.b32 %%egpu_space, %d;\n", EGPU_SPACE_GLOBAL);
	for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		if (windows[i].needs_cluster && !in->v->target.shared_cluster)
			continue;
		buf_printf(b, "\tisspacep.%s %%egpu_xp1, %%egpu_address;\n", windows[i].window);
		buf_printf(b, "\tselp.b32 %%egpu_space, %d, %%egpu_space, %%egpu_xp1;\n",
			windows[i].space);
	}
}

/* An access is aligned to its own size, a power of two, so two of them are the same bytes or share
 * none, and none of up to 32 bytes crosses a sector. */
/* Bulk operations have any size from one lane; they came with sm_90, which can add over a warp.
 * Bytes that two lanes move both count twice. */
static void emit_bulk_coverage(const struct inputs *in, struct buf *b)
{
	if (reads(in, BIT(DISTINCT_BYTES)))
		buf_puts(b, "\tredux.sync.add.u32 %egpu_distinct_bytes, %egpu_bytes, %egpu_xm;\n");
	if (reads(in, BIT(SECTORS)))
		buf_puts(b, "\tcvt.u32.u64 %egpu_xt1, %egpu_address;\n"
			    "\tand.b32 %egpu_xt1, %egpu_xt1, 31;\n"
			    "\tadd.u32 %egpu_xt1, %egpu_xt1, %egpu_bytes;\n"
			    "\tadd.u32 %egpu_xt1, %egpu_xt1, 31;\n"
			    "\tshr.u32 %egpu_xt1, %egpu_xt1, 5;\n"
			    "\tredux.sync.add.u32 %egpu_sectors, %egpu_xt1, %egpu_xm;\n");
}

static void emit_coverage(const struct inputs *in, struct buf *b)
{
	uint32_t bytes = in->spot->access.bytes, sector_bytes = bytes > 32 ? bytes : 32;
	char label[32];

	if (reads(in, BIT(DISTINCT_BYTES))) {
		snprintf(label, sizeof(label), "$egpu_d%u", in->ordinal);
		emit_count_distinct(
			&in->v->target, b, "%egpu_address", "%egpu_distinct_bytes", label);
		buf_printf(b, "\tmul.lo.u32 %%egpu_distinct_bytes, %%egpu_distinct_bytes, %u;\n",
			bytes);
	}
	if (!reads(in, BIT(SECTORS)))
		return;
	snprintf(label, sizeof(label), "$egpu_c%u", in->ordinal);
	buf_printf(b, "\tshr.u64 %%egpu_xu0, %%egpu_address, %d;\n", __builtin_ctz(sector_bytes));
	emit_count_distinct(&in->v->target, b, "%egpu_xu0", "%egpu_sectors", label);
	if (sector_bytes > 32)
		buf_printf(
			b, "\tmul.lo.u32 %%egpu_sectors, %%egpu_sectors, %u;\n", sector_bytes / 32);
}

/* -- the value stored -- */

/* Numbers as they will lie in memory. */
static uint64_t literal_bits(const struct ptx_operand *op, const struct ptx_type *type)
{
	uint64_t bits = (uint64_t)op->value;

	if (op->kind == PTX_OPERAND_FLOAT && op->bits == 64 && type->bits == 32) {
		double d;
		float f;
		uint32_t pattern;
		memcpy(&d, &bits, sizeof(d));
		f = (float)d;
		memcpy(&pattern, &f, sizeof(f));
		bits = pattern;
	} else if (op->kind == PTX_OPERAND_FLOAT && op->bits == 32 && type->bits == 64) {
		uint32_t pattern = (uint32_t)bits;
		float f;
		memcpy(&f, &pattern, sizeof(f));
		double d = f;
		memcpy(&bits, &d, sizeof(d));
	}
	return type->bits >= 64 ? bits : bits & ((UINT64_C(1) << type->bits) - 1);
}

/* A register's low `width` bits into %egpu_xu0, zero-extended. mov takes any type of the register's
 * own size; cvt takes integer registers that are wider than the type and cuts. */
static void emit_reg_value(
	const struct inputs *in, struct buf *b, const struct ptx_operand *op, uint32_t width)
{
	uint32_t bits = reg_bits(op);
	const char *whole = width == 32 ? "%egpu_xt1" : width == 16 ? "%egpu_xh" : "%egpu_xu0";
	bool same = !bits || bits == width;

	if (same && width > 8) {
		buf_printf(b, "\tmov.b%u %s, ", width, whole);
		add_text(in, b, op->span);
		buf_puts(b, ";\n");
		if (width < 64)
			buf_printf(b, "\tcvt.u64.u%u %%egpu_xu0, %s;\n", width, whole);
		return;
	}
	buf_printf(b, "\tcvt.u64.u%u %%egpu_xu0, ", width);
	add_text(in, b, op->span);
	buf_puts(b, ";\n");
}

/* A whole vector register, as `.reg .v4 .f32 q` declares it. */
static bool is_vector_reg(const struct ptx_operand *op)
{
	return op->kind == PTX_OPERAND_REG && op->reg && op->reg->vector > 1 && op->component < 0;
}

/* Its i-th element into %egpu_xu0. */
static void emit_component(struct buf *b, const struct ptx_operand *op, uint32_t i)
{
	uint32_t bits = op->reg->type.bits;

	if (bits == 64 || bits == 8) {
		buf_printf(b,
			bits == 64 ? "\tmov.b64 %%egpu_xu0, %s.%c;\n"
				   : "\tcvt.u64.u8 %%egpu_xu0, %s.%c;\n",
			op->name, "xyzw"[i & 3]);
		return;
	}
	buf_printf(b, "\tmov.b%u %s, %s.%c;\n", bits, bits == 16 ? "%egpu_xh" : "%egpu_xt1",
		op->name, "xyzw"[i & 3]);
	buf_printf(
		b, "\tcvt.u64.u%u %%egpu_xu0, %s;\n", bits, bits == 16 ? "%egpu_xh" : "%egpu_xt1");
}

void emit_element(const struct inputs *in, struct buf *b, const struct ptx_operand *op,
	const struct ptx_type *type)
{
	int64_t bound = bound_reg(in->v, op);

	if (op->kind == PTX_OPERAND_INT || op->kind == PTX_OPERAND_FLOAT)
		buf_printf(b, "\tmov.b64 %%egpu_xu0, 0x%llx;\n",
			(unsigned long long)literal_bits(op, type));
	else if (bound >= 0)
		buf_printf(b, "\tmov.b64 %%egpu_xu0, %%egpu_s%lld;\n", (long long)bound);
	else if (op->kind == PTX_OPERAND_REG && strcmp(op->name, "_"))
		emit_reg_value(in, b, op, type->bits);
	else if (op->kind == PTX_OPERAND_SYMBOL && type->bits == 64) {
		buf_puts(b, "\tmov.u64 %egpu_xu0, ");
		add_text(in, b, op->span);
		buf_puts(b, ";\n");
	} else
		buf_puts(b, "\tmov.b64 %egpu_xu0, 0;\n");
}

/* Puts %egpu_xu0 at bit `shift` of a value word. */
static void place_element(struct buf *b, uint32_t word, uint32_t shift)
{
	if (!shift) {
		buf_printf(b, "\tmov.b64 %%egpu_value%u, %%egpu_xu0;\n", word);
		return;
	}
	buf_printf(b, "\tshl.b64 %%egpu_xu0, %%egpu_xu0, %u;\n", shift);
	buf_printf(b, "\tor.b64 %%egpu_value%u, %%egpu_value%u, %%egpu_xu0;\n", word, word);
}

static bool reads_word(const struct inputs *in, uint32_t word)
{
	return word < 4 && (in->fields >> (EBPF_FIELD_VALUE0 + word) & 1);
}

static void emit_wide(
	const struct inputs *in, struct buf *b, const struct ptx_operand *op, uint32_t word)
{
	if (!reads_word(in, word) && !reads_word(in, word + 1))
		return;
	buf_puts(b, "\tmov.b128 {%egpu_xu0, %egpu_xu1}, ");
	add_text(in, b, op->span);
	buf_puts(b, ";\n");
	for (uint32_t i = 0; i < 2; i++) {
		if (reads_word(in, word + i))
			buf_printf(b, "\tmov.b64 %%egpu_value%u, %%egpu_xu%u;\n", word + i, i);
	}
}

static void emit_value(const struct inputs *in, struct buf *b)
{
	const struct ptx_access *a = &in->spot->access;
	uint32_t width = a->type.bits, n = 0;
	const struct ptx_operand *op = NULL;
	bool whole = false;

	if ((a->op != PTX_ACCESS_LOAD || is_done(in)) && a->value >= 0) {
		op = &insn_of(in)->operands[a->value];
		n = op->kind == PTX_OPERAND_VECTOR ? op->n_sub : 1;
		whole = is_vector_reg(op);
		n = whole ? op->reg->vector : n;
		op = op->kind == PTX_OPERAND_VECTOR ? op->sub : op;
	}
	for (uint32_t word = (n * width + 63) / 64; word < 4; word++) {
		if (reads_word(in, word))
			buf_printf(b, "\tmov.b64 %%egpu_value%u, 0;\n", word);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t word = i * width / 64;
		if (width > 64) {
			emit_wide(in, b, &op[i], word);
		} else if (reads_word(in, word)) {
			if (whole)
				emit_component(b, op, i);
			else
				emit_element(in, b, &op[i], &a->type);
			place_element(b, word, i * width % 64);
		}
	}
}

/* A bulk operation's size is an operand. */
static void emit_bytes(const struct inputs *in, struct buf *b)
{
	const struct ptx_access *a = &in->spot->access;

	if (a->bytes || a->size < 0) {
		buf_printf(b, "\tmov.b32 %%egpu_bytes, %u;\n", a->bytes);
		return;
	}
	buf_puts(b, "\tmov.b32 %egpu_bytes, ");
	add_text(in, b, insn_of(in)->operands[a->size].span);
	buf_puts(b, ";\n");
}

static void emit_access(const struct inputs *in, struct buf *b)
{
	const struct ptx_access *a = &in->spot->access;

	if (needs_address(in))
		emit_address(in, b);
	if (needs_bytes(in))
		emit_bytes(in, b);
	if (reads(in, BIT(OP)))
		buf_printf(b, "\tmov.b32 %%egpu_op, %u;\n", ops[a->op]);
	if (reads(in, BIT(VALUE_BYTES)))
		buf_printf(b, "\tmov.b32 %%egpu_value_bytes, %u;\n",
			(a->op == PTX_ACCESS_LOAD && !is_done(in)) || a->value < 0 ? 0 : a->bytes);
	if (reads(in, BIT(SPACE)) && a->space != PTX_SPACE_GENERIC)
		buf_printf(b, "\tmov.b32 %%egpu_space, %u;\n", spaces[a->space]);
	else if (reads(in, BIT(SPACE)))
		emit_generic_space(in, b);
	emit_value(in, b);
	if (a->size >= 0)
		emit_bulk_coverage(in, b);
	else
		emit_coverage(in, b);
}

bool known_field(const struct variant *v, uint32_t site, uint32_t id, enum ebpf_field field, uint32_t *value)
{
	const struct ptx_access *a = &v->spots[site].access;

	switch (field) {
	case EBPF_FIELD_SITE:
		*value = id;
		return true;
	case EBPF_FIELD_BYTES:
		*value = a->bytes;
		return a->size < 0;
	case EBPF_FIELD_SPACE:
		*value = a->space == PTX_SPACE_GENERIC ? 0 : spaces[a->space];
		return a->space != PTX_SPACE_GENERIC;
	case EBPF_FIELD_OP:
		*value = ops[a->op];
		return true;
	default:
		return false;
	}
}

bool inputs_keep(const struct inputs *in)
{
	return is_done(in) && (needs_address(in) || reads(in, BIT(CYCLES)));
}

void emit_kept(const struct inputs *in, struct buf *b)
{
	const struct ptx_operand *op = &insn_of(in)->operands[in->spot->access.address];

	if (needs_address(in)) {
		buf_puts(b, "\t.reg .b32 %egpu_xt<2>;\n\t.reg .b64 %egpu_address;\n");
		emit_address_of(in, b, op, bound_reg(in->v, op));
		buf_puts(b, "\tmov.b64 " KEEP_ADDRESS ", %egpu_address;\n");
	}
	if (reads(in, BIT(CYCLES)))
		buf_puts(b, "\tmov.u64 " KEEP_CLOCK ", %clock64;\n");
}

/* The clock is read behind the value: which of the two reads runs depends on it. */
static void emit_cycles(const struct inputs *in, struct buf *b)
{
	const struct ptx_access *a = &in->spot->access;
	const struct ptx_operand *op = &insn_of(in)->operands[a->value];

	if (!reads(in, BIT(CYCLES)))
		return;
	op = op->kind == PTX_OPERAND_VECTOR && op->n_sub ? op->sub : op;
	if (is_vector_reg(op)) {
		emit_component(b, op, 0);
	} else if (a->type.bits > 64) {
		buf_puts(b, "\tmov.b128 {%egpu_xu0, %egpu_xu1}, ");
		add_text(in, b, op->span);
		buf_puts(b, ";\n");
	} else {
		emit_element(in, b, op, &a->type);
	}
	buf_puts(b, "\tsetp.eq.u64 %egpu_xp1, %egpu_xu0, 0;\n"
		    "\t@%egpu_xp1 mov.u64 %egpu_xu1, %clock64;\n"
		    "\t@!%egpu_xp1 mov.u64 %egpu_xu1, %clock64;\n"
		    "\tsub.s64 %egpu_cycles, %egpu_xu1, " KEEP_CLOCK ";\n");
}

/* -- what lanes hand over to the elected one -- */

/* One word of lane `lane` into %egpu_xt<to>, 0 where it is not here (%egpu_xt5 has its bit of the mask in all places). */
static void emit_from_lane(struct buf *b, uint32_t to, uint32_t from, uint32_t lane)
{
	buf_printf(b, "\tshfl.sync.idx.b32 %%egpu_xt%u, %%egpu_xt%u, %u, 31, %%egpu_xm;\n", to, from, lane);
	buf_printf(b, "\tand.b32 %%egpu_xt%u, %%egpu_xt%u, %%egpu_xt5;\n", to, to);
}

/* Without a loop: the mask is that of this block. */
static void emit_lanes_of(struct buf *b, const struct ebpf_field_row *f)
{
	bool wide = f->bytes == 8;

	buf_printf(b, wide ? "\tmov.b64 {%%egpu_xt1, %%egpu_xt2}, %%egpu_%s;\n" : "\tmov.b32 %%egpu_xt1, %%egpu_%s;\n", f->name);
	for (uint32_t lane = 0; lane < 32; lane++) {
		buf_printf(b, "\tbfe.s32 %%egpu_xt5, %%egpu_xm, %u, 1;\n", lane);
		emit_from_lane(b, 3, 1, lane);
		if (wide)
			emit_from_lane(b, 4, 2, lane);
		buf_printf(b, "\t@!%%egpu_xe st.local.%s [" LANES_NAME "%s+%u], %s;\n", wide ? "v2.b32" : "b32", f->name, lane * f->bytes,
			wide ? "{%egpu_xt3, %egpu_xt4}" : "%egpu_xt3");
	}
}

static void emit_lanes(const struct inputs *in, struct buf *b)
{
	for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
		if (in->gathered >> f & 1)
			emit_lanes_of(b, &ebpf_fields[f]);
	}
}

void emit_everywhere(const struct inputs *in, struct buf *b)
{
	emit_mask(in, b);
	emit_common(in, b);
}

void emit_inputs(const struct inputs *in, struct buf *b)
{
	emit_everywhere(in, b);
	if (is_done(in))
		emit_cycles(in, b);
	if (in->spot->access.op != PTX_ACCESS_NONE)
		emit_access(in, b);
	emit_point(in, b);
	emit_lanes(in, b);
}
