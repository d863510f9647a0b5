/* json.h - writing JSON whose integers are exact 64-bit, signed and unsigned.
 *
 * A writer appends to a buffer; commas and indentation are its business. In TEXT style the same
 * calls give the form that reports show for map values: { count = 3, name = "x" }. Written here
 * because jansson has no unsigned 64-bit integer: a counter above 2^63 would come out negative.
 */
#ifndef EGPU_CLI_JSON_H
#define EGPU_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum json_style { JSON_PRETTY, JSON_TEXT };

struct json {
	struct buf *out;
	enum json_style style;
	int depth;
	bool first;     /* nothing written at this depth yet */
	bool after_key; /* the next value follows its key */
};

void json_init(struct json *j, struct buf *out, enum json_style style);
void json_object(struct json *j);
void json_object_end(struct json *j);
void json_array(struct json *j);
void json_array_end(struct json *j);
void json_key(struct json *j, const char *key);
void json_u64(struct json *j, uint64_t v);
void json_i64(struct json *j, int64_t v);
void json_double(struct json *j, double v); /* null when it is not finite */
void json_bool(struct json *j, bool v);
/* Bytes that are not UTF-8 become U+FFFD. NULL gives null. */
void json_string(struct json *j, const char *s);
void json_string_n(struct json *j, const char *s, size_t n);
void json_null(struct json *j);

/* Key and value at once. */
void json_put_u64(struct json *j, const char *key, uint64_t v);
void json_put_three(struct json *j, const char *key, const uint32_t v[3]);
void json_put_string(struct json *j, const char *key, const char *s);
void json_put_bool(struct json *j, const char *key, bool v);

#endif
