/* The base floor: arena growth, string table, buffers, sticky diagnostics. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "base/table.h"
#include "tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static void test_arena(void)
{
	struct arena *a = arena_new();
	char *big = arena_alloc(a, 200000);
	ok(big && big[0] == 0 && big[199999] == 0, "an allocation larger than a chunk is zeroed");
	ok(arena_array(a, SIZE_MAX / 2, 4) == NULL, "an overflowing array is refused");
	is_str(arena_printf(a, "%s-%d", "x", 7), "x-7", "arena_printf formats");
	int *v = NULL;
	size_t cap = 0;
	for (int i = 0; i < 1000; i++) {
		v = arena_grow(a, v, (size_t)i, &cap, sizeof(*v));
		v[i] = i;
	}
	is_int(v[999] + v[0] + v[500], 1499, "arena_grow keeps what was there");
	arena_free(a);
}

/* The plain formats are buf.c's own: they must say what printf does. */
#define SAME(fmt, ...)                                                                             \
	do {                                                                                       \
		struct buf b = { 0 };                                                              \
		char wanted[256];                                                                  \
		snprintf(wanted, sizeof(wanted), fmt, __VA_ARGS__);                                \
		buf_printf(&b, fmt, __VA_ARGS__);                                                  \
		is_str(b.data, wanted, "%s", "as printf does: " #fmt);                             \
		is_int(b.len, strlen(wanted), "%s", "and as long: " #fmt);                         \
		buf_free(&b);                                                                      \
	} while (0)

static void test_printing(void)
{
	SAME("%d", 0);
	SAME("%d %d", INT_MAX, INT_MIN);
	SAME("%d%d|%d", -1, 10, -10);
	SAME("%u, %u", 0u, UINT_MAX);
	SAME("%s%s", "", "a");
	SAME("%%%s%% %d%%", "%d", 7);
	SAME("%s: %5d", "with a width", 3);
	SAME("%d %lld", -2, LLONG_MIN);
	SAME("0x%x %llu", 255u, ULLONG_MAX);
	SAME("%s at the end %%", "x");
	SAME("a long one: %s%s%s", "0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789", "end");
}

static void test_table(void)
{
	struct table *t = table_new();
	static int values[5000];
	char key[32];
	for (int i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "key%d", i);
		table_puts(t, key, &values[i]);
	}
	is_int(table_count(t), 5000, "every key is counted once");
	ok(table_gets(t, "key4321") == &values[4321], "a key finds its value");
	ok(table_gets(t, "key5000") == NULL, "an absent key finds nothing");
	ok(table_remove(t, "key7", 4) == &values[7] && !table_gets(t, "key7"), "a removed key is gone");
	size_t pos = 0, n = 0;
	while (table_next(t, &pos, NULL, NULL))
		n++;
	is_int(n, 4999, "iteration visits every entry");
	table_free(t);
}

int main(void)
{
	test_arena();
	test_table();
	test_printing();
	struct buf b = { 0 };
	for (int i = 0; i < 1000; i++)
		buf_printf(&b, "%d,", i);
	is_int(b.len, 3890, "a buffer grows");
	buf_free(&b);
	struct diag d = { 0 };
	is_int(diag_set_at(&d, EINVAL, 3, 4, "first"), -EINVAL, "diag_set_at returns -errno");
	diag_set(&d, ENOMEM, "second");
	is_str(d.text, "first", "the first diagnostic sticks");
	return tap_done();
}
