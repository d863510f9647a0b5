/* module.c - the program's modules and libraries: what they hold, and the handles of their
 * functions. */
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

/* -- registry ------------------------------------------------------------------- */

static struct module *module_find(const void *handle)
{
	struct module *m = handles_get(&agent.loaded, handle);
	return m && !atomic_load(&m->gone) ? m : NULL;
}

static struct module *module_add(void *handle, bool is_library, struct context *c, struct image *im)
{
	struct module *m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->handle = handle;
	m->is_library = is_library;
	m->context = c;
	m->image = im;
	lock_take(&agent.lock);
	m->next = atomic_load(&agent.modules);
	atomic_store(&agent.modules, m);
	lock_drop(&agent.lock);
	handles_put(&agent.loaded, handle, m);
	return m;
}

static struct function stranger; /* stands for "not one of ours" */

struct function *function_get(void *handle)
{
	struct function *f = handles_get(&agent.functions, handle);
	return f == &stranger ? NULL : f;
}

static void function_add(void *handle, struct module *m, const char *name, CUcontext context)
{
	struct kernel *k = m && m->image ? image_kernel(m->image, name) : NULL;
	struct function *old = handles_get(&agent.functions, handle);
	if (old && old != &stranger && old->module == m && old->kernel == k)
		return;
	struct function *f = k ? calloc(1, sizeof(*f)) : NULL;
	if (f) {
		f->module = m;
		f->kernel = k;
		f->context = context;
	}
	if (f || old)
		handles_put(&agent.functions, handle, f);
}

/* Launches give handles of both kinds as one. The driver answers a question about the other kind with an error, which is no harm, but is
 * told by who checks a program: so it is asked once for each handle, and what most programs have is no error. */
bool function_is_kernel(void *handle)
{
	const void *known = handles_get(&agent.kinds, handle);
	CUlibrary lib = NULL;
	if (!known) {
		bool kernel = REAL(cuKernelGetLibrary) && REAL(cuKernelGetLibrary)(&lib, handle) == CUDA_SUCCESS && lib;
		known = kernel ? &agent.kinds : &agent.functions;
		handles_put(&agent.kinds, handle, (void *)known);
	}
	return known == &agent.kinds;
}

const char *function_name(void *handle)
{
	/* Its address may have been that of one of the other kind, which is gone. */
	for (int i = 0; i < 2; i++) {
		const char *name = NULL;
		bool kernel = REAL(cuKernelGetName) && function_is_kernel(handle);
		if (kernel && REAL(cuKernelGetName)(&name, handle) == CUDA_SUCCESS && name)
			return name;
		if (!kernel && REAL(cuFuncGetName) && REAL(cuFuncGetName)(&name, handle) == CUDA_SUCCESS && name)
			return name;
		handles_put(&agent.kinds, handle, NULL);
	}
	return NULL;
}

/* The module that a handle nobody asked for through us belongs to: the driver says which. One that cannot tell leaves the kernel's name,
 * if it is in one image only; what another module has of that name is another kernel, or this one in another context. */
static struct module *module_of_function(void *handle, const char *name)
{
	CUmodule mod = NULL;
	CUlibrary lib = NULL;
	struct module *only = NULL;
	if (function_is_kernel(handle))
		return REAL(cuKernelGetLibrary)(&lib, handle) == CUDA_SUCCESS ? module_find(lib) : NULL;
	if (REAL(cuFuncGetModule) && REAL(cuFuncGetModule)(&mod, handle) == CUDA_SUCCESS) {
		struct module *m = handles_get(&agent.aliases, mod);
		return m && !atomic_load(&m->gone) ? m : module_find(mod);
	}
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next) {
		if (atomic_load(&m->gone) || m->nameless || !m->image ||
			!image_kernel(m->image, name))
			continue;
		if (only)
			return NULL;
		only = m;
	}
	return only;
}

CUfunction function_handle(void *fn, bool is_kernel)
{
	CUfunction f = fn;
	if (!is_kernel)
		return f;
	return REAL(cuKernelGetFunction) && REAL(cuKernelGetFunction)(&f, fn) == CUDA_SUCCESS ? f : NULL;
}

void function_load(void *fn, bool is_kernel)
{
	CUfunction f = function_handle(fn, is_kernel);
	if (f && REAL(cuFuncLoad))
		REAL(cuFuncLoad)(f);
}

