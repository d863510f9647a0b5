/* ops.c - what an instruction's name says: types, and which memory it touches (PTX ISA 5.2, 9.7).
 */
#include "ptx/ptx.h"

#include <string.h>

/* One row per type name. */
static const struct ptx_type types[] = {
	{ 's', 8, "s8" },
	{ 's', 16, "s16" },
	{ 's', 32, "s32" },
	{ 's', 64, "s64" },
	{ 'u', 8, "u8" },
	{ 'u', 16, "u16" },
	{ 'u', 32, "u32" },
	{ 'u', 64, "u64" },
	{ 'b', 8, "b8" },
	{ 'b', 16, "b16" },
	{ 'b', 32, "b32" },
	{ 'b', 64, "b64" },
	{ 'b', 128, "b128" },
	{ 'f', 16, "f16" },
	{ 'f', 32, "f32" },
	{ 'f', 64, "f64" },
	{ 'p', 1, "pred" },
	{ 'o', 32, "f16x2" },
	{ 'o', 16, "bf16" },
	{ 'o', 32, "bf16x2" },
	{ 'o', 32, "tf32" },
	{ 'o', 64, "f32x2" },
	{ 'o', 8, "e4m3" },
	{ 'o', 8, "e5m2" },
	{ 'o', 16, "e4m3x2" },
	{ 'o', 16, "e5m2x2" },
	{ 'o', 32, "e4m3x4" },
	{ 'o', 32, "e5m2x4" },
	{ 'o', 8, "e2m1x2" },
	{ 'o', 16, "e2m3x2" },
	{ 'o', 16, "e3m2x2" },
	{ 'o', 16, "e2m1x4" },
	{ 'o', 32, "e2m3x4" },
	{ 'o', 32, "e3m2x4" },
	{ 'o', 16, "ue8m0x2" },
	{ 'o', 32, "s16x2" },
	{ 'o', 32, "u16x2" },
	{ 'o', 32, "s8x4" },
	{ 'o', 32, "u8x4" },
	{ 'o', 64, "texref" },
	{ 'o', 64, "samplerref" },
	{ 'o', 64, "surfref" },
};

bool ptx_type_parse(const char *name, struct ptx_type *out)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (!strcmp(name, types[i].name)) {
			*out = types[i];
			return true;
		}
	}
	return false;
}

bool ptx_insn_has_mod(const struct ptx_insn *insn, const char *mod)
{
	for (uint32_t i = 0; i < insn->n_mods; i++) {
		if (!strcmp(insn->mods[i], mod))
			return true;
	}
	return false;
}

struct ptx_type ptx_insn_type(const struct ptx_insn *insn)
{
	struct ptx_type type = { 0 };

	for (uint32_t i = insn->n_mods; i > 0; i--) {
		if (ptx_type_parse(insn->mods[i - 1], &type))
			break;
	}
	return type;
}

static const struct {
	const char *mod;
	enum ptx_space space;
} space_mods[] = {
	{ "const", PTX_SPACE_CONST },
	{ "global", PTX_SPACE_GLOBAL },
	{ "local", PTX_SPACE_LOCAL },
	{ "param", PTX_SPACE_PARAM },
	{ "param::entry", PTX_SPACE_PARAM },
	{ "param::func", PTX_SPACE_PARAM },
	{ "shared", PTX_SPACE_SHARED },
	{ "shared::cta", PTX_SPACE_SHARED },
	{ "shared::cluster", PTX_SPACE_SHARED_CLUSTER },
};

static enum ptx_space mod_space(const char *mod)
{
	for (size_t i = 0; i < sizeof(space_mods) / sizeof(space_mods[0]); i++) {
		if (!strcmp(mod, space_mods[i].mod))
			return space_mods[i].space;
	}
	return PTX_SPACE_GENERIC;
}

static enum ptx_space insn_space(const struct ptx_insn *insn)
{
	for (uint32_t i = 0; i < insn->n_mods; i++) {
		enum ptx_space space = mod_space(insn->mods[i]);
		if (space != PTX_SPACE_GENERIC)
			return space;
	}
	return PTX_SPACE_GENERIC;
}

