/* drain.c - ring buffers between device memory and the session (map/layout.h).
 *
 * Bins are taken whole, by DMA, in pieces that are large where there is that much, into the
 * session's memory; the CPU looks at two words of a bin and at none of its records. `committed` is
 * copied before `head`: where they then agree, nothing in the bin was half-written.
 *
 * Kernels count bytes as committed without a fence behind the stores, which would cost more than
 * all the rest of a record. So bytes that were seen committed are taken only when no store can be
 * on its way any more: DRAIN_SETTLE_US later, which is a hundred times what a store takes to reach
 * the second-level cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"

enum {
	PIECE_BYTES = 32 << 20, /* published at once */
	ZERO_BYTES = 32 << 10,
	PATIENCE_MS = 500, /* for a consumer that makes no room while we wait to end */
	STEP_MS = 2,
	MAX_HINTS = 1024, /* multiprocessors whose hints are cleared */
};

static const uint8_t zeros[ZERO_BYTES];

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

static bool finish(struct context *c)
{
	return ok(REAL(cuStreamSynchronize)(c->stream));
}

static bool to_host(struct context *c, void *host, CUdeviceptr at, uint64_t n)
{
	return ok(REAL(cuMemcpyDtoHAsync_v2)(host, at, n, c->stream));
}

/* Rings whose memory in the session some context has pinned. */
static atomic_bool pinned[EBPF_MAX_MAPS];

int drain_make(struct context *c, uint32_t id, bool pin, struct diag *d)
{
	struct devmap *m = &c->maps[id];
	const struct session_map *row = &agent.shared->maps[id];
	uint32_t entries = m->image->max_entries;
	void *at;
	size_t bytes;
	m->replicas = m->image->n_replicas;
	m->bin_bytes = map_ring_bin_bytes(entries);
	m->device_bytes = map_device_bytes(row->type, 0, 0, entries, m->replicas);
	if (!m->device_bytes || map_image_bytes(row->type, 0, 0, entries, m->replicas) != m->bytes)
		return diag_set(d, EINVAL, "map %u: a ring buffer of a strange size", id);
	m->bins = calloc((size_t)m->replicas * MAP_RING_BINS, sizeof(*m->bins));
	if (!m->bins)
		return diag_set(d, ENOMEM, "out of memory");
	int err = map_ring_memory(agent.session, id, &at, &bytes);
	if (err)
		return diag_set(d, -err, "map %u: its ring in the session cannot be used", id);
	/* Once a process: where another context has done it, it holds for this one too. */
	if (pin && !atomic_exchange(&pinned[id], true)) {
		m->pinned = devmap_pin(at, bytes, CU_MEMHOSTREGISTER_PORTABLE) ? at : NULL;
		if (!m->pinned)
			atomic_store(&pinned[id], false);
	}
	return 0;
}

void drain_unpin(struct context *c, uint32_t id)
{
	if (c->maps[id].pinned && REAL(cuMemHostUnregister)) {
		REAL(cuMemHostUnregister)(c->maps[id].pinned);
		atomic_store(&pinned[id], false);
	}
	c->maps[id].pinned = NULL;
}

/* -- what is there -------------------------------------------------------------- */

/* The control part as copied: lines and committed bytes first, heads second. */
struct view {
	struct context *c;
	struct devmap *m;
	uint32_t id, bins;
	const uint8_t *copy; /* of the whole control part */
	bool fresh;          /* there are committed bytes that have not settled */
};

static uint64_t word_at(const struct view *v, uint64_t offset)
{
	uint64_t w;
	memcpy(&w, v->copy + offset, sizeof(w));
	return w;
}

static uint64_t committed_of(const struct view *v, uint32_t bin)
{
	return word_at(
		v, map_ring_committed_at(v->m->replicas) + (uint64_t)bin * MAP_RING_COUNT_LINE);
}

static uint64_t head_of(const struct view *v, uint32_t bin)
{
	return word_at(v, map_ring_head_at(v->m->replicas) + (uint64_t)bin * MAP_RING_COUNT_LINE);
}

/* Bytes of a bin that hold groups, finished or not. */
static uint32_t reserved_of(const struct view *v, uint32_t bin)
{
	uint64_t head = head_of(v, bin);
	return head > v->m->bin_bytes ? v->m->bin_bytes : (uint32_t)head & ~15u;
}

/* A bin's committed bytes that were not taken; all that were reserved, or none. */
static uint32_t committed_bytes(const struct view *v, uint32_t bin)
{
	uint32_t end = reserved_of(v, bin), taken = v->m->bins[bin].taken;
	return committed_of(v, bin) == end && end > taken ? end - taken : 0;
}

/* A bin's bytes that can be taken now. */
static uint32_t ready_of(const struct view *v, uint32_t bin)
{
	return v->m->bins[bin].sure - v->m->bins[bin].taken;
}

