/* cases.h - reading conformance data: one JSON object a line, programs and memory as hex. */
#ifndef EGPU_TEST_CASES_H
#define EGPU_TEST_CASES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