static uint8_t insn_vector(const struct ptx_insn *insn)
{
	if (ptx_insn_has_mod(insn, "v2"))
		return 2;
	if (ptx_insn_has_mod(insn, "v4"))
		return 4;
	return ptx_insn_has_mod(insn, "v8") ? 8 : 1;
}

static bool is_mod(const struct ptx_insn *insn, uint32_t i, const char *mod)
{
	return i < insn->n_mods && !strcmp(insn->mods[i], mod);
}

static bool is_address(const struct ptx_insn *insn, int32_t i)
{
	return i >= 0 && (uint32_t)i < insn->n_operands &&
	       insn->operands[i].kind == PTX_OPERAND_ADDRESS;
}

/* -- copies -- */

/* cp.async.{ca,cg}.shared.global [dst], [src], 4|8|16 ...: seen as the load from global memory. */
static void small_copy(const struct ptx_insn *insn, struct ptx_access *out)
{
	if (insn->n_mods < 2 || insn->n_operands < 3)
		return;
	if (strcmp(insn->mods[1], "ca") && strcmp(insn->mods[1], "cg"))
		return;
	const struct ptx_operand *size = &insn->operands[2];
	if (size->kind != PTX_OPERAND_INT || !is_address(insn, 1) ||
		(size->value != 4 && size->value != 8 && size->value != 16))
		return;
	out->op = PTX_ACCESS_LOAD;
	out->space = PTX_SPACE_GLOBAL;
	out->bytes = (uint32_t)size->value;
	out->vector = (uint8_t)size->value;
	out->type = (struct ptx_type){ 'b', 8, "b8" };
	out->address = 1;
}

/* The n-th state space among the modifiers. */
static enum ptx_space nth_space(const struct ptx_insn *insn, uint32_t n)
{
	for (uint32_t i = 0; i < insn->n_mods; i++) {
		enum ptx_space space = mod_space(insn->mods[i]);
		if (space != PTX_SPACE_GENERIC && !n--)
			return space;
	}
	return PTX_SPACE_GENERIC;
}

static void set_size(const struct ptx_insn *insn, int32_t i, struct ptx_access *out)
{
	if ((uint32_t)i >= insn->n_operands)
		return;
	const struct ptx_operand *op = &insn->operands[i];
	out->size = i;
	out->type = (struct ptx_type){ 'b', 8, "b8" };
	out->vector = 1;
	if (op->kind == PTX_OPERAND_INT && op->value > 0 && op->value <= UINT32_MAX)
		out->bytes = (uint32_t)op->value;
}

/* cp.async.bulk.DST.SRC..., cp.reduce.async.bulk.DST.SRC...: [dst], [src], size. */
static void bulk_copy(const struct ptx_insn *insn, bool reduces, struct ptx_access *out)
{
	enum ptx_space to = nth_space(insn, 0);
	bool tensor = ptx_insn_has_mod(insn, "tensor");

	if (ptx_insn_has_mod(insn, "commit_group") || ptx_insn_has_mod(insn, "wait_group"))
		return;
	if (ptx_insn_has_mod(insn, "prefetch")) {
		out->op = PTX_ACCESS_PREFETCH;
		out->space = PTX_SPACE_GLOBAL;
		if (!tensor && is_address(insn, 0))
			out->address = 0;
		if (!tensor)
			set_size(insn, 1, out);
	} else {
		bool loads = to != PTX_SPACE_GLOBAL && nth_space(insn, 1) == PTX_SPACE_GLOBAL;
		out->op = reduces ? PTX_ACCESS_ATOMIC : loads ? PTX_ACCESS_LOAD : PTX_ACCESS_STORE;
		out->space = loads ? PTX_SPACE_GLOBAL : to;
		out->address = is_address(insn, loads) ? loads : -1;
		if (!tensor)
			set_size(insn, 2, out);
	}
	if (tensor) {
		out->opaque = PTX_OPAQUE_TENSOR;
		out->address = -1;
	} else if (out->address < 0 || out->size < 0) {
		out->op = PTX_ACCESS_NONE;
	}
}

