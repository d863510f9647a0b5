/* softgpu_run.h - what the softgpu tests share: a device, a kernel from PTX text, one launch at a
 * time. */
#ifndef EGPU_TEST_SOFTGPU_RUN_H
#define EGPU_TEST_SOFTGPU_RUN_H

#include "softgpu/softgpu.h"
#include "tap.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define PTX_HEAD ".version 8.1\n.target sm_90\n.address_size 64\n"

static struct sg_device *device;

static void device_open(uint32_t workers, uint32_t seed)
{
	struct sg_config c = { .sm = 90,
		.n_sms = 4,
		.n_workers = workers,
		.memory_bytes = 256u << 20,
		.shuffle_seed = seed };
	if (sg_device_new(&c, &device) != CUDA_SUCCESS) {
		printf("Bail out! no device\n");
		exit(1);
	}
}

/* A launch that can be waited for. */
struct run {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	CUresult error;
};

static void run_done(void *arg, CUresult error)
{
	struct run *r = arg;
	pthread_mutex_lock(&r->lock);
	r->done = true;
	r->error = error;
	pthread_cond_broadcast(&r->cond);
	pthread_mutex_unlock(&r->lock);
}

static bool run_ended(struct run *r)
{
	pthread_mutex_lock(&r->lock);
	bool done = r->done;
	pthread_mutex_unlock(&r->lock);
	return done;
}

static CUresult run_start(struct run *r, struct sg_kernel *k, uint32_t grid, uint32_t block,
	uint32_t shared, const void *params, bool cooperative)
{
	struct sg_launch l = { .kernel = k,
		.grid = { grid, 1, 1 },
		.block = { block, 1, 1 },
		.dynamic_shared_bytes = shared,
		.params = params,
		.cooperative = cooperative };
	*r = (struct run){ .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	return sg_grid_start(device, &l, run_done, r);
}

static CUresult run_wait(struct run *r)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 120;
	pthread_mutex_lock(&r->lock);
	while (!r->done)
		if (pthread_cond_timedwait(&r->cond, &r->lock, &t)) {
			printf("Bail out! a grid does not end\n");
			fflush(stdout);
			_exit(1);
		}
	pthread_mutex_unlock(&r->lock);
	return r->error;
}

static struct sg_module *load(const char *ptx)
{
	struct sg_module *m = NULL;
	struct diag d = { 0 };
	CUresult r = sg_module_load(device, ptx, strlen(ptx), &m, &d);
	if (r != CUDA_SUCCESS)
		printf("# load: error %d, line %u: %s\n", r, d.line, d.text);
	return m;
}

static uint64_t alloc(size_t bytes)
{
	uint64_t a = 0;
	if (sg_mem_alloc(device, bytes, &a) == CUDA_SUCCESS)
		memset((void *)(uintptr_t)a, 0, bytes);
	return a;
}

/* Loads, runs kernel "k" once with the parameters, unloads. */
static CUresult run_ptx(
	const char *ptx, uint32_t grid, uint32_t block, uint32_t shared, const void *params)
{
	struct sg_module *m = load(ptx);
	struct run r;
	if (!m)
		return CUDA_ERROR_INVALID_PTX;
	CUresult e = run_start(&r, sg_module_kernel(m, "k"), grid, block, shared, params, false);
	if (e == CUDA_SUCCESS)
		e = run_wait(&r);
	sg_module_free(m);
	return e;
}

/* What goes to standard error while a launch runs. */
static int stderr_saved;
static FILE *stderr_file;

static void stderr_capture(void)
{
	fflush(stderr);
	stderr_file = tmpfile();
	stderr_saved = dup(2);
	dup2(fileno(stderr_file), 2);
}

static const char *stderr_end(void)
{
	static char text[4096];
	fflush(stderr);
	dup2(stderr_saved, 2);
	close(stderr_saved);
	rewind(stderr_file);
	size_t n = fread(text, 1, sizeof(text) - 1, stderr_file);
	text[n] = 0;
	fclose(stderr_file);
	return text;
}

#endif
