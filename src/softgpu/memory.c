/* memory.c - device memory with exact bounds.
 *
 * One region of address space is reserved for the device's life. Allocations start at multiples of
 * 256 bytes with at least one unused granule between them, so that running off an end is seen. The
 * table of valid bytes by granule answers an access with one load; the sorted list of allocations
 * answers everything else. Freed addresses are not handed out again until the region has been gone
 * through once, so that most uses after free are seen too.
 */
#include "softgpu/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULE 256ull
#define COMMIT (2ull << 20)
#define SG_MAX_RANGES 65536u

static uint64_t round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

static void *reserve(uint64_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

int sg_mem_init(struct sg_mem *m, uint64_t bytes)
{
	memset(m, 0, sizeof(*m));
	if (bytes == 0 || bytes > 1ull << 44)
		return -EINVAL;
	m->limit = bytes;
	/* Twice the memory, so that fragmentation and unreused addresses rarely matter. */
	m->span = round_up(bytes * 2 + (256ull << 20), COMMIT);
	void *base = reserve(m->span, PROT_NONE);
	void *valid = reserve(m->span / GRANULE * sizeof(*m->valid), PROT_READ | PROT_WRITE);
	void *ranges = reserve(SG_MAX_RANGES * sizeof(*m->ranges), PROT_READ | PROT_WRITE);
	m->base = (uintptr_t)base;
	m->valid = valid;
	m->ranges = ranges;
	pthread_mutex_init(&m->lock, NULL);
	if (!base || !valid || !ranges) {
		sg_mem_fini(m);
		return -ENOMEM;
	}
	return 0;
}

void sg_mem_fini(struct sg_mem *m)
{
	if (m->base)
		munmap((void *)(uintptr_t)m->base, m->span);
	if (m->valid)
		munmap(m->valid, m->span / GRANULE * sizeof(*m->valid));
	if (m->ranges)
		munmap(m->ranges, SG_MAX_RANGES * sizeof(*m->ranges));
	free(m->allocs);
	pthread_mutex_destroy(&m->lock);
	memset(m, 0, sizeof(*m));
}

/* Index of the first allocation whose base is above addr. */
static size_t alloc_above(const struct sg_mem *m, uint64_t addr)
{
	size_t lo = 0, hi = m->n_allocs;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (m->allocs[mid].base > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* First end of an allocation, guard granule included, at or below index i. */
static uint64_t end_before(const struct sg_mem *m, size_t i)
{
	if (!i)
		return 0;
	const struct sg_alloc *a = &m->allocs[i - 1];
	return round_up(a->base - m->base + a->bytes, GRANULE) + GRANULE;
}

/* An offset with room for bytes, searched from `from`; false when there is none up to the end. */
static bool find_room(const struct sg_mem *m, uint64_t from, uint64_t bytes, uint64_t *off)
{
	size_t i = alloc_above(m, m->base + from);
	uint64_t at = end_before(m, i);
	if (at < from)
		at = from;
	for (;; i++) {
		uint64_t end = i < m->n_allocs ? m->allocs[i].base - m->base : m->span;
		if (at + bytes + GRANULE <= end) {
			*off = at;
			return true;
		}
		if (i >= m->n_allocs)
			return false;
		at = end_before(m, i + 1);
	}
}

static bool commit(struct sg_mem *m, uint64_t end)
{
	if (end <= m->writable_end)
		return true;
	uint64_t to = round_up(end, COMMIT);
	if (mprotect((void *)(uintptr_t)(m->base + m->writable_end), to - m->writable_end,
		    PROT_READ | PROT_WRITE))
		return false;
	m->writable_end = to;
	return true;
}

static void mark(struct sg_mem *m, uint64_t off, uint64_t bytes, bool set)
{
	uint64_t g = off / GRANULE;
	for (uint64_t left = bytes; left; g++) {
		uint64_t n = left < GRANULE ? left : GRANULE;
		atomic_store_explicit(&m->valid[g], set ? (uint16_t)n : 0, memory_order_relaxed);
		left -= n;
	}
}

static bool insert(struct sg_mem *m, uint64_t base, uint64_t bytes)
{
	if (m->n_allocs == m->cap_allocs) {
		size_t cap = m->cap_allocs ? m->cap_allocs * 2 : 64;
		struct sg_alloc *p = realloc(m->allocs, cap * sizeof(*p));
		if (!p)
			return false;
		m->allocs = p;
		m->cap_allocs = cap;
	}
	size_t i = alloc_above(m, base);
	memmove(&m->allocs[i + 1], &m->allocs[i], (m->n_allocs - i) * sizeof(*m->allocs));
	m->allocs[i] = (struct sg_alloc){ base, bytes };
	m->n_allocs++;
	return true;
}

static CUresult alloc_locked(struct sg_mem *m, uint64_t bytes, uint64_t *addr)
{
	uint64_t off;
	if (m->used + round_up(bytes, GRANULE) > m->limit)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!find_room(m, m->cursor, bytes, &off) && !find_room(m, 0, bytes, &off))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!commit(m, off + bytes) || !insert(m, m->base + off, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	mark(m, off, bytes, true);
	m->cursor = round_up(off + bytes, GRANULE) + GRANULE;
	m->used += round_up(bytes, GRANULE);
	*addr = m->base + off;
	return CUDA_SUCCESS;
}

CUresult sg_mem_alloc(struct sg_device *dev, size_t bytes, uint64_t *addr)
{
	struct sg_mem *m = &dev->mem;
	if (!bytes || !addr)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > m->limit)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&m->lock);
	CUresult r = alloc_locked(m, bytes, addr);
	pthread_mutex_unlock(&m->lock);
	return r;
}

static void release_pages(struct sg_mem *m, uint64_t base, uint64_t bytes)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t from = round_up(base, page), to = (base + bytes) / page * page;
	if (to > from + 64 * 1024)
		madvise((void *)(uintptr_t)from, to - from, MADV_DONTNEED);
}

