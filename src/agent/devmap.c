/* devmap.c - maps between device memory and the session.
 *
 * Each map a variant uses has one image on the device, made when nothing runs there. A thread,
 * started with the first of them, copies images to the session while instrumented work is
 * unfinished, and drains rings. DMA runs beside kernels on a stream that waits for nobody.
 */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent/agent.h"

enum {
	COPY_MS = 20,       /* between copies while work is unfinished */
	COPY_SHARE = 50,    /* at most one part in so many of the time goes into copies */
	COPY_MAX_MS = 1000,
	REQUEST_MS = 1,     /* between looks for a moment at which the host's write can be done */
	RING_MS = 2,        /* the same where a ring fills */
	REAP_NS = 1000000000,
	STUCK_MS = 64,      /* where nothing runs, and the reader makes no room: this long at last */
	LATE_MS = 200,      /* when the last launch was more than a second ago */
	AFTER_SYNC_MS = 10, /* at most one copy in the program's own thread in this time */
	AFTER_SYNC_BYTES = 1 << 20,
	PIN_BYTES = 64 << 10, /* copies of less are no quicker from pinned memory */
	PARKED_MS = 10000,
	EXIT_SETTLE_MS = 2000,
	EXIT_WAIT_MS = 5000,
};

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

/* What the thread sleeps on: in the session, so that the host can wake it. */
static atomic_int *sync_word(void)
{
	return agent.row ? (atomic_int *)(void *)&agent.row->wake : &agent.sync.word;
}

/* -- making --------------------------------------------------------------------- */

/* Between the replicas of an array or hash. What shared memory says must fit the image that was made. */
static uint64_t replica_bytes(const struct session_map *row, size_t image_bytes, uint32_t sms)
{
	bool hash = row->type == BPF_MAP_TYPE_HASH;
	uint64_t one = hash ? map_hash_replica_bytes(row->value_size, row->max_entries) : map_replica_bytes(row->max_entries, row->value_size),
		 slots = hash ? map_hash_replicas_at(row->key_size, row->value_size, row->max_entries) : 0;
	bool several = (hash || row->type == BPF_MAP_TYPE_ARRAY) && sms > 1 && one <= UINT32_MAX &&
		       slots + one * sms == image_bytes - MAP_IMAGE_HEADER;
	return several ? one : 0;
}

static bool is_live(uint32_t id)
{
	return agent.shared->maps[id].live;
}

static void forget(struct devmap *m)
{
	map_instance_close(m->instance);
	if (m->host)
		munmap((void *)(uintptr_t)m->host, m->host_bytes);
	free(m->bins);
	memset(m, 0, sizeof(*m));
}

static bool finish(struct context *c)
{
	return ok(REAL(cuStreamSynchronize)(c->stream));
}

/* A per-CPU map begins with zeros: its pages in the session, tens of megabytes on a large device, need not be there yet. But the driver sets
 * memory by a kernel, which beside one that fills the device waits for its end. */
static bool image_to_device(struct context *c, struct devmap *m)
{
	bool zero = m->image->type == BPF_MAP_TYPE_PERCPU_ARRAY && REAL(cuMemsetD8Async) && !m->pooled;
	if (!zero && map_instance_reserve(agent.session, m->instance))
		return false;
	return (!zero || ok(REAL(cuMemsetD8Async)(m->address, 0, m->bytes, c->stream))) &&
	       ok(REAL(cuMemcpyHtoDAsync_v2)(m->address, m->image,
		       zero ? MAP_IMAGE_HEADER : m->bytes, c->stream));
}

/* What a map takes on this device. */
static uint64_t bytes_of(const struct context *c, uint32_t id)
{
	const struct session_map *row = &agent.shared->maps[id];
	uint32_t sms = c->sms ? c->sms : 1;
	bool one = !map_is_per_cpu(row->type) && row->type != BPF_MAP_TYPE_RINGBUF;
	return map_device_bytes(row->type, row->key_size, row->value_size, row->max_entries,
		one ? session_map_replicas(agent.session, id, sms) : sms);
}

/* Drivers pin the pages of files that live in memory, and refuse others: a session on a disk is not even
 * tried. Copies to memory that is not pinned are slower, not wrong. */
bool devmap_pin(void *at, size_t bytes, unsigned int flags)
{
	struct statfs fs;
	if (!REAL(cuMemHostRegister_v2) || statfs(session_path(agent.session), &fs) || fs.f_type != TMPFS_MAGIC)
		return false;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	return ok(REAL(cuMemHostRegister_v2)(at, (bytes + page - 1) / page * page, flags));
}

