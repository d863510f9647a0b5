/* driver_ipc.c - events between processes.
 *
 * An event made with CU_EVENT_INTERPROCESS has a page in a file of its own that other processes
 * map: the number of its last record, and for each of the latest records who made it and whether
 * the stream has come to it. A record of this process also has a mark, as any event's; those of
 * others are looked at. One whose process has ended counts as reached, so that nobody waits for
 * ever.
 */
#include "softgpu/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Records that may be on their way at once. One that is overtaken by so many counts as reached. */
#define SLOTS 254u
#define PAGE_BYTES 4096u
#define MAGIC 0x65677075657665ull

struct page {
	uint64_t magic, id;
	_Atomic uint64_t next; /* numbers given out */
	_Atomic uint64_t last; /* the latest that is written below */
	struct {
		_Atomic uint32_t pid, unused;
		_Atomic uint64_t done; /* the highest number of this slot that was reached */
	} slot[SLOTS];
};
_Static_assert(sizeof(struct page) <= PAGE_BYTES, "fits");

struct drv_share {
	unsigned int refs;
	int fd; /* -1: of another process */
	struct page *page;
};

struct handle {
	uint64_t magic, pid, fd, id, reserved[4];
};
_Static_assert(sizeof(struct handle) == sizeof(CUipcEventHandle), "fills the handle");

static uint32_t self(void)
{
	return (uint32_t)getpid();
}

static struct drv_share *share_map(int fd)
{
	struct drv_share *s = calloc(1, sizeof(*s));
	void *p = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s && p != MAP_FAILED) {
		*s = (struct drv_share){ 1, -1, p };
		return s;
	}
	if (p != MAP_FAILED)
		munmap(p, PAGE_BYTES);
	free(s);
	return NULL;
}

struct drv_share *drv_share_new(void)
{
	static uint64_t last_id;
	int fd = memfd_create("egpu-softgpu-event", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* Who maps it must be able to rely on its size. */
	struct drv_share *s = fd < 0 || ftruncate(fd, PAGE_BYTES) ||
					      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL)
				      ? NULL
				      : share_map(fd);
	if (!s) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	s->fd = fd;
	s->page->magic = MAGIC;
	s->page->id = drv_now_ns() ^ ++last_id << 48;
	return s;
}

void drv_share_put(struct drv_share *s)
{
	if (!s || --s->refs)
		return;
	munmap(s->page, PAGE_BYTES);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}

struct drv_share *drv_share_get(struct drv_share *s)
{
	if (s)
		s->refs++;
	return s;
}

static void raise_to(_Atomic uint64_t *at, uint64_t value)
{
	uint64_t old = atomic_load(at);
	while (old < value && !atomic_compare_exchange_weak(at, &old, value))
		;
}

uint64_t drv_share_begin(struct drv_share *s)
{
	uint64_t seq = atomic_fetch_add(&s->page->next, 1) + 1;
	atomic_store(&s->page->slot[seq % SLOTS].pid, self());
	raise_to(&s->page->last, seq);
	return seq;
}

void drv_share_end(struct drv_share *s, uint64_t seq)
{
	raise_to(&s->page->slot[seq % SLOTS].done, seq);
}

uint64_t drv_share_last(const struct drv_share *s)
{
	return atomic_load(&s->page->last);
}

bool drv_share_done(const struct drv_share *s, uint64_t seq)
{
	if (!seq || atomic_load(&s->page->slot[seq % SLOTS].done) >= seq)
		return true;
	if (atomic_load(&s->page->last) >= seq + SLOTS)
		return true;
	uint32_t pid = atomic_load(&s->page->slot[seq % SLOTS].pid);
	return pid != self() &&
	       (!pid || pid > INT32_MAX || (kill((pid_t)pid, 0) && errno == ESRCH));
}

/* Eagerly at first. */
static void look_again(unsigned int tries)
{
	nanosleep(&(struct timespec){ .tv_nsec = tries < 256 ? 20000 : 500000 }, NULL);
}

void drv_share_wait(struct drv_share *s, uint64_t seq, const struct CUctx_st *ctx)
{
	for (unsigned int tries = 0; !drv_share_done(s, seq) && !ctx->error && !ctx->closing;
		tries++)
		look_again(tries);
}

struct wait {
	struct drv_share *share;
	uint64_t seq;
};

static bool run_wait(struct drv_op *op, bool skip)
{
	struct wait *w = (void *)op->data;
	if (!skip)
		drv_share_wait(w->share, w->seq, op->stream->ctx);
	pthread_mutex_lock(&drv.lock);
	drv_share_put(w->share);
	pthread_mutex_unlock(&drv.lock);
	return true;
}

CUresult drv_share_queue(struct CUstream_st *s, struct drv_share *share, uint64_t seq)
{
	if (drv_share_done(share, seq))
		return CUDA_SUCCESS;
	struct drv_op *op = drv_op_new(run_wait, sizeof(struct wait));
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(struct wait *)op->data = (struct wait){ share, seq };
	share->refs++;
	CUresult r = drv_submit(s, op, false);
	if (r)
		share->refs--;
	return r;
}

/* -- handles --------------------------------------------------------------------------------- */

CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	const struct CUevent_st *e = drv_find(event, DRV_EVENT);
	if (!e)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!out || !e->share || e->share->fd < 0)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct handle h = { MAGIC, self(), (uint64_t)e->share->fd, e->share->page->id, { 0 } };
	memcpy(out, &h, sizeof(h));
	return drv_leave(CUDA_SUCCESS);
}

static struct drv_share *share_open(const struct handle *h)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof(path), "/proc/%llu/fd/%llu", (unsigned long long)h->pid,
		(unsigned long long)h->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC), seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
	struct drv_share *s = NULL;
	if (seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &st) && st.st_size == PAGE_BYTES)
		s = share_map(fd);
	if (fd >= 0)
		close(fd);
	if (s && (s->page->magic != MAGIC || s->page->id != h->id)) {
		drv_share_put(s);
		return NULL;
	}
	return s;
}

CUresult CUDAAPI cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
	struct CUctx_st *ctx;
	struct handle h;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	memcpy(&h, &handle, sizeof(h));
	if (!out || h.magic != MAGIC)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (h.pid == self()) /* as for memory: not within one process */
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	struct drv_share *share = share_open(&h);
	if (!share)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct CUevent_st *e =
		drv_event_new(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, share);
	if (e)
		*out = e;
	return drv_leave(e ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}
