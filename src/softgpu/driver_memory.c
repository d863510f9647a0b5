/* driver_memory.c - allocations of device and host memory, and questions about pointers. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* In drv_alloc.flags, beside the flags of the call that made it. */
#define SYNC_MEMOPS (1u << 31)

/* -- records ------------------------------------------------------------------------ */

struct drv_alloc *drv_alloc_at(uint64_t base)
{
	return table_get(drv.allocs, &base, sizeof(base));
}

struct drv_alloc *drv_alloc_holding(uint64_t addr)
{
	uint64_t base;
	size_t bytes;
	bool host;
	return sg_mem_range(drv.dev, addr, &base, &bytes, &host) ? drv_alloc_at(base) : NULL;
}

bool drv_is_host(uint64_t addr)
{
	uint64_t base;
	size_t bytes;
	bool host = false;
	return sg_mem_range(drv.dev, addr, &base, &bytes, &host) && host;
}

struct drv_alloc *drv_alloc_add(struct CUctx_st *ctx, uint64_t base, size_t bytes,
	enum drv_mem_kind kind, unsigned int flags)
{
	struct drv_alloc *a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	*a = (struct drv_alloc){ .base = base,
		.bytes = bytes,
		.kind = kind,
		.flags = flags,
		.ctx = ctx,
		.id = ++drv.next_buffer_id };
	if (table_put(drv.allocs, &base, sizeof(base), a)) {
		free(a);
		return NULL;
	}
	return a;
}

static size_t page_round(size_t bytes)
{
	return (bytes + 4095) & ~(size_t)4095;
}

void drv_alloc_release(struct drv_alloc *a)
{
	void *host = (void *)(uintptr_t)a->base;
	table_remove(drv.allocs, &a->base, sizeof(a->base));
	switch (a->kind) {
	case DRV_MEM_POOL:
		a->pool->used -= a->bytes;
		/* fall through */
	case DRV_MEM_DEVICE:
	case DRV_MEM_GRAPH:
	case DRV_MEM_ARRAY:
		drv_shared_forget(a->base);
		sg_mem_free(drv.dev, a->base);
		break;
	case DRV_MEM_HOST:
	case DRV_MEM_MANAGED:
		sg_mem_unregister(drv.dev, host);
		munmap(host, page_round(a->bytes));
		break;
	case DRV_MEM_REGISTERED:
		sg_mem_unregister(drv.dev, host);
		break;
	}
	free(a);
}

/* -- allocating ------------------------------------------------------------------------ */

/* With one device the memory below keeps the count, module variables included. */
static size_t device_used(CUdevice dev)
{
	size_t used = 0, pos = 0;
	struct drv_alloc *a;
	while ((a = table_next(drv.allocs, &pos, NULL, NULL)))
		if (a->ctx->device == dev && a->kind != DRV_MEM_HOST &&
			a->kind != DRV_MEM_REGISTERED && a->kind != DRV_MEM_MANAGED)
			used += (a->bytes + 255) & ~(size_t)255;
	return used;
}

void drv_device_memory(CUdevice dev, size_t *free_bytes, size_t *total)
{
	if (drv.n_devices == 1) {
		sg_mem_info(drv.dev, free_bytes, total);
		return;
	}
	size_t used = device_used(dev);
	*total = drv.device_bytes;
	*free_bytes = used < *total ? *total - used : 0;
}

bool drv_device_room(CUdevice dev, size_t bytes)
{
	size_t free_bytes, total;
	if (drv.n_devices == 1)
		return true;
	drv_device_memory(dev, &free_bytes, &total);
	return bytes <= free_bytes;
}