/* cp.async.mbarrier.arrive and the waits for groups touch no data. */
static void copy_access(const struct ptx_insn *insn, struct ptx_access *out)
{
	if (is_mod(insn, 0, "async") && is_mod(insn, 1, "bulk"))
		bulk_copy(insn, false, out);
	else if (is_mod(insn, 0, "reduce"))
		bulk_copy(insn, true, out);
	else if (is_mod(insn, 0, "async") && is_mod(insn, 1, "mbarrier"))
		*out = (struct ptx_access){ .op = PTX_ACCESS_ATOMIC,
			.space = insn_space(insn),
			.bytes = 8,
			.vector = 1,
			.type = { 'b', 64, "b64" },
			.address = is_address(insn, 0) ? 0 : -1,
			.value = -1,
			.size = -1,
			.sync = true };
	else if (is_mod(insn, 0, "async"))
		small_copy(insn, out);
}

/* -- matrices -- */

/* A lane gives the address of a row of 16 bytes; .x1, .x2, .x4 matrices have 8 rows each (16 of
 * m16n16). */
static void matrix_access(const struct ptx_insn *insn, bool load, struct ptx_access *out)
{
	uint8_t n = ptx_insn_has_mod(insn, "x4") ? 4 : ptx_insn_has_mod(insn, "x2") ? 2 : 1;
	uint8_t rows = ptx_insn_has_mod(insn, "m16n16") ? 16 : 8;

	if (!is_address(insn, load))
		return;
	out->op = load ? PTX_ACCESS_LOAD : PTX_ACCESS_STORE;
	out->space = insn_space(insn);
	out->bytes = 16;
	out->vector = 16;
	out->type = (struct ptx_type){ 'b', 8, "b8" };
	out->address = load;
	out->lanes = n * rows < 32 ? (uint8_t)(n * rows) : 0;
}

/* "m16n8k32": the extent after the letter, 0 when there is none. */
static uint32_t extent(const char *shape, char letter)
{
	const char *s = strchr(shape, letter);
	uint32_t n = 0;

	for (s = s ? s + 1 : ""; *s >= '0' && *s <= '9' && n < 10000; s++)
		n = n * 10 + (uint32_t)(*s - '0');
	return n;
}

/* wmma.load.{a,b,c}, wmma.store.d: bytes of the whole matrix, which the warp touches together. */
static void wmma_access(const struct ptx_insn *insn, struct ptx_access *out)
{
	bool load = is_mod(insn, 0, "load"), store = is_mod(insn, 0, "store");
	struct ptx_type type = ptx_insn_type(insn);
	uint32_t m = 0, n = 0, k = 0;

	if (!load && !store)
		return;
	for (uint32_t i = 1; i < insn->n_mods && !m; i++) {
		if (insn->mods[i][0] == 'm' && extent(insn->mods[i], 'n')) {
			m = extent(insn->mods[i], 'm');
			n = extent(insn->mods[i], 'n');
			k = extent(insn->mods[i], 'k');
		}
	}
	uint32_t elements = is_mod(insn, 1, "a") ? m * k : is_mod(insn, 1, "b") ? k * n : m * n;
	uint32_t bits = type.bits;
	if (ptx_insn_has_mod(insn, "s4") || ptx_insn_has_mod(insn, "u4"))
		bits = 4;
	else if (ptx_insn_has_mod(insn, "b1"))
		bits = 1;
	else if (type.name && !strcmp(type.name, "tf32"))
		bits = 32;
	out->op = load ? PTX_ACCESS_LOAD : PTX_ACCESS_STORE;
	out->space = insn_space(insn);
	out->bytes = elements / 8 * bits;
	out->vector = 1;
	out->type = type;
	out->address = is_address(insn, load) ? load : -1;
	out->opaque = PTX_OPAQUE_MATRIX;
}

/* -- textures and surfaces -- */

static void texture_access(
	const struct ptx_insn *insn, enum ptx_access_op op, struct ptx_access *out)
{
	struct ptx_type type = { 0 };
	/* tex.GEOM.v4.DTYPE.CTYPE: the first type is the data's. */
	for (uint32_t i = 0; i < insn->n_mods && !type.kind; i++)
		ptx_type_parse(insn->mods[i], &type);
	out->op = op;
	out->space = PTX_SPACE_TEX;
	out->vector = !strcmp(insn->base, "tld4") ? 4 : insn_vector(insn);
	out->type = type;
	out->bytes = type.bits / 8u * out->vector;
	out->opaque = PTX_OPAQUE_TEXTURE;
}

