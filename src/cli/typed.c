/* typed.c - see typed.h. BTF comes from files of others: every size is checked against the data,
 * depth is bounded. */
#include <string.h>

#include "cli/hex.h"
#include "cli/typed.h"

/* Types that contain each other many times over could describe more text than memory: no more is
 * written past MAX_TEXT. */
enum { MAX_DEPTH = 24, MAX_CHAIN = 64, MAX_TEXT = 256 << 20 };

static void value(struct json *j, const struct btf *btf, uint32_t id, const uint8_t *data,
	size_t size, int depth);

const struct btf_type *typed_resolve(const struct btf *btf, uint32_t id)
{
	for (int i = 0; i < MAX_CHAIN; i++) {
		const struct btf_type *t = btf__type_by_id(btf, id);
		if (!t)
			return NULL;
		if (!btf_is_mod(t) && !btf_is_typedef(t))
			return t;
		id = t->type;
	}
	return NULL;
}

static const char *name_at(const struct btf *btf, uint32_t off)
{
	const char *s = btf__name_by_offset(btf, off);
	return s ? s : "";
}

static uint64_t little_endian(const uint8_t *p, size_t n)
{
	uint64_t v = 0;
	for (size_t i = 0; i < n && i < 8; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static int64_t sign_extend(uint64_t v, unsigned bits)
{
	return bits >= 64 || !bits ? (int64_t)v : (int64_t)(v << (64 - bits)) >> (64 - bits);
}

static void hex(struct json *j, const uint8_t *data, size_t size)
{
	struct buf b = { 0 };
	hex_print(&b, data, size, "");
	json_string(j, b.data ? b.data : "");
	buf_free(&b);
}

void typed_raw(struct json *j, const void *data, size_t size)
{
	if (size == 1 || size == 2 || size == 4 || size == 8)
		json_u64(j, little_endian(data, size));
	else
		hex(j, data, size);
}

bool typed_enum_signed(const struct btf_type *t)
{
	bool negative = btf_kflag(t);
	for (uint32_t i = 0; btf_is_enum(t) && i < btf_vlen(t); i++)
		negative |= btf_enum(t)[i].val < 0;
	return negative;
}

static void enumerator(
	struct json *j, const struct btf *btf, const struct btf_type *t, uint64_t v, unsigned bits)
{
	int64_t sv = sign_extend(v, bits);
	for (uint32_t i = 0; i < btf_vlen(t); i++) {
		bool is64 = btf_kind(t) == BTF_KIND_ENUM64;
		uint64_t c = is64 ? btf_enum64_value(&btf_enum64(t)[i])
				  : (uint64_t)(int64_t)btf_enum(t)[i].val;
		if (sign_extend(c, bits) == sv) {
			json_string(j, name_at(btf, is64 ? btf_enum64(t)[i].name_off
							 : btf_enum(t)[i].name_off));
			return;
		}
	}
	if (typed_enum_signed(t))
		json_i64(j, sv);
	else
		json_u64(j, v);
}

/* An integer of `bits` bits whose lowest is at bit `shift` of v's bytes. */
static void integer(
	struct json *j, const struct btf *btf, const struct btf_type *t, uint64_t v, unsigned bits)
{
	if (bits < 64)
		v &= (1ull << bits) - 1;
	if (btf_is_any_enum(t))
		enumerator(j, btf, t, v, bits);
	else if (btf_int_encoding(t) & BTF_INT_BOOL)
		json_bool(j, v != 0);
	else if (btf_int_encoding(t) & BTF_INT_SIGNED)
		json_i64(j, sign_extend(v, bits));
	else
		json_u64(j, v);
}

static void bitfield(struct json *j, const struct btf *btf, uint32_t id, const uint8_t *data,
	size_t size, uint32_t bit, uint32_t bits)
{
	const struct btf_type *t = typed_resolve(btf, id);
	uint32_t first = bit / 8, last = (bit + bits + 7) / 8;
	if (!t || !(btf_is_int(t) || btf_is_any_enum(t)) || bits > 64 || last > size ||
		last < first) {
		json_null(j);
		return;
	}
	uint64_t v = 0;
	for (uint32_t i = 0; i < bits; i++)
		v |= (uint64_t)(data[(bit + i) / 8] >> ((bit + i) % 8) & 1) << i;
	integer(j, btf, t, v, bits);
}

static void members(struct json *j, const struct btf *btf, const struct btf_type *t,
	const uint8_t *data, size_t size, int depth)
{
	const struct btf_member *m = btf_members(t);
	for (uint32_t i = 0; i < btf_vlen(t) && j->out->len < MAX_TEXT; i++) {
		uint32_t bit = btf_member_bit_offset(t, i), bits = btf_member_bitfield_size(t, i);
		const char *name = name_at(btf, m[i].name_off);
		const struct btf_type *mt = typed_resolve(btf, m[i].type);
		if (!*name && mt && btf_is_composite(mt) && depth < MAX_DEPTH) {
			if (bit / 8 <= size)
				members(j, btf, mt, data + bit / 8, size - bit / 8, depth + 1);
			continue;
		}
		if (!*name)
			continue; /* padding */
		json_key(j, name);
		if (bits)
			bitfield(j, btf, m[i].type, data, size, bit, bits);
		else if (bit / 8 <= size)
			value(j, btf, m[i].type, data + bit / 8, size - bit / 8, depth + 1);
		else
			json_null(j);
	}
}

/* `char x[N]` that holds text: printable up to a NUL, zeros after it. */
static bool is_text(
	const struct btf *btf, const struct btf_type *elem, const uint8_t *data, size_t n)
{
	if (!elem || !btf_is_int(elem) || elem->size != 1 ||
		strcmp(name_at(btf, elem->name_off), "char"))
		return false;
	size_t len = strnlen((const char *)data, n);
	for (size_t i = 0; i < len; i++)
		if (data[i] < 0x20 && data[i] != '\n' && data[i] != '\t')
			return false;
	for (size_t i = len; i < n; i++)
		if (data[i])
			return false;
	return true;
}

static void array(struct json *j, const struct btf *btf, const struct btf_type *t,
	const uint8_t *data, size_t size, int depth)
{
	const struct btf_array *a = btf_array(t);
	const struct btf_type *elem = typed_resolve(btf, a->type);
	int64_t step = btf__resolve_size(btf, a->type);
	if (step <= 0 || !a->nelems) {
		json_array(j);
		json_array_end(j);
		return;
	}
	size_t n = size / (size_t)step;
	if (n > a->nelems)
		n = a->nelems;
	if (is_text(btf, elem, data, n)) {
		json_string_n(j, (const char *)data, strnlen((const char *)data, n));
		return;
	}
	json_array(j);
	for (size_t i = 0; i < n && j->out->len < MAX_TEXT; i++)
		value(j, btf, a->type, data + i * (size_t)step, (size_t)step, depth + 1);
	json_array_end(j);
}

static void floating(struct json *j, const uint8_t *data, uint32_t bytes)
{
	if (bytes == 4) {
		float f;
		memcpy(&f, data, 4);
		json_double(j, (double)f);
	} else if (bytes == 8) {
		double f;
		memcpy(&f, data, 8);
		json_double(j, f);
	} else {
		hex(j, data, bytes);
	}
}

static void value(struct json *j, const struct btf *btf, uint32_t id, const uint8_t *data,
	size_t size, int depth)
{
	const struct btf_type *t = typed_resolve(btf, id);
	if (!t || depth > MAX_DEPTH) {
		typed_raw(j, data, size);
		return;
	}
	bool sized = btf_is_int(t) || btf_is_any_enum(t) || btf_kind(t) == BTF_KIND_FLOAT;
	if (sized && t->size > size) {
		json_null(j);
		return;
	}
	switch (btf_kind(t)) {
	case BTF_KIND_INT:
		if (t->size > 8)
			hex(j, data, t->size);
		else
			integer(j, btf, t, little_endian(data, t->size), 8 * t->size);
		break;
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
		integer(j, btf, t, little_endian(data, t->size), 8 * (t->size > 8 ? 8 : t->size));
		break;
	case BTF_KIND_FLOAT:
		floating(j, data, t->size);
		break;
	case BTF_KIND_PTR:
		typed_raw(j, data, size < 8 ? size : 8);
		break;
	case BTF_KIND_ARRAY:
		array(j, btf, t, data, size, depth);
		break;
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		json_object(j);
		members(j, btf, t, data, size, depth);
		json_object_end(j);
		break;
	default:
		typed_raw(j, data, size);
	}
}

void typed_value(struct json *j, const struct btf *btf, uint32_t id, const void *data, size_t size)
{
	if (btf && id)
		value(j, btf, id, data, size, 0);
	else
		typed_raw(j, data, size);
}

const char *typed_section_name(const struct btf *btf, uint32_t id)
{
	const struct btf_type *t = btf && id ? btf__type_by_id(btf, id) : NULL;
	return t && btf_is_datasec(t) ? name_at(btf, t->name_off) : NULL;
}

bool typed_section_var(const struct btf *btf, uint32_t id, uint32_t i, struct typed_var *out)
{
	const struct btf_type *t = btf && id ? btf__type_by_id(btf, id) : NULL;
	if (!t || !btf_is_datasec(t) || i >= btf_vlen(t))
		return false;
	const struct btf_var_secinfo *v = &btf_var_secinfos(t)[i];
	const struct btf_type *var = btf__type_by_id(btf, v->type);
	bool good = var && btf_is_var(var);
	*out = (struct typed_var){ good ? name_at(btf, var->name_off) : "?", good ? var->type : 0,
		v->offset, v->size };
	return true;
}