/* As its loader called it. */
#define NAME(id) (int)sizeof(agent.shared->maps[0].name), agent.shared->maps[id].name

/* The image in the session becomes the device's own. */
static int map_image(struct devmap *m, uint32_t id, struct diag *d)
{
	CUdeviceptr at;
	size_t before = (size_t)((char *)m->image - (char *)m->instance);
	if (map_instance_reserve(agent.session, m->instance))
		return diag_set(d, ENOSPC, "there is no room in %s for map %.*s", session_path(agent.session), NAME(id));
	if (!REAL(cuMemHostGetDevicePointer_v2) ||
		!devmap_pin(m->instance, before + m->bytes, CU_MEMHOSTREGISTER_DEVICEMAP))
		return diag_set(d, ENOTSUP,
			"map %.*s is to be in host memory, which the driver does not map for the device (the session has to be on a tmpfs)", NAME(id));
	m->instance_pinned = true;
	if (!ok(REAL(cuMemHostGetDevicePointer_v2)(&at, m->instance, 0)))
		return diag_set(d, ENOTSUP, "map %.*s is to be in host memory, which this device does not reach", NAME(id));
	m->address = at + before;
	return 0;
}

static void free_image(struct devmap *m)
{
	if (REAL(cuMemHostUnregister) && m->instance_pinned)
		REAL(cuMemHostUnregister)(m->instance);
	if (!m->pooled && !m->mapped)
		REAL(cuMemFree_v2)(m->address);
}

static int make_map(struct context *c, uint32_t id, bool pooled, struct diag *d)
{
	struct devmap *m = &c->maps[id];
	/* A look first: an instance is a file, and this is tried again and again. */
	int err = pooled ? live_pool_take(c, id, bytes_of(c, id), NULL, d) : 0;
	if (!err)
		err = map_instance_create(agent.session, id, c->sms ? c->sms : 1, (uint32_t)c->device,
		&m->instance, &m->image, &m->bytes, d);
	if (err)
		return err;
	m->pooled = pooled;
	m->serial = agent.shared->maps[id].serial;
	m->replica_bytes = replica_bytes(&agent.shared->maps[id], m->bytes, c->sms);
	m->is_ring = m->image->type == BPF_MAP_TYPE_RINGBUF;
	m->mapped = !pooled && !m->is_ring && (agent.shared->maps[id].flags & MAP_FLAG_HOST);
	m->device_bytes = m->bytes;
	err = m->is_ring ? drain_make(c, id, !pooled, d) : 0;
	if (err) {
		forget(m);
		return err;
	}
	if (pooled)
		err = live_pool_take(c, id, m->device_bytes, &m->address, d);
	else if (m->mapped)
		err = map_image(m, id, d);
	else if (!ok(REAL(cuMemAlloc_v2)(&m->address, m->device_bytes)))
		err = diag_set(d, ENOMEM, "no device memory for map %.*s", NAME(id));
	if (err) {
		if (REAL(cuMemHostUnregister) && m->instance_pinned)
			REAL(cuMemHostUnregister)(m->instance);
		forget(m);
		return err;
	}
	/* Pinning 34 MB took 12 to 28 ms on an H200, ten copies' worth: it is for what is copied in the program's own thread. */
	if (!pooled && !m->mapped && m->bytes >= PIN_BYTES && m->bytes <= AFTER_SYNC_BYTES)
		m->instance_pinned = devmap_pin(
			m->instance, (size_t)((char *)m->image - (char *)m->instance) + m->bytes, 0);
	if (!m->mapped && (!image_to_device(c, m) || !finish(c))) {
		free_image(m);
		forget(m);
		return diag_set(d, EIO, "map %.*s cannot be copied to the device", NAME(id));
	}
	agent_log("map %u: %zu bytes on the device, %spinned here%s", id, m->device_bytes,
		m->instance_pinned ? "" : "not ", m->mapped ? ", in host memory" : "");
	request_watch(c, id);
	c->map_mask |= (uint64_t)1 << id;
	if (!is_live(id))
		return 0;
	context_clock(c);
	return live_prepare(c, m->address, d);
}

/* The row is another map's now. What the old one had on the device stays there: a kernel may still be at it. */
static void drop_replaced(struct context *c, uint32_t id)
{
	struct devmap *m = &c->maps[id];
	if (!m->pooled || m->serial == agent.shared->maps[id].serial)
		return;
	if (m->is_ring)
		session_forget_ring(agent.session, id);
	__atomic_store_n(&m->instance->ended, 1, __ATOMIC_RELEASE);
	forget(m);
	c->map_mask &= ~(UINT64_C(1) << id);
}