static CUresult alloc_device(struct CUctx_st *ctx, size_t bytes, CUdeviceptr *out)
{
	uint64_t addr;
	if (!drv_device_room(ctx->device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = sg_mem_alloc(drv.dev, bytes, &addr);
	if (r)
		return r;
	if (!drv_alloc_add(ctx, addr, bytes, DRV_MEM_DEVICE, 0)) {
		sg_mem_free(drv.dev, addr);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = addr;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *addr, size_t bytes)
{
	struct CUctx_st *ctx;
	drv_hold();
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!addr || !bytes)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	r = drv_capture_unsafe();
	return drv_leave(r ? r : alloc_device(ctx, bytes, addr));
}

/* Rows start on what a texture could be bound to, as on hardware. */
#define PITCH_BYTES 512u

CUresult CUDAAPI cuMemAllocPitch_v2(
	CUdeviceptr *addr, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!addr || !pitch || !width || !height ||
		(element != 4 && element != 8 && element != 16) || width > SIZE_MAX - PITCH_BYTES)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	size_t row = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES, bytes;
	if (__builtin_mul_overflow(row, height, &bytes))
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	r = alloc_device(ctx, bytes, addr);
	if (!r)
		*pitch = row;
	return drv_leave(r);
}

/* The memory may be in use by work that was queued earlier: like the hardware's driver, this waits.
 */
static CUresult release_when_idle(struct drv_alloc *a)
{
	uint64_t base = a->base, id = a->id;
	a->freeing = true;
	CUresult r = drv_ctx_drain(a->ctx);
	/* The context may have been destroyed meanwhile, and the memory with it. */
	a = drv_alloc_at(base);
	if (a && a->id == id)
		drv_alloc_release(a);
	return r;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr addr)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!addr)
		return drv_leave(CUDA_SUCCESS);
	struct drv_alloc *a = drv_alloc_at(addr);
	if (!a || a->freeing || a->kind == DRV_MEM_HOST || a->kind == DRV_MEM_REGISTERED ||
		a->kind == DRV_MEM_ARRAY)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = drv_capture_unsafe()) || a->kind == DRV_MEM_GRAPH) /* the graph's: it keeps it */
		return drv_leave(r);
	return drv_leave(release_when_idle(a));
}

static CUresult alloc_host(
	struct CUctx_st *ctx, size_t bytes, enum drv_mem_kind kind, unsigned int flags, void **out)
{
	if (!bytes || bytes > SIZE_MAX - 4096)
		return CUDA_ERROR_INVALID_VALUE;
	void *p = mmap(NULL, page_round(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = sg_mem_register(drv.dev, p, bytes);
	if (!r && !drv_alloc_add(ctx, (uintptr_t)p, bytes, kind, flags)) {
		sg_mem_unregister(drv.dev, p);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r) {
		munmap(p, page_round(bytes));
		return r;
	}
	*out = p;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostAlloc(void **host, size_t bytes, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
				   CU_MEMHOSTALLOC_WRITECOMBINED;
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!host || flags & ~known)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return drv_leave(
		alloc_host(ctx, bytes, DRV_MEM_HOST, flags | CU_MEMHOSTALLOC_DEVICEMAP, host));
}

CUresult CUDAAPI cuMemAllocHost_v2(void **host, size_t bytes)
{
	return cuMemHostAlloc(host, bytes, 0);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *addr, size_t bytes, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!addr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	void *p;
	r = alloc_host(ctx, bytes, DRV_MEM_MANAGED, flags, &p);
	if (!r)
		*addr = (uintptr_t)p;
	return drv_leave(r);
}

CUresult CUDAAPI cuMemFreeHost(void *host)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct drv_alloc *a = drv_alloc_at((uintptr_t)host);
	if (!a || a->freeing || a->kind != DRV_MEM_HOST)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return drv_leave(release_when_idle(a));
}

CUresult CUDAAPI cuMemHostRegister_v2(void *host, size_t bytes, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
				   CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
	struct CUctx_st *ctx;
	drv_hold();
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!host || !bytes || flags & ~known || (uintptr_t)host > UINTPTR_MAX - bytes)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return drv_leave(CUDA_ERROR_NOT_PERMITTED);
	r = sg_mem_register(drv.dev, host, bytes);
	if (!r && !drv_alloc_add(ctx, (uintptr_t)host, bytes, DRV_MEM_REGISTERED, flags)) {
		sg_mem_unregister(drv.dev, host);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return drv_leave(r);
}

CUresult CUDAAPI cuMemHostUnregister(void *host)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct drv_alloc *a = drv_alloc_at((uintptr_t)host);
	if (!host || (a && a->kind != DRV_MEM_REGISTERED))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!a || a->freeing)
		return drv_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	return drv_leave(release_when_idle(a));
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *addr, void *host, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!addr || flags || !drv_is_host((uintptr_t)host))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*addr = (uintptr_t)host;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *flags, void *host)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct drv_alloc *a = drv_alloc_holding((uintptr_t)host);
	if (!flags || !a || (a->kind != DRV_MEM_HOST && a->kind != DRV_MEM_REGISTERED))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = a->flags & ~SYNC_MEMOPS;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	size_t f, t;
	drv_device_memory(ctx->device, &f, &t);
	if (free_bytes)
		*free_bytes = f;
	if (total)
		*total = t;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr addr)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	uint64_t at;
	size_t n;
	bool host;
	if (!sg_mem_range(drv.dev, addr, &at, &n, &host))
		return drv_leave(CUDA_ERROR_NOT_FOUND);
	if (base)
		*base = at;
	if (bytes)
		*bytes = n;
	return drv_leave(CUDA_SUCCESS);
}

/* -- managed memory: one copy, reachable from both sides, so advice changes nothing -------------
 */

