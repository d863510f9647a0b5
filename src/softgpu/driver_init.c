/* driver_init.c - cuInit, version, look-ups, and how a call enters and leaves. */
#include "softgpu/driver.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct drv_state drv = { .lock = PTHREAD_MUTEX_INITIALIZER, .progress = PTHREAD_COND_INITIALIZER };

static __thread bool per_thread, in_callback;

void drv_per_thread(bool on)
{
	per_thread = on;
}

bool drv_is_per_thread(void)
{
	return per_thread;
}

void drv_callback(bool on)
{
	in_callback = on;
}

/* -- handles ------------------------------------------------------------------- */

int drv_add_handle(struct drv_object *object)
{
	return table_put(drv.handles, &object, sizeof(object), object);
}

void drv_remove_handle(struct drv_object *object)
{
	table_remove(drv.handles, &object, sizeof(object));
}

void *drv_find(const void *handle, enum drv_kind kind)
{
	struct drv_object *o = handle ? table_get(drv.handles, &handle, sizeof(handle)) : NULL;
	return o && o->kind == kind ? o : NULL;
}

void drv_wait(void)
{
	pthread_cond_wait(&drv.progress, &drv.lock);
}

void drv_broadcast(void)
{
	pthread_cond_broadcast(&drv.progress);
}

/* -- entering -------------------------------------------------------------------- */

CUresult drv_leave(CUresult result)
{
	pthread_mutex_unlock(&drv.lock);
	return result;
}

CUresult drv_enter_init(void)
{
	if (in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	if (drv.forked) /* the lock may be held by a thread that is not in this process */
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&drv.lock);
	if (!drv.initialized)
		return drv_leave(CUDA_ERROR_NOT_INITIALIZED);
	return CUDA_SUCCESS;
}

CUresult drv_enter_failed(struct CUctx_st **ctx)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*ctx = drv_current();
	if (!*ctx)
		return drv_leave(drv_ctx_destroyed() ? CUDA_ERROR_CONTEXT_IS_DESTROYED
						     : CUDA_ERROR_INVALID_CONTEXT);
	return CUDA_SUCCESS;
}

CUresult drv_enter(struct CUctx_st **ctx)
{
	CUresult r = drv_enter_failed(ctx);
	if (r)
		return r;
	int error = (*ctx)->error;
	return error ? drv_leave(error) : CUDA_SUCCESS;
}

bool drv_device_ok(CUdevice dev)
{
	return dev >= 0 && dev < drv.n_devices;
}

/* -- start ------------------------------------------------------------------------ */

static void after_fork(void)
{
	if (drv.initialized)
		drv.forked = true;
}

/* CUDA_VISIBLE_DEVICES as NVIDIA's driver reads it: the list ends at the first entry that names no
 * device, and one that names a device twice names none. All devices are alike, so their number is
 * all that is left of it. */
static int count_devices(int there)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	uint32_t seen = 0;
	int n = 0;
	if (!list)
		return there;
	while (*list) {
		char *end;
		size_t length = strcspn(list, ",");
		long d = -1;
		if (*list >= '0' && *list <= '9') {
			d = strtol(list, &end, 10);
			if (end != list + length)
				d = -1;
		} else if (length >= 4 && !strncmp(list, "GPU-", 4)) { /* the first that is left */
			for (d = 0; d < there && seen >> d & 1; d++)
				;
		}
		if (d < 0 || d >= there)
			break;
		if (seen >> d & 1)
			return 0;
		seen |= 1u << d;
		n++;
		list += length;
		list += *list == ',';
	}
	return n;
}

