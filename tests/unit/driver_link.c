/* The linker: PTX inputs joined to one image that loads. */
#include "driver_test.h"

static char log_text[1024];

static CUresult link_texts(const char *const *texts, int n, CUmodule *m)
{
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log_text, (void *)sizeof(log_text) };
	CUlinkState s;
	void *cubin;
	size_t bytes;
	log_text[0] = 0;
	need(cuLinkCreate(2, options, values, &s));
	CUresult r = 0;
	for (int i = 0; i < n && !r; i++)
		r = cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)texts[i], strlen(texts[i]) + 1,
			"part", 0, NULL, NULL);
	if (!r)
		r = cuLinkComplete(s, &cubin, &bytes);
	/* The image has to be used before its state goes. */
	if (!r)
		r = cuModuleLoadData(m, cubin);
	need(cuLinkDestroy(s));
	return r;
}

/* Runs kernel `main(out)` of the module. */
static uint32_t run(CUmodule m, const char *name)
{
	CUfunction f;
	CUdeviceptr p = device_word(0);
	void *params[] = { &p };
	need(cuModuleGetFunction(&f, m, name));
	need(launch(f, 1, 1, NULL, params));
	need(cuCtxSynchronize());
	return read_word(p);
}

#define CALLER(entry, callee)                                                                      \
	".visible .entry " entry "(.param .u64 p) {\n"                                             \
	" .reg .b64 %rd<2>; .reg .b32 %r<3>;\n ld.param.u64 %rd1, [p];\n"                          \
	" { .param .b32 result;\n call.uni (result), " callee ", ();\n"                            \
	"   ld.param.b32 %r1, [result]; }\n"                                                       \
	" ld.global.u32 %r2, [shared_word]; add.u32 %r1, %r1, %r2;\n"                              \
	" st.global.u32 [%rd1], %r1; ret;\n}\n"

#define CALLEE(linkage, name, value)                                                               \
	linkage ".func (.param .b32 r) " name "() {\n .reg .b32 %r<2>;\n"                          \
		" mov.u32 %r1, " value "; st.param.b32 [r], %r1; ret;\n}\n"

static void joined(void)
{
	const char *const texts[] = {
		PTX_HEAD ".extern .func (.param .b32 r) outside();\n.extern .global .align 4 .u32 "
			 "shared_word;\n" CALLEE("", "inside", "1") CALLER("first", "outside"),
		".version 7.2\n.target sm_80\n.address_size 64\n.visible .global .align 4 .u32 "
		"shared_word = 100;\n" CALLEE("", "inside", "2") CALLEE(".visible ", "outside", "7")
			CALLER("second", "inside"),
		PTX_HEAD "// a comment with inside and \"quotes\n.extern .global .align 4 .u32 "
			 "shared_word;\n"
			 ".file 1 \"inside\"\n" CALLEE("", "inside", "3") CALLER("third", "inside"),
	};
	CUmodule m = NULL;
	is_int(link_texts(texts, 3, &m), 0, "three texts%s%s", *log_text ? ": " : "", log_text);
	if (!m)
		return;
	is_int(run(m, "first"), 107, "a function and a variable of another text");
	is_int(run(m, "second"), 102, "a private function");
	is_int(run(m, "third"), 103, "and one of the same name in another text");
	need(cuModuleUnload(m));
	is_int(link_texts(texts + 1, 1, &m), 0, "one text alone");
	is_int(run(m, "second"), 102, "works");
	need(cuModuleUnload(m));
}

static void weak(void)
{
	const char *const texts[] = {
		PTX_HEAD ".visible .global .align 4 .u32 shared_word = 10;\n" CALLEE(
			".weak ", "both", "1") CALLER("first", "both"),
		PTX_HEAD ".extern .global .align 4 .u32 shared_word;\n" CALLEE(
			".visible ", "both", "2") CALLER("second", "both"),
	};
	CUmodule m = NULL;
	is_int(link_texts(texts, 2, &m), 0, "a weak definition and a strong one");
	if (!m)
		return;
	is_int(run(m, "first"), 12, "the strong one is taken");
	is_int(run(m, "second"), 12, "everywhere");
	need(cuModuleUnload(m));
}

