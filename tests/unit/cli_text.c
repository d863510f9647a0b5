/* What the command prints: JSON with exact integers, tables, near names, trace formats. */
#include <math.h>

#include "cli/grid.h"
#include "cli/json.h"
#include "cli/near.h"
#include "cli/names.h"
#include "cli/trace.h"
#include "tap.h"

static void test_json(void)
{
	struct buf b = { 0 };
	struct json j;
	json_init(&j, &b, JSON_PRETTY);
	json_object(&j);
	json_put_u64(&j, "most", UINT64_MAX);
	json_key(&j, "least");
	json_i64(&j, INT64_MIN);
	json_key(&j, "list");
	json_array(&j);
	json_bool(&j, true);
	json_null(&j);
	json_double(&j, INFINITY);
	json_array_end(&j);
	json_key(&j, "empty");
	json_object(&j);
	json_object_end(&j);
	json_object_end(&j);
	is_str(b.data,
		"{\n  \"most\": 18446744073709551615,\n  \"least\": -9223372036854775808,\n  "
		"\"list\": [\n    true,\n    null,\n"
		"    null\n  ],\n  \"empty\": {}\n}",
		"integers are exact to 64 bits, both signs; no number stands for infinity");
	buf_free(&b);
	json_init(&j, &b, JSON_TEXT);
	json_object(&j);
	json_put_string(&j, "a", "x\"\\\n\x01");
	json_put_string(&j, "b", "\xc3\xa9 \xff \xc0\x80 \xed\xa0\x80");
	json_object_end(&j);
	is_str(b.data,
		"{ a = \"x\\\"\\\\\\n\\u0001\", b = \"\xc3\xa9 \\ufffd \\ufffd\\ufffd "
		"\\ufffd\\ufffd\\ufffd\" }",
		"text style; what is no UTF-8 is replaced, overlong forms and surrogates included");
	buf_free(&b);
}

static void test_near(void)
{
	static const char *const names[] = { "vecadd", "scale", "reduce", "vector_add_kernel" };
	const char *best[3];
	is_int(near_distance("vecadd", "vecda d"), 2, "a swap is one edit, an insertion another");
	is_int(near_distance("ABC", "abc"), 0, "case does not count");
	is_int(near_distance("", "abc"), 3, "from nothing");
	is_int(near_names("vecad", names, 4, best, 3), 1, "one name is near");
	is_str(best[0], "vecadd", "the right one");
	is_int(near_names("xyzzy", names, 4, best, 3), 0, "nothing is near");
	is_int(near_any("xyzzy", names, 4, best, 3), 3, "the nearest anyway");
	is_int(near_names("add", names, 4, best, 3), 2, "a part of a name is near it");
	char lng[1000];
	memset(lng, 'a', sizeof(lng) - 1);
	lng[sizeof(lng) - 1] = 0;
	is_int(near_distance(lng, "b"), 128, "long names are cut");
}

static void test_grid(void)
{
	static const char *const heads[] = { "<NAME", ">N", NULL };
	struct grid *g = grid_new(heads);
	struct buf b = { 0 };
	grid_cell(g, "a\tb");
	grid_cell(g, "%d", 12345);
	grid_cell(g, "\xc3\xa9t\xc3\xa9");
	grid_cell(g, "%d", 7);
	grid_print(g, "  ", &b);
	is_str(b.data, "  NAME      N\n  a?b   12345\n  \xc3\xa9t\xc3\xa9       7\n",
		"columns align, in characters, and hold no control bytes");
	buf_free(&b);
	grid_free(g);
}

static void trace_is(const char *fmt, const uint64_t *args, unsigned n, const char *want)
{
	struct buf b = { 0 };
	trace_format(fmt, strlen(fmt) + 1, args, n, &b);
	is_str(b.data ? b.data : "", want, "trace %s", want);
	buf_free(&b);
}

static void test_trace(void)
{
	const uint64_t a[] = { 0xfffffffffffffffeull, 255, 3 };
	trace_is("d=%d u=%u x=%x", a, 3, "d=-2 u=255 x=3");
	trace_is("%lld %llu %lx", a, 3, "-2 255 3");
	trace_is("%u", a, 1, "4294967294");
	trace_is("%hhd %5d|%-5d|", a, 3, "-2   255|3    |");
	trace_is("100%% %s %d", a, 2, "100% %s 255");
	trace_is("%p %08llx", a, 2, "0xfffffffffffffffe 000000ff");
	trace_is("%d %d %d %d", a, 3, "-2 255 3 0");
	trace_is("%n%99999999d", a, 1,
		"%n                                                              -2");
	trace_is("end %", a, 1, "end %");
	trace_is("end %ll", a, 1, "end %ll");
	struct buf b = { 0 };
	trace_format("abc", 2, NULL, 0, &b);
	is_str(b.data, "ab", "a format without its NUL ends with its bytes");
	buf_free(&b);
}

static void test_names(void)
{
	struct arena *a = arena_new();
	const char *m = "_ZN2ns5scaleIfEEvPT_i";
	is_str(name_demangle(a, m), "void ns::scale<float>(float*, int)",
		"demangled with parameters");
	is_str(name_short(a, m, 40), "ns::scale<float>", "without");
	is_str(name_short(a, m, 12), "ns::sc..oat>", "cut in the middle");
	is_str(name_base(a, m), "scale", "base name");
	is_str(name_base(a, "plain"), "plain", "C name");
	is_str(name_demangle(a, "_Znonsense"), "_Znonsense", "not a mangled name");
	arena_free(a);
}

int main(void)
{
	test_json();
	test_near();
	test_grid();
	test_trace();
	test_names();
	return tap_done();
}