int devmap_make_pooled(struct context *c, uint64_t mask, struct diag *d)
{
	int err = 0;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS && !err; i++) {
		if (!(mask >> i & 1))
			continue;
		drop_replaced(c, i);
		if (!c->maps[i].address)
			err = make_map(c, i, true, d);
	}
	return err;
}

uint64_t devmap_pooled(const struct context *c)
{
	uint64_t mask = 0;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (c->maps[i].address && c->maps[i].pooled)
			mask |= UINT64_C(1) << i;
	return mask;
}

int devmap_make(struct context *c, uint64_t mask, struct diag *d)
{
	int err = 0;
	lock_take(&c->copying);
	for (uint32_t i = 0; i < EBPF_MAX_MAPS && !err; i++) {
		if (!(mask >> i & 1))
			continue;
		drop_replaced(c, i);
		if (!c->maps[i].address)
			err = make_map(c, i, false, d);
	}
	lock_drop(&c->copying);
	if (!err)
		err = devmap_start();
	return err;
}

void devmap_free(struct context *c, uint64_t mask)
{
	lock_take(&c->copying);
	devmap_drop(c, mask);
	lock_drop(&c->copying);
}

void devmap_drop(struct context *c, uint64_t mask)
{
	if (!mask)
		return;
	devmap_final(c);
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++) {
		struct devmap *m = &c->maps[i];
		if (!(mask >> i & 1) || !m->address)
			continue;
		if (m->is_ring) {
			drain_give_up(c, i);
			drain_unpin(c, i);
			session_forget_ring(agent.session, i);
		}
		__atomic_store_n(&m->instance->ended, 1, __ATOMIC_RELEASE);
		free_image(m);
		c->map_mask &= ~((uint64_t)1 << i);
		c->host_mask &= ~((uint64_t)1 << i);
		forget(m);
	}
}

/* -- copies --------------------------------------------------------------------- */

static void no_room(const struct devmap *m)
{
	char text[200];
	snprintf(text, sizeof(text), "there is no room in %s for the values of map %u", session_path(agent.session), m->instance->map);
	if (agent.row && !agent.row->trouble)
		agent.row->trouble = session_add_text(agent.session, text);
	agent_log("%s", text);
}

/* False: what the session shows is older than this. */
static bool copy_image(struct context *c, struct devmap *m)
{
	if (m->mapped)
		return true;
	if (map_instance_reserve(agent.session, m->instance)) {
		no_room(m);
		return false;
	}
	map_instance_begin(m->instance);
	bool done = ok(REAL(cuMemcpyDtoHAsync_v2)(m->image, m->address, m->bytes, c->stream)) && finish(c);
	map_instance_end(m->instance, done ? now_ns() : m->instance->sync_ns);
	return done;
}

/* Calls about a context that is gone, or of which a fault is known, fail; checkers of calls would show ours as the program's. */
static bool answers(const struct context *c)
{
	return !atomic_load(&c->dead) && !atomic_load(&c->faulted);
}

/* Rings, and with `images` all maps that a launch may have changed since their last copy; whether a
 * ring still flows. Holder of c->copying, any thread. */
static bool copy_maps(struct context *c, bool images)
{
	CUcontext was;
	bool flows = false, waits = false, fine = true;
	uint64_t start = now_ns();
	if (!ok(REAL(cuCtxPushCurrent_v2)(c->handle)))
		return false;
	c->settling = c->stuck = false;
	/* In this order: a launch counts itself first and then looks whether its maps are dirty. */
	uint64_t dirty = images ? atomic_exchange(&c->dirty, 0) : 0;
	uint64_t launches = atomic_load(&c->launches), finished = atomic_load(&c->finished);
	if (images && c->live)
		dirty = c->map_mask; /* programs come to kernels that run */
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++) {
		struct devmap *m = &c->maps[i];
		if (!m->address || is_live(i)) /* that is only the device's */
			continue;
		if (m->is_ring) {
			int64_t got = drain_ring(c, i);
			flows |= got > 0;
			c->stuck |= got == -EAGAIN;
			fine &= got >= 0 || got == -EAGAIN;
			waits |= got > 0 || c->stuck || c->settling; /* what was taken may have left some that found no room */
		} else if (dirty >> i & 1) {
			fine &= copy_image(c, m);
		}
	}
	REAL(cuCtxPopCurrent_v2)(&was);
	if (agent.row)
		__atomic_fetch_add(&agent.row->syncs, 1, __ATOMIC_RELAXED);
	if (!images)
		return flows;
	if (finished >= launches && !waits && fine) /* waits: for a consumer that makes room */
		atomic_store(&c->copied, launches);
	else
		atomic_fetch_or(&c->dirty, dirty);
	atomic_store(&c->copied_ns, now_ns());
	if (fine)
		atomic_store(&c->shown_ns, start);
	c->copy_took_ns = now_ns() - start;
	return flows;
}

