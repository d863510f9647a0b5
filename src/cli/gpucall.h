/* gpucall.h - one launch of one small kernel through the driver API: self-tests and test-run. */
#ifndef EGPU_CLI_GPUCALL_H
#define EGPU_CLI_GPUCALL_H

#include <stddef.h>
#include <stdint.h>

/* A parameter of the kernel: a device copy of these bytes, copied back afterwards. */
struct gpu_buffer {
	void *data;
	size_t bytes; /* 0: the null pointer */
};

/* Loads `library` (dlopen), its first device, the PTX; launches kernel<<<1, threads>>>(buffers...).
 * 0, or -1 with error set. Call it in a child (driver.h, in_child): a driver leaves threads behind.
 */
int gpu_call(const char *library, const char *ptx, const char *kernel, unsigned threads,
	struct gpu_buffer *buffers, size_t n_buffers, char error[256]);

/* A kernel of two warps whose result is known. */
int gpu_self_test(const char *library, char error[256]);

#endif
