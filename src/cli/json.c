/* json.c - the JSON writer. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/json.h"

void json_init(struct json *j, struct buf *out, enum json_style style)
{
	*j = (struct json){ .out = out, .style = style, .first = true };
}

static void new_line(struct json *j)
{
	if (j->style == JSON_TEXT || !j->depth)
		return;
	buf_puts(j->out, "\n");
	for (int i = 0; i < j->depth; i++)
		buf_puts(j->out, "  ");
}

/* Comma and line break before a value or a key. */
static void separate(struct json *j)
{
	if (j->after_key) {
		j->after_key = false;
		return;
	}
	if (!j->first)
		buf_puts(j->out, j->style == JSON_TEXT ? ", " : ",");
	j->first = false;
	new_line(j);
}

static void begin(struct json *j, const char *bracket)
{
	separate(j);
	buf_puts(j->out, bracket);
	j->depth++;
	j->first = true;
}

static void end(struct json *j, const char *bracket)
{
	bool empty = j->first;
	j->depth--;
	j->first = false;
	if (!empty && j->style == JSON_PRETTY) {
		buf_puts(j->out, "\n");
		for (int i = 0; i < j->depth; i++)
			buf_puts(j->out, "  ");
	}
	buf_puts(j->out, bracket);
}

void json_object(struct json *j)
{
	begin(j, j->style == JSON_TEXT ? "{ " : "{");
}

void json_object_end(struct json *j)
{
	end(j, j->style == JSON_TEXT ? " }" : "}");
}

void json_array(struct json *j)
{
	begin(j, "[");
}

void json_array_end(struct json *j)
{
	end(j, "]");
}

/* Length of the UTF-8 sequence at s, 0 when it is none (also: overlong, surrogate, above U+10FFFF).
 */
static size_t utf8_length(const unsigned char *s, size_t n)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len = s[0] < 0x80       ? 1
		     : s[0] >> 5 == 6  ? 2
		     : s[0] >> 4 == 14 ? 3
		     : s[0] >> 3 == 30 ? 4
				       : 0;
	if (!len || len > n)
		return 0;
	uint32_t c = len == 1 ? s[0] : s[0] & (0xff >> (len + 1));
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : len;
}

static void quoted(struct buf *out, const char *s, size_t n)
{
	buf_puts(out, "\"");
	for (size_t i = 0; i < n;) {
		unsigned char c = (unsigned char)s[i];
		size_t len = utf8_length((const unsigned char *)s + i, n - i);
		if (c == '"' || c == '\\')
			buf_printf(out, "\\%c", c);
		else if (c == '\n')
			buf_puts(out, "\\n");
		else if (c == '\t')
			buf_puts(out, "\\t");
		else if (c < 0x20 || c == 0x7f)
			buf_printf(out, "\\u%04x", c);
		else if (len)
			buf_add(out, s + i, len);
		else
			buf_puts(out, "\\ufffd");
		i += len ? len : 1;
	}
	buf_puts(out, "\"");
}

void json_key(struct json *j, const char *key)
{
	separate(j);
	if (j->style == JSON_TEXT) {
		buf_printf(j->out, "%s = ", key);
	} else {
		quoted(j->out, key, strlen(key));
		buf_puts(j->out, ": ");
	}
	j->after_key = true;
}

void json_u64(struct json *j, uint64_t v)
{
	separate(j);
	buf_printf(j->out, "%" PRIu64, v);
}

void json_i64(struct json *j, int64_t v)
{
	separate(j);
	buf_printf(j->out, "%" PRId64, v);
}

void json_double(struct json *j, double v)
{
	if (!isfinite(v) && j->style == JSON_PRETTY) {
		json_null(j);
		return;
	}
	separate(j);
	buf_printf(j->out, "%.17g", v);
}

void json_bool(struct json *j, bool v)
{
	separate(j);
	buf_puts(j->out, v ? "true" : "false");
}

void json_string_n(struct json *j, const char *s, size_t n)
{
	separate(j);
	quoted(j->out, s, n);
}

void json_string(struct json *j, const char *s)
{
	if (s)
		json_string_n(j, s, strlen(s));
	else
		json_null(j);
}

void json_null(struct json *j)
{
	separate(j);
	buf_puts(j->out, "null");
}

void json_put_u64(struct json *j, const char *key, uint64_t v)
{
	json_key(j, key);
	json_u64(j, v);
}

void json_put_three(struct json *j, const char *key, const uint32_t v[3])
{
	json_key(j, key);
	json_array(j);
	for (int i = 0; i < 3; i++)
		json_u64(j, v[i]);
	json_array_end(j);
}

void json_put_string(struct json *j, const char *key, const char *s)
{
	json_key(j, key);
	json_string(j, s);
}

void json_put_bool(struct json *j, const char *key, bool v)
{
	json_key(j, key);
	json_bool(j, v);
}