/* What is pinned stays so until the context is gone: giving it back would wait for all that runs.
 */
void devmap_final(struct context *c)
{
	CUcontext was;
	copy_maps(c, true);
	if (!ok(REAL(cuCtxPushCurrent_v2)(c->handle)))
		return;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (c->maps[i].address && c->maps[i].is_ring)
			drain_final(c, i);
	REAL(cuCtxPopCurrent_v2)(&was);
}

void devmap_take_rest(struct context *c, uint64_t mask)
{
	CUcontext was;
	copy_maps(c, true);
	if (!ok(REAL(cuCtxPushCurrent_v2)(c->handle)))
		return;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if ((mask >> i & 1) && c->maps[i].address && c->maps[i].is_ring)
			drain_final(c, i);
	REAL(cuCtxPopCurrent_v2)(&was);
}

static bool unfinished(const struct context *c)
{
	return c->ready && answers(c) &&
	       (atomic_load(&c->copied) != atomic_load(&c->launches) || atomic_load(&c->dirty));
}

void devmap_after_sync(CUcontext which)
{
	uint64_t now = now_ns();
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		size_t bytes = 0;
		if ((which && c->handle != which) || !unfinished(c) ||
			now - atomic_load(&c->copied_ns) < AFTER_SYNC_MS * 1000000ull)
			continue;
		if (atomic_load(&agent.captures) || !lock_try(&c->copying))
			continue;
		for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
			bytes += c->maps[i].address && !is_live(i) ? c->maps[i].device_bytes : 0;
		if (bytes <= AFTER_SYNC_BYTES && !atomic_load(&c->dead))
			copy_maps(c, true);
		lock_drop(&c->copying);
	}
}

/* -- thread --------------------------------------------------------------------- */

void devmap_launched(struct context *c, uint64_t maps)
{
	atomic_store_explicit(&c->last_launch_ns, coarse_ns(), memory_order_relaxed);
	atomic_fetch_add(&c->launches, 1);
	if (~atomic_load(&c->dirty) & maps)
		atomic_fetch_or(&c->dirty, maps);
	if (atomic_load(&agent.sync.parked))
		word_wake(sync_word());
}

void devmap_touched(void)
{
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		if (atomic_load(&c->launches))
			devmap_launched(c, c->map_mask);
}

/* Between copies of images: a large map is not copied all the time, nor are maps of a program that
 * launches and synchronises in a loop copied each time. */
static uint64_t copy_interval_ns(const struct context *c)
{
	uint64_t age = now_ns() - atomic_load(&c->last_launch_ns),
		 ns = (age < 1000000000u ? COPY_MS : LATE_MS) * UINT64_C(1000000),
		 share = c->copy_took_ns * COPY_SHARE;
	if (share > COPY_MAX_MS * UINT64_C(1000000))
		share = COPY_MAX_MS * UINT64_C(1000000);
	return share > ns ? share : ns;
}

static bool has_ring(const struct context *c)
{
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (c->maps[i].address && c->maps[i].is_ring)
			return true;
	return false;
}

/* Milliseconds until the next look at a ring. */
static int ring_interval(struct context *c, bool flows)
{
	bool idle = atomic_load(&c->finished) >= atomic_load(&c->launches);
	if (flows || !c->stuck || !idle)
		c->ring_ms = RING_MS;
	else if (c->ring_ms < STUCK_MS)
		c->ring_ms *= 2;
	return c->ring_ms;
}

