/* A program of several libraries that each keep the driver's pointers in their own way, as one with PyTorch has:
 *
 *	many FIRST SECOND [MIB]
 *
 * FIRST is loaded and used from the beginning, through per-thread default streams; SECOND is loaded at SIGUSR1
 * and used a little later. MIB of memory are touched, as a program with much data has them. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EGPU_CUDA_NO_ALIASES
#include "egpu/cuda.h"

static volatile sig_atomic_t over, more;

static void end(int sig)
{
	over = 1;
}

static void load(int sig)
{
	more = 1;
}

typedef int step_fn(uint32_t add, int per_thread);

static step_fn *library(const char *path)
{
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	step_fn *f = h ? (step_fn *)dlsym(h, "second_step") : NULL;
	if (!f)
		printf("%s\n", dlerror());
	return f;
}

/* Like data: words that are no addresses. */
static void touch(size_t mib)
{
	size_t n = mib << 17;
	volatile uint64_t *p = malloc(n * 8 + 8);
	for (size_t i = 0; p && i < n; i++)
		p[i] = i * 0x9e3779b97f4a7c15u;
}

int main(int argc, char **argv)
{
	CUdevice dev;
	CUcontext ctx;
	unsigned long steps = 0, later = 0, wrong = 0;
	step_fn *first, *second = NULL;
	signal(SIGTERM, end);
	signal(SIGUSR1, load);
	if (argc < 3 || cuInit(0) || cuDeviceGet(&dev, 0) || cuDevicePrimaryCtxRetain(&ctx, dev) ||
		cuCtxSetCurrent(ctx) || !(first = library(argv[1])))
		return 3;
	touch(argc > 3 ? strtoul(argv[3], NULL, 10) : 0);
	for (uint32_t i = 0, since = 0; !over; i++) {
		int r = first(i, 1);
		wrong += r != 0;
		steps++;
		if (more && !second && !(second = library(argv[2])))
			return 3;
		if (second && since++ > 20) {
			wrong += second(i, 0) != 0;
			later++;
		}
		if (!i)
			printf("running\n");
		fflush(stdout);
		usleep(2000);
	}
	printf("steps %lu later %lu wrong %lu\n", steps, later, wrong);
	return wrong != 0;
}
