/* driver_virtual.c - virtual memory calls, memory shared between processes, ranges of managed
 * memory.
 *
 * Physical memory of cuMemCreate is a file without a name (memfd); a reservation is a range of
 * addresses without access; mapping puts the file there. A mapping becomes known to kernels with
 * cuMemSetAccess and is then one range, as registered host memory is: an access must lie within one
 * mapping. A file descriptor is the shareable handle, so another process maps the same bytes.
 *
 * cuIpcGetMemHandle moves an allocation's pages into such a file in place. The handle names the
 * process and its descriptor; the other process opens it through /proc, which the system allows to
 * the same user.
 */
#include "softgpu/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

struct physical {
	struct physical *next;
	uint64_t id; /* the handle */
	unsigned int refs;
	bool released;
	int fd;
	size_t bytes;
	CUmemAllocationProp prop;
};

struct mapping {
	struct mapping *next;
	uint64_t addr;
	size_t bytes;
	struct physical *of;
	bool accessible; /* registered */
	unsigned long long access;
};

struct reservation {
	struct reservation *next;
	uint64_t addr;
	size_t bytes;
};

/* An allocation that other processes may open, or one of theirs. */
struct shared {
	struct shared *next;
	uint64_t base; /* the allocation; of another process: where it is here */
	uint64_t map;
	size_t map_bytes;
	int fd; /* ours; -1: of another process */
	unsigned int uses;
	char key[64];
};

static struct {
	struct physical *physical;
	struct mapping *mappings;
	struct reservation *reservations;
	struct shared *shared;
	uint64_t next_id;
} vm = { .next_id = 0x100000001 };

/* -- physical memory ------------------------------------------------------------------------ */

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
	struct physical *p = vm.physical;
	while (p && (p->id != handle || p->released))
		p = p->next;
	return p;
}

static void physical_put(struct physical *p)
{
	if (--p->refs)
		return;
	for (struct physical **at = &vm.physical; *at; at = &(*at)->next)
		if (*at == p) {
			*at = p->next;
			break;
		}
	close(p->fd);
	free(p);
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE
			? !drv_device_ok(prop->location.id)
			: prop->location.type != CU_MEM_LOCATION_TYPE_HOST)
		return CUDA_ERROR_INVALID_DEVICE;
	if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

/* Takes fd. */
static CUresult physical_new(
	int fd, size_t bytes, const CUmemAllocationProp *prop, CUmemGenericAllocationHandle *out)
{
	struct physical *p = calloc(1, sizeof(*p));
	if (!p) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*p = (struct physical){ .next = vm.physical,
		.id = vm.next_id++,
		.refs = 1,
		.fd = fd,
		.bytes = bytes,
		.prop = *prop };
	vm.physical = p;
	*out = p->id;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
	const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out || !bytes || bytes % GRANULE || flags)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = check_prop(prop)))
		return drv_leave(r);
	size_t used = bytes;
	for (const struct physical *p = vm.physical; p; p = p->next)
		used += p->bytes;
	if (bytes > drv.config.memory_bytes || used > drv.config.memory_bytes)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	int fd = memfd_create("egpu-softgpu", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
		if (fd >= 0)
			close(fd);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	return drv_leave(physical_new(fd, bytes, prop, out));
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct physical *p = physical_of(handle);
	if (!p)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (p->refs == 1) /* mappings keep it otherwise */
		p->released = true;
	physical_put(p);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetAllocationGranularity(
	size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!bytes || (unsigned int)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!(r = check_prop(prop)))
		*bytes = GRANULE;
	return drv_leave(r);
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(
	CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	const struct physical *p = physical_of(handle);
	if (!p || !prop)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*prop = p->prop;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle,
	CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	const struct physical *p = physical_of(handle);
	if (!p || !shared || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
		!(p->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return drv_leave(CUDA_ERROR_OPERATING_SYSTEM);
	memcpy(shared, &fd, sizeof(fd));
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemImportFromShareableHandle(
	CUmemGenericAllocationHandle *out, void *shared, CUmemAllocationHandleType type)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct stat st;
	/* The descriptor itself travels in the pointer. */
	int fd = (int)(intptr_t)shared;
	if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &st) ||
		st.st_size <= 0 || (size_t)st.st_size % GRANULE || !S_ISREG(st.st_mode))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return drv_leave(CUDA_ERROR_OPERATING_SYSTEM);
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	return drv_leave(physical_new(fd, (size_t)st.st_size, &prop, out));
}

/* -- addresses -----------------------------------------------------------------------------------
 */

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment,
	CUdeviceptr hint, unsigned long long flags)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	size_t align = alignment < GRANULE ? GRANULE : alignment, all;
	if (!out || !bytes || bytes % GRANULE || (alignment & (alignment - 1)) || flags ||
		__builtin_add_overflow(bytes, align, &all))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct reservation *v = calloc(1, sizeof(*v));
	void *p = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!v || p == MAP_FAILED) {
		if (p != MAP_FAILED)
			munmap(p, all);
		free(v);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	uint64_t addr = ((uint64_t)(uintptr_t)p + align - 1) & ~((uint64_t)align - 1);
	uint64_t before = addr - (uintptr_t)p, after = all - before - bytes;
	if (before)
		munmap(p, before);
	if (after)
		munmap((void *)(uintptr_t)(addr + bytes), after);
	*v = (struct reservation){ vm.reservations, addr, bytes };
	vm.reservations = v;
	*out = addr;
	return drv_leave(CUDA_SUCCESS);
}