struct function *function_find(void *handle, CUcontext in)
{
	struct function *f = handles_get(&agent.functions, handle);
	if (f || !handle)
		return f == &stranger ? NULL : f;
	const char *name = function_name(handle);
	struct module *m = name ? module_of_function(handle, name) : NULL;
	if (m)
		function_add(handle, m, name, m->is_library ? NULL : m->context->handle);
	f = function_get(handle);
	if (f)
		return f;
	handles_put(&agent.functions, handle, &stranger);
	if (name && atomic_load(&agent.late))
		late_ask(handle, in);
	return NULL;
}

static bool is_stranger(void *value, void *arg)
{
	return value == &stranger || ((struct function *)value)->module->nameless;
}

void function_forget_strangers(void)
{
	handles_sweep(&agent.functions, is_stranger, NULL);
}

/* What the driver says a function belongs to; a library where there is one. */
static void *home_of(void *handle, bool *is_library)
{
	CUlibrary lib = NULL;
	CUmodule mod = NULL;
	*is_library = function_is_kernel(handle) && REAL(cuKernelGetLibrary)(&lib, handle) == CUDA_SUCCESS && lib;
	if (*is_library)
		return lib;
	if (REAL(cuFuncGetModule) && REAL(cuFuncGetModule)(&mod, handle) == CUDA_SUCCESS)
		return mod;
	return NULL;
}

struct function *function_bind(void *handle, const char *name, struct image *im)
{
	/* A module of its own for what is only a name: the real one may yet be found. */
	bool nameless = !im->n_units, is_library = false;
	void *home = nameless ? (void *)im : home_of(handle, &is_library);
	struct context *c = context_current();
	struct module *m = home ? module_find(home) : NULL;
	struct kernel *k = image_kernel(im, name);
	struct function *was = handles_get(&agent.functions, handle);
	if (!home || !c || !k)
		return NULL;
	lock_take(&agent.build);
	if (!nameless && was && was != &stranger && was->module->nameless)
		kernel_take_row(k, was->kernel);
	if (im->searched) {
		if (!kernel_borrow_row(k))
			kernel_row(k);
		kernel_state(k, SESSION_KERNEL_PENDING, im->no_ptx);
	} else if (!im->matched || im->answered) {
		/* It may have been matched when nobody had asked about it. */
		build_match(im);
		im->matched = true;
		/* Whether something is built or not: there is nothing to build from. */
		if (nameless && atomic_load(&k->links))
			kernel_refuse(k, im->no_ptx);
		if (nameless && m)
			atomic_store(&m->n_prepared, 0);
	}
	lock_drop(&agent.build);
	if (!m) {
		m = module_add(home, is_library, is_library ? NULL : c, im);
		if (m)
			m->found = true;
	}
	/* Its image was taken for another kernel's, and does not have this one. */
	else if (!image_kernel(m->image, name))
		return NULL;
	if (!m)
		return NULL;
	m->nameless = nameless;
	function_add(handle, m, name, is_library ? NULL : c->handle);
	variant_prepare(m, c);
	return function_get(handle);
}

static bool everything(void *value, void *arg)
{
	return true;
}

void module_purge(void)
{
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		if (!atomic_load(&m->gone))
			variant_retire_module(m);
	handles_sweep(&agent.loaded, everything, NULL);
	handles_sweep(&agent.aliases, everything, NULL);
	handles_sweep(&agent.functions, everything, NULL);
	handles_sweep(&agent.kinds, everything, NULL);
}

static bool was_found(void *value, void *arg)
{
	return value == &stranger || ((struct function *)value)->module->found;
}

static bool module_was_found(void *value, void *arg)
{
	return ((struct module *)value)->found;
}

/* A module ends that we have not seen begin. Which of the handles that were found by name were its own
 * cannot be told: all of those are found again at their next launch. */
static void purge_found(void)
{
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		if (m->found && !atomic_load(&m->gone))
			variant_retire_module(m);
	handles_sweep(&agent.loaded, module_was_found, NULL);
	handles_sweep(&agent.functions, was_found, NULL);
}

static bool function_of_module(void *value, void *arg)
{
	return value != &stranger && ((struct function *)value)->module == arg;
}

