/* module.c - fuzz target: any bytes given to cuModuleLoadData and cuLinkAddData of softgpu, which take them without a size: PTX
 * text, fatbins and cubins are read, parsed and decoded, and what loads answers every question about itself.
 *
 * The image ends where its mapping does, as the last thing of a program's data may.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "egpu/cuda.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGE = 4096, MAX_IMAGE = 1 << 18, MAX_KERNELS = 16, MAX_PARAMS = 64 };

static uint8_t *end; /* of the readable memory */

static void start(void)
{
	CUdevice device;
	CUcontext context;
	uint8_t *map = mmap(NULL, MAX_IMAGE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED || mprotect(map + MAX_IMAGE, PAGE, PROT_NONE))
		abort();
	end = map + MAX_IMAGE;
	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		abort();
}

static void ask(CUmodule m)
{
	CUfunction fns[MAX_KERNELS];
	unsigned int n = 0;
	if (cuModuleGetFunctionCount(&n, m))
		abort();
	n = n < MAX_KERNELS ? n : MAX_KERNELS;
	if (n && cuModuleEnumerateFunctions(fns, n, m))
		abort();
	for (unsigned int i = 0; i < n; i++) {
		const char *name;
		size_t offset, bytes;
		int value, blocks;
		CUfunction same;
		if (cuFuncGetName(&name, fns[i]) || cuModuleGetFunction(&same, m, name))
			abort();
		for (int a = 0; a < CU_FUNC_ATTRIBUTE_MAX; a++)
			cuFuncGetAttribute(&value, (CUfunction_attribute)a, fns[i]);
		for (size_t p = 0; p < MAX_PARAMS && !cuFuncGetParamInfo(fns[i], p, &offset, &bytes); p++)
			;
		cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fns[i], 128, 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CUmodule m;
	CUlinkState link;
	void *linked;
	size_t linked_bytes;
	if (!end)
		start();
	if (size >= MAX_IMAGE - 8)
		return 0;
	/* PTX is text, which ends with a NUL; images say their size. Their start is aligned as a compiler's is. */
	uint8_t *image = end - ((size + 1 + 7) & ~(size_t)7);
	memset(image, 0, (size_t)(end - image));
	memcpy(image, data, size);
	if (!cuModuleLoadData(&m, image)) {
		ask(m);
		if (cuModuleUnload(m))
			abort();
	}
	if (!size || cuLinkCreate_v2(0, NULL, NULL, &link))
		return 0;
	/* The same text twice: symbols that meet. */
	for (int i = 0; i < 2; i++)
		if (cuLinkAddData_v2(link, data[0] == '.' || data[0] == '/' ? CU_JIT_INPUT_PTX : CU_JIT_INPUT_FATBINARY, image, size + 1, "a", 0,
			    NULL, NULL))
			break;
	if (!cuLinkComplete(link, &linked, &linked_bytes) && !cuModuleLoadData(&m, linked))
		cuModuleUnload(m);
	cuLinkDestroy(link);
	return 0;
}
