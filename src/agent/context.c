/* context.c - what the agent keeps for a context: device, private stream, clock. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"

enum { SETTLE_MS = 2000, RELEASE_SETTLE_MS = 200, CLOCK_SAMPLES = 12, CLOCK_TICK_NS = 32 };

static int attribute(CUdevice_attribute which, CUdevice device)
{
	int v = 0;
	return REAL(cuDeviceGetAttribute)(&v, which, device) == CUDA_SUCCESS ? v : 0;
}

static uint32_t device_cc(CUdevice device)
{
	int major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	int minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	return (uint32_t)(major * 10 + minor);
}

uint32_t context_cc_hint(void)
{
	CUdevice device;
	CUcontext current = NULL;
	if (REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current &&
		REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS)
		return device_cc(device);
	return REAL(cuDeviceGet)(&device, 0) == CUDA_SUCCESS ? device_cc(device) : 0;
}

/* The context is active, so taking and giving back a reference changes nothing. */
static bool is_primary(CUcontext handle, CUdevice device)
{
	CUcontext primary = NULL;
	unsigned int flags;
	int active = 0;
	if (!REAL(cuDevicePrimaryCtxGetState) ||
		REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS ||
		!active)
		return false;
	if (REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return false;
	REAL(cuDevicePrimaryCtxRelease_v2)(device);
	return primary == handle;
}

static struct context *find(CUcontext handle)
{
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		if (c->handle == handle && !atomic_load(&c->dead))
			return c;
	return NULL;
}

static struct context *make(CUcontext handle)
{
	CUcontext was;
	CUdevice device = 0;
	struct context *c = calloc(1, sizeof(*c));
	if (!c || REAL(cuCtxPushCurrent_v2)(handle) != CUDA_SUCCESS) {
		free(c);
		return NULL;
	}
	bool known = REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS;
	REAL(cuCtxPopCurrent_v2)(&was);
	if (!known) {
		free(c);
		return NULL;
	}
	c->handle = handle;
	c->device = device;
	c->cc = device_cc(device);
	c->sms = (uint32_t)attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	c->primary = is_primary(handle, device);
	return c;
}

/* A parked record becomes that of a context again. Under agent.lock. */
static struct context *wake(const struct context *as)
{
	struct context *c = atomic_load(&agent.contexts);
	while (c && !(c->parked && c->handle == as->handle))
		c = c->next;
	if (!c)
		return NULL;
	c->parked = false;
	c->device = as->device;
	c->cc = as->cc;
	c->sms = as->sms;
	c->primary = as->primary;
	atomic_store(&c->known, 0);
	atomic_store(&c->dirty, 0);
	atomic_store(&c->dead, 0);
	return c;
}

struct context *context_get(CUcontext handle)
{
	struct context *c = handle ? find(handle) : NULL;
	if (c || !handle)
		return c;
	struct context *fresh = make(handle);
	lock_take(&agent.lock);
	c = find(handle);
	if (!c && fresh)
		c = wake(fresh);
	if (!c && fresh) {
		c = fresh;
		c->next = atomic_load(&agent.contexts);
		atomic_store(&agent.contexts, c);
		fresh = NULL;
	}
	lock_drop(&agent.lock);
	free(fresh);
	return c;
}

struct context *context_current(void)
{
	CUcontext handle = NULL;
	return REAL(cuCtxGetCurrent)(&handle) == CUDA_SUCCESS ? context_get(handle) : NULL;
}

/* -- clock -------------------------------------------------------------------- */

static const char clock_ptx[] = ".version %s\n.target %s\n.address_size 64\n"
				".visible .entry egpu_clock(.param .u64 out)\n"
				"{\n\t.reg .b64 %%rd<4>;\n"
				"\tld.param.u64 %%rd1, [out];\n"
				"\tcvta.to.global.u64 %%rd2, %%rd1;\n"
				"\tmov.u64 %%rd3, %%globaltimer;\n"
				"\tst.global.u64 [%%rd2], %%rd3;\n"
				"\tret;\n}\n";

/* One round trip: the device read its timer between `before` and `after`, so the offset lies between
 * the two differences. */
static bool sample_clock(struct context *c, int64_t *low, int64_t *high)
{
	void *params[] = { &c->clock_cell };
	uint64_t device = 0;
	uint64_t before = now_ns();
	if (REAL(cuLaunchKernel)(c->clock_fn, 1, 1, 1, 1, 1, 1, 0, c->stream, params, NULL) !=
			CUDA_SUCCESS ||
		REAL(cuStreamSynchronize)(c->stream) != CUDA_SUCCESS)
		return false;
	uint64_t after = now_ns();
	if (REAL(cuMemcpyDtoHAsync_v2)(&device, c->clock_cell, sizeof(device), c->stream) !=
			CUDA_SUCCESS ||
		REAL(cuStreamSynchronize)(c->stream) != CUDA_SUCCESS)
		return false;
	if ((int64_t)(before - device) > *low)
		*low = (int64_t)(before - device);
	if ((int64_t)(after - device) < *high)
		*high = (int64_t)(after - device);
	return true;
}

/* CLOCK_MONOTONIC minus %globaltimer: every sample bounds it from both sides, so all of them together
 * bound it better than the best. False where it cannot be measured. */
static bool measure_clock(struct context *c, int64_t *offset, uint64_t *error)
{
	int64_t low = INT64_MIN, high = INT64_MAX;
	int n = 0;
	while (n < CLOCK_SAMPLES && sample_clock(c, &low, &high))
		n++;
	if (n < CLOCK_SAMPLES)
		return false;
	/* A timer that ticks every microsecond, or was set meanwhile, can cross its own bounds. */
	uint64_t width = high > low ? (uint64_t)(high - low) : (uint64_t)(low - high);
	*offset = low + (high - low) / 2;
	*error = width / 2 + CLOCK_TICK_NS;
	return true;
}

static void publish_clock(const struct context *c, uint64_t error)
{
	agent_log("clock offset %lld ns, within %llu ns", (long long)c->clock_offset_ns,
		(unsigned long long)error);
	if (!agent.row)
		return;
	if (error > __atomic_load_n(&agent.row->clock_error_ns, __ATOMIC_RELAXED))
		__atomic_store_n(&agent.row->clock_error_ns, error, __ATOMIC_RELAXED);
}

void context_clock(struct context *c)
{
	char ptx[640], *cubin = NULL;
	size_t bytes;
	uint64_t error;
	if (c->clock_asked)
		return;
	c->clock_asked = true;
	int n = snprintf(ptx, sizeof(ptx), clock_ptx, c->cc >= 75 ? "6.3" : "6.0",
		c->cc >= 75 ? "sm_75" : "sm_52");
	if (compile_ptx(ptx, (size_t)n, c->cc, &cubin, &bytes, NULL))
		return;
	if (REAL(cuModuleLoadData)(&c->clock_module, cubin) == CUDA_SUCCESS &&
		REAL(cuModuleGetFunction)(&c->clock_fn, c->clock_module, "egpu_clock") == CUDA_SUCCESS &&
		REAL(cuMemAlloc_v2)(&c->clock_cell, sizeof(uint64_t)) == CUDA_SUCCESS &&
		measure_clock(c, &c->clock_offset_ns, &error))
		publish_clock(c, error);
	else
		c->clock_fn = NULL;
	free(cubin);
}

void context_check_clock(struct context *c)
{
	int64_t offset;
	uint64_t error;
	if (!c->clock_fn || !measure_clock(c, &offset, &error))
		return;
	int64_t drift = offset - c->clock_offset_ns;
	publish_clock(c, error + (uint64_t)(drift < 0 ? -drift : drift));
}

static const char local_ptx[] =
	".version %s\n.target %s\n.address_size 64\n"
	".visible .entry egpu_local(.param .u64 out, .param .u32 i)\n"
	"{\n\t.local .align 16 .b8 pad[%u];\n\t.reg .b32 %%r<3>;\n\t.reg .b64 %%rd<6>;\n"
	"\tld.param.u64 %%rd1, [out];\n\tld.param.u32 %%r1, [i];\n"
	"\tcvt.u64.u32 %%rd2, %%r1;\n\tmov.u64 %%rd3, pad;\n\tadd.u64 %%rd4, %%rd3, %%rd2;\n"
	"\tst.local.u32 [%%rd4], %%r1;\n\tld.local.u32 %%r2, [pad];\n"
	"\tcvta.to.global.u64 %%rd5, %%rd1;\n\tst.global.u32 [%%rd5], %%r2;\n\tret;\n}\n";

void context_reserve_local(struct context *c, uint32_t bytes)
{
	char ptx[1024], *cubin = NULL;
	size_t size;
	CUmodule module = NULL;
	CUfunction fn;
	CUdeviceptr cell = 0;
	uint32_t at = 0;
	if (bytes <= c->local_bytes)
		return;
	uint32_t want = (bytes + 1023) / 1024 * 1024;
	int n = snprintf(ptx, sizeof(ptx), local_ptx, c->cc >= 75 ? "6.3" : "6.0",
		c->cc >= 75 ? "sm_75" : "sm_52", want);
	struct diag d = { 0 };
	if (compile_ptx(ptx, (size_t)n, c->cc, &cubin, &size, &d)) {
		agent_log("no local memory reserved: %s", d.text);
		return;
	}
	if (REAL(cuModuleLoadData)(&module, cubin) == CUDA_SUCCESS &&
		REAL(cuModuleGetFunction)(&fn, module, "egpu_local") == CUDA_SUCCESS &&
		REAL(cuMemAlloc_v2)(&cell, 16) == CUDA_SUCCESS) {
		void *params[] = { &cell, &at };
		if (REAL(cuLaunchKernel)(fn, 1, 1, 1, 1, 1, 1, 0, c->stream, params, NULL) ==
				CUDA_SUCCESS &&
			REAL(cuStreamSynchronize)(c->stream) == CUDA_SUCCESS) {
			c->local_bytes = want;
			agent_log("%u bytes of local memory a thread reserved", want);
		}
		REAL(cuMemFree_v2)(cell);
	}
	if (module)
		REAL(cuModuleUnload)(module);
	free(cubin);
}

int context_prepare(struct context *c, struct diag *d)
{
	if (c->ready)
		return 0;
	if (REAL(cuStreamCreate)(&c->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		return diag_set(d, EIO, "the driver gives egpu no stream");
	c->ready = true;
	return 0;
}

void context_rest(struct context *c)
{
	CUcontext was;
	lock_take(&c->copying);
	if (c->ready && !c->map_mask && !c->live && REAL(cuCtxPushCurrent_v2)(c->handle) == CUDA_SUCCESS) {
		if (REAL(cuStreamDestroy_v2))
			REAL(cuStreamDestroy_v2)(c->stream);
		if (c->clock_module)
			REAL(cuModuleUnload)(c->clock_module);
		if (c->clock_cell)
			REAL(cuMemFree_v2)(c->clock_cell);
		c->clock_module = NULL;
		c->clock_fn = NULL;
		c->clock_cell = 0;
		c->clock_asked = false;
		c->local_bytes = 0;
		c->ready = false;
		REAL(cuCtxPopCurrent_v2)(&was);
	}
	lock_drop(&c->copying);
}

void context_park(struct context *c)
{
	CUcontext was;
	lock_take(&c->copying);
	if (!atomic_load(&c->dead)) {
		bool empty = !c->ready && !c->map_mask && !c->live;
		if (c->ready && REAL(cuStreamDestroy_v2) &&
			REAL(cuCtxPushCurrent_v2)(c->handle) == CUDA_SUCCESS) {
			REAL(cuStreamDestroy_v2)(c->stream);
			REAL(cuCtxPopCurrent_v2)(&was);
		}
		c->ready = false;
		atomic_store(&c->dead, 1);
		lock_take(&agent.lock);
		c->parked = empty;
		lock_drop(&agent.lock);
	}
	lock_drop(&c->copying);
}

/* -- end ------------------------------------------------------------------------ */

static struct context *begin_ending(struct context *c, int ms)
{
	if (!c)
		return NULL;
	if (atomic_load(&c->launches) && !atomic_load(&agent.captures))
		stream_settle(c->handle, ms);
	gputime_collect(c->handle);
	lock_take(&c->compiling);
	lock_take(&c->copying);
	if (c->ready)
		devmap_final(c);
	atomic_store(&c->ending, 1);
	return c;
}

struct context *context_ending(CUcontext handle)
{
	return begin_ending(handle ? find(handle) : NULL, SETTLE_MS);
}

struct context *context_ending_primary(CUdevice device, bool surely)
{
	struct context *c = atomic_load(&agent.contexts);
	while (c && (!c->primary || c->device != device || atomic_load(&c->dead)))
		c = c->next;
	return begin_ending(c, surely ? SETTLE_MS : RELEASE_SETTLE_MS);
}

void context_ended(struct context *c, bool gone)
{
	if (!c)
		return;
	if (gone) {
		atomic_store(&c->dead, 1);
		for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++) {
			if (!c->maps[i].instance)
				continue;
			if (c->maps[i].is_ring)
				drain_give_up(c, i);
			__atomic_store_n(&c->maps[i].instance->ended, 1, __ATOMIC_RELEASE);
			map_instance_close(c->maps[i].instance);
			free(c->maps[i].bins);
			c->maps[i].bins = NULL;
			c->maps[i].instance = NULL;
			c->maps[i].image = NULL;
		}
	}
	atomic_store(&c->ending, gone);
	lock_drop(&c->copying);
	lock_drop(&c->compiling);
	if (gone) {
		stream_context_gone(c->handle);
		gputime_context_gone(c->handle);
		variant_context_gone(c);
	}
}

/* -- hooks ---------------------------------------------------------------------- */

CUresult hook_cuCtxDestroy(CUcontext ctx);
CUresult hook_cuCtxDestroy_v2(CUcontext ctx);
CUresult hook_cuCtxDetach(CUcontext ctx);
CUresult hook_cuDevicePrimaryCtxRelease(CUdevice dev);
CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev);
CUresult hook_cuDevicePrimaryCtxReset(CUdevice dev);
CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev);
CUresult hook_cuCtxSynchronize(void);
CUresult hook_cuCtxSynchronize_v2(CUcontext ctx);

