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
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <libiberty/demangle.h>

#include "agent/agent.h"

#define LIBRARY "libegpu-attach.so"

enum {
	ASKED = 4096,
	BUSY_MS = 1,
	CALM_MS = 20,
	GRACE_MS = 100,
	REAP_NS = 1000000000,
	SLICE_NS = 20000000,   /* of searching in memory and files */
	LINGER_NS = 300000000, /* probes that come and go find the pointers in place */
};

struct question {
	void *handle;
	CUcontext context;
	uint64_t asked_ns;
	bool mangled; /* by a C++ compiler: its PTX is rather in a file, of which there may be many */
	bool caches_done, several; /* of struct source_query */
};

/* A library that comes takes its pointers to the driver when it is used for the first time, not when it is
 * loaded: its data is searched again for a while, in the end with the heap. */
static const uint32_t again_ms[] = { 0, 20, 100, 300, 1000, 3000 };
enum { AGAIN = sizeof(again_ms) / sizeof(again_ms[0]) };

static struct {
	struct lock lock;
	struct question asked[ASKED]; /* under lock */
	uint32_t n_asked;
	atomic_int news; /* something was asked */
	atomic_int waits; /* a thread waits for the work of contexts */
	struct question searched[ASKED]; /* the thread's: whose PTX is looked for */
	uint32_t n_searched;
	atomic_int forgotten; /* handles that were asked about may be gone; launches ask again */
	bool hooked, swapping; /* swapping: not all of memory has been searched for slots */
	uint64_t hooked_ns;
	uint64_t generation; /* links as of the last round */
	uint64_t idle_ns; /* since then there is nothing attached; 0: there is */
	uint64_t reaped_ns;      /* when dead loaders were last looked for */
	unsigned long long adds; /* loaded files ever, at the last search of theirs */
	uint64_t added_ns;       /* when they became more */
	uint32_t again;          /* searches since then */
	char dir[PATH_MAX];
} late;

/* -- questions of launches ------------------------------------------------------------------ */

