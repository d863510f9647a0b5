/* must.h - programs without the harness, which a test attaches to: a call of the driver that fails ends them. */
#ifndef EGPU_TEST_MUST_H
#define EGPU_TEST_MUST_H

#include <stdio.h>
#include <unistd.h>

#include "egpu/cuda.h"

static inline void must(CUresult r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	printf("%s gave %d\n", what, (int)r);
	fflush(stdout);
	_exit(3);
}
#define CU(call) must(call, #call)

#endif