static CUresult destroy(CUcontext handle, CUresult (*call)(CUcontext))
{
	struct context *c = context_ending(handle);
	CUresult r = call(handle);
	context_ended(c, r == CUDA_SUCCESS);
	return r;
}

CUresult hook_cuCtxDestroy(CUcontext ctx)
{
	return destroy(ctx, REAL(cuCtxDestroy));
}

CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
	return destroy(ctx, REAL(cuCtxDestroy_v2));
}

CUresult hook_cuCtxDetach(CUcontext ctx)
{
	return destroy(ctx, REAL(cuCtxDetach));
}

/* Only the last reference ends a primary context. */
static CUresult release(CUdevice device, CUresult (*call)(CUdevice))
{
	unsigned int flags;
	int active = 1;
	struct context *c = context_ending_primary(device, false);
	CUresult r = call(device);
	if (c && r == CUDA_SUCCESS &&
		REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS)
		active = 1;
	context_ended(c, c && r == CUDA_SUCCESS && !active);
	return r;
}

static CUresult reset(CUdevice device, CUresult (*call)(CUdevice))
{
	struct context *c = context_ending_primary(device, true);
	CUresult r = call(device);
	context_ended(c, r == CUDA_SUCCESS);
	return r;
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return release(dev, REAL(cuDevicePrimaryCtxRelease));
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return release(dev, REAL(cuDevicePrimaryCtxRelease_v2));
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice dev)
{
	return reset(dev, REAL(cuDevicePrimaryCtxReset));
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return reset(dev, REAL(cuDevicePrimaryCtxReset_v2));
}

