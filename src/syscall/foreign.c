/* foreign.c - map types of bpftime's public GPU examples, as types of ours.
 *
 * GPU arrays and hash maps are what ARRAY and HASH are here, wherever there they lie: a reader sees the same. Two have no such twin: an
 * array with an element for each thread is an ARRAY of all threads' elements (map_threads), and a ring for each thread is a part of one
 * RINGBUF, as large as they would be together.
 */
#include <errno.h>
#include <stdlib.h>

#include "egpu/probe.bpf.h"
#include "syscall/object.h"

enum {
	GPU_HASH = 1501,
	THREAD_ARRAY = EGPU_MAP_TYPE_THREAD_ARRAY,
	GPU_ARRAY = 1503,
	GPU_KERNEL_SHARED_ARRAY = 1504,
	THREAD_ARRAY_HOST = 1512,
	GPU_ARRAY_HOST = 1513,
	GPU_RINGBUF = 1527,
};

enum {
	MIN_THREADS = 1024, /* where nobody says how many */
	USUAL_BYTES = 16 << 20,
	MAX_RING_BYTES = 64 << 20,
	MIN_RING_BYTES = 4 << 20,
};

static const uint64_t MAX_BYTES = 1 << 30;

static bool is_thread_array(uint32_t type)
{
	return type == THREAD_ARRAY || type == THREAD_ARRAY_HOST;
}

/* Of the loader's environment; 0: it does not say. */
static uint64_t threads_wanted(void)
{
	const char *s = getenv("BPFTIME_MAP_GPU_THREAD_COUNT");
	char *end = NULL;
	errno = 0;
	unsigned long long n = s && *s >= '0' && *s <= '9' ? strtoull(s, &end, 10) : 0;
	return !errno && end && !*end ? n : 0;
}

static int thread_array(const struct loader *l, struct ebpf_map *def, struct diag *d)
{
	uint64_t one = map_stride(def->value_size) * def->max_entries, threads = def->extra ? def->extra : threads_wanted();
	if (def->key_size != 4 || !one)
		return diag_set(d, EINVAL, "map %s: key of %u bytes, value of %u bytes, %u entries is not possible (keys of a per-thread array have 4 bytes)",
			def->name, def->key_size, def->value_size, def->max_entries);
	if (!threads)
		threads = l->options.threads;
	if (!threads)
		for (threads = MIN_THREADS; 2 * threads * one <= USUAL_BYTES;)
			threads *= 2;
	if (one > MAX_BYTES || threads > MAX_BYTES / one || threads > UINT32_MAX / def->max_entries)
		return diag_set(d, E2BIG,
			"map %s: %u entries of %u bytes for each of %llu threads are more than %llu bytes, the most that a per-thread array may have; "
			"let fewer threads have one (map_extra, or BPFTIME_MAP_GPU_THREAD_COUNT)",
			def->name, def->max_entries, def->value_size, (unsigned long long)threads, (unsigned long long)MAX_BYTES);
	def->type = BPF_MAP_TYPE_ARRAY;
	def->max_entries *= (uint32_t)threads;
	def->extra = threads;
	return 0;
}

/* There each thread has room for max_entries records of value_size bytes. */
static int ring(const struct loader *l, struct ebpf_map *def)
{
	uint64_t threads = threads_wanted(), bytes = MIN_RING_BYTES;
	if (!threads)
		threads = l->options.threads ? l->options.threads : MIN_THREADS;
	uint64_t one = ((uint64_t)def->value_size + MAP_RING_HEADER) * def->max_entries;
	while (bytes < MAX_RING_BYTES && bytes / threads < one)
		bytes *= 2;
	def->type = BPF_MAP_TYPE_RINGBUF;
	def->max_entries = (uint32_t)bytes;
	def->key_size = def->value_size = 0;
	return 0;
}

int foreign_map(const struct loader *l, struct ebpf_map *def, struct diag *d)
{
	if (def->extra && (def->type == BPF_MAP_TYPE_ARRAY || (def->type >= GPU_HASH && !is_thread_array(def->type))))
		return diag_set(d, EINVAL, "map %s: map_extra is of Bloom filters and per-thread arrays (EGPU_MAP_TYPE_THREAD_ARRAY) alone", def->name);
	switch (def->type) {
	case GPU_HASH:
		def->type = BPF_MAP_TYPE_HASH;
		return 0;
	case GPU_ARRAY:
	case GPU_KERNEL_SHARED_ARRAY:
	case GPU_ARRAY_HOST:
		def->type = BPF_MAP_TYPE_ARRAY;
		return 0;
	case THREAD_ARRAY:
	case THREAD_ARRAY_HOST:
		return thread_array(l, def, d);
	case GPU_RINGBUF:
		return ring(l, def);
	default:
		return 0;
	}
}