/* Updates what is known of each bin. */
static void settle(struct view *v)
{
	uint64_t now = now_ns();
	v->fresh = false;
	for (uint32_t b = 0; b < v->bins; b++) {
		struct ring_bin *bin = &v->m->bins[b];
		bin->emptied = false;
		uint32_t end = bin->taken + committed_bytes(v, b);
		if (bin->seen > bin->sure && now - bin->seen_ns >= DRAIN_SETTLE_US * UINT64_C(1000))
			bin->sure = bin->seen;
		if (end > bin->seen && bin->seen <= bin->sure) {
			bin->seen = end;
			bin->seen_ns = now;
		}
		v->fresh |= bin->seen > bin->sure;
	}
}

static bool look(struct view *v)
{
	struct context *c = v->c;
	uint64_t heads = map_ring_head_at(v->m->replicas), end = map_ring_data_at(v->m->replicas);
	if (c->scratch_bytes < end) {
		void *p = realloc(c->scratch, end);
		if (!p)
			return false;
		c->scratch = p;
		c->scratch_bytes = end;
	}
	uint8_t *to = c->scratch;
	v->copy = to;
	return to_host(c, to + MAP_IMAGE_HEADER, v->m->address + MAP_IMAGE_HEADER,
		       heads - MAP_IMAGE_HEADER) &&
	       to_host(c, to + heads, v->m->address + heads, end - heads) && finish(c);
}

static bool begin_view(struct view *v, struct context *c, uint32_t id)
{
	*v = (struct view){
		.c = c, .m = &c->maps[id], .id = id, .bins = c->maps[id].replicas * MAP_RING_BINS
	};
	if (!look(v))
		return false;
	settle(v);
	return true;
}

/* What readers are told. */
static void publish(const struct view *v)
{
	uint64_t lost = 0, there = 0;
	for (uint32_t r = 0; r < v->m->replicas; r++)
		lost += word_at(v, MAP_IMAGE_HEADER + (uint64_t)r * MAP_RING_LINE + MAP_RING_LOST);
	for (uint32_t b = 0; b < v->bins; b++)
		there += reserved_of(v, b) > v->m->bins[b].taken ? reserved_of(v, b) - v->m->bins[b].taken : 0;
	map_instance_begin(v->m->instance);
	v->m->image->lost = lost;
	v->m->image->consumed = v->m->consumed;
	v->m->image->produced = v->m->consumed + there;
	map_instance_end(v->m->instance, now_ns());
}

/* -- taking --------------------------------------------------------------------- */

static CUdeviceptr data_at(const struct view *v, uint32_t bin)
{
	return v->m->address + map_ring_data_at(v->m->replicas) + (uint64_t)bin * v->m->bin_bytes +
	       v->m->bins[bin].taken;
}

/* Copies n bytes to a position of the session's ring. */
static bool copy_piece(const struct view *v, uint64_t at, CUdeviceptr from, uint64_t n)
{
	while (n) {
		void *to;
		uint64_t part = map_ring_piece(agent.session, v->id, at, n, &to);
		if (!part || !to_host(v->c, to, from, part))
			return false;
		at += part;
		from += part;
		n -= part;
	}
	return true;
}

/* Copies what is ready of bins from *bin on, up to `room` bytes; neighbours that lie without a gap
 * in one. *bin: the first that was not. */
static int64_t copy_bins(const struct view *v, uint32_t *bin, uint64_t at, uint64_t room)
{
	uint64_t done = 0, run = 0;
	CUdeviceptr from = 0;
	for (; *bin < v->bins; ++*bin) {
		uint32_t n = ready_of(v, *bin);
		if (!n)
			continue;
		if (n > room - done - run || done + run >= PIECE_BYTES)
			break;
		if (run && data_at(v, *bin) != from + run) {
			if (!copy_piece(v, at + done, from, run))
				return -EIO;
			done += run;
			run = 0;
		}
		if (!run)
			from = data_at(v, *bin);
		run += n;
	}
	if (run && !copy_piece(v, at + done, from, run))
		return -EIO;
	done += run;
	return finish(v->c) ? (int64_t)done : -EIO;
}

/* Gives full bins [from, to) back to the device: committed first. */
static bool reset_lines(const struct view *v, uint64_t lines, uint32_t from, uint32_t to)
{
	uint64_t at = lines + (uint64_t)from * MAP_RING_COUNT_LINE,
		 n = (uint64_t)(to - from) * MAP_RING_COUNT_LINE;
	for (uint64_t part; n; at += part, n -= part) {
		part = n < ZERO_BYTES ? n : ZERO_BYTES;
		if (!ok(REAL(cuMemcpyHtoDAsync_v2)(v->m->address + at, zeros, part, v->c->stream)))
			return false;
	}
	return true;
}