static void errors(void)
{
	const char *const twice[] = { PTX_HEAD
		".visible .global .u32 x;\n.visible .entry a() { ret; }\n",
		PTX_HEAD ".visible .global .u32 x;\n.visible .entry b() { ret; }\n" };
	const char *const broken[] = {
		PTX_HEAD ".visible .entry a() { ret; ",
	};
	CUmodule m;
	CUlinkState s;
	void *cubin;
	size_t bytes;
	is_int(link_texts(twice, 2, &m), CUDA_ERROR_INVALID_PTX, "two definitions");
	ok(strstr(log_text, "'x'"), "the log names what: %.*s", (int)strcspn(log_text, "\n"),
		log_text);
	is_int(link_texts(broken, 1, &m), CUDA_ERROR_INVALID_PTX, "a broken text");
	ok(strstr(log_text, "line"), "the log says where: %.*s", (int)strcspn(log_text, "\n"),
		log_text);
	need(cuLinkCreate(0, NULL, NULL, &s));
	is_int(cuLinkComplete(s, &cubin, &bytes), CUDA_ERROR_INVALID_VALUE, "nothing to link");
	is_int(cuLinkAddData(s, CU_JIT_INPUT_PTX, NULL, 4, NULL, 0, NULL, NULL),
		CUDA_ERROR_INVALID_VALUE, "no data");
	is_int(cuLinkAddData(s, CU_JIT_INPUT_CUBIN, "garbage", 7, NULL, 0, NULL, NULL),
		CUDA_ERROR_INVALID_IMAGE, "no cubin");
	is_int(cuLinkAddData(s, (CUjitInputType)42, "x", 1, NULL, 0, NULL, NULL),
		CUDA_ERROR_INVALID_VALUE, "no such input");
	is_int(cuLinkAddFile(s, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL),
		CUDA_ERROR_FILE_NOT_FOUND, "no file");
	need(cuLinkDestroy(s));
	is_int(cuLinkDestroy(s), CUDA_ERROR_INVALID_HANDLE, "destroyed once");
	is_int(cuLinkComplete(s, &cubin, &bytes), CUDA_ERROR_INVALID_HANDLE, "and dead");
}

/* What the linker gives can be given to it again. */
static void again(void)
{
	CUlinkState a, b;
	void *cubin, *second;
	size_t bytes, more;
	CUmodule m;
	const char *text = PTX_HEAD ".visible .global .align 4 .u32 shared_word = 1;\n" CALLEE(
		"", "f", "4") CALLER("k", "f");
	need(cuLinkCreate(0, NULL, NULL, &a));
	need(cuLinkAddData(a, CU_JIT_INPUT_PTX, (void *)text, strlen(text), "t", 0, NULL, NULL));
	need(cuLinkComplete(a, &cubin, &bytes));
	is_int(cuLinkComplete(a, &second, &more), CUDA_ERROR_INVALID_VALUE, "complete once");
	need(cuLinkCreate(0, NULL, NULL, &b));
	is_int(cuLinkAddData(b, CU_JIT_INPUT_CUBIN, cubin, bytes, "c", 0, NULL, NULL), 0,
		"its output as an input");
	is_int(cuLinkComplete(b, &second, &more), 0, "links");
	need(cuLinkDestroy(a));
	need(cuModuleLoadData(&m, second));
	is_int(run(m, "k"), 5, "and runs");
	need(cuLinkDestroy(b));
	need(cuModuleUnload(m));
}

int main(void)
{
	test_open();
	joined();
	weak();
	errors();
	again();
	need(cuDevicePrimaryCtxRelease(dev));
	return tap_done();
}