/* A module is there: its kernels get their rows and their variants. */
static void loaded(void *handle, bool is_library, struct image *im)
{
	struct context *c = context_current();
	if (!im || (!is_library && !c))
		return;
	if (atomic_load(&agent.generation) !=
		__atomic_load_n(&agent.shared->generation, __ATOMIC_ACQUIRE))
		variant_relink();
	lock_take(&agent.build);
	agent_log("%u kernels loaded", im->n_kernels);
	if (!im->matched) {
		build_match(im);
		im->matched = true;
	}
	lock_drop(&agent.build);
	agent_log("matched");
	struct module *m = module_add(handle, is_library, is_library ? NULL : c, im);
	if (!m || !c || __atomic_load_n(&agent.shared->off, __ATOMIC_RELAXED))
		return;
	variant_prepare(m, c);
	variant_load_queued(LOAD_MUST);
}

static struct image *read_image(const void *data)
{
	struct diag d = { 0 };
	agent_log("image at %p", data);
	struct image *im = data ? image_get(data, context_cc_hint(), &d) : NULL;
	if (im)
		agent_log("image read");
	else
		agent_log("image at %p: %s", data, d.text);
	return im;
}

static struct image *read_file(const char *path)
{
	struct diag d = { 0 };
	struct image *im = path ? image_get_file(path, context_cc_hint(), &d) : NULL;
	if (!im)
		agent_log("image %s: %s", path ? path : "(null)", d.text);
	return im;
}

static uint32_t option_regs(unsigned int n, const CUjit_option *options, void *const *values)
{
	for (unsigned int i = 0; options && values && i < n; i++)
		if (options[i] == CU_JIT_MAX_REGISTERS)
			return (uint32_t)(uintptr_t)values[i];
	return 0;
}

static void set_regs(struct image *im, uint32_t regs)
{
	if (im && regs)
		im->opt_max_regs = regs;
}

/* -- hooks: modules ---------------------------------------------------------------- */

#define HOOK(name, ...)                                                                            \
	CUresult hook_##name(__VA_ARGS__);                                                         \
	CUresult hook_##name(__VA_ARGS__)

HOOK(cuModuleLoad, CUmodule *mod, const char *path)
{
	struct image *im = read_file(path);
	CUresult r = REAL(cuModuleLoad)(mod, path);
	if (r == CUDA_SUCCESS)
		loaded(*mod, false, im);
	return r;
}

HOOK(cuModuleLoadData, CUmodule *mod, const void *image)
{
	struct image *im = read_image(image);
	CUresult r = REAL(cuModuleLoadData)(mod, image);
	if (r == CUDA_SUCCESS)
		loaded(*mod, false, im);
	return r;
}

HOOK(cuModuleLoadDataEx, CUmodule *mod, const void *image, unsigned int n, CUjit_option *options,
	void **values)
{
	struct image *im = read_image(image);
	set_regs(im, option_regs(n, options, values));
	CUresult r = REAL(cuModuleLoadDataEx)(mod, image, n, options, values);
	if (r == CUDA_SUCCESS)
		loaded(*mod, false, im);
	return r;
}

HOOK(cuModuleLoadFatBinary, CUmodule *mod, const void *fatbin)
{
	struct image *im = read_image(fatbin);
	CUresult r = REAL(cuModuleLoadFatBinary)(mod, fatbin);
	if (r == CUDA_SUCCESS)
		loaded(*mod, false, im);
	return r;
}

/* Handles go before the driver may give their addresses to somebody else. True: it is unloaded later, for the program. */
static bool forget(const void *handle)
{
	struct module *m = module_find(handle);
	if (!m && atomic_load(&agent.late)) {
		late_forget();
		purge_found();
	}
	if (!m)
		return false;
	bool later = ending_later(m);
	variant_retire_module(m);
	handles_put(&agent.loaded, handle, NULL);
	handles_sweep(&agent.functions, function_of_module, m);
	return later;
}

HOOK(cuModuleUnload, CUmodule mod)
{
	return forget(mod) ? CUDA_SUCCESS : REAL(cuModuleUnload)(mod);
}

static CUcontext current(void)
{
	CUcontext c = NULL;
	REAL(cuCtxGetCurrent)(&c);
	return c;
}

/* A CUmodule that came out of a library stands for it in one context. */
static struct module *module_of(CUmodule mod, CUcontext *context)
{
	struct module *m = handles_get(&agent.aliases, mod);
	if (!m || atomic_load(&m->gone))
		m = module_find(mod);
	if (m)
		*context = m->is_library ? current() : m->context->handle;
	return m;
}