/* Bins [first, last) were copied as far as they were ready. */
static bool mark_taken(const struct view *v, uint32_t first, uint32_t last)
{
	uint32_t full = first; /* [full, b) are to be given back */
	for (uint32_t b = first; b <= last; b++) {
		uint32_t n = b < last ? ready_of(v, b) : 0;
		if (n)
			v->m->bins[b].taken += n;
		if (n && v->m->bins[b].taken == v->m->bin_bytes) {
			v->m->bins[b] = (struct ring_bin){ .emptied = true };
			continue;
		}
		if (full < b && (!reset_lines(v, map_ring_committed_at(v->m->replicas), full, b) ||
					!reset_lines(v, map_ring_head_at(v->m->replicas), full, b)))
			return false;
		full = b + 1;
	}
	return true;
}

static bool has_room(const struct view *v, uint32_t bin)
{
	return v->m->bins[bin].emptied || head_of(v, bin) < v->m->bin_bytes;
}

/* The hint for multiprocessor r: a bin of its own if there is room in one, else the next of all, from *next on, where there is. */
static uint32_t hint_for(const struct view *v, uint32_t r, uint32_t *next)
{
	uint32_t home = r * MAP_RING_BINS;
	for (uint32_t k = 0; k < MAP_RING_BINS; k++)
		if (has_room(v, home + k))
			return k;
	for (uint32_t k = 0; k < v->bins; k++) {
		uint32_t bin = (*next + k) % v->bins;
		if (has_room(v, bin)) {
			*next = bin + 1;
			return bin ^ home;
		}
	}
	return 0;
}

/* There is room again where some multiprocessor found none. Hints only: those of a kernel that runs
 * may stay in its caches, or change at the same moment. */
static void clear_full(const struct view *v)
{
	uint32_t next = 0;
	uint32_t words[MAX_HINTS], n = v->m->replicas < MAX_HINTS ? v->m->replicas : MAX_HINTS,
				   full = 0;
	for (uint32_t r = 0; r < n; r++) {
		memcpy(&words[r], v->copy + MAP_IMAGE_HEADER + (uint64_t)r * MAP_RING_LINE,
			sizeof(words[r]));
		full |= words[r] & MAP_RING_FULL;
		if (words[r] & MAP_RING_FULL)
			words[r] = hint_for(v, r, &next);
	}
	const CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = words,
		.srcPitch = sizeof(words[0]),
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = v->m->address + MAP_IMAGE_HEADER,
		.dstPitch = MAP_RING_LINE,
		.WidthInBytes = sizeof(words[0]),
		.Height = n };
	if (full && REAL(cuMemcpy2DAsync_v2))
		REAL(cuMemcpy2DAsync_v2)(&copy, v->c->stream);
	finish(v->c); /* words[] is ours no longer than this */
}

int64_t drain_ring(struct context *c, uint32_t id)
{
	struct view v;
	int64_t total = 0;
	int err = 0;
	if (!begin_view(&v, c, id))
		return -EIO;
	for (uint32_t bin = 0; bin < v.bins && !err;) {
		struct map_ring_room room;
		uint32_t n = ready_of(&v, bin), first = bin;
		if (!n) {
			bin++;
			continue;
		}
		err = map_ring_begin(agent.session, id, n, &room);
		if (err)
			break;
		int64_t got = copy_bins(&v, &bin, room.at, room.bytes);
		if (got < 0 || !mark_taken(&v, first, bin))
			err = -EIO;
		map_ring_end(agent.session, id, &room, err ? 0 : (uint64_t)got);
		if (!err) {
			total += got;
			v.m->consumed += (uint64_t)got;
		}
	}
	publish(&v);
	c->settling |= v.fresh;
	if (total)
		clear_full(&v);
	if (!total && !err)
		err = map_ring_flush(agent.session, id);
	return total ? total : err;
}

/* -- the end -------------------------------------------------------------------- */

/* Records on the device that can be counted; a bin that holds something half-written counts once.
 */
static uint64_t count_left(struct view *v)
{
	uint64_t left = 0;
	uint8_t *groups = malloc(v->m->bin_bytes);
	for (uint32_t b = 0; b < v->bins; b++) {
		uint32_t n = committed_bytes(v, b);
		bool damaged = false;
		if (n && groups && to_host(v->c, groups, data_at(v, b), n) && finish(v->c))
			left += map_ring_count(groups, n, &damaged) + damaged;
		else
			left += reserved_of(v, b) > v->m->bins[b].taken;
	}
	free(groups);
	return left;
}

void drain_final(struct context *c, uint32_t id)
{
	struct view v;
	for (int waited = 0; waited < PATIENCE_MS; waited += STEP_MS) {
		c->settling = false;
		int64_t got = drain_ring(c, id);
		if (got != -EAGAIN && got <= 0 && !c->settling)
			break;
		if (got > 0)
			waited = -STEP_MS;
		else
			usleep(STEP_MS * 1000);
	}
	c->maps[id].left = begin_view(&v, c, id) ? count_left(&v) : 0;
}

void drain_give_up(struct context *c, uint32_t id)
{
	map_ring_give_up(agent.session, id, c->maps[id].left);
	c->maps[id].left = 0;
}