/* Milliseconds until this context wants the next look. */
static int serve(struct context *c)
{
	bool flows = true;
	uint64_t launches = atomic_load(&c->launches);
	lock_take(&c->copying);
	if (!answers(c) || !c->ready) {
		lock_drop(&c->copying);
		return PARKED_MS;
	}
	request_serve(c);
	uint64_t since = now_ns() - atomic_load(&c->copied_ns), interval = copy_interval_ns(c);
	bool ring = has_ring(c), due = since >= interval;
	if (due && atomic_load(&c->finished) < launches && stream_context_idle(c->handle, true))
		atomic_store(&c->finished, launches);
	/* What flows is followed without a pause, up to a point: the stop word wants to be seen. */
	for (int i = 0; i < 64 && flows && (due || ring); i++) {
		flows = copy_maps(c, due && !i);
		if (!flows && c->settling) {
			usleep(DRAIN_SETTLE_US);
			flows = true;
		}
	}
	uint64_t wait = due ? copy_interval_ns(c) : interval - since;
	bool asked = request_pending(c);
	lock_drop(&c->copying);
	int next = ring_interval(c, flows);
	if (flows && ring)
		return 0;
	if (asked)
		return REQUEST_MS;
	return ring ? next : (int)(wait / 1000000) + 1;
}

static void last_copy(struct context *c)
{
	lock_take(&c->copying);
	if (!atomic_load(&c->dead)) {
		if (answers(c))
			devmap_final(c);
		for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++) {
			struct devmap *m = &c->maps[i];
			if (m->instance && m->is_ring)
				drain_give_up(c, i);
			if (m->instance)
				__atomic_store_n(&m->instance->ended, 1, __ATOMIC_RELEASE);
		}
	}
	lock_drop(&c->copying);
}

/* Once, by whoever comes first. */
static void last_copies(void)
{
	if (atomic_exchange(&agent.sync.copied, 1))
		return;
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		if (c->ready && !atomic_load(&c->dead))
			last_copy(c);
}

/* Waits for all work, however long that takes: the exiting thread does not wait for us beyond a
 * limit. */
static void settle(void)
{
	CUcontext was;
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		if (!c->ready || !answers(c) || atomic_load(&agent.captures) ||
			!atomic_load(&c->launches))
			continue;
		if (!ok(REAL(cuCtxPushCurrent_v2)(c->handle)))
			continue;
		CUresult r = REAL(cuCtxSynchronize)();
		blackbox_result("the end of the process", r);
		if (ok(r))
			context_check_clock(c);
		REAL(cuCtxPopCurrent_v2)(&was);
	}
	atomic_store(&agent.sync.settled, 1);
	word_wake(sync_word());
}

static void *sync_thread(void *arg)
{
	/* Nothing this thread calls may invalidate a capture of the program's. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	uint64_t reaped = now_ns();
	while (!atomic_load(&agent.sync.stop)) {
		/* What a dead loader left attached goes. */
		if (now_ns() - reaped > REAP_NS) {
			reaped = now_ns();
			session_reap(agent.session);
		}
		int seen = atomic_load(sync_word()), ms = PARKED_MS;
		bool parked = true;
		for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
			int look = live_serve(c);
			ms = look < ms ? look : ms;
			if (!unfinished(c) && !request_pending(c))
				continue;
			int want = serve(c);
			ms = want < ms ? want : ms;
			parked = false;
		}
		if (parked) {
			/* A launch that came after the look sees the flag and wakes us. */
			atomic_store(&agent.sync.parked, 1);
			for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
				parked &= !unfinished(c) && !request_pending(c);
			if (parked)
				word_wait(sync_word(), seen, ms);
			atomic_store(&agent.sync.parked, 0);
		} else if (ms) {
			word_wait(sync_word(), seen, ms);
		}
	}
	settle();
	last_copies();
	atomic_store(&agent.sync.done, 1);
	word_wake(sync_word());
	return NULL;
}

int devmap_start(void)
{
	int none = 0;
	if (!atomic_compare_exchange_strong(&agent.sync.started, &none, 1))
		return 0;
	int err = agent_thread(NULL, sync_thread, NULL);
	if (err)
		atomic_store(&agent.sync.started, 0);
	else
		agent_stay_last();
	return err;
}

static void wait_for(atomic_int *flag, int ms)
{
	for (uint64_t end = now_ns() + (uint64_t)ms * 1000000;
		!atomic_load(flag) && now_ns() < end;) {
		int seen = atomic_load(sync_word());
		if (!atomic_load(flag))
			word_wait(sync_word(), seen, 100);
	}
}

void devmap_stop(void)
{
	if (!atomic_load(&agent.sync.started))
		return;
	atomic_store(&agent.sync.stop, 1);
	word_wake(sync_word());
	wait_for(&agent.sync.settled, EXIT_SETTLE_MS);
	native_stop();
	/* A kernel that does not end is cut off by the exit; what it has counted so far is kept. */
	if (!atomic_load(&agent.sync.settled))
		last_copies();
	else
		wait_for(&agent.sync.done, EXIT_WAIT_MS);
}