HOOK(cuModuleGetFunction, CUfunction *fn, CUmodule mod, const char *name)
{
	CUcontext context = NULL;
	CUresult r = REAL(cuModuleGetFunction)(fn, mod, name);
	struct module *m = r == CUDA_SUCCESS ? module_of(mod, &context) : NULL;
	if (m)
		function_add(*fn, m, name, context);
	return r;
}

HOOK(cuModuleEnumerateFunctions, CUfunction *fns, unsigned int n, CUmodule mod)
{
	CUcontext context = NULL;
	CUresult r = REAL(cuModuleEnumerateFunctions)(fns, n, mod);
	struct module *m =
		r == CUDA_SUCCESS && fns && REAL(cuFuncGetName) ? module_of(mod, &context) : NULL;
	for (unsigned int i = 0; m && i < n; i++) {
		const char *name = NULL;
		if (fns[i] && REAL(cuFuncGetName)(&name, fns[i]) == CUDA_SUCCESS && name)
			function_add(fns[i], m, name, context);
	}
	return r;
}

/* -- hooks: libraries --------------------------------------------------------------- */

HOOK(cuLibraryLoadData, CUlibrary *lib, const void *code, CUjit_option *jit, void **jit_values,
	unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n)
{
	struct image *im = read_image(code);
	set_regs(im, option_regs(n_jit, jit, jit_values));
	CUresult r = REAL(cuLibraryLoadData)(lib, code, jit, jit_values, n_jit, options, values, n);
	if (r == CUDA_SUCCESS)
		loaded(*lib, true, im);
	return r;
}

HOOK(cuLibraryLoadFromFile, CUlibrary *lib, const char *path, CUjit_option *jit, void **jit_values,
	unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n)
{
	struct image *im = read_file(path);
	set_regs(im, option_regs(n_jit, jit, jit_values));
	CUresult r =
		REAL(cuLibraryLoadFromFile)(lib, path, jit, jit_values, n_jit, options, values, n);
	if (r == CUDA_SUCCESS)
		loaded(*lib, true, im);
	return r;
}

HOOK(cuLibraryUnload, CUlibrary lib)
{
	return forget(lib) ? CUDA_SUCCESS : REAL(cuLibraryUnload)(lib);
}

HOOK(cuLibraryGetKernel, CUkernel *kernel, CUlibrary lib, const char *name)
{
	CUresult r = REAL(cuLibraryGetKernel)(kernel, lib, name);
	if (r == CUDA_SUCCESS)
		function_add(*kernel, module_find(lib), name, NULL);
	return r;
}

HOOK(cuLibraryEnumerateKernels, CUkernel *kernels, unsigned int n, CUlibrary lib)
{
	CUresult r = REAL(cuLibraryEnumerateKernels)(kernels, n, lib);
	struct module *m =
		r == CUDA_SUCCESS && kernels && REAL(cuKernelGetName) ? module_find(lib) : NULL;
	for (unsigned int i = 0; m && i < n; i++) {
		const char *name = NULL;
		if (kernels[i] && REAL(cuKernelGetName)(&name, kernels[i]) == CUDA_SUCCESS && name)
			function_add(kernels[i], m, name, NULL);
	}
	return r;
}

HOOK(cuLibraryGetModule, CUmodule *mod, CUlibrary lib)
{
	CUresult r = REAL(cuLibraryGetModule)(mod, lib);
	struct module *m = r == CUDA_SUCCESS ? module_find(lib) : NULL;
	if (m)
		handles_put(&agent.aliases, *mod, m);
	return r;
}

HOOK(cuKernelGetFunction, CUfunction *fn, CUkernel kernel)
{
	CUresult r = REAL(cuKernelGetFunction)(fn, kernel);
	struct function *f = r == CUDA_SUCCESS ? function_get(kernel) : NULL;
	if (f && (void *)*fn != (void *)kernel)
		function_add(*fn, f->module, f->kernel->name, current());
	return r;
}

/* -- hooks: attributes ----------------------------------------------------------------- */

struct attribute {
	CUfunction_attribute which;
	int value;
	CUdevice device; /* -1: any */
};

