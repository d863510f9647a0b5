/* Variables: initial values, addresses, the layout of shared memory; what a module tells about
 * itself. */
#include "softgpu_run.h"

static const char ptx[] = PTX_HEAD
	".global .align 4 .u32 plain = 7;\n"
	".visible .global .align 4 .b8 bytes[8] = {1, -2, 0x7f, 0b101, 010, 6};\n"
	".global .u16 shorts[2][3] = {{1, 2, 3}, {4, 5, 6}};\n"
	".global .f32 floats[4] = {0f3F800000, 1.5, -2.0, 3.0e-1};\n"
	".global .f64 doubles[2] = {0d3FF0000000000000, -0.25};\n"
	".const .align 8 .u64 pointers[4] = {plain, bytes+4, generic(plain)+8};\n"
	".func fn();\n.global .align 8 .u64 functions[1] = {fn};\n"
	".global .u8 split[8] = {0xFF(plain), 0xFF00(plain), 0xFF0000(plain), 0xFF000000(plain)};\n"
	".global .align 16 .b8 zeros[100];\n"
	".extern .global .u32 elsewhere;\n"
	".shared .align 4 .b8 used[12];\n.shared .align 8 .b8 unused[4096];\n"
	".func fn() { .shared .u64 inner; .reg .b64 %rd; mov.u64 %rd, inner; st.shared.u64 [%rd], "
	"1; ret; }\n"
	".visible .entry a(.param .u8 x, .param .u64 y, .param .align 16 .b8 z[20], .param .u16 w) "
	".maxntid 128, 2\n"
	"{ .reg .b32 %r; .local .b8 l[40]; mov.u32 %r, used; st.shared.u32 [%r], 1; st.local.u32 "
	"[l], 1; call fn; ret; }\n"
	".visible .entry b() { ret; }\n"
	".entry k(.param .u64 out)\n{ .reg .b64 %rd<9>; .reg .b32 %r<9>; ld.param.u64 %rd1, [out]; "
	"ld.const.u64 %rd2, [pointers];\n"
	" st.global.u64 [%rd1], %rd2; mov.u64 %rd3, bytes; ld.global.s8 %r1, [%rd3+1]; "
	"st.global.u32 [%rd1+8], %r1;\n"
	" ld.global.u32 %r2, [plain]; add.s32 %r2, %r2, 1; st.global.u32 [plain], %r2; ret; }\n";

static void *var(struct sg_module *m, const char *name, size_t want)
{
	uint64_t addr = 0;
	size_t bytes = 0;
	if (sg_module_global(m, name, &addr, &bytes) != CUDA_SUCCESS || bytes != want)
		printf("#   %s has %zu bytes\n", name, bytes);
	return (void *)addr;
}

int main(void)
{
	device_open(1, 0);
	struct sg_module *m = load(ptx);
	if (!ok(m != NULL, "a module with variables loads"))
		return tap_done();
	uint32_t *plain = var(m, "plain", 4);
	is_int(*plain, 7, "a scalar");
	uint8_t *bytes = var(m, "bytes", 8);
	ok(!memcmp(bytes, "\x01\xfe\x7f\x05\x08\x06\0\0", 8), "bytes in every base, the rest zero");
	uint16_t *shorts = var(m, "shorts", 12);
	is_int(shorts[4], 5, "two dimensions");
	float *floats = var(m, "floats", 16);
	ok(floats[0] == 1 && floats[1] == 1.5f && floats[2] == -2 && floats[3] == 0.3f, "floats");
	double *doubles = var(m, "doubles", 16);
	ok(doubles[0] == 1 && doubles[1] == -0.25, "doubles");
	uint64_t *pointers = var(m, "pointers", 32), base = (uintptr_t)plain;
	ok(pointers[0] == base && pointers[1] == (uintptr_t)bytes + 4 && pointers[2] == base + 8 &&
			*(uint64_t *)var(m, "functions", 8) > 0,
		"addresses");
	uint8_t *split = var(m, "split", 8);
	ok(split[0] == (uint8_t)base && split[1] == (uint8_t)(base >> 8) &&
			split[3] == (uint8_t)(base >> 24),
		"bytes of an address");
	is_int(sg_module_global(m, "elsewhere", NULL, NULL), CUDA_ERROR_NOT_FOUND,
		"an undefined extern is not found");
	is_int(sg_module_global(m, "used", NULL, NULL), CUDA_ERROR_NOT_FOUND,
		"nor is a shared variable");
	ok(sg_mem_check(device, (uintptr_t)var(m, "zeros", 100), 100) &&
			!sg_mem_check(device, (uintptr_t)var(m, "zeros", 100), 101),
		"a variable has exact bounds");

	struct sg_kernel_info i;
	ok(sg_module_kernel(m, "fn") == NULL && sg_module_kernel(m, "nothing") == NULL,
		"only kernels are kernels");
	ok(sg_module_kernel_at(m, 2) && !sg_module_kernel_at(m, 3), "three of them");
	sg_kernel_get_info(sg_module_kernel(m, "a"), &i);
	is_int(i.n_params, 4, "its parameters");
	ok(i.param_offset[1] == 8 && i.param_offset[2] == 16 && i.param_offset[3] == 36 &&
			i.param_size[2] == 20,
		"are laid out by alignment");
	is_int(i.param_bytes, 38, "in a block of 38 bytes");
	is_int(i.static_shared_bytes, 24,
		"shared memory of the kernel and its callees, not of others");
	is_int(i.max_threads, 256, ".maxntid");
	is_int(i.local_bytes, 48, "local memory");
	is_int(i.const_bytes, 32, "constants");
	is_int(i.ptx_version, 90, "target");
	sg_kernel_get_info(sg_module_kernel(m, "b"), &i);
	ok(i.n_params == 0 && i.static_shared_bytes == 0 && i.param_bytes == 0,
		"an empty kernel uses nothing");

	struct run r;
	uint64_t out = alloc(16);
	run_start(&r, sg_module_kernel(m, "k"), 1, 1, 0, &out, false);
	is_int(run_wait(&r), CUDA_SUCCESS, "a kernel uses variables");
	ok(*(uint64_t *)out == base && *(int32_t *)(out + 8) == -2 && *plain == 8,
		"and sees and changes their values");
	run_start(&r, sg_module_kernel(m, "a"), 1, 32, 0, (char[64]){ 0 }, false);
	is_int(run_wait(&r), CUDA_SUCCESS, "a kernel calls a function with shared memory");
	sg_mem_free(device, out);
	sg_module_free(m);
	size_t free_bytes, total;
	sg_mem_info(device, &free_bytes, &total);
	is_int(free_bytes, total, "the module's memory is freed with it");
	sg_device_free(device);
	return tap_done();
}