CUresult sg_mem_free(struct sg_device *dev, uint64_t addr)
{
	struct sg_mem *m = &dev->mem;
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&m->lock);
	size_t i = alloc_above(m, addr);
	if (i && m->allocs[i - 1].base == addr) {
		uint64_t bytes = m->allocs[i - 1].bytes;
		mark(m, addr - m->base, bytes, false);
		memmove(&m->allocs[i - 1], &m->allocs[i], (m->n_allocs - i) * sizeof(*m->allocs));
		m->n_allocs--;
		m->used -= round_up(bytes, GRANULE);
		release_pages(m, addr, bytes);
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

/* -- registered host memory -------------------------------------------------- */

static uint64_t range_base(const struct sg_mem *m, uint32_t i)
{
	return atomic_load_explicit(&m->ranges[i].base, memory_order_relaxed);
}

static uint64_t range_end(const struct sg_mem *m, uint32_t i)
{
	return atomic_load_explicit(&m->ranges[i].end, memory_order_relaxed);
}

static uint32_t range_above(const struct sg_mem *m, uint64_t addr)
{
	uint32_t lo = 0, hi = atomic_load_explicit(&m->n_ranges, memory_order_relaxed);
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (range_base(m, mid) > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* Readers take no lock: they retry when the list changed under them. */
bool sg_mem_is_host(struct sg_mem *m, uint64_t addr, size_t bytes)
{
	for (;;) {
		uint32_t seq = atomic_load_explicit(&m->ranges_seq, memory_order_acquire);
		uint32_t i = range_above(m, addr);
		uint64_t end = i ? range_end(m, i - 1) : 0;
		atomic_thread_fence(memory_order_acquire);
		if (seq & 1 || seq != atomic_load_explicit(&m->ranges_seq, memory_order_relaxed))
			continue;
		return i && addr <= end && bytes <= end - addr;
	}
}

static void range_set(struct sg_mem *m, uint32_t i, uint64_t base, uint64_t end)
{
	atomic_store_explicit(&m->ranges[i].base, base, memory_order_relaxed);
	atomic_store_explicit(&m->ranges[i].end, end, memory_order_relaxed);
}

static void ranges_begin(struct sg_mem *m)
{
	atomic_fetch_add_explicit(&m->ranges_seq, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static void ranges_end(struct sg_mem *m, uint32_t n)
{
	atomic_store_explicit(&m->n_ranges, n, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->ranges_seq, 1, memory_order_release);
}

static CUresult register_locked(struct sg_mem *m, uint64_t base, uint64_t end)
{
	uint32_t n = m->n_ranges, i = range_above(m, base);
	if ((i && range_end(m, i - 1) > base) || (i < n && range_base(m, i) < end))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (n == SG_MAX_RANGES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ranges_begin(m);
	for (uint32_t j = n; j > i; j--)
		range_set(m, j, range_base(m, j - 1), range_end(m, j - 1));
	range_set(m, i, base, end);
	ranges_end(m, n + 1);
	return CUDA_SUCCESS;
}

CUresult sg_mem_register(struct sg_device *dev, void *host, size_t bytes)
{
	struct sg_mem *m = &dev->mem;
	uint64_t base = (uintptr_t)host;
	if (!host || !bytes || base + bytes < base)
		return CUDA_ERROR_INVALID_VALUE;
	if (base < m->base + m->span && base + bytes > m->base)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&m->lock);
	CUresult r = register_locked(m, base, base + bytes);
	pthread_mutex_unlock(&m->lock);
	return r;
}

CUresult sg_mem_unregister(struct sg_device *dev, void *host)
{
	struct sg_mem *m = &dev->mem;
	uint64_t base = (uintptr_t)host;
	CUresult r = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	pthread_mutex_lock(&m->lock);
	uint32_t n = m->n_ranges, i = range_above(m, base);
	if (i && range_base(m, i - 1) == base) {
		ranges_begin(m);
		for (uint32_t j = i - 1; j + 1 < n; j++)
			range_set(m, j, range_base(m, j + 1), range_end(m, j + 1));
		ranges_end(m, n - 1);
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

/* -- queries ----------------------------------------------------------------- */

bool sg_mem_range(
	struct sg_device *dev, uint64_t addr, uint64_t *base, size_t *bytes, bool *is_host)
{
	struct sg_mem *m = &dev->mem;
	struct sg_alloc found = { 0, 0 };
	bool host = false;
	pthread_mutex_lock(&m->lock);
	size_t i = alloc_above(m, addr);
	if (i && addr - m->allocs[i - 1].base < m->allocs[i - 1].bytes) {
		found = m->allocs[i - 1];
	} else {
		uint32_t j = range_above(m, addr);
		host = j && addr < range_end(m, j - 1);
		if (host)
			found = (struct sg_alloc){ range_base(m, j - 1),
				range_end(m, j - 1) - range_base(m, j - 1) };
	}
	pthread_mutex_unlock(&m->lock);
	if (!found.bytes)
		return false;
	if (base)
		*base = found.base;
	if (bytes)
		*bytes = found.bytes;
	if (is_host)
		*is_host = host;
	return true;
}

void sg_mem_describe(struct sg_mem *m, uint64_t addr, char *out, size_t size)
{
	const uint64_t near = 1 << 20;
	out[0] = 0;
	pthread_mutex_lock(&m->lock);
	size_t i = alloc_above(m, addr);
	const struct sg_alloc *below = i ? &m->allocs[i - 1] : NULL;
	const struct sg_alloc *above = i < m->n_allocs ? &m->allocs[i] : NULL;
	uint64_t past = below ? addr - below->base - below->bytes : UINT64_MAX;
	uint64_t before = above ? above->base - addr : UINT64_MAX;
	if (below && addr - below->base < below->bytes)
		snprintf(out, size,
			", in the allocation of %llu bytes at 0x%llx, whose end it crosses",
			(unsigned long long)below->bytes, (unsigned long long)below->base);
	else if (past <= before && past < near)
		snprintf(out, size, ", %llu bytes past the allocation of %llu bytes at 0x%llx",
			(unsigned long long)past, (unsigned long long)below->bytes,
			(unsigned long long)below->base);
	else if (before < near)
		snprintf(out, size, ", %llu bytes before the allocation of %llu bytes at 0x%llx",
			(unsigned long long)before, (unsigned long long)above->bytes,
			(unsigned long long)above->base);
	pthread_mutex_unlock(&m->lock);
}

bool sg_mem_check(struct sg_device *dev, uint64_t addr, size_t bytes)
{
	uint64_t base;
	size_t size;
	if (!sg_mem_range(dev, addr, &base, &size, NULL))
		return false;
	return bytes <= size - (addr - base);
}

void sg_mem_info(struct sg_device *dev, size_t *free_bytes, size_t *total_bytes)
{
	struct sg_mem *m = &dev->mem;
	pthread_mutex_lock(&m->lock);
	if (free_bytes)
		*free_bytes = m->limit - m->used;
	if (total_bytes)
		*total_bytes = m->limit;
	pthread_mutex_unlock(&m->lock);
}
