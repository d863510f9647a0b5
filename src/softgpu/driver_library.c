/* driver_library.c - libraries: code that is loaded once and finds its way into each context by
 * itself. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

/* -- loading -------------------------------------------------------------------------- */

static void library_free(struct CUlib_st *lib)
{
	for (uint32_t i = 0; i < lib->n_kernels; i++)
		drv_remove_handle(&lib->kernels[i].object);
	drv_remove_handle(&lib->object);
	sg_module_free(lib->first);
	for (uint32_t i = 0; i < lib->n_kernels; i++)
		free(lib->kernels[i].name);
	free(lib->kernels);
	free(lib->ptx);
	free(lib);
}

static CUresult add_kernel(struct CUlib_st *lib, struct sg_kernel *kernel)
{
	struct CUkern_st *k = &lib->kernels[lib->n_kernels];
	struct sg_kernel_info info;
	sg_kernel_get_info(kernel, &info);
	*k = (struct CUkern_st){ .object.kind = DRV_KERNEL,
		.library = lib,
		.index = lib->n_kernels,
		.name = strdup(info.name) };
	for (size_t i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++)
		k->attrs[i] = -1;
	lib->n_kernels++;
	return !k->name || drv_add_handle(&k->object) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* With the lock. Takes ptx and code on success. */
static CUresult library_new(char *ptx, size_t bytes, struct sg_module *code, struct CUlib_st **out)
{
	uint32_t n = 0;
	while (sg_module_kernel_at(code, n))
		n++;
	struct CUlib_st *lib = calloc(1, sizeof(*lib));
	if (!lib)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lib->object.kind = DRV_LIBRARY;
	lib->kernels = calloc(n + 1, sizeof(*lib->kernels));
	CUresult r = !lib->kernels || drv_add_handle(&lib->object) ? CUDA_ERROR_OUT_OF_MEMORY
								   : CUDA_SUCCESS;
	for (uint32_t i = 0; i < n && !r; i++)
		r = add_kernel(lib, sg_module_kernel_at(code, i));
	if (r) {
		library_free(lib);
		return r;
	}
	lib->ptx = ptx;
	lib->ptx_bytes = bytes;
	lib->first = code;
	lib->next = drv.libraries;
	drv.libraries = lib;
	*out = lib;
	return CUDA_SUCCESS;
}

/* Takes ptx. */
static CUresult load(
	CUlibrary *out, CUresult r, char *ptx, size_t bytes, struct drv_jit *jit, struct diag *d)
{
	uint64_t start = drv_now_ns();
	struct sg_module *code = NULL;
	if (!r)
		r = sg_module_load(drv.dev, ptx, bytes, &code, d);
	if (!r && !(r = drv_enter_init()))
		r = drv_leave(library_new(ptx, bytes, code, out));
	if (r) {
		sg_module_free(code);
		free(ptx);
	}
	drv_jit_done(jit, d, (double)(drv_now_ns() - start) / 1e6);
	return r;
}

static CUresult check_load(const void *out, const void *code, unsigned int n_jit,
	CUjit_option *jit_options, void **jit_values, unsigned int n, CUlibraryOption *options,
	void **values, struct drv_jit *jit)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	pthread_mutex_unlock(&drv.lock);
	if (!out || !code || (n && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < n; i++)
		if ((unsigned int)options[i] >= CU_LIBRARY_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
	return drv_jit_read(n_jit, jit_options, jit_values, jit);
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit_options,
	void **jit_values, unsigned int n_jit, CUlibraryOption *options, void **values,
	unsigned int n)
{
	struct drv_jit jit;
	struct diag d = { 0 };
	char *ptx = NULL;
	size_t bytes = 0;
	CUresult r =
		check_load(out, code, n_jit, jit_options, jit_values, n, options, values, &jit);
	if (r)
		return r;
	r = drv_image_ptx(code, &ptx, &bytes, &d);
	return load(out, r, ptx, bytes, &jit, &d);
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit_options,
	void **jit_values, unsigned int n_jit, CUlibraryOption *options, void **values,
	unsigned int n)
{
	struct drv_jit jit;
	struct diag d = { 0 };
	char *data = NULL, *ptx = NULL;
	size_t size = 0, bytes = 0;
	CUresult r =
		check_load(out, path, n_jit, jit_options, jit_values, n, options, values, &jit);
	if (r || (r = drv_read_file(path, &data, &size)))
		return r;
	r = drv_bytes_ptx(data, size, &ptx, &bytes, &d);
	free(data);
	return load(out, r, ptx, bytes, &jit, &d);
}

static struct CUmod_st *module_in(const struct CUctx_st *ctx, const struct CUlib_st *lib)
{
	struct CUmod_st *m = ctx->modules;
	while (m && m->library != lib)
		m = m->next;
	return m;
}

static void unlink_library(struct CUlib_st *lib)
{
	for (struct CUlib_st **at = &drv.libraries; *at; at = &(*at)->next)
		if (*at == lib) {
			*at = lib->next;
			return;
		}
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUlib_st *lib = drv_find(handle, DRV_LIBRARY);
	if (!lib)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	drv_remove_handle(&lib->object);
	for (uint32_t i = 0; i < lib->n_kernels; i++)
		drv_remove_handle(&lib->kernels[i].object);
	unlink_library(lib);
	/* Freeing a module may let go of the lock, so the search starts over after each. */
	for (struct CUctx_st *ctx = drv.contexts; ctx;) {
		struct CUmod_st *m = module_in(ctx, lib);
		if (m)
			drv_module_free(m);
		ctx = m ? drv.contexts : ctx->next;
	}
	library_free(lib);
	return drv_leave(CUDA_SUCCESS);
}

/* -- in a context ------------------------------------------------------------------------ */

/* The attributes that were set before the kernel had a function here. */
static void apply_attributes(const struct CUlib_st *lib, struct CUmod_st *m)
{
	for (uint32_t i = 0; i < lib->n_kernels; i++)
		for (unsigned int a = 0; a < CU_FUNC_ATTRIBUTE_MAX; a++)
			if (lib->kernels[i].attrs[a] != -1)
				drv_function_set(&m->functions[i], (CUfunction_attribute)a,
					lib->kernels[i].attrs[a]);
}

/* A second context compiles again, under the lock: rare, and simpler than to guard everything that
 * the caller has looked up. */
CUresult drv_library_module(struct CUctx_st *ctx, struct CUlib_st *lib, struct CUmod_st **out)
{
	struct CUmod_st *m = module_in(ctx, lib);
	if (m) {
		*out = m;
		return CUDA_SUCCESS;
	}
	struct sg_module *code = lib->first;
	CUresult r = CUDA_SUCCESS;
	if (!code)
		r = sg_module_load(drv.dev, lib->ptx, lib->ptx_bytes, &code, NULL);
	if (!r && (r = drv_module_new(ctx, lib, code, &m)) && code != lib->first)
		sg_module_free(code);
	if (r)
		return r;
	lib->first = NULL;
	apply_attributes(lib, m);
	*out = m;
	return CUDA_SUCCESS;
}

CUresult drv_function_of(struct CUctx_st *ctx, const void *handle, struct CUfunc_st **out)
{
	struct CUfunc_st *f = drv_find(handle, DRV_FUNCTION);
	struct CUkern_st *k = f ? NULL : drv_find(handle, DRV_KERNEL);
	struct CUmod_st *m;
	if (f) {
		*out = f;
		return CUDA_SUCCESS;
	}
	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = drv_library_module(ctx, k->library, &m);
	if (!r)
		*out = &m->functions[k->index];
	return r;
}

/* -- look-ups ------------------------------------------------------------------------------ */

static CUresult enter_library(CUlibrary handle, struct CUlib_st **lib)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*lib = drv_find(handle, DRV_LIBRARY);
	return *lib ? CUDA_SUCCESS : drv_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name)
{
	struct CUlib_st *lib;
	CUresult r = enter_library(handle, &lib);
	if (r)
		return r;
	if (!out || !name)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (uint32_t i = 0; i < lib->n_kernels; i++)
		if (!strcmp(lib->kernels[i].name, name)) {
			*out = &lib->kernels[i];
			return drv_leave(CUDA_SUCCESS);
		}
	return drv_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
	struct CUlib_st *lib;
	CUresult r = enter_library(handle, &lib);
	if (r)
		return r;
	if (!count)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*count = lib->n_kernels;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int n, CUlibrary handle)
{
	struct CUlib_st *lib;
	CUresult r = enter_library(handle, &lib);
	if (r)
		return r;
	if (!kernels || !n)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (unsigned int i = 0; i < n && i < lib->n_kernels; i++)
		kernels[i] = &lib->kernels[i];
	return drv_leave(CUDA_SUCCESS);
}

/* Enters with the library's module in the current context. */
static CUresult enter_library_module(CUlibrary handle, struct CUmod_st **m)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUlib_st *lib = drv_find(handle, DRV_LIBRARY);
	r = lib ? drv_library_module(ctx, lib, m) : CUDA_ERROR_INVALID_HANDLE;
	return r ? drv_leave(r) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule *out, CUlibrary handle)
{
	struct CUmod_st *m;
	CUresult r = enter_library_module(handle, &m);
	if (r)
		return r;
	if (!out)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*out = m;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLibraryGetGlobal(
	CUdeviceptr *addr, size_t *bytes, CUlibrary handle, const char *name)
{
	struct CUmod_st *m;
	CUresult r = enter_library_module(handle, &m);
	if (r)
		return r;
	uint64_t at;
	size_t size;
	if (!name || (!addr && !bytes))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	r = sg_module_global(m->code, name, &at, &size);
	if (!r && addr)
		*addr = at;
	if (!r && bytes)
		*bytes = size;
	return drv_leave(r);
}

/* Device memory is host memory here, so a managed variable is one like any other. */
CUresult CUDAAPI cuLibraryGetManaged(
	CUdeviceptr *addr, size_t *bytes, CUlibrary lib, const char *name)
{
	return cuLibraryGetGlobal(addr, bytes, lib, name);
}

/* -- kernels --------------------------------------------------------------------------------- */

static CUresult enter_kernel(CUkernel handle, struct CUkern_st **k)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*k = drv_find(handle, DRV_KERNEL);
	return *k ? CUDA_SUCCESS : drv_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *out, CUkernel handle)
{
	struct CUctx_st *ctx;
	struct CUfunc_st *f;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!out)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!drv_find(handle, DRV_KERNEL))
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!(r = drv_function_of(ctx, handle, &f)))
		*out = f;
	return drv_leave(r);
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary *out, CUkernel handle)
{
	struct CUkern_st *k;
	CUresult r = enter_kernel(handle, &k);
	if (r)
		return r;
	if (!out)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*out = k->library;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuKernelGetName(const char **name, CUkernel handle)
{
	struct CUkern_st *k;
	CUresult r = enter_kernel(handle, &k);
	if (r)
		return r;
	if (!name)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*name = k->name;
	return drv_leave(CUDA_SUCCESS);
}

/* A function to ask about the kernel: any context's, or one made for the question around the code
 * that no context has taken yet. */
static CUresult some_function(
	struct CUkern_st *k, struct CUfunc_st *scratch, struct CUfunc_st **out)
{
	struct CUlib_st *lib = k->library;
	if (lib->first) {
		struct sg_kernel *kernel = sg_module_kernel_at(lib->first, k->index);
		*scratch = (struct CUfunc_st){ .kernel = kernel, .carveout = -1 };
		sg_kernel_get_info(kernel, &scratch->info);
		uint32_t room = drv_shared_default();
		scratch->max_dynamic_shared =
			scratch->info.static_shared_bytes < room
				? (int)(room - scratch->info.static_shared_bytes)
				: 0;
		for (unsigned int a = 0; a < CU_FUNC_ATTRIBUTE_MAX; a++)
			if (k->attrs[a] != -1)
				drv_function_set(scratch, (CUfunction_attribute)a, k->attrs[a]);
		*out = scratch;
		return CUDA_SUCCESS;
	}
	struct CUctx_st *current = drv_current();
	struct CUmod_st *m = current ? module_in(current, lib) : NULL;
	for (struct CUctx_st *ctx = drv.contexts; ctx && !m; ctx = ctx->next)
		m = module_in(ctx, lib);
	if (!m && current) {
		CUresult r = drv_library_module(current, lib, &m);
		if (r)
			return r;
	}
	if (!m)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = &m->functions[k->index];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuKernelGetAttribute(
	int *value, CUfunction_attribute attr, CUkernel handle, CUdevice dev)
{
	struct CUkern_st *k;
	struct CUfunc_st scratch, *f;
	CUresult r = enter_kernel(handle, &k);
	if (r)
		return r;
	if (!value)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	r = some_function(k, &scratch, &f);
	return drv_leave(r ? r : drv_function_attribute(f, attr, value));
}

CUresult CUDAAPI cuKernelSetAttribute(
	CUfunction_attribute attr, int value, CUkernel handle, CUdevice dev)
{
	struct CUkern_st *k;
	struct CUfunc_st scratch, *f;
	CUresult r = enter_kernel(handle, &k);
	if (r)
		return r;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	if ((r = some_function(k, &scratch, &f)) || (r = drv_function_set(f, attr, value)))
		return drv_leave(r);
	k->attrs[attr] = value;
	for (struct CUctx_st *ctx = drv.contexts; ctx; ctx = ctx->next) {
		struct CUmod_st *m = module_in(ctx, k->library);
		if (m)
			drv_function_set(&m->functions[k->index], attr, value);
	}
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice dev)
{
	struct CUkern_st *k;
	CUresult r = enter_kernel(handle, &k);
	if (r)
		return r;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	return drv_leave((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL
				 ? CUDA_ERROR_INVALID_VALUE
				 : CUDA_SUCCESS);
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *bytes)
{
	struct CUkern_st *k;
	struct CUfunc_st scratch, *f;
	CUresult r = enter_kernel(handle, &k);
	if (r)
		return r;
	if (!offset)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = some_function(k, &scratch, &f)))
		return drv_leave(r);
	if (index >= f->info.n_params)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*offset = f->info.param_offset[index];
	if (bytes)
		*bytes = f->info.param_size[index];
	return drv_leave(CUDA_SUCCESS);
}