static CUresult open_pool(CUdevice dev)
{
	struct CUmemPoolHandle_st *p = calloc(1, sizeof(*p));
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*p = (struct CUmemPoolHandle_st){ .object.kind = DRV_POOL,
		.next = drv.pools,
		.is_default = true,
		.device = dev,
		.follow_events = 1,
		.opportunistic = 1,
		.internal_deps = 1 };
	drv.pools = drv.devices[dev].default_pool = drv.devices[dev].current_pool = p;
	return drv_add_handle(&p->object) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult start(void)
{
	struct diag d = { 0 };
	if (drv_settings(getenv("EGPU_SOFTGPU"), &drv.config, &d)) {
		fprintf(stderr, "egpu: %s\n", d.text);
		return CUDA_ERROR_INVALID_VALUE;
	}
	drv.n_devices = count_devices(drv.n_devices);
	if (!drv.n_devices)
		return CUDA_ERROR_NO_DEVICE;
	drv.handles = table_new();
	drv.allocs = table_new();
	if (!drv.handles || !drv.allocs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv.device_bytes = drv.config.memory_bytes;
	drv.config.memory_bytes *= (uint64_t)drv.n_devices;
	CUresult r = sg_device_new(&drv.config, &drv.dev);
	if (r)
		return r;
	drv.config = *sg_device_config(drv.dev);
	for (int i = 0; i < drv.n_devices && !r; i++)
		r = open_pool(i);
	return r;
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	if (drv.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&drv.lock);
	if (!drv.initialized && !drv.init_error) {
		drv.init_error = start();
		drv.initialized = !drv.init_error;
		if (drv.initialized)
			pthread_atfork(NULL, NULL, after_fork);
	}
	return drv_leave(drv.init_error);
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = DRV_VERSION;
	return CUDA_SUCCESS;
}

/* -- look-ups ----------------------------------------------------------------------- */

struct lookup {
	const char *name, *symbol;
	int since;
	void *plain, *twin; /* twin NULL: none */
};

#define TWIN_OF_(symbol) NULL
#define TWIN_OF__ptsz(symbol) (void *)symbol##_ptsz
#define TWIN_OF__ptds(symbol) (void *)symbol##_ptds
#define LOOKUP(name, suffix, since, ptds, flags, params, args)                                     \
	{ #name, #name #suffix, since, (void *)name##suffix, TWIN_OF_##ptds(name##suffix) },

static const struct lookup lookups[] = { CUDA_CALLS(LOOKUP) };

/* Twins appeared with 7.0, whatever the age of the call. */
static void *address_of(const struct lookup *l, int version, bool want_twin)
{
	return want_twin && l->twin && version >= 7000 ? l->twin : l->plain;
}

/* The newest symbol of the name that a program of that version knows. Names that carry their
 * suffix are found too: some programs ask for cuMemAlloc_v2. */
static void *look_up(
	const char *name, int version, bool twin, CUdriverProcAddressQueryResult *status)
{
	const struct lookup *best = NULL;
	*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	for (size_t i = 0; i < sizeof(lookups) / sizeof(*lookups); i++) {
		const struct lookup *l = &lookups[i];
		bool exact = strcmp(l->name, l->symbol) && !strcmp(name, l->symbol);
		if (strcmp(name, l->name) && !exact)
			continue;
		if (l->since <= version || exact)
			best = l;
		else if (!best)
			*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	}
	if (!best)
		return NULL;
	*status = CU_GET_PROC_ADDRESS_SUCCESS;
	return address_of(best, version, twin);
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **fn, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult ignored;
	if (!symbol || !*symbol || !fn || flags > 2 || version < 0 || version > DRV_VERSION + 999)
		return CUDA_ERROR_INVALID_VALUE;
	*fn = look_up(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
		status ? status : &ignored);
	/* NVIDIA's driver reports a miss both ways: in status when it is asked for, else as a
	 * result. */
	return *fn || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **fn, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, fn, version, flags, NULL);
}

/* NVIDIA's CUDA runtime is the one caller of this. It checks with private tables that it talks to
 * NVIDIA's own driver, and we do not defeat that check: it fails, with a message that says what to
 * do. */
CUresult CUDAAPI cuGetExportTable(const void **table, const CUuuid *id)
{
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	pthread_mutex_lock(&drv.lock);
	bool told = drv.told_runtime;
	drv.told_runtime = true;
	pthread_mutex_unlock(&drv.lock);
	Dl_info caller;
	bool shared = dladdr(__builtin_return_address(0), &caller) && caller.dli_fname &&
		      strstr(caller.dli_fname, "libcudart.so");
	if (!told && shared)
		fprintf(stderr,
			"egpu softgpu: this program has loaded NVIDIA's CUDA runtime, which works "
			"only "
			"with NVIDIA's own driver: %s\n"
			"egpu softgpu: `egpu run --softgpu` puts ours in its place; without it, "
			"set "
			"LD_LIBRARY_PATH to the directory of softgpu's libcuda.so.1. A program "
			"with an "
			"RPATH (not RUNPATH) must be linked without it.\n",
			caller.dli_fname);
	else if (!told)
		fputs("egpu softgpu: this program contains NVIDIA's CUDA runtime, which works only "
		      "with NVIDIA's own driver.\n"
		      "egpu softgpu: rebuild it with `nvcc -cudart shared` (CMake: "
		      "CUDA_RUNTIME_LIBRARY Shared), or run it on a machine with an NVIDIA GPU.\n",
			stderr);
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuProfilerStart(void)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	return r ? r : drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuProfilerStop(void)
{
	return cuProfilerStart();
}
