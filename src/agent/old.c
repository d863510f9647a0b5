/* old.c - launches as before CUDA 4.0: block, shared memory and parameters are set one by one, and stay with the function.
 *
 * The driver does not tell what was set, so it is noted here beside. What was set before we came is not known: such a function runs
 * unprobed until all of it has been set again, the size of shared memory included.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum { MAX_BYTES = 4096 }; /* of parameters: there were no more then */

struct old {
	struct lock lock;
	unsigned int block[3], shared;
	size_t bytes;			/* of parameters */
	bool shaped, shares, sized; /* block is known; shared; bytes */
	char params[MAX_BYTES];
};

/* Never freed: a launch may look at it. Where a handle's address comes again, all is set again before a launch. */
static struct old *of(CUfunction fn)
{
	struct old *o = handles_get(&agent.old, fn);
	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->shares = o->sized = !atomic_load(&agent.late); /* else they may have been set before */
	lock_take(&agent.lock);
	struct old *other = handles_get(&agent.old, fn);
	if (!other)
		handles_put(&agent.old, fn, o);
	lock_drop(&agent.lock);
	if (other)
		free(o);
	return other ? other : o;
}

#define HOOK(name, ...)                                                                            \
	CUresult hook_##name(__VA_ARGS__);                                                         \
	CUresult hook_##name(__VA_ARGS__)

/* What the driver has taken. */
#define NOTE(fn, r, what)                                                                          \
	do {                                                                                       \
		struct old *o = (r) == CUDA_SUCCESS ? of(fn) : NULL;                               \
		if (o) {                                                                           \
			lock_take(&o->lock);                                                       \
			what;                                                                      \
			lock_drop(&o->lock);                                                       \
		}                                                                                  \
	} while (0)

static void set_block(struct old *o, int x, int y, int z)
{
	o->block[0] = (unsigned int)x;
	o->block[1] = (unsigned int)y;
	o->block[2] = (unsigned int)z;
	o->shaped = true;
}

static void set_param(struct old *o, int offset, const void *data, size_t bytes)
{
	if (offset >= 0 && (size_t)offset <= MAX_BYTES && bytes <= MAX_BYTES - (size_t)offset)
		memcpy(o->params + offset, data, bytes);
	else
		o->shaped = false; /* not to be launched from here */
}

HOOK(cuFuncSetBlockShape, CUfunction fn, int x, int y, int z)
{
	CUresult r = REAL(cuFuncSetBlockShape)(fn, x, y, z);
	NOTE(fn, r, set_block(o, x, y, z));
	return r;
}

HOOK(cuFuncSetSharedSize, CUfunction fn, unsigned int bytes)
{
	CUresult r = REAL(cuFuncSetSharedSize)(fn, bytes);
	NOTE(fn, r, (o->shared = bytes, o->shares = true));
	return r;
}

HOOK(cuParamSetSize, CUfunction fn, unsigned int bytes)
{
	CUresult r = REAL(cuParamSetSize)(fn, bytes);
	NOTE(fn, r, (o->sized = bytes <= MAX_BYTES, o->bytes = o->sized ? bytes : 0));
	return r;
}

HOOK(cuParamSeti, CUfunction fn, int offset, unsigned int value)
{
	CUresult r = REAL(cuParamSeti)(fn, offset, value);
	NOTE(fn, r, set_param(o, offset, &value, sizeof(value)));
	return r;
}

HOOK(cuParamSetf, CUfunction fn, int offset, float value)
{
	CUresult r = REAL(cuParamSetf)(fn, offset, value);
	NOTE(fn, r, set_param(o, offset, &value, sizeof(value)));
	return r;
}

HOOK(cuParamSetv, CUfunction fn, int offset, void *data, unsigned int bytes)
{
	CUresult r = REAL(cuParamSetv)(fn, offset, data, bytes);
	NOTE(fn, r, set_param(o, offset, data, bytes));
	return r;
}

/* -- launches -------------------------------------------------------------------------- */

static CUresult run(CUfunction fn, enum old_launch how, int width, int height, CUstream stream)
{
	struct old *o = handles_get(&agent.old, fn);
	char params[MAX_BYTES];
	size_t bytes = 0;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
	struct launch l = { .fn = fn,
		.config = { .gridDimX = (unsigned int)width, .gridDimY = (unsigned int)height, .gridDimZ = 1, .hStream = stream },
		.extra = extra,
		.old = how,
		.opaque = true,
		.sample = { 1, 1, false } };
	if (o) {
		lock_take(&o->lock);
		l.opaque = !o->shaped || !o->shares || !o->sized || width <= 0 || height <= 0;
		l.config.blockDimX = o->block[0];
		l.config.blockDimY = o->block[1];
		l.config.blockDimZ = o->block[2];
		l.config.sharedMemBytes = o->shared;
		bytes = o->bytes;
		memcpy(params, o->params, bytes);
		lock_drop(&o->lock);
	}
	return launch_run(&l);
}

HOOK(cuLaunch, CUfunction fn)
{
	return run(fn, OLD_LAUNCH, 1, 1, NULL);
}

HOOK(cuLaunchGrid, CUfunction fn, int width, int height)
{
	return run(fn, OLD_GRID, width, height, NULL);
}

HOOK(cuLaunchGridAsync, CUfunction fn, int width, int height, CUstream stream)
{
	return run(fn, OLD_ASYNC, width, height, stream);
}