static struct mapping *mapping_in(uint64_t addr, size_t bytes)
{
	struct mapping *m = vm.mappings;
	while (m && (m->addr + m->bytes <= addr || m->addr >= addr + bytes))
		m = m->next;
	return m;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr addr, size_t bytes)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	for (struct reservation **at = &vm.reservations; *at; at = &(*at)->next) {
		struct reservation *v = *at;
		if (v->addr != addr || v->bytes != bytes)
			continue;
		if (mapping_in(addr, bytes))
			break;
		munmap((void *)(uintptr_t)addr, bytes);
		*at = v->next;
		free(v);
		return drv_leave(CUDA_SUCCESS);
	}
	return drv_leave(CUDA_ERROR_INVALID_VALUE);
}

static bool reserved(uint64_t addr, size_t bytes)
{
	for (const struct reservation *v = vm.reservations; v; v = v->next)
		if (addr >= v->addr && addr - v->addr <= v->bytes &&
			bytes <= v->bytes - (addr - v->addr))
			return true;
	return false;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr addr, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct physical *p = physical_of(handle);
	if (!p || !bytes || addr % GRANULE || bytes % GRANULE || offset || flags ||
		bytes != p->bytes || !reserved(addr, bytes) || mapping_in(addr, bytes))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct mapping *m = calloc(1, sizeof(*m));
	/* No access before cuMemSetAccess. */
	if (!m || mmap((void *)(uintptr_t)addr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd,
			  0) == MAP_FAILED) {
		free(m);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*m = (struct mapping){ .next = vm.mappings, .addr = addr, .bytes = bytes, .of = p };
	vm.mappings = m;
	p->refs++;
	return drv_leave(CUDA_SUCCESS);
}

static void withdraw(struct mapping *m)
{
	if (m->accessible)
		sg_mem_unregister(drv.dev, (void *)(uintptr_t)m->addr);
	m->accessible = false;
}

/* Work that was queued earlier may use what is unmapped. The list may change while the lock is
 * away. */
static CUresult drain_all(void)
{
	size_t n = 0;
	for (struct CUctx_st *c = drv.contexts; c; c = c->next)
		n++;
	struct CUctx_st **all = calloc(n + 1, sizeof(*all));
	if (!all)
		return CUDA_ERROR_OUT_OF_MEMORY;
	n = 0;
	for (struct CUctx_st *c = drv.contexts; c; c = c->next) {
		c->refs++;
		all[n++] = c;
	}
	while (n--) {
		drv_ctx_drain(all[n]);
		drv_ctx_put(all[n]);
	}
	free(all);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr addr, size_t bytes)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	size_t covered = 0;
	for (const struct mapping *m = vm.mappings; m; m = m->next)
		if (m->addr >= addr && m->addr + m->bytes <= addr + bytes)
			covered += m->bytes;
	if (!bytes || covered != bytes)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = drain_all()))
		return drv_leave(r);
	for (struct mapping **at = &vm.mappings; *at;) {
		struct mapping *m = *at;
		if (m->addr < addr || m->addr + m->bytes > addr + bytes) {
			at = &m->next;
			continue;
		}
		withdraw(m);
		mmap((void *)(uintptr_t)m->addr, m->bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		*at = m->next;
		physical_put(m->of);
		free(m);
	}
	return drv_leave(CUDA_SUCCESS);
}

