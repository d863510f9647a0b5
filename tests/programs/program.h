/* program.h - what the programs share: errors that end them, numbers, the line at the end. */
#ifndef EGPU_TESTS_PROGRAM_H
#define EGPU_TESTS_PROGRAM_H

#include <cuda_runtime.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#ifdef __CUDACC__
#ifndef __clang__
#define exp2_fast exp2f
#define square_root sqrtf
#endif
#endif

#define CHECK(call)                                                                                \
	do {                                                                                       \
		cudaError_t check_ = (call);                                                       \
		if (check_ != cudaSuccess) {                                                       \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,              \
				cudaGetErrorString(check_));                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* The same numbers everywhere. */
static inline unsigned next_random(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static inline float next_float(unsigned *state) /* in [0, 1) */
{
	return (float)next_random(state) / 16777216.0f;
}

template <class T> static T *device_copy(const std::vector<T> &v)
{
	T *p;
	CHECK(cudaMalloc(&p, v.size() * sizeof(T)));
	CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
	return p;
}

template <class T> static std::vector<T> host_copy(const T *p, size_t n)
{
	std::vector<T> v(n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
	return v;
}

template <class T> static T *device_new(size_t n)
{
	T *p;
	CHECK(cudaMalloc(&p, n * sizeof(T)));
	CHECK(cudaMemset(p, 0, n * sizeof(T)));
	return p;
}

/* Ends the program: a line that is the same on every device, and 1 when anything was wrong. */
static int result(const char *name, long checked, long wrong)
{
	printf("%s: %ld checked, %ld wrong\n", name, checked, wrong);
	return wrong != 0;
}

static inline bool near(float got, float want, float bound)
{
	return fabsf(got - want) <= bound * (1 + fabsf(want));
}

#endif
