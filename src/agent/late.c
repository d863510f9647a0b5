/* late.c - the agent's own thread in a process that ran before we came.
 *
 * `egpu attach` makes a thread of the process dlopen the session's libegpu-attach.so, which is this
 * library; its directory is the session. The constructor starts a thread and returns, so that the
 * borrowed thread is back in a moment. The thread joins the session and then follows its links:
 *
 *	no links       the driver's pointers are where they were; we cost nothing and know nothing
 *	links          our functions are in the slots; what was running is waited for, once for each
 *	               context; kernels that launches meet are bound by name and made ready here,
 *off the launch path links gone     once nothing of ours is loaded any more, the pointers are put
 *back
 *
 * It sleeps on the session's generation, which whoever changes links wakes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <libiberty/demangle.h>

#include "agent/agent.h"

#define LIBRARY "libegpu-attach.so"

enum { ASKED = 1024, BUSY_MS = 1, CALM_MS = 20, GRACE_MS = 100, REAP_NS = 1000000000 };

static struct {
	struct lock lock;
	struct {
		void *handle;
		CUcontext context;
	} asked[ASKED];
	uint32_t n_asked;
	atomic_int news; /* something was asked */
	bool hooked;
	uint64_t reaped_ns;      /* when dead loaders were last looked for */
	unsigned long long adds; /* loaded files ever, at the last search of theirs */
	char dir[PATH_MAX];
} late;

/* -- questions of launches ------------------------------------------------------------------ */

void late_ask(void *handle)
{
	CUcontext c = NULL;
	REAL(cuCtxGetCurrent)(&c);
	lock_take(&late.lock);
	if (late.n_asked < ASKED) {
		late.asked[late.n_asked].handle = handle;
		late.asked[late.n_asked++].context = c;
	}
	lock_drop(&late.lock);
	atomic_store(&late.news, 1);
}

static bool take(void **handle, CUcontext *context)
{
	lock_take(&late.lock);
	bool any = late.n_asked;
	if (any) {
		*handle = late.asked[--late.n_asked].handle;
		*context = late.asked[late.n_asked].context;
	}
	lock_drop(&late.lock);
	return any;
}

static bool wanted(const char *name)
{
	char *plain =
		!strncmp(name, "_Z", 2) ? cplus_demangle_v3(name, DMGL_PARAMS | DMGL_ANSI) : NULL;
	bool yes = false;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS && !yes; i++) {
		const struct session_link *l = &agent.shared->links[i];
		char pattern[SESSION_PATTERN_BYTES];
		if (__atomic_load_n(&l->state, __ATOMIC_ACQUIRE) != SESSION_LINK_ATTACHED)
			continue;
		memcpy(pattern, l->pattern, sizeof(pattern));
		pattern[sizeof(pattern) - 1] = 0;
		yes = session_match(pattern, name, plain) > 0;
	}
	free(plain);
	return yes;
}

/* Only kernels that a pattern names are searched for; the others get a row, so that they are seen.
 */
static void answer(void *handle, CUcontext context)
{
	CUcontext was;
	if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
		return;
	const char *name = function_name(handle), *why = "no pattern names it";
	struct image *im = NULL;
	uint64_t start = now_ns();
	if (name && wanted(name))
		im = source_find(name, context_cc_hint(), &why);
	else if (name)
		im = image_known(name);
	if (name)
		agent_log("%s: %s, %.1f ms", name, im ? "PTX found" : why,
			(double)(now_ns() - start) / 1e6);
	if (name && !im)
		im = image_nameless(name, why);
	if (im)
		function_bind(handle, name, im);
	REAL(cuCtxPopCurrent_v2)(&was);
}

/* -- work that was given before ------------------------------------------------------------- */

/* Contexts nobody has told us about: the primary ones are found by asking, others by launches. */
static void find_contexts(void)
{
	int n = 0;
	if (!REAL(cuDeviceGetCount) || REAL(cuDeviceGetCount)(&n) != CUDA_SUCCESS)
		return;
	for (int i = 0; i < n; i++) {
		CUdevice device;
		CUcontext primary = NULL;
		unsigned int flags;
		int active = 0;
		if (REAL(cuDeviceGet)(&device, i) != CUDA_SUCCESS ||
			REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS ||
			!active)
			continue;
		if (REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
			continue;
		context_get(primary);
		REAL(cuDevicePrimaryCtxRelease_v2)(device);
	}
}

/* A context's work so far is waited for; launches go on meanwhile, and what they bring is seen. */
static void know_contexts(void)
{
	CUcontext was;
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		if (atomic_load(&c->dead) || atomic_load(&c->known) || atomic_load(&agent.captures))
			continue;
		if (REAL(cuCtxPushCurrent_v2)(c->handle) != CUDA_SUCCESS)
			continue;
		if (REAL(cuCtxSynchronize)() == CUDA_SUCCESS)
			atomic_store(&c->known, 1);
		REAL(cuCtxPopCurrent_v2)(&was);
	}
}

