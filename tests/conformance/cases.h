/* cases.h - reading conformance data: one JSON object a line, programs and memory as hex. */
#ifndef EGPU_TEST_CASES_H
#define EGPU_TEST_CASES_H

#include "bpf/program.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Why we differ on purpose in this case (known.txt: "KIND NAME REASON"); NULL: we should not. */
__attribute__((unused)) static const char *case_known(const char *kind, const char *name)
{
	static char line[300];
	FILE *f = fopen(CONFORMANCE_DIR "/known.txt", "r");
	size_t k = strlen(kind), n = strlen(name);
	const char *found = NULL;
	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, kind, k) && line[k] == ' ' && !strncmp(line + k + 1, name, n) && line[k + 1 + n] == ' ')
			found = line + k + n + 2;
	}
	if (f)
		fclose(f);
	return found;
}

/* Bytes of a hex string, malloc'ed and never NULL; *n of them. Exits on malformed data: the data is the test's own. */
__attribute__((unused)) static uint8_t *case_hex(const char *hex, size_t *n)
{
	*n = strlen(hex) / 2;
	uint8_t *out = calloc(*n / 8 + 2, 8);
	for (size_t i = 0; i < *n; i++) {
		unsigned byte;
		if (!out || sscanf(hex + 2 * i, "%2x", &byte) != 1) {
			fprintf(stderr, "malformed hex in the data\n");
			exit(2);
		}
		out[i] = (uint8_t)byte;
	}
	return out;
}

__attribute__((unused)) static const char *case_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

/* Its maps, as references of the program's instructions: *bad when one cannot be resolved. Instructions are changed in place. */
struct case_maps {
	struct ebpf_map map[EBPF_MAX_MAPS];
	const char *initial[EBPF_MAX_MAPS]; /* of entry 0, as hex; "" for zeros */
	uint32_t n;
};

__attribute__((unused)) static int case_map(struct case_maps *m, const json_t *defs, const char *name)
{
	for (uint32_t k = 0; k < m->n; k++)
		if (!strcmp(m->map[k].name, name))
			return (int)k;
	const json_t *def = json_object_get(defs, name);
	if (!def || m->n == EBPF_MAX_MAPS)
		return -1;
	uint32_t value[5];
	static const char *const keys[5] = { "type", "key", "value", "max", "flags" };
	for (int k = 0; k < 5; k++)
		value[k] = (uint32_t)json_integer_value(json_object_get(def, keys[k]));
	m->map[m->n] = (struct ebpf_map){ .name = name, .type = value[0], .key_size = value[1], .value_size = value[2], .max_entries = value[3],
		.flags = value[4], .id = m->n };
	const char *bytes = json_string_value(json_array_get(json_array_get(json_object_get(def, "init"), 0), 1));
	m->initial[m->n] = bytes ? bytes : "";
	return (int)m->n++;
}

/* The program of a verdict case, in a memory context. False: a map reference leads nowhere. */
__attribute__((unused)) static bool case_program(const json_t *o, struct case_maps *m, struct ebpf_program *p)
{
	const json_t *use;
	size_t bytes, k;
	bool fine = true;
	memset(m, 0, sizeof(*m));
	*p = (struct ebpf_program){ .name = case_text(o, "id"), .insns = (struct bpf_insn *)case_hex(case_text(o, "insns"), &bytes),
		.n_insns = (uint32_t)(bytes / 8), .context = EBPF_CONTEXT_MEM, .maps = m->map };
	json_array_foreach(json_object_get(o, "maps"), k, use) {
		uint32_t at = (uint32_t)json_integer_value(json_array_get(use, 0));
		int index = case_map(m, json_object_get(o, "map_defs"), json_string_value(json_array_get(use, 1)));
		if (index < 0 || at >= p->n_insns)
			fine = false;
		else
			p->insns[at].imm = index;
	}
	p->n_maps = m->n;
	return fine;
}

/* Calls `each` with every record of the file. Returns false when the file cannot be read. */
__attribute__((unused)) static bool case_each(const char *path, void (*each)(const json_t *o))
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0;
	if (!f)
		return false;
	while (getline(&line, &cap, f) > 0) {
		json_error_t err;
		json_t *o = json_loads(line, 0, &err);
		if (!o) {
			fprintf(stderr, "%s: %s\n", path, err.text);
			exit(2);
		}
		each(o);
		json_decref(o);
	}
	free(line);
	fclose(f);
	return true;
}

#endif
