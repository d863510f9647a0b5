/* Functions: parameters, results, recursion, local memory of each activation, pointers, printf,
 * malloc. */
#include "softgpu_run.h"

#define FUNCS                                                                                      \
	PTX_HEAD                                                                                   \
	".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n"                  \
	".extern .func (.param .b64 r) malloc (.param .b64 n);\n.extern .func free (.param .b64 "  \
	"p);\n"                                                                                    \
	".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, " \
	".param .b64 e);\n"                                                                        \
	".global .align 1 .b8 fmt[22] = "                                                          \
	"{37,100,32,37,46,50,102,32,37,115,32,37,108,120,32,37,37,10};\n"                          \
	".global .align 1 .b8 str[4] = {97,98,99};\n"                                              \
	".func (.param .b32 r) fib (.param .b32 n)\n{\n"                                           \
	" .reg .pred %p; .reg .b32 %r<8>;\n ld.param.b32 %r1, [n]; setp.lt.u32 %p, %r1, 2; "       \
	"mov.u32 %r5, %r1; @%p bra D;\n"                                                           \
	" add.s32 %r2, %r1, -1;\n { .param .b32 param0; st.param.b32 [param0+0], %r2; .param "     \
	".b32 retval0;\n"                                                                          \
	" call.uni (retval0), fib, (param0); ld.param.b32 %r3, [retval0+0]; }\n add.s32 %r2, "     \
	"%r1, -2;\n"                                                                               \
	" { .param .b32 param0; st.param.b32 [param0+0], %r2; .param .b32 retval0;\n"              \
	" call.uni (retval0), fib, (param0); ld.param.b32 %r4, [retval0+0]; }\n add.s32 %r5, "     \
	"%r3, %r4;\n"                                                                              \
	"D: st.param.b32 [r], %r5; ret;\n}\n"                                                      \
	".func (.param .b64 r) sum (.param .b32 n, .param .b64 up)\n{\n"                           \
	" .local .align 8 .b8 mine[16]; .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<8>;\n"       \
	" ld.param.b32 %r1, [n]; ld.param.b64 %rd1, [up]; st.local.u32 [mine+4], %r1;\n"           \
	" setp.ne.s64 %p, %rd1, 0; @%p ld.u32 %r2, [%rd1]; @!%p mov.u32 %r2, 0; add.s32 %r3, "     \
	"%r1, %r2;\n"                                                                              \
	" st.local.u32 [mine], %r3; cvt.u64.u32 %rd5, %r3; setp.eq.u32 %p, %r1, 0; @%p bra D;\n"   \
	" mov.u64 %rd2, mine; cvta.local.u64 %rd3, %rd2; add.s32 %r4, %r1, -1;\n"                  \
	" { .param .b32 a; .param .b64 b; .param .b64 c; st.param.b32 [a], %r4; st.param.b64 "     \
	"[b], %rd3;\n"                                                                             \
	" call (c), sum, (a, b); ld.param.b64 %rd5, [c]; }\n"                                      \
	" ld.local.u32 %r5, [mine+4]; setp.eq.u32 %p, %r5, %r1; @!%p trap;\n"                      \
	"D: st.param.b64 [r], %rd5; ret;\n}\n"                                                     \
	".func (.reg .b32 %res) twice (.reg .b32 %x)\n{\n add.s32 %res, %x, %x; ret;\n}\n"         \
	".func (.param .b32 r) inc (.param .b32 x)\n{ .reg .b32 %a; ld.param.u32 %a, [x]; "        \
	"add.s32 %a, %a, 1; st.param.b32 [r], %a; ret; }\n"                                        \
	".func (.param .b32 r) dec (.param .b32 x)\n{ .reg .b32 %a; ld.param.u32 %a, [x]; "        \
	"sub.s32 %a, %a, 1; st.param.b32 [r], %a; ret; }\n"                                        \
	".global .u64 table[2] = {inc, dec};\n"                                                    \
	".func over (.param .b32 x)\n{ .reg .b32 %a; .local .b8 big[4096]; ld.param.u32 %a, [x]; " \
	"st.local.u32 [big], %a;\n"                                                                \
	" { .param .b32 p; st.param.b32 [p], %a; call over, (p); } ret; }\n"                       \
	".visible .entry k(.param .u64 out)\n{\n.reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 "    \
	"%rd<40>; .local .align 8 .b8 args[40];\n"                                                 \
	"ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, " \
	"%rd1, %rd2;\n"

static uint32_t got[64];

static CUresult go(const char *body, uint32_t threads)
{
	char *text = malloc(strlen(body) + sizeof(FUNCS) + 100);
	uint64_t out = alloc(threads * 4);
	sprintf(text, "%s%s\nst.global.u32 [%%rd3], %%r0;\nret;\n}\n", FUNCS, body);
	CUresult e = run_ptx(text, 1, threads, 0, &out);
	memcpy(got, (void *)out, threads * 4);
	sg_mem_free(device, out);
	free(text);
	return e;
}

