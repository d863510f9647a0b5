/* runner PTX OUT COUNTS KERNEL[,KERNEL...] GRID BLOCK ARGUMENT...: launches each kernel of a PTX file once and
 * writes their buffers to OUT. An argument is b:BYTES (a buffer with a pattern in it) or a number (64
 * bits, of which the kernel takes what it declares). COUNTS gets the module's variable counts, when
 * it has one, as decimal lines. GRID and BLOCK are 4, 4x2 or 4x2x3. */
#include "common.h"

enum { MAX_ARGUMENTS = 64, MAX_FILE = 1 << 20 };

static struct {
	CUdeviceptr at;
	size_t bytes;
} buffers[MAX_ARGUMENTS];
static int n_buffers;

static char *read_text(const char *path)
{
	char *text = calloc(1, MAX_FILE);
	FILE *f = fopen(path, "r");
	if (!f || !text || !fread(text, 1, MAX_FILE - 1, f))
		die("%s: cannot be read", path);
	fclose(f);
	return text;
}

static uint64_t argument(const char *text)
{
	if (strncmp(text, "b:", 2))
		return number(text, "argument", 0, UINT64_MAX);
	size_t bytes = number(text + 2, "bytes", 1, 1 << 24);
	unsigned char *p = host_memory(bytes, 1);
	uint32_t x = 12345;
	for (size_t i = 0; i < bytes; i++)
		p[i] = (unsigned char)((x = x * 1664525 + 1013904223) >> 24);
	CUdeviceptr at = device_memory(bytes);
	CHECK(MemcpyHtoD(at, p, bytes));
	free(p);
	buffers[n_buffers].at = at;
	buffers[n_buffers++].bytes = bytes;
	return at;
}

static void *copy(CUdeviceptr at, size_t bytes)
{
	void *p = host_memory(bytes, 1);
	CHECK(MemcpyDtoH(p, at, bytes));
	return p;
}

static void write_counts(CUmodule module, const char *path)
{
	CUresult (*get)(CUdeviceptr *, size_t *, CUmodule, const char *);
	*(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuModuleGetGlobal_v2");
	CUdeviceptr at;
	size_t bytes;
	if (!get || get(&at, &bytes, module, "counts"))
		return;
	uint64_t *n = copy(at, bytes);
	FILE *f = fopen(path, "w");
	for (size_t i = 0; f && i < bytes / 8; i++)
		fprintf(f, "%" PRIu64 "\n", n[i]);
	if (!f || fclose(f))
		die("%s: cannot be written", path);
	free(n);
}

static void shape(const char *text, unsigned out[3])
{
	out[1] = out[2] = 1;
	if (sscanf(text, "%ux%ux%u", &out[0], &out[1], &out[2]) < 1)
		die("%s: no shape", text);
}

int main(int argc, char **argv)
{
	unsigned grid[3], block[3];
	uint64_t values[MAX_ARGUMENTS];
	void *params[MAX_ARGUMENTS];
	usage(argc, argv, 6, 6 + MAX_ARGUMENTS, "PTX OUT COUNTS KERNEL GRID BLOCK ARGUMENT...");
	CUdevice dev = open_device();
	char *ptx = read_text(argv[1]);
	CUmodule module = load_module(ptx);
	for (int i = 7; i < argc; i++) {
		values[i - 7] = argument(argv[i]);
		params[i - 7] = &values[i - 7];
	}
	shape(argv[5], grid);
	shape(argv[6], block);
	for (char *name = strtok(argv[4], ","); name; name = strtok(NULL, ",")) {
		CHECK(LaunchKernel(get_kernel(module, name), grid[0], grid[1], grid[2], block[0], block[1], block[2], 0, NULL, params, NULL));
		CHECK(CtxSynchronize());
	}
	FILE *f = fopen(argv[2], "w");
	for (int i = 0; f && i < n_buffers; i++) {
		void *p = copy(buffers[i].at, buffers[i].bytes);
		fwrite(p, 1, buffers[i].bytes, f);
		free(p);
	}
	if (!f || fclose(f))
		die("%s: cannot be written", argv[2]);
	write_counts(module, argv[3]);
	close_device(module, dev);
	free(ptx);
	return 0;
}