/* Read-only access is given as such to nobody: it is full access here, which lets no correct
 * program see a difference. */
static CUresult set_access(struct mapping *m, CUmemAccess_flags flags)
{
	void *p = (void *)(uintptr_t)m->addr;
	if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
		withdraw(m);
		mprotect(p, m->bytes, PROT_NONE);
	} else {
		if (mprotect(p, m->bytes, PROT_READ | PROT_WRITE))
			return CUDA_ERROR_OUT_OF_MEMORY;
		CUresult r = m->accessible ? CUDA_SUCCESS : sg_mem_register(drv.dev, p, m->bytes);
		if (r)
			return r;
		m->accessible = true;
	}
	m->access = flags;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(
	CUdeviceptr addr, size_t bytes, const CUmemAccessDesc *descs, size_t n)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	size_t covered = 0;
	for (const struct mapping *m = vm.mappings; m; m = m->next)
		if (m->addr >= addr && m->addr + m->bytes <= addr + bytes)
			covered += m->bytes;
	if (!bytes || covered != bytes || !descs || !n)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n && !r; i++) {
		if (descs[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
			!drv_device_ok(descs[i].location.id))
			return drv_leave(CUDA_ERROR_INVALID_DEVICE);
		if (descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
			descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
			descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
		for (struct mapping *m = vm.mappings; m && !r; m = m->next)
			if (m->addr >= addr && m->addr + m->bytes <= addr + bytes)
				r = set_access(m, descs[i].flags);
	}
	return drv_leave(r);
}

CUresult CUDAAPI cuMemGetAccess(
	unsigned long long *flags, const CUmemLocation *location, CUdeviceptr addr)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	const struct mapping *m = mapping_in(addr, 1);
	if (!flags || !location || !m)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = m->access;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	const struct mapping *m = mapping_in((uintptr_t)addr, 1);
	if (!handle || !m)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	m->of->refs++;
	*handle = m->of->id;
	return drv_leave(CUDA_SUCCESS);
}

/* -- between processes
 * ------------------------------------------------------------------------------ */

/* What a handle's 64 bytes say. */
struct ipc_handle {
	uint64_t magic, pid, fd, map_bytes, offset, bytes, serial, reserved;
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "fills the handle");
#define IPC_MAGIC 0x65677075697063ull

static size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* The allocation's pages, with their neighbours' bytes on them, from a file from now on. */
static CUresult share(const struct drv_alloc *a, struct shared **out)
{
	uint64_t from = a->base & ~(uint64_t)(page() - 1);
	uint64_t to = (a->base + a->bytes + page() - 1) & ~(uint64_t)(page() - 1);
	/* A page that is shared already would be torn out of the other file. */
	for (const struct shared *s = vm.shared; s; s = s->next)
		if (s->fd >= 0 && s->map < to && from < s->map + s->map_bytes)
			return CUDA_ERROR_NOT_SUPPORTED;
	struct shared *s = calloc(1, sizeof(*s));
	int fd = memfd_create("egpu-softgpu-ipc", MFD_CLOEXEC);
	size_t bytes = to - from;
	void *p = (void *)(uintptr_t)from;
	if (!s || fd < 0 || ftruncate(fd, (off_t)bytes) ||
		pwrite(fd, p, bytes, 0) != (ssize_t)bytes ||
		mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
			MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*s = (struct shared){ vm.shared, a->base, from, bytes, fd, 1, "" };
	vm.shared = s;
	*out = s;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr addr)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if ((r = drain_all())) /* nothing writes while pages move */
		return drv_leave(r);
	struct drv_alloc *a = drv_alloc_holding(addr);
	if (!out || !a || a->kind != DRV_MEM_DEVICE || a->freeing)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct shared *s = vm.shared;
	while (s && (s->base != a->base || s->fd < 0))
		s = s->next;
	if (!s && (r = share(a, &s)))
		return drv_leave(r);
	struct ipc_handle h = { .magic = IPC_MAGIC,
		.pid = (uint64_t)getpid(),
		.fd = (uint64_t)s->fd,
		.map_bytes = s->map_bytes,
		.offset = a->base - s->map,
		.bytes = a->bytes,
		.serial = a->id };
	memcpy(out, &h, sizeof(h));
	return drv_leave(CUDA_SUCCESS);
}

