/* softgpu.h - the software GPU below its driver API.
 *
 * memory.c  device memory with exact bounds      decode.c  PTX tree -> flat code
 * exec*.c   one warp at a time                   launch.c  blocks of all running grids on worker threads
 * driver*.c the CUDA driver API on top (own header: driver.h)
 *
 * Threads: every function may be called from any thread unless it says otherwise.
 * Errors are CUresult values (cuda.h), so that they reach the application unchanged.
 */
#ifndef EGPU_SOFTGPU_SOFTGPU_H
#define EGPU_SOFTGPU_SOFTGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "egpu/cuda.h"

struct sg_device;
struct sg_module;
struct sg_kernel;

struct sg_config {
	uint32_t sm;	       /* 75..90: compute capability x10, and %smid's chip */
	uint32_t n_sms;	       /* virtual multiprocessors; blocks are assigned to them */
	uint32_t n_workers;    /* host threads; 0: one per online CPU */
	uint64_t memory_bytes; /* device memory that can be allocated */
	bool check;	       /* races, uninitialised shared memory, divided barriers: a line on stderr each */
	uint32_t shuffle_seed; /* not 0: warps and blocks are scheduled in shuffled order (tests) */
	uint32_t behind_ms;    /* in shuffled order: now and then some lanes stand still for so long, wherever they are (tests) */
};

int sg_device_new(const struct sg_config *config, struct sg_device **out); /* CUresult */
/* Waits for running grids. NULL is allowed. */
void sg_device_free(struct sg_device *dev);
/* Lines that a device with config.check has printed. */
uint64_t sg_device_findings(const struct sg_device *dev);
const struct sg_config *sg_device_config(const struct sg_device *dev);

/* -- memory ------------------------------------------------------------------
 * A device address is the host address of the same byte, so the driver copies
 * with memcpy after sg_mem_check. Every access by a kernel is checked against the
 * exact bytes that were allocated or registered.
 */
CUresult sg_mem_alloc(struct sg_device *dev, size_t bytes, uint64_t *addr); /* 256-byte aligned */
CUresult sg_mem_free(struct sg_device *dev, uint64_t addr);		     /* base addresses only */
/* Host memory that kernels may use at its host address (cuMemHostAlloc, cuMemHostRegister). */
CUresult sg_mem_register(struct sg_device *dev, void *host, size_t bytes);
CUresult sg_mem_unregister(struct sg_device *dev, void *host);
/* Whether [addr, addr+bytes) lies in one allocation, module variable or registered range. */
bool sg_mem_check(struct sg_device *dev, uint64_t addr, size_t bytes);
/* The allocation, variable or range that holds addr. */
bool sg_mem_range(struct sg_device *dev, uint64_t addr, uint64_t *base, size_t *bytes, bool *is_host);
void sg_mem_info(struct sg_device *dev, size_t *free_bytes, size_t *total_bytes);
/* Whether some multiprocessor has a place for a block of so many threads. */
bool sg_has_room(struct sg_device *dev, uint32_t threads);

/* -- modules ----------------------------------------------------------------- */

/* Parses and decodes PTX text; allocates and initialises its variables. A module whose .target is
 * newer than the device: CUDA_ERROR_NO_BINARY_FOR_GPU; malformed: CUDA_ERROR_INVALID_PTX; d says what and where.
 * An instruction that is not executed here does not fail the load: it fails the launch that reaches it. */
CUresult sg_module_load(struct sg_device *dev, const char *ptx, size_t size, struct sg_module **out, struct diag *d);
/* The caller makes sure that no grid of it runs. NULL is allowed. */
void sg_module_free(struct sg_module *m);
struct sg_kernel *sg_module_kernel(struct sg_module *m, const char *name); /* NULL: none */
struct sg_kernel *sg_module_kernel_at(const struct sg_module *m, uint32_t index); /* NULL past the last */
/* A .global or .const variable; CUDA_ERROR_NOT_FOUND. */
CUresult sg_module_global(struct sg_module *m, const char *name, uint64_t *addr, size_t *bytes);

struct sg_kernel_info {
	const char *name; /* lives as long as the module */
	uint32_t n_params;
	const uint32_t *param_offset, *param_size; /* bytes, in the packed parameter block */
	uint32_t param_bytes;
	uint32_t static_shared_bytes, local_bytes, const_bytes;
	uint32_t max_threads;	  /* from .maxntid/.reqntid, else 1,024 */
	uint32_t n_regs;	  /* an estimate: 32-bit registers a thread */
	uint32_t ptx_version;	  /* 10 * .target's sm / 10, as CU_FUNC_ATTRIBUTE_PTX_VERSION wants */
	uint32_t reqntid[3];	  /* zeros when not written */
	uint32_t cluster[3];	  /* .reqnctapercluster, zeros when not written */
};
void sg_kernel_get_info(const struct sg_kernel *k, struct sg_kernel_info *out);

/* A function as bytes: what .text.NAME of an image holds, and what a kernel can call wherever it lies in device memory. The PTX of a module
 * that defines it follows. */
struct sg_code {
	uint64_t magic;
	uint32_t bytes; /* of the PTX */
	char name[52];
};
#define SG_CODE_MAGIC UINT64_C(0x31304544434f4753)
enum { SG_CODE_MAX = 1 << 20 };
/* What a function of the module takes: registers (an estimate) and bytes of local memory. False: it defines none of this name. */
bool sg_module_function(const struct sg_module *m, const char *name, uint32_t *regs, uint32_t *local_bytes);
/* Calls fn with each function that other modules may call. */
void sg_module_functions(const struct sg_module *m, void (*fn)(const char *name, void *arg), void *arg);

/* A kernel's body as its module's text has it. */
void sg_kernel_body(const struct sg_kernel *k, const char **text, size_t *bytes);

/* -- launches ---------------------------------------------------------------- */

struct sg_launch {
	const struct sg_kernel *kernel;
	uint32_t grid[3], block[3];
	uint32_t cluster[3];	      /* zeros: none */
	uint32_t dynamic_shared_bytes;
	const void *params;	      /* packed block, info.param_bytes; copied by sg_grid_start */
	bool cooperative;	      /* all blocks are resident together, or the start is refused */
	const char *demangled;	      /* for messages; may be NULL */
};

/* Called once, from a worker thread, when the grid's last block has ended; error is CUDA_SUCCESS or
 * the sticky error. The one line about a fault (kernel, PTX line, address) is already on stderr. */
typedef void (*sg_grid_done)(void *arg, CUresult error);

/* Starts a grid. It runs beside all other started grids: resident blocks take turns on the workers, so
 * grids that wait for each other make progress as on hardware while both fit. Invalid shapes are refused
 * (CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE). */
CUresult sg_grid_start(struct sg_device *dev, const struct sg_launch *launch, sg_grid_done done, void *arg);
/* Ends the started grids whose `arg` is chosen as if they had failed themselves (their done calls come with
 * error): after a fault the other grids of a context would wait for work that never comes. `which` must not
 * call back into the device; done calls may come from this thread. */
void sg_grids_fail(struct sg_device *dev, CUresult error, bool (*which)(void *arg, void *cookie), void *cookie);
/* Blocks of this shape that fit one SM at once. */
uint32_t sg_occupancy(const struct sg_device *dev, const struct sg_kernel *k, uint32_t threads, uint32_t dynamic_shared_bytes);

#endif
