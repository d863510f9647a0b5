/* Shared variables are declared as aligned as their sizes allow without padding, and the proof lets nothing else pass. */
#include "tap.h"

#include <errno.h>

#include "instrument/instrument.h"
#include "instrument/readback.h"

static const char head[] = ".version 7.0\n.target sm_75\n.address_size 64\n";
static const char tail[] = ".visible .entry k()\n{\n\t.reg .b32 %%r<4>;\n%s\tmov.u32 %%r1, a;\n\tld.shared.u32 %%r2, [%%r1];\n\tret;\n}\n";

/* The variant of a module with these variables outside and inside of the kernel; NULL and a line when there is none. */
static const char *variant(struct arena *arena, const char *outside, const char *inside)
{
	struct buf b = { 0 };
	struct ptx_module *m = NULL;
	struct diag d = { 0 };
	struct instrument_result r;
	buf_puts(&b, head);
	buf_puts(&b, outside);
	buf_printf(&b, tail, inside);
	struct instrument_request req = { .kernel = "k" };
	const char *text = NULL;
	if (ptx_parse(b.data, b.len, &m, &d))
		printf("# parse: %s\n", d.text);
	req.module = m;
	if (m && instrument_kernel(arena, &req, &r, &d))
		printf("# %s\n", d.text);
	else if (m)
		text = r.ptx;
	ptx_module_free(m);
	buf_free(&b);
	return text;
}

static void has(const char *outside, const char *inside, const char *want, const char *what)
{
	struct arena *arena = arena_new();
	const char *text = variant(arena, outside, inside);
	ok(text && strstr(text, want), "%s", what);
	arena_free(arena);
}

/* What proof (a) says of a text in which the variable's alignment is written as `to`. */
static int judged(const char *from, const char *to)
{
	static const char fmt[] = ".version 7.0\n.target sm_75\n.address_size 64\n%s.shared .align %s .b8 a[64];\n"
				  ".visible .entry k()\n{\n\t.reg .b32 %%r<2>;\n\tmov.u32 %%r1, a;\n\tret;\n}\n";
	struct buf source = { 0 }, bound = { 0 };
	struct ptx_module *m = NULL;
	struct diag d = { 0 };
	buf_printf(&source, fmt, "", from);
	char table[80];
	snprintf(table, sizeof(table), ".visible .const .align 8 .u64 __egpu_table[%d];\n", EBPF_TABLE_SYMBOLS);
	buf_printf(&bound, fmt, table, to);
	int err = ptx_parse(source.data, source.len, &m, &d);
	if (!err)
		err = readback_binding(m, "k", bound.data, NULL, 0, &d);
	ptx_module_free(m);
	buf_free(&source);
	buf_free(&bound);
	return err;
}

int main(void)
{
	has(".shared .align 4 .b8 a[64];\n", "", ".shared .align 16 .b8 a[64]", "a module's variable of 64 bytes");
	has("", "\t.shared .align 4 .b8 a[1024];\n", ".shared .align 16 .b8 a[1024]", "a kernel's own");
	has(".shared .align 4 .b8 a[24];\n", "", ".shared .align 8 .b8 a[24]", "no further than the size is a multiple of");
	has(".shared .align 4 .b8 a[64];\n", "\t.shared .align 4 .b8 b[4];\n", ".shared .align 4 .b8 a[64]",
		"nor where another one would then need padding");
	has(".extern .shared .align 4 .b8 a[];\n", "", ".extern .shared .align 16 .b8 a[]", "one that the launch sizes");
	has(".extern .shared .align 4 .b8 a[];\n", "\t.shared .align 4 .b8 b[20];\n", ".extern .shared .align 4 .b8 a[]",
		"but not behind one that ends at no multiple");
	has(".shared .align 128 .b8 a[64];\n", "", ".shared .align 128 .b8 a[64]", "never less than was written");
	has("", "\t.shared .align 4 .b8 a[64], b[64];\n", ".shared .align 16 .b8 a[64], b[64]", "several names in one declaration");
	is_int(judged("4", "4"), 0, "the proof takes the source's own");
	is_int(judged("4", "16"), 0, "and a greater one");
	is_int(judged("16", "4"), -EOPNOTSUPP, "no lesser one");
	is_int(judged("4", "32"), -EOPNOTSUPP, "none above 16");
	is_int(judged("4", "12"), -EOPNOTSUPP, "none that is no power of two");
	return tap_done();
}