static void copy_attribute(struct variant *v, void *arg)
{
	const struct attribute *a = arg;
	if (a->device < 0 || v->context->device == a->device)
		REAL(cuFuncSetAttribute)(v->function, a->which, a->value);
}

HOOK(cuFuncSetAttribute, CUfunction fn, CUfunction_attribute attr, int value)
{
	CUresult r = REAL(cuFuncSetAttribute)(fn, attr, value);
	struct function *f = r == CUDA_SUCCESS ? function_get(fn) : NULL;
	if (f)
		variant_each(f, copy_attribute, &(struct attribute){ attr, value, -1 });
	return r;
}

HOOK(cuKernelSetAttribute, CUfunction_attribute attr, int value, CUkernel kernel, CUdevice dev)
{
	CUresult r = REAL(cuKernelSetAttribute)(attr, value, kernel, dev);
	struct function *f = r == CUDA_SUCCESS ? function_get(kernel) : NULL;
	if (f)
		variant_each(f, copy_attribute, &(struct attribute){ attr, value, dev });
	return r;
}

static void copy_cache_config(struct variant *v, void *arg)
{
	if (REAL(cuFuncSetCacheConfig))
		REAL(cuFuncSetCacheConfig)(v->function, *(CUfunc_cache *)arg);
}

static void cache_config(void *handle, CUfunc_cache config)
{
	struct function *f = function_get(handle);
	if (!f)
		return;
	f->kernel->cache_config = config;
	f->kernel->has_cache_config = true;
	variant_each(f, copy_cache_config, &config);
}

HOOK(cuFuncSetCacheConfig, CUfunction fn, CUfunc_cache config)
{
	CUresult r = REAL(cuFuncSetCacheConfig)(fn, config);
	if (r == CUDA_SUCCESS)
		cache_config(fn, config);
	return r;
}

HOOK(cuKernelSetCacheConfig, CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	CUresult r = REAL(cuKernelSetCacheConfig)(kernel, config, dev);
	if (r == CUDA_SUCCESS)
		cache_config(kernel, config);
	return r;
}

static void copy_shared_config(struct variant *v, void *arg)
{
	REAL(cuFuncSetSharedMemConfig)(v->function, *(CUsharedconfig *)arg);
}

HOOK(cuFuncSetSharedMemConfig, CUfunction fn, CUsharedconfig config)
{
	CUresult r = REAL(cuFuncSetSharedMemConfig)(fn, config);
	struct function *f = r == CUDA_SUCCESS ? function_get(fn) : NULL;
	if (f)
		variant_each(f, copy_shared_config, &config);
	return r;
}

/* -- hooks: the linker -------------------------------------------------------------------- */

HOOK(cuLinkCreate_v2, unsigned int n, CUjit_option *options, void **values, CUlinkState *state)
{
	CUresult r = REAL(cuLinkCreate_v2)(n, options, values, state);
	if (r == CUDA_SUCCESS)
		link_option_regs(*state, option_regs(n, options, values));
	return r;
}

HOOK(cuLinkAddData_v2, CUlinkState state, CUjitInputType type, void *data, size_t bytes,
	const char *name, unsigned int n, CUjit_option *options, void **values)
{
	CUresult r = REAL(cuLinkAddData_v2)(state, type, data, bytes, name, n, options, values);
	if (r == CUDA_SUCCESS)
		link_input(state, type, data, bytes, context_cc_hint());
	return r;
}

HOOK(cuLinkAddFile_v2, CUlinkState state, CUjitInputType type, const char *path, unsigned int n,
	CUjit_option *options, void **values)
{
	CUresult r = REAL(cuLinkAddFile_v2)(state, type, path, n, options, values);
	if (r == CUDA_SUCCESS)
		link_input_file(state, type, path, context_cc_hint());
	return r;
}

HOOK(cuLinkComplete, CUlinkState state, void **cubin, size_t *bytes)
{
	size_t n = 0;
	void *out = NULL;
	CUresult r = REAL(cuLinkComplete)(state, &out, &n);
	if (cubin)
		*cubin = out;
	if (bytes)
		*bytes = n;
	if (r == CUDA_SUCCESS && out && n)
		link_output(state, out, n);
	return r;
}

HOOK(cuLinkDestroy, CUlinkState state)
{
	link_forget(state);
	return REAL(cuLinkDestroy)(state);
}
