/* typed.h - bytes as values of a BTF type. */
#ifndef EGPU_CLI_TYPED_H
#define EGPU_CLI_TYPED_H

#include <bpf/btf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/json.h"

/* Writes the value of type `id` at data. Structs and unions become objects with their field names,
 * arrays of char strings, enums their constant's name. What the type does not cover, or lies beyond
 * size, is written as hex. The BTF may be anything that btf__new accepted. */
void typed_value(struct json *j, const struct btf *btf, uint32_t id, const void *data, size_t size);
/* Without a type: 1, 2, 4 and 8 bytes as an unsigned integer, else hex. */
void typed_raw(struct json *j, const void *data, size_t size);

/* An enum's sign: older compilers do not say it, but one with a negative constant has one. */
bool typed_enum_signed(const struct btf_type *t);

/* A global variable: where it lies in its section's map value. */
struct typed_var {
	const char *name;
	uint32_t type, offset, size;
};
/* Variable i of a section (DATASEC) type; false past the last, or when `id` is no section. */
bool typed_section_var(const struct btf *btf, uint32_t id, uint32_t i, struct typed_var *out);
/* ".bss" when id is a section, else NULL. */
const char *typed_section_name(const struct btf *btf, uint32_t id);
/* Through typedefs and qualifiers to the type itself, NULL when there is none. */
const struct btf_type *typed_resolve(const struct btf *btf, uint32_t id);

#endif