/* What was launched before the call is done after it. */
static void synchronised(CUcontext handle, uint64_t launches, uint64_t epoch)
{
	struct context *c = find(handle);
	if (c && atomic_load(&c->finished) < launches)
		atomic_store(&c->finished, launches);
	stream_all_synchronised(handle, c, epoch);
	devmap_after_sync(handle);
	agent_moment(LOAD_SYNC);
}

static uint64_t launches_of(CUcontext handle)
{
	struct context *c = find(handle);
	return c ? atomic_load(&c->launches) : 0;
}

CUresult hook_cuCtxSynchronize(void)
{
	CUcontext handle = NULL;
	REAL(cuCtxGetCurrent)(&handle);
	uint64_t launches = launches_of(handle), epoch = stream_epoch(), all = blackbox_launches();
	CUresult r = REAL(cuCtxSynchronize)();
	blackbox_result("cuCtxSynchronize", r);
	if (r == CUDA_SUCCESS) {
		blackbox_done(all);
		synchronised(handle, launches, epoch);
	}
	return r;
}

CUresult hook_cuCtxSynchronize_v2(CUcontext ctx)
{
	CUcontext handle = ctx;
	if (!handle)
		REAL(cuCtxGetCurrent)(&handle);
	uint64_t launches = launches_of(handle), epoch = stream_epoch(), all = blackbox_launches();
	CUresult r = REAL(cuCtxSynchronize_v2)(ctx);
	blackbox_result("cuCtxSynchronize", r);
	if (r == CUDA_SUCCESS) {
		blackbox_done(all);
		synchronised(handle, launches, epoch);
	}
	return r;
}
