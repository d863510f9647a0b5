/* btfcheck.c - see btfcheck.h. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cli/btfcheck.h"

enum { MAX_CHAIN = 64 };

struct checker {
	const struct btf *btf;
	uint32_t n; /* types, void included */
	uint32_t id;
	struct diag *d;
};

static int bad(const struct checker *c, const char *what, uint32_t value)
{
	return diag_set(c->d, EINVAL, "damaged BTF: type %u has %s %u, which does not exist", c->id,
		what, value);
}

static int type_ok(const struct checker *c, uint32_t id)
{
	return id < c->n ? 0 : bad(c, "a reference to type", id);
}

static int name_ok(const struct checker *c, uint32_t off)
{
	return btf__name_by_offset(c->btf, off) ? 0 : bad(c, "a name at offset", off);
}

static int kind_ok(const struct checker *c, uint32_t id, uint32_t kind)
{
	if (type_ok(c, id))
		return -EINVAL;
	return btf_kind(btf__type_by_id(c->btf, id)) == kind
		       ? 0
		       : bad(c, "a reference to the wrong kind of type, number", id);
}

static int members_ok(const struct checker *c, const struct btf_type *t)
{
	const struct btf_member *m = btf_members(t);
	int err = 0;
	for (uint32_t i = 0; i < btf_vlen(t) && !err; i++) {
		err = name_ok(c, m[i].name_off);
		err = err ? err : type_ok(c, m[i].type);
		if (!err && btf_member_bit_offset(t, i) / 8 > t->size)
			err = bad(c, "a member at bit", btf_member_bit_offset(t, i));
	}
	return err;
}

static int params_ok(const struct checker *c, const struct btf_type *t)
{
	const struct btf_param *p = btf_params(t);
	int err = type_ok(c, t->type);
	for (uint32_t i = 0; i < btf_vlen(t) && !err; i++) {
		err = name_ok(c, p[i].name_off);
		err = err ? err : type_ok(c, p[i].type);
	}
	return err;
}

static int section_ok(const struct checker *c, const struct btf_type *t)
{
	const struct btf_var_secinfo *v = btf_var_secinfos(t);
	int err = 0;
	for (uint32_t i = 0; i < btf_vlen(t) && !err; i++) {
		uint32_t kind = v[i].type < c->n ? btf_kind(btf__type_by_id(c->btf, v[i].type)) : 0;
		if (kind != BTF_KIND_VAR && kind != BTF_KIND_FUNC)
			err = bad(c, "a variable of type", v[i].type);
	}
	return err;
}

static int enums_ok(const struct checker *c, const struct btf_type *t)
{
	int err = 0;
	for (uint32_t i = 0; i < btf_vlen(t) && !err; i++)
		err = name_ok(c, btf_kind(t) == BTF_KIND_ENUM64 ? btf_enum64(t)[i].name_off
								: btf_enum(t)[i].name_off);
	return err;
}

static int references_ok(const struct checker *c, const struct btf_type *t)
{
	switch (btf_kind(t)) {
	case BTF_KIND_PTR:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_TYPE_TAG:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return type_ok(c, t->type);
	case BTF_KIND_ARRAY:
		return type_ok(c, btf_array(t)->type) ? -EINVAL
						      : type_ok(c, btf_array(t)->index_type);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return members_ok(c, t);
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
		return enums_ok(c, t);
	case BTF_KIND_FUNC:
		return kind_ok(c, t->type, BTF_KIND_FUNC_PROTO);
	case BTF_KIND_FUNC_PROTO:
		return params_ok(c, t);
	case BTF_KIND_DATASEC:
		return section_ok(c, t);
	default:
		return 0;
	}
}

/* The way through qualifiers, typedefs and arrays to a type with a size of its own; references are
 * known to be good. */
static int chain_ok(const struct checker *c)
{
	uint32_t id = c->id;
	for (int i = 0; i < MAX_CHAIN; i++) {
		const struct btf_type *t = btf__type_by_id(c->btf, id);
		if (btf_is_array(t))
			id = btf_array(t)->type;
		else if (btf_is_mod(t) || btf_is_typedef(t) || btf_is_var(t))
			id = t->type;
		else
			return 0;
	}
	return diag_set(c->d, EINVAL, "damaged BTF: type %u is defined by itself", c->id);
}

int btf_check(const void *blob, size_t size, struct diag *d)
{
	struct btf *btf = size <= UINT32_MAX ? btf__new(blob, (uint32_t)size) : NULL;
	if (!btf)
		return diag_set(d, EINVAL, "damaged BTF: its header or a type's size is wrong");
	struct checker c = { .btf = btf, .n = btf__type_cnt(btf), .d = d };
	int err = 0;
	for (c.id = 1; c.id < c.n && !err; c.id++) {
		const struct btf_type *t = btf__type_by_id(btf, c.id);
		err = name_ok(&c, t->name_off);
		err = err ? err : references_ok(&c, t);
	}
	for (c.id = 1; c.id < c.n && !err; c.id++)
		err = chain_ok(&c);
	btf__free(btf);
	return err;
}
