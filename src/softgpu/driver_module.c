/* driver_module.c - modules: from an image to kernels and variables. */
#include "softgpu/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/fatbin.h"

/* -- options ---------------------------------------------------------------------------- */

static CUresult jit_option(CUjit_option option, void **value, struct drv_jit *jit)
{
	switch (option) {
	case CU_JIT_ERROR_LOG_BUFFER:
		jit->error_log = *value;
		break;
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
		jit->error_bytes = (uint32_t)(uintptr_t)*value;
		jit->error_size = value;
		break;
	case CU_JIT_INFO_LOG_BUFFER:
		jit->info_log = *value;
		break;
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
		jit->info_bytes = (uint32_t)(uintptr_t)*value;
		jit->info_size = value;
		break;
	case CU_JIT_WALL_TIME:
		jit->wall_time = value;
		break;
	case CU_JIT_GLOBAL_SYMBOL_NAMES: /* NVIDIA's driver refuses these too */
	case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
	case CU_JIT_GLOBAL_SYMBOL_COUNT:
		return CUDA_ERROR_INVALID_VALUE;
	default: /* about code that is not generated here */
		if ((unsigned int)option >= CU_JIT_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult drv_jit_read(
	unsigned int n, const CUjit_option *options, void **values, struct drv_jit *jit)
{
	CUresult r = CUDA_SUCCESS;
	memset(jit, 0, sizeof(*jit));
	if (n && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < n && !r; i++)
		r = jit_option(options[i], &values[i], jit);
	return r;
}

/* Sizes come back as the bytes written, the float of the time in the low half of its pointer. */
static void fill_log(char *log, size_t bytes, void **size, const char *text)
{
	size_t n = 0;
	if (log && bytes) {
		n = strlen(text);
		if (n >= bytes)
			n = bytes - 1;
		memcpy(log, text, n);
		log[n] = 0;
	}
	if (size)
		*size = (void *)(uintptr_t)n;
}

void drv_jit_done(struct drv_jit *jit, const struct diag *d, double ms)
{
	char text[640] = "";
	if (d->err && d->line)
		snprintf(text, sizeof(text), "softgpu: line %u: %s\n", d->line, d->text);
	else if (d->err)
		snprintf(text, sizeof(text), "softgpu: %s\n", d->text);
	fill_log(jit->error_log, jit->error_bytes, jit->error_size, text);
	fill_log(jit->info_log, jit->info_bytes, jit->info_size, "");
	if (jit->wall_time) {
		float f = (float)ms;
		memcpy(jit->wall_time, &f, sizeof(f));
	}
}

/* -- images ------------------------------------------------------------------------------- */

/* The PTX of a whole image: one text, or those of its translation units joined. */
static CUresult units_ptx(struct fatbin *f, char **ptx, size_t *bytes, struct diag *d)
{
	struct fatbin_unit *units;
	uint32_t n, used = 0;
	if (fatbin_units(f, drv.config.sm, &units, &n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct drv_text *texts = calloc(n + 1, sizeof(*texts));
	CUresult r = texts ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < n && !r; i++) {
		const struct fatbin_unit *u = &units[i];
		if (!u->ptx && !u->ptx_in_elf) {
			diag_set(d, ENOEXEC, "no PTX for sm_%u in the image: %s", drv.config.sm,
				u->reason ? u->reason : "none was stored");
			r = CUDA_ERROR_NO_BINARY_FOR_GPU;
		} else {
			int err = fatbin_unit_text(f, u, &texts[used].text, &texts[used].bytes, d);
			if (!err)
				texts[used++].name = u->ptx ? u->ptx->name : "";
			else
				r = err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
						   : CUDA_ERROR_INVALID_IMAGE;
		}
	}
	if (!r && !used) {
		diag_set(d, ENOEXEC, "the image holds no code");
		r = CUDA_ERROR_INVALID_IMAGE;
	}
	if (!r && used == 1) {
		*ptx = texts[0].text;
		*bytes = texts[0].bytes;
		texts[0].text = NULL;
	} else if (!r) {
		r = drv_link_texts(texts, used, ptx, bytes, d);
	}
	for (uint32_t i = 0; i < used; i++)
		free(texts[i].text);
	free(texts);
	return r;
}

static CUresult opened_ptx(int err, struct fatbin *f, char **ptx, size_t *bytes, struct diag *d)
{
	if (err)
		return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
	CUresult r = units_ptx(f, ptx, bytes, d);
	fatbin_close(f);
	return r;
}

CUresult drv_image_ptx(const void *image, char **ptx, size_t *bytes, struct diag *d)
{
	struct fatbin *f = NULL;
	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	int err = fatbin_open_image(image, &f, d);
	return opened_ptx(err, f, ptx, bytes, d);
}

CUresult drv_bytes_ptx(const void *data, size_t size, char **ptx, size_t *bytes, struct diag *d)
{
	struct fatbin *f = NULL;
	int err = fatbin_open(data, size, &f, d);
	return opened_ptx(err, f, ptx, bytes, d);
}

#define MAX_FILE_BYTES (1ull << 30)

CUresult drv_read_file(const char *path, char **data, size_t *size)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	CUresult r = CUDA_SUCCESS;
	char *p = NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
		(uint64_t)st.st_size > MAX_FILE_BYTES)
		r = CUDA_ERROR_INVALID_IMAGE;
	else if (!(p = malloc((size_t)st.st_size + 1)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	size_t got = 0;
	while (!r && got < (size_t)st.st_size) {
		ssize_t n = read(fd, p + got, (size_t)st.st_size - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	close(fd);
	if (!r && !got)
		r = CUDA_ERROR_INVALID_IMAGE;
	if (r) {
		free(p);
		return r;
	}
	p[got] = 0;
	*data = p;
	*size = got;
	return CUDA_SUCCESS;
}

/* -- modules --------------------------------------------------------------------------------- */

static void function_init(struct CUfunc_st *f, struct CUmod_st *m, struct sg_kernel *k)
{
	*f = (struct CUfunc_st){ .object.kind = DRV_FUNCTION,
		.module = m,
		.kernel = k,
		.carveout = -1,
		.shape = { 1, 1, 1 } };
	sg_kernel_get_info(k, &f->info);
	uint32_t room = drv_shared_default();
	f->max_dynamic_shared =
		f->info.static_shared_bytes < room ? (int)(room - f->info.static_shared_bytes) : 0;
}

CUresult drv_module_new(
	struct CUctx_st *ctx, struct CUlib_st *lib, struct sg_module *code, struct CUmod_st **out)
{
	uint32_t n = 0, added = 0;
	while (sg_module_kernel_at(code, n))
		n++;
	struct CUmod_st *m = calloc(1, sizeof(*m));
	struct CUfunc_st *fns = calloc(n + 1, sizeof(*fns));
	if (!m || !fns || drv_add_handle(&m->object)) /* its kind is 0 until it is complete */
		goto fail;
	*m = (struct CUmod_st){ .object.kind = DRV_MODULE,
		.ctx = ctx,
		.library = lib,
		.code = code,
		.functions = fns,
		.n_functions = n };
	for (; added < n; added++) {
		function_init(&fns[added], m, sg_module_kernel_at(code, added));
		if (drv_add_handle(&fns[added].object))
			goto fail;
	}
	m->next = ctx->modules;
	ctx->modules = m;
	*out = m;
	return CUDA_SUCCESS;
fail:
	while (added--)
		drv_remove_handle(&fns[added].object);
	if (m)
		drv_remove_handle(&m->object);
	free(fns);
	free(m);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void drv_module_free(struct CUmod_st *m)
{
	for (struct CUmod_st **at = &m->ctx->modules; *at; at = &(*at)->next)
		if (*at == m) {
			*at = m->next;
			break;
		}
	drv_remove_handle(&m->object);
	for (uint32_t i = 0; i < m->n_functions; i++)
		drv_remove_handle(&m->functions[i].object);
	while (m->running)
		drv_wait();
	sg_module_free(m->code);
	for (uint32_t i = 0; i < m->n_functions; i++)
		free(m->functions[i].old_params);
	free(m->functions);
	free(m);
}

/* Compiles without the lock, and hands the module to the context that was current at the call. */
static CUresult load_ptx(
	struct CUctx_st *ctx, const char *ptx, size_t bytes, struct CUmod_st **out, struct diag *d)
{
	struct sg_module *code = NULL;
	uint64_t id = ctx->id;
	ctx->refs++;
	pthread_mutex_unlock(&drv.lock);
	CUresult r = sg_module_load(drv.dev, ptx, bytes, &code, d);
	pthread_mutex_lock(&drv.lock);
	if (!r && (ctx->closing || ctx->id != id))
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!r)
		r = drv_module_new(ctx, NULL, code, out);
	if (r)
		sg_module_free(code);
	drv_ctx_put(ctx);
	return r;
}

/* Takes ptx. r: what finding it gave. */
static CUresult load(
	CUmodule *out, CUresult r, char *ptx, size_t bytes, struct drv_jit *jit, struct diag *d)
{
	uint64_t start = drv_now_ns();
	struct CUctx_st *ctx;
	drv_hold();
	if (!r)
		r = drv_enter(&ctx);
	if (!r)
		r = drv_leave(load_ptx(ctx, ptx, bytes, out, d));
	free(ptx);
	drv_jit_done(jit, d, (double)(drv_now_ns() - start) / 1e6);
	return r;
}

/* A call that will look at an image first needs to be allowed at all. */
static CUresult may_load(const void *out, const void *image)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	return drv_leave(out && image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuModuleLoadDataEx(
	CUmodule *out, const void *image, unsigned int n, CUjit_option *options, void **values)
{
	struct drv_jit jit;
	struct diag d = { 0 };
	char *ptx = NULL;
	size_t bytes = 0;
	CUresult r = may_load(out, image);
	if (r || (r = drv_jit_read(n, options, values, &jit)))
		return r;
	r = drv_image_ptx(image, &ptx, &bytes, &d);
	return load(out, r, ptx, bytes, &jit, &d);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *out, const void *image)
{
	return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *out, const void *fatbin)
{
	return cuModuleLoadDataEx(out, fatbin, 0, NULL, NULL);
}

CUresult CUDAAPI cuModuleLoad(CUmodule *out, const char *path)
{
	struct drv_jit jit = { 0 };
	struct diag d = { 0 };
	char *data = NULL, *ptx = NULL;
	size_t size = 0, bytes = 0;
	CUresult r = may_load(out, path);
	if (r || (r = drv_read_file(path, &data, &size)))
		return r;
	r = drv_bytes_ptx(data, size, &ptx, &bytes, &d);
	free(data);
	return load(out, r, ptx, bytes, &jit, &d);
}

static CUresult enter_module(CUmodule handle, struct CUctx_st **ctx, struct CUmod_st **m)
{
	CUresult r = drv_enter(ctx);
	if (r)
		return r;
	*m = drv_find(handle, DRV_MODULE);
	return *m ? CUDA_SUCCESS : drv_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle)
{
	struct CUctx_st *ctx;
	struct CUmod_st *m;
	drv_hold();
	CUresult r = enter_module(handle, &ctx, &m);
	if (r)
		return r;
	if (m->library) /* cuLibraryUnload ends it */
		return drv_leave(CUDA_ERROR_NOT_PERMITTED);
	drv_module_free(m);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!mode)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*mode = CU_MODULE_EAGER_LOADING;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
	struct CUctx_st *ctx;
	struct CUmod_st *m;
	CUresult r = enter_module(handle, &ctx, &m);
	if (r)
		return r;
	if (!out || !name)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct sg_kernel *k = *name ? sg_module_kernel(m->code, name) : NULL;
	for (uint32_t i = 0; k && i < m->n_functions; i++)
		if (m->functions[i].kernel == k) {
			*out = &m->functions[i];
			return drv_leave(CUDA_SUCCESS);
		}
	return drv_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
	struct CUctx_st *ctx;
	struct CUmod_st *m;
	CUresult r = enter_module(handle, &ctx, &m);
	if (r)
		return r;
	if (!count)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*count = m->n_functions;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction *fns, unsigned int n, CUmodule handle)
{
	struct CUctx_st *ctx;
	struct CUmod_st *m;
	CUresult r = enter_module(handle, &ctx, &m);
	if (r)
		return r;
	if (!fns || !n)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (unsigned int i = 0; i < n && i < m->n_functions; i++)
		fns[i] = &m->functions[i];
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleGetGlobal_v2(
	CUdeviceptr *addr, size_t *bytes, CUmodule handle, const char *name)
{
	struct CUctx_st *ctx;
	struct CUmod_st *m;
	CUresult r = enter_module(handle, &ctx, &m);
	if (r)
		return r;
	if (!name)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	uint64_t at;
	size_t size;
	r = sg_module_global(m->code, name, &at, &size);
	if (!r && addr)
		*addr = at;
	if (!r && bytes)
		*bytes = size;
	return drv_leave(r);
}