static CUresult check_managed(CUdeviceptr addr, size_t bytes)
{
	struct drv_alloc *a = drv_alloc_holding(addr);
	if (!bytes || !a || a->kind != DRV_MEM_MANAGED || !sg_mem_check(drv.dev, addr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAdvise_v2(
	CUdeviceptr addr, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return drv_leave(check_managed(addr, bytes));
}

static CUmemLocation location_of(CUdevice dev)
{
	return (CUmemLocation){ dev == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST
						     : CU_MEM_LOCATION_TYPE_DEVICE,
		dev == CU_DEVICE_CPU ? 0 : dev };
}

CUresult CUDAAPI cuMemAdvise(CUdeviceptr addr, size_t bytes, CUmem_advise advice, CUdevice dev)
{
	if (dev != CU_DEVICE_CPU && !drv_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return cuMemAdvise_v2(addr, bytes, advice, location_of(dev));
}

CUresult CUDAAPI cuMemPrefetchAsync_v2(
	CUdeviceptr addr, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream)
{
	struct CUctx_st *ctx;
	struct CUstream_st *s;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (flags)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	r = drv_stream_of(ctx, stream, &s);
	return drv_leave(r ? r : check_managed(addr, bytes));
}

CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr addr, size_t bytes, CUdevice dev, CUstream stream)
{
	if (dev != CU_DEVICE_CPU && !drv_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return cuMemPrefetchAsync_v2(addr, bytes, location_of(dev), 0, stream);
}

/* -- pointers -------------------------------------------------------------------------------- */

struct pointer {
	uint64_t addr, base;
	size_t bytes;
	bool known, host;
	struct drv_alloc *a; /* NULL: a variable of a module, or unknown */
	struct CUctx_st *ctx;
};

/* Bytes that attribute's value takes, 0: not asked of this driver. */
static size_t attribute_bytes(CUpointer_attribute attr)
{
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return 1;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return 4;
	default:
		return 0;
	}
}

static CUresult attribute_value(const struct pointer *p, CUpointer_attribute attr, uint64_t *v)
{
	const struct drv_alloc *a = p->a;
	bool managed = a && a->kind == DRV_MEM_MANAGED;
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*v = (uintptr_t)(a ? a->ctx : p->ctx);
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*v = p->host && !managed ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*v = p->addr;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!p->host)
			return CUDA_ERROR_INVALID_VALUE;
		*v = p->addr;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*v = a && a->flags & SYNC_MEMOPS;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*v = a ? a->id : 0;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*v = managed;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*v = p->base;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*v = p->bytes;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*v = 1;
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*v = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*v = a && a->kind == DRV_MEM_POOL ? (uintptr_t)a->pool : 0;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*v = (uint64_t)(int64_t)(a ? a->ctx : p->ctx)->device;
		break;
	default: /* what this memory cannot do: 0 */
		*v = 0;
	}
	return CUDA_SUCCESS;
}

static struct pointer pointer_of(struct CUctx_st *ctx, uint64_t addr)
{
	struct pointer p = { .addr = addr, .ctx = ctx };
	p.known = sg_mem_range(drv.dev, addr, &p.base, &p.bytes, &p.host);
	if (p.known)
		p.a = drv_alloc_at(p.base);
	return p;
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr addr)
{
	struct CUctx_st *ctx;
	uint64_t value;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	size_t bytes = attribute_bytes(attr);
	struct pointer p = pointer_of(ctx, addr);
	if (!data || !bytes || !p.known)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!(r = attribute_value(&p, attr, &value)))
		memcpy(data, &value, bytes); /* little-endian */
	return drv_leave(r);
}

/* Pointers that no call has made known give zeros instead of an error. */
CUresult CUDAAPI cuPointerGetAttributes(
	unsigned int n, CUpointer_attribute *attrs, void **data, CUdeviceptr addr)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!n || !attrs || !data)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct pointer p = pointer_of(ctx, addr);
	for (unsigned int i = 0; i < n; i++) {
		size_t bytes = attribute_bytes(attrs[i]);
		uint64_t value = 0;
		if (!bytes || !data[i])
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
		if (p.known && attribute_value(&p, attrs[i], &value))
			value = 0;
		if (!p.known && attrs[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			value = (uint64_t)(int64_t)CU_DEVICE_INVALID;
		memcpy(data[i], &value, bytes);
	}
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuPointerSetAttribute(
	const void *value, CUpointer_attribute attr, CUdeviceptr addr)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct drv_alloc *a = drv_alloc_holding(addr);
	if (!value || attr != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !a)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	a->flags = (a->flags & ~SYNC_MEMOPS) | (*(const unsigned int *)value ? SYNC_MEMOPS : 0);
	return drv_leave(CUDA_SUCCESS);
}
