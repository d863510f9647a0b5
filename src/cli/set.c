/* set.c - see set.h. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/near.h"
#include "cli/set.h"
#include "cli/typed.h"

enum { MAX_NAMES = 256 };

struct place {
	const struct btf *btf;
	struct typed_var var;
	uint8_t *data; /* of the variable */
};

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), t = strlen(tail);
	return n >= t && !strcmp(s + n - t, tail);
}

/* The initial value of a section's map; libbpf names it after object and section. */
static uint8_t *section_data(struct bpf_object *obj, const char *section, size_t *size)
{
	struct bpf_map *map;
	bpf_object__for_each_map(
		map, obj) if (bpf_map__is_internal(map) &&
			      ends_with(bpf_map__name(map),
				      section)) return (uint8_t *)bpf_map__initial_value(map, size);
	return NULL;
}

static int unknown(const char *want, const char *const *names, size_t n, struct diag *d)
{
	const char *best[3];
	size_t near = near_any(want, names, n, best, 3);
	if (!near)
		return diag_set(d, ENOENT,
			"the probe has no global variable '%s': it has none at all", want);
	return diag_set(d, ENOENT, "the probe has no global variable '%s'; nearest: %s%s%s", want,
		best[0], near > 1 ? ", " : "", near > 1 ? best[1] : "");
}

static int find(struct bpf_object *obj, const char *name, struct place *out, struct diag *d)
{
	const char *names[MAX_NAMES];
	size_t n = 0;
	out->btf = bpf_object__btf(obj);
	if (!out->btf)
		return diag_set(d, ENOENT,
			"the probe has no BTF that says where '%s' is: compile it with -g", name);
	for (uint32_t id = 1; id < btf__type_cnt(out->btf); id++) {
		const char *section = typed_section_name(out->btf, id);
		for (uint32_t i = 0; section && typed_section_var(out->btf, id, i, &out->var);
			i++) {
			size_t size = 0;
			uint8_t *data = section_data(obj, section, &size);
			if (!data)
				continue; /* .maps, license */
			if (strcmp(out->var.name, name)) {
				if (n < MAX_NAMES)
					names[n++] = out->var.name;
				continue;
			}
			if (out->var.offset > size || out->var.size > size - out->var.offset)
				return diag_set(d, EINVAL, "'%s' lies outside its section %s", name,
					section);
			out->data = data + out->var.offset;
			return 0;
		}
	}
	return unknown(name, names, n, d);
}

static bool enum_constant(
	const struct btf *btf, const struct btf_type *t, const char *text, uint64_t *v)
{
	for (uint32_t i = 0; i < btf_vlen(t); i++) {
		bool is64 = btf_kind(t) == BTF_KIND_ENUM64;
		const char *name = btf__name_by_offset(
			btf, is64 ? btf_enum64(t)[i].name_off : btf_enum(t)[i].name_off);
		if (!name || strcmp(name, text))
			continue;
		*v = is64 ? btf_enum64_value(&btf_enum64(t)[i])
			  : (uint64_t)(int64_t)btf_enum(t)[i].val;
		return true;
	}
	return false;
}

static int parse_number(
	const char *text, uint32_t bytes, bool is_signed, uint64_t *v, struct diag *d)
{
	char *end;
	bool negative = *text == '-';
	errno = 0;
	*v = negative ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
	if (!*text || *end || (*text != '-' && (*text < '0' || *text > '9')))
		return diag_set(d, EINVAL, "'%s' is no integer (write 12, -3 or 0x1f)", text);
	if (negative && !is_signed)
		return diag_set(d, ERANGE, "'%s' is negative but the variable is unsigned", text);
	unsigned bits = 8 * bytes;
	uint64_t most = is_signed    ? (1ull << (bits - 1)) - 1
			: bits == 64 ? UINT64_MAX
				     : (1ull << bits) - 1;
	bool fits = negative ? (int64_t)*v >= -(int64_t)most - 1 : *v <= most;
	return errno || !fits ? diag_set(d, ERANGE, "'%s' does not fit %u bits", text, bits) : 0;
}

static int assign_scalar(
	const struct place *p, const struct btf_type *t, const char *text, struct diag *d)
{
	uint64_t v = 0;
	bool is_enum = btf_is_any_enum(t);
	bool is_bool = !is_enum && btf_int_encoding(t) & BTF_INT_BOOL;
	bool is_signed = is_enum ? typed_enum_signed(t) : btf_int_encoding(t) & BTF_INT_SIGNED;
	if (t->size > 8 || t->size > p->var.size)
		return diag_set(d, EINVAL, "its type is wider than 64 bits");
	if (is_bool && (!strcmp(text, "true") || !strcmp(text, "false"))) {
		v = *text == 't';
	} else if (!is_enum || !enum_constant(p->btf, t, text, &v)) {
		int err = parse_number(text, t->size, is_signed, &v, d);
		if (err)
			return err;
		if (is_bool && v > 1) /* compilers count on it */
			return diag_set(d, ERANGE, "'%s' is neither true nor false, nor 1 or 0", text);
	}
	for (uint32_t i = 0; i < t->size; i++)
		p->data[i] = (uint8_t)(v >> (8 * i));
	return 0;
}

static int assign_text(
	const struct place *p, const struct btf_type *t, const char *text, struct diag *d)
{
	const struct btf_type *elem = typed_resolve(p->btf, btf_array(t)->type);
	size_t room = btf_array(t)->nelems < p->var.size ? btf_array(t)->nelems : p->var.size;
	if (!elem || !btf_is_int(elem) || elem->size != 1)
		return diag_set(d, EINVAL, "only integers, enums and char arrays can be set");
	if (strlen(text) >= room)
		return diag_set(
			d, ERANGE, "'%s' does not fit its %zu bytes with the zero at its end", text, room);
	memset(p->data, 0, room);
	memcpy(p->data, text, strlen(text));
	return 0;
}

int set_typed(const struct btf *btf, const struct typed_var *var, uint8_t *data, const char *text,
	struct diag *d)
{
	struct place p = { .btf = btf, .var = *var, .data = data };
	const struct btf_type *t = typed_resolve(btf, var->type);
	if (t && btf_is_var(t))
		t = typed_resolve(btf, t->type);
	if (t && (btf_is_int(t) || btf_is_any_enum(t)))
		return assign_scalar(&p, t, text, d);
	if (t && btf_is_array(t))
		return assign_text(&p, t, text, d);
	return diag_set(d, EINVAL, "only integers, enums and char arrays can be set");
}

int set_variable(struct bpf_object *obj, const char *assignment, struct diag *d)
{
	const char *equals = strchr(assignment, '=');
	struct place p = { 0 };
	if (!equals || equals == assignment)
		return diag_set(d, EINVAL, "write it as VARIABLE=VALUE");
	char *name = strndup(assignment, (size_t)(equals - assignment));
	int err = name ? find(obj, name, &p, d) : diag_set(d, ENOMEM, "out of memory");
	free(name);
	return err ? err : set_typed(p.btf, &p.var, p.data, equals + 1, d);
}