/* -- barriers in memory -- */

static void mbarrier_access(const struct ptx_insn *insn, struct ptx_access *out)
{
	static const struct {
		const char *mod;
		enum ptx_access_op op;
	} rows[] = {
		{ "init", PTX_ACCESS_STORE },
		{ "inval", PTX_ACCESS_STORE },
		{ "expect_tx", PTX_ACCESS_ATOMIC },
		{ "complete_tx", PTX_ACCESS_ATOMIC },
		{ "arrive", PTX_ACCESS_ATOMIC },
		{ "arrive_drop", PTX_ACCESS_ATOMIC },
		{ "test_wait", PTX_ACCESS_LOAD },
		{ "try_wait", PTX_ACCESS_LOAD },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (is_mod(insn, 0, rows[i].mod))
			out->op = rows[i].op;
	}
	if (out->op == PTX_ACCESS_NONE)
		return;
	out->space = insn_space(insn);
	out->bytes = 8;
	out->vector = 1;
	out->type = (struct ptx_type){ 'b', 64, "b64" };
	out->address = is_address(insn, 0) ? 0 : is_address(insn, 1) ? 1 : -1;
	out->sync = true;
}

/* -- everything else: one row per base opcode says where its operands are -- */

struct access_row {
	const char *base, *mod; /* mod: the first modifier, NULL any */
	enum ptx_access_op op;
	int8_t address, value;
};

static const struct access_row access_rows[] = {
	{ "ld", NULL, PTX_ACCESS_LOAD, 1, 0 },
	{ "ldu", NULL, PTX_ACCESS_LOAD, 1, 0 },
	{ "st", NULL, PTX_ACCESS_STORE, 0, 1 },
	{ "atom", NULL, PTX_ACCESS_ATOMIC, 1, 2 },
	{ "red", NULL, PTX_ACCESS_ATOMIC, 0, 1 },
	{ "multimem", "ld_reduce", PTX_ACCESS_LOAD, 1, 0 },
	{ "multimem", "st", PTX_ACCESS_STORE, 0, 1 },
	{ "multimem", "red", PTX_ACCESS_ATOMIC, 0, 1 },
};

static const struct access_row *find_row(const struct ptx_insn *insn)
{
	for (size_t i = 0; i < sizeof(access_rows) / sizeof(access_rows[0]); i++) {
		const struct access_row *row = &access_rows[i];
		if (!strcmp(insn->base, row->base) && (!row->mod || is_mod(insn, 0, row->mod)))
			return row;
	}
	return NULL;
}

static void plain_access(
	const struct ptx_insn *insn, const struct access_row *row, struct ptx_access *out)
{
	int32_t value = row->value;
	if (row->op == PTX_ACCESS_ATOMIC && ptx_insn_has_mod(insn, "cas"))
		value++; /* [a], compare, new value */
	struct ptx_type type = ptx_insn_type(insn);
	if (!type.kind || !is_address(insn, row->address))
		return;
	out->op = row->op;
	out->space = insn_space(insn);
	if (ptx_insn_has_mod(insn, "async") && out->space == PTX_SPACE_GENERIC)
		out->space = PTX_SPACE_SHARED_CLUSTER; /* st.async, red.async */
	out->type = type;
	out->vector = insn_vector(insn);
	out->bytes = type.bits / 8u * out->vector;
	out->address = row->address;
	out->value = (uint32_t)value < insn->n_operands ? value : -1;
}

/* What writes or drops memory that its operand names, whatever the type. */
static void other_access(const struct ptx_insn *insn, struct ptx_access *out)
{
	static const struct {
		const char *base;
		enum ptx_access_op op;
		uint32_t bytes;
	} rows[] = {
		{ "prefetch", PTX_ACCESS_PREFETCH, 0 },
		{ "prefetchu", PTX_ACCESS_PREFETCH, 0 },
		{ "discard", PTX_ACCESS_PREFETCH, 128 },
		{ "applypriority", PTX_ACCESS_PREFETCH, 128 },
		{ "tensormap", PTX_ACCESS_STORE, 128 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(insn->base, rows[i].base) || !is_address(insn, 0))
			continue;
		out->op = rows[i].op;
		out->bytes = rows[i].bytes;
		out->space = insn_space(insn);
		out->vector = 1;
		out->address = 0;
		out->type = (struct ptx_type){ 'b', 8, "b8" };
		/* A tensor map is a system object, not the program's data. */
		out->opaque = out->op == PTX_ACCESS_STORE ? PTX_OPAQUE_TENSOR : PTX_OPAQUE_NO;
	}
}

