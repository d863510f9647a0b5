/* compile.c - PTX to machine code: the driver's linker, which touches no device, and the toolkit's compiler where PTX is
 * newer than the driver. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

static bool needs_other_compiler(CUresult r)
{
	return r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || r == CUDA_ERROR_JIT_COMPILER_NOT_FOUND ||
	       r == CUDA_ERROR_JIT_COMPILATION_DISABLED;
}

static const char *error_name(CUresult r)
{
	const char *name = NULL;
	if (REAL(cuGetErrorName))
		REAL(cuGetErrorName)(r, &name);
	return name ? name : "unknown error";
}

/* The first line of the compiler's log that says something. */
static void first_line(char *log)
{
	char *from = log + strspn(log, " \n\r\t");
	from[strcspn(from, "\n\r")] = 0;
	memmove(log, from, strlen(from) + 1);
}

static CUresult link_one(const char *ptx, size_t bytes, uint32_t max_regs, char *log,
	size_t log_bytes, char **cubin, size_t *cubin_bytes)
{
	CUjit_option names[4] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[4] = { log, (void *)(uintptr_t)log_bytes };
	unsigned int n = 2;
	CUlinkState state = NULL;
	void *out = NULL;
	size_t out_bytes = 0;
	if (!REAL(cuLinkCreate_v2) || !REAL(cuLinkAddData_v2) || !REAL(cuLinkComplete) ||
		!REAL(cuLinkDestroy))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (max_regs) {
		names[n] = CU_JIT_MAX_REGISTERS;
		values[n++] = (void *)(uintptr_t)max_regs;
	}
	CUresult r = REAL(cuLinkCreate_v2)(n, names, values, &state);
	if (r != CUDA_SUCCESS)
		return r;
	r = REAL(cuLinkAddData_v2)(
		state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, bytes + 1, "egpu", 0, NULL, NULL);
	if (r == CUDA_SUCCESS)
		r = REAL(cuLinkComplete)(state, &out, &out_bytes);
	if (r == CUDA_SUCCESS) {
		/* Text and fatbins of other drivers may rely on a NUL behind. */
		*cubin = calloc(1, out_bytes + 1);
		if (*cubin)
			memcpy(*cubin, out, out_bytes);
		*cubin_bytes = out_bytes;
		r = *cubin ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	REAL(cuLinkDestroy)(state);
	return r;
}

CUresult compile_text(const char *ptx, size_t bytes, char **cubin, size_t *cubin_bytes)
{
	char log[4096] = "";
	return link_one(ptx, bytes, 0, log, sizeof(log), cubin, cubin_bytes);
}

int compile(const char *ptx, size_t bytes, const struct ptx_module *m, uint32_t cc,
	uint32_t max_regs, char **cubin, size_t *cubin_bytes, struct diag *d)
{
	char log[4096] = "";
	CUresult r = link_one(ptx, bytes, max_regs, log, sizeof(log), cubin, cubin_bytes);
	if (r == CUDA_SUCCESS)
		return 0;
	log[sizeof(log) - 1] = 0;
	first_line(log);
	if (!needs_other_compiler(r) || !m)
		return diag_set(d, EINVAL,
			"the driver does not compile the instrumented kernel: %s (%s)",
			error_name(r), log);
	char target[32];
	struct diag other = { 0 };
	bool same = m->target_suffix == 'a' ? m->sm == cc
					    : m->target_suffix == 'f' && m->sm / 10 == cc / 10;
	snprintf(target, sizeof(target), "sm_%u%.*s", cc, same, &m->target_suffix);
	int err = ptxas_compile(ptx, bytes, target, max_regs, cubin, cubin_bytes, &other);
	if (!err)
		return 0;
	return diag_set(d, -err, "PTX %u.%u is newer than the driver's compiler (%s) and %s",
		m->version_major, m->version_minor, error_name(r), other.text);
}

int compile_ptx(const char *ptx, size_t bytes, uint32_t cc, char **cubin, size_t *cubin_bytes, struct diag *d)
{
	struct cache_key key = { CACHE_COMPILED, ptx, bytes, cc, 0 };
	if (!cache_get(&key, cubin, cubin_bytes))
		return 0;
	int err = compile(ptx, bytes, NULL, cc, 0, cubin, cubin_bytes, d);
	if (!err)
		cache_put(&key, *cubin, *cubin_bytes);
	return err;
}