void late_poke(void)
{
	if (!atomic_exchange(&late.news, 1))
		syscall(SYS_futex, &agent.shared->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void late_ask(void *handle, CUcontext in)
{
	lock_take(&late.lock);
	if (late.n_asked < ASKED)
		late.asked[late.n_asked++] = (struct question){ .handle = handle, .context = in, .asked_ns = now_ns() };
	lock_drop(&late.lock);
	late_poke();
}

void late_forget(void)
{
	atomic_store(&late.forgotten, 1);
}

static bool take(struct question *q)
{
	lock_take(&late.lock);
	bool any = late.n_asked;
	if (any)
		*q = late.asked[--late.n_asked];
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

/* Every kernel gets its row at once, so that its launches are seen; those that a pattern names are searched
 * for afterwards. */
static void answer(const struct question *q)
{
	CUcontext was;
	if (REAL(cuCtxPushCurrent_v2)(q->context) != CUDA_SUCCESS)
		return;
	const char *name = function_name(q->handle);
	bool search = name && wanted(name) && late.n_searched < ASKED;
	struct image *im = name && !search ? image_known(name) : NULL;
	if (name && !im)
		im = search ? image_nameless(name, "its PTX is being looked for", NAMELESS_SEARCHED)
			    : image_nameless(name, "no pattern names it", NAMELESS_UNASKED);
	if (im)
		function_bind(q->handle, name, im);
	if (im && search) {
		late.searched[late.n_searched] = *q;
		late.searched[late.n_searched++].mangled = !strncmp(name, "_Z", 2);
	}
	REAL(cuCtxPopCurrent_v2)(&was);
}

/* A kernel of a library is asked about by what it is in this context. */
static CUfunction loaded_code(void *handle)
{
	CUfunction fn = handle;
	if (!function_is_kernel(handle))
		return fn;
	return REAL(cuKernelGetFunction) && REAL(cuKernelGetFunction)(&fn, handle) == CUDA_SUCCESS ? fn : NULL;
}

/* False: it is not known yet. */
static bool search(struct question *q, uint64_t until)
{
	CUcontext was;
	struct image *im = NULL;
	const char *why = NULL, *name;
	uint64_t start = now_ns();
	if (REAL(cuCtxPushCurrent_v2)(q->context) != CUDA_SUCCESS)
		return true;
	int err = 0;
	if ((name = function_name(q->handle))) {
		struct source_query s = { name, loaded_code(q->handle), context_cc_hint(), q->asked_ns, q->caches_done, q->several };
		err = source_find(&s, until, &im, &why);
		q->caches_done = s.caches_done;
		q->several = s.several;
	}
	if (name && !err) {
		agent_log("%s: %s, %.1f ms", name, im ? "PTX found" : why,
			(double)(now_ns() - start) / 1e6);
		im = im ? im : image_nameless(name, why, NAMELESS_ANSWERED);
		if (im)
			function_bind(q->handle, name, im);
	}
	REAL(cuCtxPopCurrent_v2)(&was);
	return !err;
}

/* What is known for a question now is no matter of the others; memory is looked through meanwhile. False: there is no time left. */
static bool search_each(bool mangled, uint64_t until)
{
	for (uint32_t i = late.n_searched; i--;) {
		if (atomic_load(&late.forgotten) || now_ns() > until)
			return false;
		if (late.searched[i].mangled == mangled && search(&late.searched[i], until))
			late.searched[i] = late.searched[--late.n_searched];
	}
	return true;
}

/* Memory and caches are looked through sooner than thousands of fatbins. */
static void search_some(void)
{
	uint64_t until = now_ns() + SLICE_NS;
	if (atomic_exchange(&late.forgotten, 0))
		late.n_searched = 0;
	if (search_each(false, until))
		search_each(true, until);
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
static void *know_contexts(void *unused)
{
	CUcontext was;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool news = false;
	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		if (atomic_load(&c->dead) || atomic_load(&c->known) || atomic_load(&agent.captures))
			continue;
		if (REAL(cuCtxPushCurrent_v2)(c->handle) != CUDA_SUCCESS)
			continue;
		if (REAL(cuCtxSynchronize)() == CUDA_SUCCESS) {
			atomic_store(&c->known, 1);
			news = true;
		}
		REAL(cuCtxPopCurrent_v2)(&was);
	}
	atomic_store(&late.waits, 0);
	if (news)
		late_poke();
	return unused;
}

/* A kernel that was there before may never end: what else there is to do does not wait for it. */
static void begin_knowing(void)
{
	if (atomic_load(&agent.captures) || contexts_known() || atomic_exchange(&late.waits, 1))
		return;
	if (agent_thread(NULL, know_contexts, NULL))
		atomic_store(&late.waits, 0);
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

/* what: where pointers are looked for besides, and what besides them; 0: in the data of loaded files alone. */
static void sweep_for_slots(unsigned int what)
{
	late.swapping = slots_begin(true);
	if (!late.swapping)
		return;
	if (what & MEMORY_TEXT)
		memtext_begin();
	if (what)
		memory_add_all(what);
	else
		slots_add_files();
	memory_sweep();
}

/* From the first pointer on, launches are seen; nothing is loaded before the last. */
static void hook(void)
{
	late.hooked_ns = now_ns();
	late.adds = adds();
	late.again = AGAIN;
	late.hooked = true;
	sweep_for_slots(MEMORY_SLOTS | MEMORY_TEXT);
	find_contexts();
}

static void hook_more(void)
{
	if (!memory_swept(now_ns() + SLICE_NS))
		return;
	late.swapping = false;
	__atomic_store_n(&agent.row->hooked, 1, __ATOMIC_RELEASE);
	if (slots_changed())
		agent_log("%zu slots in %.1f ms", slots_changed(), (double)(now_ns() - late.hooked_ns) / 1e6);
}

static void forget_contexts(void)
{
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		context_park(c);
}

/* Calls that are inside our functions leave them in the time of grace; afterwards nobody tells us
 * what becomes of handles, so all of them are forgotten. */
static void unhook(void)
{
	atomic_int never = 0;
	memory_stop();
	size_t n = slots_swap(false);
	word_wait(&never, 0, GRACE_MS);
	graph_purge();
	module_purge();
	forget_contexts();
	stream_purge();
	late.hooked = late.swapping = false;
	late.n_searched = 0;
	memtext_end();
	memcode_end();
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

static void new_libraries(void)
{
	uint64_t now = now_ns();
	if (adds() != late.adds) {
		late.adds = adds();
		late.added_ns = now;
		late.again = 0;
	}
	if (late.again == AGAIN || now - late.added_ns < again_ms[late.again] * 1000000ull)
		return;
	late.again++;
	late.hooked_ns = now;
	sweep_for_slots(late.again > 3 ? MEMORY_SLOTS : 0);
}

/* Milliseconds until the next look; negative: until links change. */
static int round_of_work(void)
{
	struct question q;
	bool attached = links_attached();
	uint64_t generation = __atomic_load_n(&agent.shared->generation, __ATOMIC_ACQUIRE);
	if (links_changed())
		variant_relink();
	/* A launch may have taken note of the links before us. */
	if (generation != late.generation)
		function_forget_strangers();
	late.generation = generation;
	if (attached && !late.hooked)
		hook();
	if (!late.hooked)
		return -1;
	if (now_ns() - late.reaped_ns > REAP_NS) {
		late.reaped_ns = now_ns();
		session_reap(agent.session);
	}
	if (!late.swapping && !memory_busy())
		new_libraries();
	if (late.swapping)
		hook_more();
	if (!late.swapping)
		begin_knowing();
	atomic_store(&late.news, 0);
	while (take(&q))
		answer(&q);
	if (attached)
		search_some();
	prepare_all();
	if (!settled())
		variant_load_queued(LOAD_SYNC);
	if (attached || late.swapping)
		late.idle_ns = 0;
	else if (!late.idle_ns)
		late.idle_ns = now_ns();
	/* What a context has done when nobody tells us is not known: a wait that ends then would say too much. */
	if (late.idle_ns && now_ns() - late.idle_ns > LINGER_NS && settled() && !links_changed() && !atomic_load(&late.waits)) {
		late.idle_ns = 0;
		unhook();
		return links_attached() ? 0 : -1;
	}
	/* Beside work that may never end nothing is loaded; its end pokes us. */
	bool calm = (settled() || !contexts_known()) && !late.n_searched && !late.swapping && !atomic_load(&late.news);
	return calm ? CALM_MS : BUSY_MS;
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
	int keep = errno;
	if (!dladdr(&late, &self) || !self.dli_fname || self.dli_fname[0] != '/')
		return;
	const char *slash = strrchr(self.dli_fname, '/');
	size_t n = (size_t)(slash - self.dli_fname);
	if (strcmp(slash + 1, LIBRARY) || n >= sizeof(late.dir))
		return;
	memcpy(late.dir, self.dli_fname, n);
	late.dir[n] = 0;
	agent_thread(NULL, late_thread, NULL);
	errno = keep;
}