/* st.bulk [a], size, 0 clears; clusterlaunchcontrol.try_cancel answers with 16 bytes. */
static bool shared_writes(const struct ptx_insn *insn, struct ptx_access *out)
{
	bool clears = !strcmp(insn->base, "st") && ptx_insn_has_mod(insn, "bulk");
	bool cancels = !strcmp(insn->base, "clusterlaunchcontrol") && is_mod(insn, 0, "try_cancel");

	if ((!clears && !cancels) || !is_address(insn, 0))
		return clears || cancels;
	out->op = PTX_ACCESS_STORE;
	out->space = insn_space(insn) == PTX_SPACE_GENERIC ? PTX_SPACE_SHARED : insn_space(insn);
	out->address = 0;
	if (clears) {
		set_size(insn, 1, out);
		return true;
	}
	out->bytes = out->vector = 16;
	out->type = (struct ptx_type){ 'b', 8, "b8" };
	return true;
}

static void descriptor_access(const struct ptx_insn *insn, struct ptx_access *out)
{
	bool reads = (!strcmp(insn->base, "wgmma") && is_mod(insn, 0, "mma_async")) ||
		     (!strcmp(insn->base, "tcgen05") &&
			     (is_mod(insn, 0, "mma") || is_mod(insn, 0, "cp")));

	if (!reads)
		return;
	out->op = PTX_ACCESS_LOAD;
	out->space = PTX_SPACE_SHARED;
	out->opaque = PTX_OPAQUE_DESCRIPTOR;
}

void ptx_insn_access(const struct ptx_insn *insn, struct ptx_access *out)
{
	static const struct {
		const char *base;
		enum ptx_access_op op;
	} textures[] = {
		{ "tex", PTX_ACCESS_LOAD },
		{ "tld4", PTX_ACCESS_LOAD },
		{ "suld", PTX_ACCESS_LOAD },
		{ "sust", PTX_ACCESS_STORE },
		{ "sured", PTX_ACCESS_ATOMIC },
	};
	const struct access_row *row = find_row(insn);
	const char *base = insn->base;

	*out = (struct ptx_access){ .address = -1, .value = -1, .size = -1 };
	if (shared_writes(insn, out))
		return;
	if (row) {
		plain_access(insn, row, out);
		return;
	}
	if (!strcmp(base, "cp"))
		copy_access(insn, out);
	else if (!strcmp(base, "multimem") && is_mod(insn, 0, "cp"))
		bulk_copy(insn, is_mod(insn, 1, "reduce"), out);
	else if (!strcmp(base, "ldmatrix") || !strcmp(base, "stmatrix"))
		matrix_access(insn, base[0] == 'l', out);
	else if (!strcmp(base, "wmma"))
		wmma_access(insn, out);
	else if (!strcmp(base, "mbarrier"))
		mbarrier_access(insn, out);
	else
		other_access(insn, out);
	descriptor_access(insn, out);
	for (size_t i = 0; i < sizeof(textures) / sizeof(textures[0]); i++) {
		if (!strcmp(base, textures[i].base))
			texture_access(insn, textures[i].op, out);
	}
}

const char *ptx_space_name(enum ptx_space space)
{
	static const char *const names[] = {
		[PTX_SPACE_GENERIC] = "generic",
		[PTX_SPACE_REG] = "reg",
		[PTX_SPACE_SREG] = "sreg",
		[PTX_SPACE_CONST] = "const",
		[PTX_SPACE_GLOBAL] = "global",
		[PTX_SPACE_LOCAL] = "local",
		[PTX_SPACE_PARAM] = "param",
		[PTX_SPACE_SHARED] = "shared",
		[PTX_SPACE_SHARED_CLUSTER] = "shared::cluster",
		[PTX_SPACE_TEX] = "tex",
	};

	return (unsigned)space < sizeof(names) / sizeof(names[0]) ? names[space] : "?";
}
