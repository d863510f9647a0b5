/* Shared by the programs of tests/device. Each prints, on standard output, only what a probe must not change
 * (results, as hashes), and writes what a probe must report to the file named by $EXPECT, if set:
 *
 *	KERNEL-SUBSTRING load|store|atomic SPACE EXECUTIONS BYTES
 */
#ifndef DEVICE_COMMON_H
#define DEVICE_COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline uint64_t hash(const void *data, size_t n)
{
	const unsigned char *p = (const unsigned char *)data;
	uint64_t h = 0xcbf29ce484222325u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

static inline void expect(const char *kernel, const char *op, const char *space, uint64_t executions,
	uint64_t bytes)
{
	const char *path = getenv("EXPECT");
	FILE *f = path ? fopen(path, "a") : NULL;
	if (!f)
		return;
	fprintf(f, "%s %s %s %llu %llu\n", kernel, op, space, (unsigned long long)executions,
		(unsigned long long)bytes);
	fclose(f);
}

#ifdef __CUDACC__
#define CHECK(call)                                                                     \
	do {                                                                            \
		cudaError_t err_ = (call);                                              \
		if (err_ != cudaSuccess) {                                              \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,    \
				cudaGetErrorString(err_));                              \
			exit(1);                                                        \
		}                                                                       \
	} while (0)
#endif

#endif
