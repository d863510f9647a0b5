/* Every kind of fault ends its grid with the right error and one line, and nothing else. */
#include "softgpu_run.h"

#define ENTRY                                                                                      \
	PTX_HEAD ".shared .align 16 .b8 sh[64];\n.visible .entry k(.param .u64 out)\n{\n"          \
		 ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .local .align 16 .b8 "    \
		 "loc[32];\n"                                                                      \
		 "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; "      \
		 "add.s64 %rd3, %rd1, %rd2;\n"

static void fault(const char *what, const char *body, CUresult want, const char *says)
{
	char *text = malloc(strlen(body) + 4096);
	uint64_t out = alloc(400);
	sprintf(text, "%s%s\nret;\n}\n", ENTRY, body);
	stderr_capture();
	CUresult e = run_ptx(text, 2, 100, 0, &out);
	const char *line = stderr_end();
	is_int(e, want, "%s", what);
	const char *nl = strchr(line, '\n');
	bool one = want == CUDA_SUCCESS ? !*line : nl && !nl[1];
	if (!ok(one && strstr(line, says) && (!*line || strstr(line, "kernel k: PTX line 9: ")),
		    "its line has \"%s\"", says))
		printf("#   %s", line);
	sg_mem_free(device, out);
	free(text);
}

static void test_faults(void)
{
	fault("the last element is in bounds", "st.global.u32 [%rd3], %r1;", CUDA_SUCCESS, "");
	fault("one past the end", "st.global.u32 [%rd3+4], %r1;", CUDA_ERROR_ILLEGAL_ADDRESS,
		"by thread (99,0,0) of block (");
	fault("before the start", "ld.global.u32 %r2, [%rd3+-4];", CUDA_ERROR_ILLEGAL_ADDRESS,
		"ld.global.u32: illegal global address 0x");
	fault("null", "mov.u64 %rd4, 0; ld.global.u32 %r2, [%rd4];", CUDA_ERROR_ILLEGAL_ADDRESS,
		"address 0x0 (4 bytes) by thread (0,0,0)");
	fault("a host address", "mov.u64 %rd4, 0x7ffff0000000; ld.u8 %r2, [%rd4];",
		CUDA_ERROR_ILLEGAL_ADDRESS, "0x7ffff0000000");
	fault("misaligned", "add.s64 %rd4, %rd3, 2; ld.global.u32 %r2, [%rd4];",
		CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned global");
	fault("a misaligned vector", "ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1+8];",
		CUDA_ERROR_MISALIGNED_ADDRESS, "(16 bytes)");
	fault("a vector over the end", "ld.global.v2.u32 {%r2,%r3}, [%rd1+400];",
		CUDA_ERROR_ILLEGAL_ADDRESS, "(8 bytes)");
	fault("shared memory out of bounds", "mov.u64 %rd4, sh; st.shared.u32 [%rd4+64], 1;",
		CUDA_ERROR_ILLEGAL_ADDRESS, "shared address 0x40");
	fault("shared memory out of bounds, generic",
		"mov.u64 %rd4, sh; cvta.shared.u64 %rd4, %rd4; st.u32 [%rd4+64], 1;",
		CUDA_ERROR_ILLEGAL_ADDRESS, "shared address");
	fault("local memory out of bounds", "st.local.u32 [loc+32], 1;", CUDA_ERROR_ILLEGAL_ADDRESS,
		"local address");
	fault("a misaligned local access", "st.local.u64 [loc+4], 1;",
		CUDA_ERROR_MISALIGNED_ADDRESS, "local address");
	fault("an atomic on nothing", "mov.u64 %rd4, 64; atom.add.u32 %r2, [%rd4], 1;",
		CUDA_ERROR_ILLEGAL_ADDRESS, "atom.add.u32: illegal");
	fault("a parameter past the block", "mov.u64 %rd4, out; ld.param.u32 %r2, [%rd4+8];",
		CUDA_ERROR_ILLEGAL_ADDRESS, "param address 0x8");
	fault("trap", "trap;", CUDA_ERROR_LAUNCH_FAILED, "trap");
	fault("a trap that no lane reaches", "setp.gt.u32 %p1, %r1, 500; @%p1 trap;", CUDA_SUCCESS,
		"");
	fault("an instruction that is not executed",
		"cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%rd1, {%r1}];",
		CUDA_ERROR_NOT_SUPPORTED, "cp.async.bulk.prefetch.tensor");
	fault("one that is not reached",
		"setp.gt.u32 %p1, %r1, 500; @%p1 bra L; ret; L: "
		"cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%rd1, {%r1}];",
		CUDA_SUCCESS, "");
	fault("a branch index past its table",
		"T: .branchtargets A; brx.idx %r1, T; A:", CUDA_ERROR_LAUNCH_FAILED, "index 1");
	fault("a wild barrier", "mov.u32 %r2, 16; bar.sync %r2;", CUDA_ERROR_LAUNCH_FAILED,
		"barrier 16");
}

static void test_use_after_free(void)
{
	char text[4096];
	sprintf(text, "%sst.global.u32 [%%rd3], %%r1; ret; }", ENTRY);
	uint64_t out = alloc(400);
	sg_mem_free(device, out);
	stderr_capture();
	CUresult e = run_ptx(text, 1, 1, 0, &out);
	stderr_end();
	is_int(e, CUDA_ERROR_ILLEGAL_ADDRESS, "freed memory");
}

/* Malformed modules are refused with a line number. */
static void refuse(const char *what, const char *ptx, CUresult want, const char *says)
{
	struct sg_module *m = NULL;
	struct diag d = { 0 };
	is_int(sg_module_load(device, ptx, strlen(ptx), &m, &d), want, "%s", what);
	if (!ok(strstr(d.text, says), "because \"%s\"", says))
		printf("#   %s\n", d.text);
	sg_module_free(m);
}

static void test_modules(void)
{
	size_t before, after, total;
	sg_mem_info(device, &before, &total);
	refuse("an undeclared register", PTX_HEAD ".entry k() { add.s32 %r1, %r2, 1; }",
		CUDA_ERROR_INVALID_PTX, "'%r");
	refuse("a register past its family",
		PTX_HEAD ".entry k() { .reg .b32 %r<3>; mov.u32 %r3, 1; }", CUDA_ERROR_INVALID_PTX,
		"%r3");
	refuse("an undefined label", PTX_HEAD ".entry k() { bra L; }", CUDA_ERROR_INVALID_PTX,
		"'L' is not defined");
	refuse("an undeclared function", PTX_HEAD ".entry k() { call f; }", CUDA_ERROR_INVALID_PTX,
		"'f' is not declared");
	refuse("an undeclared variable",
		PTX_HEAD ".entry k() { .reg .b32 %r; ld.global.u32 %r, [v]; }",
		CUDA_ERROR_INVALID_PTX, "'v' is not declared");
	refuse("an initialiser that is too long", PTX_HEAD ".global .u32 v[2] = {1,2,3};",
		CUDA_ERROR_INVALID_PTX, "longer than");
	refuse("an initialiser of an unknown name", PTX_HEAD ".global .u64 v = w;",
		CUDA_ERROR_INVALID_PTX, "'w'");
	refuse("a guard that is no predicate", PTX_HEAD ".entry k() { .reg .b32 %r; @%r ret; }",
		CUDA_ERROR_INVALID_PTX, "guard");
	refuse("a newer target", ".version 8.7\n.target sm_100\n.address_size 64\n",
		CUDA_ERROR_NO_BINARY_FOR_GPU, "sm_100");
	refuse("an older target with a suffix", ".version 8.7\n.target sm_80a\n.address_size 64\n",
		CUDA_ERROR_NO_BINARY_FOR_GPU, "sm_80a");
	refuse("too much local memory", PTX_HEAD ".entry k() { .local .b8 l[99999999999]; ret; }",
		CUDA_ERROR_INVALID_PTX, "does not fit");
	refuse("not PTX", "hello", CUDA_ERROR_INVALID_PTX, "");
	sg_mem_info(device, &after, &total);
	is_int(after, before, "nothing stays allocated");
}

int main(void)
{
	device_open(2, 0);
	test_faults();
	test_use_after_free();
	test_modules();
	sg_device_free(device);
	return tap_done();
}
