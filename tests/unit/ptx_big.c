/* ptx_big.c - 10 MB of PTX in each shape that could go quadratic: parsed and printed in linear time. */
#include <time.h>

#include "ptx/ptx.h"
#include "tap.h"

enum { BYTES = 10 << 20 };

/* head, then `line` repeated up to 10 MB, then tail. */
static void try_shape(const char *name, const char *head, const char *line, const char *tail, bool valid)
{
	struct buf in = { 0 }, out = { 0 };
	struct ptx_module *m;
	struct diag d = { 0 };
	buf_puts(&in, ".version 8.0\n.target sm_80\n");
	buf_puts(&in, head);
	while (in.len < BYTES)
		buf_puts(&in, line);
	buf_puts(&in, tail);
	clock_t start = clock();
	int r = ptx_parse(in.data, in.len, &m, &d);
	if (!r)
		ptx_print(m, &out);
	double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
	is_int(!r, valid, "%s: 10 MB", name);
	ok(r || (out.len == in.len && !memcmp(out.data, in.data, in.len)), "come back byte for byte");
	if (!ok(seconds < 20, "in linear time"))
		printf("# %.1f s\n", seconds);
	ptx_module_free(m);
	buf_free(&in);
	buf_free(&out);
}

int main(void)
{
	try_shape("instructions", ".entry k() {\n", "\tld.global.u32 %r1, [%rd1+4];\n", "}\n", true);
	try_shape("one line", ".entry k() {", "add.u32 a,b,c;", "}", true);
	try_shape("errors at the end", ".entry k() {\n", "add.u32 a,b,c;\n", "add.u32 a b;}", false);
	try_shape("an initialiser", ".global .b8 x[] = {1", ", 2", "};", true);
	try_shape("a debug section", ".section .debug_info {\n", ".b8 1,2,3\n.b32 $L__a-$L__b\n", "}", true);
	try_shape("directives without ';'", ".entry k() {", ".foo ", "}", true);
	try_shape("functions", "", ".func f() { .reg .b32 %r<3>; mov.u32 %r1, %r2; ret; }\n", "", true);
	try_shape("scopes", ".entry k() {\n", "{ .reg .b32 a; mov.u32 a, 1; }\n", "}", true);
	try_shape("labels", ".entry k() {\n", "L: bra L;\n", "}", true);
	try_shape("comments", "", "/* \n */ // x\n", "", true);
	try_shape("open comment", "", "/* \n", "", false);
	try_shape("long names", ".entry k() { mov.u32 a", "0123456789", ", 1; }", true);
	return tap_done();
}
