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

static enum ptx_space insn_space(const struct ptx_insn *insn)
{
	for (uint32_t i = 0; i < insn->n_mods; i++) {
		for (size_t k = 0; k < sizeof(space_mods) / sizeof(space_mods[0]); k++) {
			if (!strcmp(insn->mods[i], space_mods[k].mod))
				return space_mods[k].space;
		}
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

/* cp.async.{ca,cg}.shared.global [dst], [src], 4|8|16 ...: seen as the load from global memory. */
static void copy_access(const struct ptx_insn *insn, struct ptx_access *out)
{
	if (insn->n_mods < 2 || strcmp(insn->mods[0], "async") || insn->n_operands < 3)
		return;
	if (strcmp(insn->mods[1], "ca") && strcmp(insn->mods[1], "cg"))
		return;
	const struct ptx_operand *size = &insn->operands[2];
	if (size->kind != PTX_OPERAND_INT ||
		(size->value != 4 && size->value != 8 && size->value != 16))
		return;
	*out = (struct ptx_access){ .op = PTX_ACCESS_LOAD,
		.space = PTX_SPACE_GLOBAL,
		.bytes = (uint32_t)size->value,
		.vector = 1,
		.type = { 'b', 8, "b8" },
		.address = 1,
		.value = -1 };
	out->vector = (uint8_t)size->value;
}

/* One row per base opcode: where its operands are. */
static const struct access_row {
	const char *base;
	enum ptx_access_op op;
	int8_t address, value;
} access_rows[] = {
	{ "ld", PTX_ACCESS_LOAD, 1, 0 },
	{ "ldu", PTX_ACCESS_LOAD, 1, 0 },
	{ "st", PTX_ACCESS_STORE, 0, 1 },
	{ "atom", PTX_ACCESS_ATOMIC, 1, 2 },
	{ "red", PTX_ACCESS_ATOMIC, 0, 1 },
};

static const struct access_row *find_row(const char *base)
{
	for (size_t i = 0; i < sizeof(access_rows) / sizeof(access_rows[0]); i++) {
		if (!strcmp(base, access_rows[i].base))
			return &access_rows[i];
	}
	return NULL;
}

void ptx_insn_access(const struct ptx_insn *insn, struct ptx_access *out)
{
	const struct access_row *row = find_row(insn->base);

	*out = (struct ptx_access){ .address = -1, .value = -1 };
	if (!strcmp(insn->base, "cp"))
		copy_access(insn, out);
	if (!row || ptx_insn_has_mod(insn, "bulk"))
		return;
	int32_t value = row->value;
	if (row->op == PTX_ACCESS_ATOMIC && ptx_insn_has_mod(insn, "cas"))
		value++; /* [a], compare, new value */
	struct ptx_type type = ptx_insn_type(insn);
	if (!type.kind || (uint32_t)row->address >= insn->n_operands ||
		insn->operands[row->address].kind != PTX_OPERAND_ADDRESS)
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