/* -- in and out -------------------------------------------------------------------------------- */

static int count_adds(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

static unsigned long long adds(void)
{
	unsigned long long n = 0;
	dl_iterate_phdr(count_adds, &n);
	return n;
}

static void hook(void)
{
	uint64_t start = now_ns();
	late.adds = adds();
	source_begin();
	size_t n = slots_swap(true, true);
	late.hooked = true;
	find_contexts();
	__atomic_store_n(&agent.row->hooked, 1, __ATOMIC_RELEASE);
	agent_log("%zu slots in %.1f ms", n, (double)(now_ns() - start) / 1e6);
}

static void forget_contexts(void)
{
	CUcontext was;
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		if (atomic_load(&c->dead))
			continue;
		lock_take(&c->copying);
		if (c->ready && REAL(cuCtxPushCurrent_v2)(c->handle) == CUDA_SUCCESS) {
			if (REAL(cuStreamDestroy_v2))
				REAL(cuStreamDestroy_v2)(c->stream);
			REAL(cuCtxPopCurrent_v2)(&was);
		}
		c->ready = false;
		atomic_store(&c->dead, 1);
		lock_drop(&c->copying);
	}
}

/* Calls that are inside our functions leave them in the time of grace; afterwards nobody tells us
 * what becomes of handles, so all of them are forgotten. */
static void unhook(void)
{
	atomic_int never = 0;
	size_t n = slots_swap(false, true);
	word_wait(&never, 0, GRACE_MS);
	graph_purge();
	module_purge();
	forget_contexts();
	stream_purge();
	late.hooked = false;
	__atomic_store_n(&agent.row->hooked, 0, __ATOMIC_RELEASE);
	agent_log("%zu slots put back", n);
}

/* -- the thread ------------------------------------------------------------------------------- */

static void wait_generation(uint64_t seen, int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
	syscall(SYS_futex, &agent.shared->generation, FUTEX_WAIT, (uint32_t)seen,
		ms < 0 ? NULL : &t, NULL, 0);
}

static bool settled(void)
{
	return !atomic_load(&agent.sweep_due) && !atomic_load(&agent.n_retired) &&
	       !atomic_load(&agent.n_queued);
}

static void prepare_all(void)
{
	CUcontext was;
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
			if (atomic_load(&m->gone) || atomic_load(&c->dead) ||
				(m->context && m->context != c) || variant_prepared(m, c) ||
				REAL(cuCtxPushCurrent_v2)(c->handle) != CUDA_SUCCESS)
				continue;
			variant_prepare(m, c);
			REAL(cuCtxPopCurrent_v2)(&was);
		}
}

/* Milliseconds until the next look; negative: until links change. */
static int round_of_work(void)
{
	void *handle;
	CUcontext context;
	bool attached = links_attached();
	if (links_changed()) {
		variant_relink();
		function_forget_strangers();
	}
	if (attached && !late.hooked)
		hook();
	if (!late.hooked)
		return -1;
	if (now_ns() - late.reaped_ns > REAP_NS) {
		late.reaped_ns = now_ns();
		session_reap(agent.session);
	}
	if (adds() != late.adds) {
		late.adds = adds();
		slots_swap(true, false);
	}
	know_contexts();
	atomic_store(&late.news, 0);
	while (take(&handle, &context))
		answer(handle, context);
	prepare_all();
	if (!settled())
		variant_load_queued(LOAD_SYNC);
	if (!attached && settled() && !links_changed()) {
		unhook();
		return links_attached() ? 0 : -1;
	}
	return settled() && !atomic_load(&late.news) ? CALM_MS : BUSY_MS;
}

static void *late_thread(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (!real_present() || !agent_start_late(late.dir))
		return NULL;
	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	while (agent_on()) {
		uint64_t seen = __atomic_load_n(&agent.shared->generation, __ATOMIC_ACQUIRE);
		int ms = round_of_work();
		if (ms)
			wait_generation(seen, ms);
	}
	return NULL;
}

__attribute__((constructor)) static void arrive(void)
{
	Dl_info self;
	pthread_t thread;
	pthread_attr_t attr;
	sigset_t all, old;
	int keep = errno;
	if (!dladdr(&late, &self) || !self.dli_fname || self.dli_fname[0] != '/')
		return;
	const char *slash = strrchr(self.dli_fname, '/');
	size_t n = (size_t)(slash - self.dli_fname);
	if (strcmp(slash + 1, LIBRARY) || n >= sizeof(late.dir))
		return;
	memcpy(late.dir, self.dli_fname, n);
	late.dir[n] = 0;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_create(&thread, &attr, late_thread, NULL);
	pthread_attr_destroy(&attr);
	sigprocmask(SIG_SETMASK, &old, NULL);
	errno = keep;
}