static uint32_t fib(uint32_t n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void test_calls(void)
{
	uint32_t bad = 0;
	go("and.b32 %r2, %r1, 15; { .param .b32 a; st.param.b32 [a], %r2; .param .b32 b; call (b), "
	   "fib, (a); ld.param.b32 %r0, [b]; }",
		64);
	for (uint32_t i = 0; i < 64; i++)
		bad += got[i] != fib(i & 15);
	is_int(bad, 0, "recursion to a different depth in each lane");
	bad = 0;
	go("and.b32 %r2, %r1, 31; { .param .b32 a; .param .b64 b; .param .b64 c; st.param.b32 [a], "
	   "%r2; mov.u64 %rd9, 0;"
	   " st.param.b64 [b], %rd9; call (c), sum, (a, b); ld.param.b64 %rd4, [c]; } cvt.u32.u64 "
	   "%r0, %rd4;",
		64);
	for (uint32_t i = 0; i < 64; i++)
		bad += got[i] != (i & 31) * ((i & 31) + 1) / 2;
	is_int(bad, 0, "each activation has its own local memory, which callees can read");
	go("call (%r0), twice, (%r1);", 32);
	is_int(got[31], 62, "register parameters");
	bad = 0;
	go("mov.u64 %rd4, table; and.b32 %r2, %r1, 1; mul.wide.u32 %rd5, %r2, 8; add.s64 %rd4, "
	   "%rd4, %rd5; ld.global.u64 %rd6, [%rd4];"
	   " { .param .b32 a; st.param.b32 [a], %r1; .param .b32 b; proto: .callprototype (.param "
	   ".b32 _) _ (.param .b32 _);"
	   " call (b), %rd6, (a), proto; ld.param.b32 %r0, [b]; }",
		32);
	for (uint32_t i = 0; i < 32; i++)
		bad += got[i] != (i & 1 ? i - 1 : i + 1);
	is_int(bad, 0, "pointers from a table, two targets in one warp");
	go("setp.lt.u32 %p1, %r1, 7; mov.u32 %r0, 5; @%p1 call (%r0), twice, (%r1);", 32);
	is_int(got[6] + got[7], 17, "a guarded call");
	stderr_capture();
	CUresult e = go("{ .param .b32 a; st.param.b32 [a], %r1; call over, (a); }", 32);
	const char *line = stderr_end();
	is_int(e, CUDA_ERROR_ILLEGAL_ADDRESS, "endless recursion ends");
	ok(strstr(line, "stack overflow"), "and says so");
	stderr_capture();
	e = go("mov.u64 %rd6, 1234; { .param .b32 a; st.param.b32 [a], %r1; .param .b32 b; proto: "
	       ".callprototype (.param .b32 _) _"
	       " (.param .b32 _); call (b), %rd6, (a), proto; }",
		32);
	stderr_end();
	is_int(e, CUDA_ERROR_INVALID_PC, "a wild function pointer");
}

static void test_device_functions(void)
{
	FILE *f = tmpfile();
	char text[256] = "";
	fflush(stdout);
	int saved = dup(1);
	dup2(fileno(f), 1);
	CUresult e = go("setp.ne.u32 %p1, %r1, 3; @%p1 bra E; st.local.u32 [args], -5; mov.f64 "
			"%rd9, 0d3FF8000000000000;"
			" st.local.u64 [args+8], %rd9; mov.u64 %rd4, str; cvta.global.u64 %rd4, "
			"%rd4; st.local.u64 [args+16], %rd4;"
			" st.local.u64 [args+24], 0xabcdef0123; mov.u64 %rd5, args; cvta.local.u64 "
			"%rd5, %rd5; mov.u64 %rd6, fmt;"
			" { .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %rd6; "
			"st.param.b64 [b], %rd5;"
			" call.uni (c), vprintf, (a, b); ld.param.b32 %r0, [c]; } E:",
		32);
	fflush(stdout);
	dup2(saved, 1);
	close(saved);
	rewind(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	is_int(e, CUDA_SUCCESS, "printf runs");
	is_str(text, "-5 1.50 abc abcdef0123 %\n", "printf formats like C");
	is_int(got[3], 4, "and counts its arguments");
	e = go("{ .param .b64 a; .param .b64 b; mov.u64 %rd4, 100; st.param.b64 [a], %rd4; call "
	       "(b), malloc, (a); ld.param.b64 %rd5, [b]; }"
	       " st.u32 [%rd5+96], %r1; ld.u32 %r0, [%rd5+96]; { .param .b64 a; st.param.b64 [a], "
	       "%rd5; call free, (a); }",
		64);
	ok(e == CUDA_SUCCESS && got[63] == 63 && got[1] == 1, "malloc and free on the device");
	stderr_capture();
	e = go("mov.u64 %rd4, str; { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; "
	       ".param .b64 e; st.param.b64 [a], %rd4;"
	       " st.param.b64 [b], %rd4; st.param.b32 [c], 12; st.param.b64 [d], %rd4; "
	       "st.param.b64 [e], 1;"
	       " call __assertfail, (a, b, c, d, e); }",
		1);
	is_str(stderr_end(),
		"abc:12: abc: block: [0,0,0], thread: [0,0,0] Assertion `abc` failed.\n",
		"assert's line");
	is_int(e, CUDA_ERROR_ASSERT, "assert's error");
}

int main(void)
{
	device_open(2, 0);
	test_calls();
	test_device_functions();
	sg_device_free(device);
	for (uint32_t seed = 1; seed < 4; seed++) {
		device_open(2, seed);
		test_calls();
		sg_device_free(device);
	}
	return tap_done();
}