static CUresult open_handle(struct CUctx_st *ctx, const struct ipc_handle *h, uint64_t *addr)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof(path), "/proc/%llu/fd/%llu", (unsigned long long)h->pid,
		(unsigned long long)h->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 0 ||
		(uint64_t)st.st_size != h->map_bytes || h->offset > h->map_bytes || !h->bytes ||
		h->bytes > h->map_bytes - h->offset) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_INVALID_VALUE;
	}
	struct shared *s = calloc(1, sizeof(*s));
	void *p = mmap(NULL, h->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	uint64_t at = (uintptr_t)p + h->offset;
	if (!s || p == MAP_FAILED || sg_mem_register(drv.dev, (void *)(uintptr_t)at, h->bytes)) {
		if (p != MAP_FAILED)
			munmap(p, h->map_bytes);
		free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*s = (struct shared){ vm.shared, at, (uintptr_t)p, h->map_bytes, -1, 1, "" };
	memcpy(s->key, h, sizeof(s->key));
	vm.shared = s;
	*addr = at;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	struct CUctx_st *ctx;
	struct ipc_handle h;
	uint64_t addr;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	memcpy(&h, &handle, sizeof(h));
	if (!out || flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || h.magic != IPC_MAGIC)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (h.pid == (uint64_t)getpid()) /* as on hardware: not within one process */
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	for (struct shared *s = vm.shared; s; s = s->next)
		if (s->fd < 0 && !memcmp(s->key, &handle, sizeof(s->key))) {
			s->uses++;
			*out = s->base;
			return drv_leave(CUDA_SUCCESS);
		}
	if (!(r = open_handle(ctx, &h, &addr)))
		*out = addr;
	return drv_leave(r);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr addr)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	for (struct shared **at = &vm.shared; *at; at = &(*at)->next) {
		struct shared *s = *at;
		if (s->fd >= 0 || s->base != addr)
			continue;
		if (--s->uses)
			return drv_leave(CUDA_SUCCESS);
		*at = s->next;
		drain_all();
		sg_mem_unregister(drv.dev, (void *)(uintptr_t)s->base);
		munmap((void *)(uintptr_t)s->map, s->map_bytes);
		free(s);
		return drv_leave(CUDA_SUCCESS);
	}
	return drv_leave(CUDA_ERROR_INVALID_VALUE);
}

/* The owner frees the allocation. Its pages stay those of the file: neighbours live on them, and
 * the other processes may not use what has been freed. */
void drv_shared_forget(uint64_t base)
{
	for (struct shared **at = &vm.shared; *at; at = &(*at)->next) {
		struct shared *s = *at;
		if (s->fd < 0 || s->base != base)
			continue;
		close(s->fd);
		*at = s->next;
		free(s);
		return;
	}
}

/* -- ranges of managed memory: it is where it is, and nothing was moved
 * ------------------------------ */

static CUresult range_attribute(void *data, size_t size, CUmem_range_attribute attr)
{
	int32_t value;
	if (!data || !size || size % 4)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attr) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		value = 0;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		value = CU_DEVICE_INVALID;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < size / 4; i++)
		memcpy((char *)data + i * 4, &value, 4);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRangeGetAttribute(
	void *data, size_t size, CUmem_range_attribute attr, CUdeviceptr addr, size_t bytes)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	const struct drv_alloc *a = drv_alloc_holding(addr);
	if (!a || a->kind != DRV_MEM_MANAGED || !sg_mem_check(drv.dev, addr, bytes))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return drv_leave(range_attribute(data, size, attr));
}

CUresult CUDAAPI cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attrs,
	size_t n, CUdeviceptr addr, size_t bytes)
{
	CUresult r = n && data && sizes && attrs ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n && !r; i++)
		r = cuMemRangeGetAttribute(data[i], sizes[i], attrs[i], addr, bytes);
	return r;
}
