/* agent.h - the guest in the target process: one state struct, and what its parts offer each other.
 *
 *   real.c     the driver behind us                 resolve.c  exported functions, cuGetProcAddress
 *   state.c    start, fork, exit, log               lock.c     locks and the launch gate
 *   handles.c  function handle -> kernel, lock-free image.c    PTX of an image and its kernels
 *   module.c   loads and unloads of the program     build.c    links -> instrumented machine code
 *   rows.c     a kernel's rows in the session       compile.c  PTX -> machine code
 *   variant.c  cubin -> loaded, bound variant       launch.c   the swap at a launch
 *   graph.c    the same for executable graphs       stream.c   who has work on the device
 *   context.c  per-context state, clock              late.c     arrival in a running process
 *   slots.c    pointers to the driver's functions    sources.c  PTX in caches, the process's files and memory
 *   memory.c   its memory, looked through            memtext.c  PTX as text in it
 *   triton.c   PTX in caches of Triton's             unprobed.c graphs that run as they are
 *   texts.c    which of several texts was loaded     memcode.c  machine code for devices in memory
 *   devmap.c   maps: device <-> session             ptxas.c    the compiler of last resort
 *   old.c      launches as before CUDA 4.0           ending.c   modules that are unloaded while in use
 *   residency.c  blocks that run together            symbols.c  variables that a variant is bound to
 *   live.c     programs into kernels that are running; bell.c tells multiprocessors, inside.c knows who is in them
 *   hold.c     launches held until the device is idle
 *   filter.c   which launches are probed            gputime.c  how long kernels run
 *   blackbox.c what a device fault leaves            params.c   a kernel's parameters, for it
 *   cache.c    compiled variants on disk            request.c  writes of the host to maps in use
 *
 * Rules: a failure of ours falls through to the program's own call; nothing is printed; no lock
 * that a driver call may need is held by us while others call the driver, except the launch gate as
 * lock.c explains. Structures that a launch may look at are never freed.
 */
#ifndef EGPU_AGENT_AGENT_H
#define EGPU_AGENT_AGENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/real.h"
#include "base/arena.h"
#include "base/diag.h"
#include "base/table.h"
#include "bpf/fragment.h"
#include "cuda/fatbin.h"
#include "instrument/instrument.h"
#include "map/map.h"
#include "map/session.h"
#include "ptx/ptx.h"

/* -- lock.c ---------------------------------------------------------------- */

struct function;
struct launch;

struct lock {
	atomic_int v; /* 0 free, 1 held, 2 held and waited for */
};
void lock_take(struct lock *l);
bool lock_try(struct lock *l);
void lock_drop(struct lock *l);

/* Launches pass shared, the loader passes alone and never waits: a launch cannot slip between the
 * loader's look at the streams and its load, and nobody waits for a launch that waits for the
 * device. */
enum { GATE_LANES = 16 };
struct gate {
	struct {
		_Alignas(64) atomic_int users; /* launches inside, by threads: each writes to a cache line of its own, as far as there are some */
	} lanes[GATE_LANES];
	_Alignas(64) atomic_int state; /* lock.c */
	atomic_int waiting; /* launches that wait for it */
	atomic_int owner;   /* thread id of the loader: its own nested calls pass */
};
void gate_enter(struct gate *g);
void gate_enter_by(struct gate *g, unsigned int lane); /* with thread_lane() at hand */
void gate_leave_by(struct gate *g, unsigned int lane);
void gate_leave(struct gate *g);
bool gate_close(struct gate *g); /* false: a launch is inside */
/* The same, but new launches wait until those inside have left, or until that time (now_ns): then false. */
bool gate_hold(struct gate *g, uint64_t until_ns);
bool gate_used(const struct gate *g);
void gate_open(struct gate *g);
void nap_us(long us);
/* Sleeps until *word differs from seen, or for at most ms milliseconds. */
void word_wait(atomic_int *word, int seen, int ms);
void word_wake(atomic_int *word);
int thread_id(void);
void thread_forked(void); /* in the child: it has another one */
/* A number of the calling thread's, from 0 on: what is divided into n lanes by threads has its part at that modulo n. */
unsigned int thread_lane(void);
uint64_t now_ns(void); /* CLOCK_MONOTONIC */
uint64_t coarse_ns(void); /* the same as of the last tick, some ms ago: for a fifth of the time it takes */

/* -- handles.c ------------------------------------------------------------- */

struct handles {
	_Atomic(struct handle_table *) table;
	struct lock lock;
};
void *handles_get(struct handles *h, const void *key);
void handles_put(struct handles *h, const void *key, void *value); /* value NULL removes */
/* Removes every pair for which drop() holds. */
void handles_sweep(struct handles *h, bool (*drop)(void *value, void *arg), void *arg);

/* -- image.c --------------------------------------------------------------- */

enum { MAX_UNITS = 4096 };

/* One PTX text of an image. */
struct unit {
	const char *source; /* "fatbin sm_90 PTX" */
	char *text;         /* NUL-terminated */
	size_t text_bytes;
	struct ptx_module *module; /* parsed; NULL until a kernel of it is wanted */
	uint32_t max_regs;         /* -maxrregcount of its options; 0: none */
	const char *broken;        /* why the text cannot be used */
	bool asked;
	uint64_t id[2]; /* stands for the text in the cache (cache_text); 0: none, once asked */
};

/* What one compilation made: kept so that other contexts and reloads need no second one. */
struct build {
	struct build *next;
	uint64_t links; /* bit per link whose program is in it */
	uint32_t cc;
	uint32_t max_regs;
	struct arena *arena;
	struct instrument_result result;
	uint64_t maps;
	bool clock; /* a program in it reads EBPF_TABLE_CLOCK */
	char *cubin;
	size_t cubin_bytes;
	const char **unbound;
	uint32_t n_unbound;
};

/* How a kernel keeps --max-overhead (filter.c). All but the first two under agent.times.lock. */
struct pace_times {
	uint32_t n;
	double ms, square; /* sums */
};
struct pace {
	_Atomic uint32_t one_in; /* warps; 0: as the estimate says, once there is one */
	atomic_int given_up;	 /* the limit cannot be kept: originals run */
	uint64_t links, changed; /* that it is for; the generation at which the youngest of them came: numbers are given again */
	uint32_t failed;	 /* how often fewer than one_in were too many */
	struct pace_times plain, sampled; /* launches of the original; with the programs in one warp of one_in */
};

enum { SHAPE_LANES = 8 };

struct kernel {
	struct image *image;
	const char *name, *demangled;            /* demangled NULL: same as name */
	int32_t unit;                            /* index in image->units, -1: no PTX has it */
	uint32_t row;                            /* in the session; UINT32_MAX: none */
	_Atomic(struct session_kernel *) shared; /* NULL: no row */
	atomic_int row_asked;
	_Atomic(struct shape *) shapes, last_shape[SHAPE_LANES]; /* ways in which it was launched (shape.c); the latter by lane of threads */
	uint32_t first_site, n_sites;
	bool has_sites;
	uint64_t site_links;                     /* links whose points number the sites: beyond memory */
	_Atomic uint64_t links; /* attached links that match */
	const char *refused;    /* NULL, or why no variant can be made for `links` */
	struct build *builds;
	_Atomic uint32_t
		wanted; /* links != 0 and not refused: a launch looks at the rest only then */
	CUfunc_cache cache_config; /* last one set */
	bool has_cache_config;
	uint64_t bank_bytes; /* constant bank 0 of its machine code in the image; 0: not known */
	const char *params_text, *params_end; /* its PTX behind the name, to the end of the text; NULL: it has none */
	_Atomic(const struct params *) params; /* as they say */
	atomic_int params_asked;
	struct pace pace;
};

/* Contents of a module, kept for the process's life: many programs load the same image again. */
struct image {
	struct image *next;
	uint64_t hash;
	struct arena *arena;
	struct unit *units;
	uint32_t n_units;
	struct kernel *kernels;
	uint32_t n_kernels;
	struct table *by_name;
	const char *no_ptx;    /* reason for kernels without PTX */
	bool has_code;         /* what the driver loads may be machine code of the program's */
	bool searched;         /* late: whether there is PTX is not known yet */
	bool answered;         /* late: it has been searched for; no_ptx is what came of it */
	uint32_t opt_max_regs; /* CU_JIT_MAX_REGISTERS of the program's own load; 0: none */
	bool matched;          /* against the links of agent.generation; under agent.build */
};

/* The image for what a program hands to a load call. NULL when it cannot be understood (d says
 * why). cc: of the device. */
struct image *image_get(const void *data, uint32_t cc, struct diag *d);
struct image *image_get_bytes(const void *data, size_t bytes, uint32_t cc);
struct image *image_get_file(const char *path, uint32_t cc, struct diag *d);
struct kernel *image_kernel(struct image *im, const char *name);
/* Text and parse of a unit; NULL with unit->broken set. Under agent.build. */
struct ptx_module *unit_module(struct unit *u);
/* They are parsed again when they are wanted again: that takes less time than they take memory. */
void image_forget_parsed(struct image *im);
/* Linker inputs and outputs. */
void link_input(
	CUlinkState state, CUjitInputType type, const void *data, size_t bytes, uint32_t cc);
void link_input_file(CUlinkState state, CUjitInputType type, const char *path, uint32_t cc);
void link_option_regs(CUlinkState state, uint32_t max_regs);
void link_output(CUlinkState state, const void *cubin, size_t bytes);
void link_forget(CUlinkState state);

/* -- context.c, devmap.c --------------------------------------------------- */

/* What drain.c knows of a bin since it was empty; bytes. */
struct ring_bin {
	uint32_t taken, sure, seen; /* seen: committed at seen_ns; sure: that, once it has settled */
	uint64_t seen_ns;
	bool emptied; /* given back to the device since its lines were copied */
};

struct devmap {
	CUdeviceptr address; /* 0: not made */
	size_t bytes;
	struct map_instance *instance;
	struct map_image *image; /* in the instance file */
	uint64_t replica_bytes; /* between the replicas of an array; 0: it has one */
	bool is_ring;
	bool instance_pinned;
	bool mapped;	 /* MAP_FLAG_HOST: address is that of image, and nothing is copied */
	bool pooled;     /* its memory belongs to live.c's pool */
	uint32_t serial; /* of the session's row */
	/* Rings: what drain.c knows, none of it from the session. */
	size_t device_bytes;
	uint32_t replicas, bin_bytes;
	void *pinned;      /* the session's memory, where this context pinned it */
	struct ring_bin *bins;
	uint64_t consumed; /* bytes taken in all */
	uint64_t left;     /* records still there after the last drain */
	const void *host; /* memory-mapped globals: the host's image */
	size_t host_bytes;
	atomic_uint written; /* the last host write carried out: instance->write_done, for looks without the lock */
};

struct context {
	struct context *next;
	CUcontext handle;
	CUdevice device;
	uint32_t cc, sms;
	atomic_int dead;
	atomic_int ending; /* a call that may end it is under way, or it has ended */
	atomic_int known; /* late: what it was given before we came has ended */
	_Atomic bool faulted; /* a call of the program's told of a device fault while it was current: all calls in it fail */
	bool parked; /* dead, and holds nothing: may stand for its context again; under agent.lock */
	_Atomic bool ready; /* the stream exists */
	bool clock_asked;   /* whether there is a clock is known; under copying */
	CUstream stream;    /* private, NON_BLOCKING */
	int64_t clock_offset_ns;
	CUmodule clock_module;
	CUfunction clock_fn; /* NULL: the device's time cannot be read */
	CUdeviceptr clock_cell;
	uint32_t local_bytes; /* a thread's local memory that the context has room for, because of
				 us */
	bool primary;
	struct lock copying; /* who holds it may use stream and maps[] */
	struct lock compiling; /* held by a thread of ours that needs the context, and before copying by who ends it */
	void *scratch;       /* counters of a ring */
	size_t scratch_bytes;
	_Atomic bool settling; /* the last look at a ring saw records that are too fresh to be taken */
	_Atomic bool stuck;    /* or some that no reader makes room for */
	int ring_ms;   /* until the next look */
	uint64_t copy_took_ns;
	struct devmap maps[EBPF_MAX_MAPS];
	struct live *_Atomic live; /* NULL: no kernel of it was built with guards; set once, what it leads to is under copying */
	_Atomic uint64_t map_mask, host_mask; /* those that are made; those with `host`. Set last */
	_Atomic uint64_t dirty;       /* maps that a variant may have changed since their last copy */
	_Atomic uint64_t launches; /* instrumented, ever */
	_Atomic uint64_t finished; /* launches known to have ended */
	_Atomic uint64_t synchronised; /* stream_epoch() before the last synchronisation of the whole context began */
	_Atomic uint64_t copied;   /* launches whose effect the last copy shows in full */
	_Atomic uint64_t copied_ns;
	_Atomic uint64_t shown_ns; /* the last copy that did not fail */
	_Atomic uint64_t last_launch_ns; /* coarse_ns */
};

/* The state for a context; makes it. NULL: it cannot be asked. */
struct context *context_get(CUcontext handle);
struct context *context_current(void);
/* Compute capability of the current context's device, or of device 0. */
uint32_t context_cc_hint(void);
/* Private stream. The context is current and the device idle. */
int context_prepare(struct context *c, struct diag *d);
/* How far the device's clock is from CLOCK_MONOTONIC, measured for the first program that asks. The kernel that
 * reads it stays, for another measurement at the end. The same; holder of c->copying. */
void context_clock(struct context *c);
/* Gives back what context_prepare took, where nothing of ours is left. The device is idle. */
void context_rest(struct context *c);
/* Calls no longer pass by us. */
void context_park(struct context *c);
/* Publishes how far the clocks have come apart since. The context is current and idle. */
void context_check_clock(struct context *c);
/* Makes the driver take the local memory a kernel will need now, while nothing runs: at a launch it
 * would wait for what runs. */
void context_reserve_local(struct context *c, uint32_t bytes);
/* Around a call of the program that may end a context: the last copy, and nobody else at it
 * meanwhile. NULL: not one of ours. */
struct context *context_ending(CUcontext handle);
struct context *context_ending_primary(
	CUdevice device, bool surely); /* surely: not only a reference given back */
void context_ended(struct context *c, bool gone);

/* Makes the device images of these maps. Context current, device idle. */
int devmap_make(struct context *c, uint64_t mask, struct diag *d);
/* The same beside running kernels: room comes from the pool that live_prepare took. Holder of c->copying. */
int devmap_make_pooled(struct context *c, uint64_t mask, struct diag *d);
uint64_t devmap_pooled(const struct context *c); /* maps that are there, a bit each */
void devmap_launched(struct context *c, uint64_t maps);
/* Work was given that may run variants without our seeing it (a graph). */
void devmap_touched(void);
/* The last copy, by who holds c->copying; the context need not be current. */
void devmap_final(struct context *c);
/* The same where kernels run on: `mask` are maps that nothing writes to any more. */
void devmap_take_rest(struct context *c, uint64_t mask);
void devmap_after_sync(CUcontext which); /* NULL: every context */
int devmap_start(void);                  /* the thread */
void devmap_stop(void);                  /* at exit: last copies */

/* -- drain.c: ring buffers; by who holds c->copying, the context current ----- */

/* For a ring whose instance exists and whose device memory does not. */
int drain_make(struct context *c, uint32_t id, bool pin, struct diag *d);
void drain_unpin(struct context *c, uint32_t id);
/* Pins memory of the session for copies, where the driver would. */
bool devmap_pin(void *at, size_t bytes, unsigned int flags);
/* Stores of a record have reached memory this long after its bytes were seen committed. */
enum { DRAIN_SETTLE_US = 100 };
/* Bytes taken; -EAGAIN: there is more, and no room for it. c->settling is set where there is more that is too fresh. */
int64_t drain_ring(struct context *c, uint32_t id);
/* Takes what can be taken, and counts what cannot. */
void drain_final(struct context *c, uint32_t id);
/* After that: what nobody took is lost. The context may be gone. */
void drain_give_up(struct context *c, uint32_t id);

/* -- live.c ------------------------------------------------------------------ */

/* Takes what programs for running kernels need, and publishes those that are attached; image: of the map
 * "egpu_live" on the device, which is idle. Holder of c->copying, context current. */
int live_prepare(struct context *c, CUdeviceptr image, struct diag *d);
/* Publishes and takes away what has changed in the session; by the thread. Milliseconds until the next look. */
int live_serve(struct context *c);
/* Whether links that were detached by this generation of the session run in no kernel any more. */
bool live_settled(uint64_t generation);
/* Whether programs wait for a moment at which nothing runs; what is done then, the gate being closed. */
bool live_wants_idle(void);
void live_idle(void);
/* Room for a map; out NULL: only a look. -ENOSPC: there is some when the kernels that run have ended; -E2BIG: never. */
int live_pool_take(struct context *c, uint32_t map, size_t bytes, CUdeviceptr *out, struct diag *d);

/* -- native.c: lists of programs as machine code. Holder of c->copying. ------ */

struct native;
/* Room for it on the device, whose context is current; NULL: there is none. */
struct native *native_prepare(void);
/* Of which nothing was used. */
void native_free(struct native *n);
/* Of the context; NULL: guards call the interpreter alone. live.c */
struct native *live_native(const struct context *c);
/* Where the code of a list with these links is; 0: not yet, or never. From then on it is wanted. n may be NULL here and below. */
CUdeviceptr native_code(struct native *n, uint64_t links);
/* Of `links`, those whose lists all have code. */
uint64_t native_links(const struct native *n, uint64_t links);
/* One step on: begins or ends a compilation, context current. True: lists have code that had none. */
bool native_step(struct context *c);
/* Links have gone, and may stand for others. */
void native_forget(struct native *n, uint64_t gone);
/* At exit, after the thread that begins compilations: the one that is under way comes to its end. */
void native_stop(void);
/* No kernel runs that could hold any of it. */
void native_start_over(struct native *n);

/* -- params.c -- */
enum { PARAMS_KEPT = 64 };
struct params {
	uint32_t n, bytes;
	uint32_t n_kept, kept_bytes; /* those that lie within SESSION_PARAM_BYTES */
	struct param_place {
		uint16_t at, bytes;
	} list[PARAMS_KEPT];
};
/* Of a kernel whose PTX is known and says what the driver says; else one that is not known. Never freed. handle: of the function, at a
 * launch: the driver is asked before it, since it may be loading something afterwards. */
const struct params *params_of(struct function *f, void *handle);

/* Whether the loaded code has the parameters of the text behind a kernel's name, *n of them; true where either does not tell, and then *n is UINT32_MAX.
 * That it has no more is not asked: the driver would answer with an error, which checkers of calls show. */
bool params_may_be(const char *behind_name, const char *end, CUfunction loaded, uint32_t *n);

/* -- blackbox.c -- */
/* links: those whose programs run in it. After the driver has taken it. */
void blackbox_launch(const struct kernel *k, const struct launch *l, uint64_t links);
/* A graph of n kernels, the first of which has that row; UINT32_MAX: neither is known. */
void blackbox_graph(uint32_t first, uint32_t n, uint32_t stream, bool own_stream, uint64_t links);
uint64_t blackbox_launches(void); /* of kernels and graphs, so far */
void blackbox_done(uint64_t launches); /* those before are over */
void blackbox_stream_done(uint32_t stream, bool own_stream, uint64_t launches); /* the same in one stream */
/* At the end of the process: a fault that no call has told of yet. */
void blackbox_last_look(void);
/* Takes note of a result that tells of a device fault. */
void blackbox_result(const char *call, CUresult r);
/* Whether one was noted: every call about the device fails from then on, and tools that watch calls would show ours too. */
bool blackbox_fault(void);

/* -- shape.c -- */
/* The row of launches of this kernel like this one. NULL: it has none. */
struct session_shape *shape_of(struct kernel *k, const struct session_kernel *row, const struct launch *l);

/* -- gputime.c -- */

struct time_pair;
/* Whether a kernel's n-th launch (from 0) is one to be timed. */
bool gputime_due(uint64_t n);
/* Before and after the launch, in its stream. NULL: it goes untimed. is_kernel: fn is a CUkernel. shape may be NULL. */
struct time_pair *gputime_begin(struct kernel *k, struct session_shape *shape, void *fn, bool is_kernel, bool first,
	CUstream stream, bool per_thread);
/* variant: it ran in the kernel's place, with its programs in one warp of one_in. */
void gputime_end(struct time_pair *p, bool variant, uint32_t one_in, CUstream stream, bool per_thread);
void gputime_drop(struct time_pair *p); /* there was no launch */
/* Takes the times of launches that have ended. NULL: in all contexts. */
void gputime_collect(CUcontext only);
void gputime_context_gone(CUcontext context);

/* -- request.c -- */
/* Whether the host waits for a write to a map of this context. */
bool request_pending(const struct context *c);
/* Carries out what can be now. By who holds c->copying. */
void request_serve(struct context *c);
/* Watches what the host stores into a memory-mapped map; after it was made. */
void request_watch(struct context *c, uint32_t id);
/* Before a launch of a variant that uses these maps. */
void request_push_globals(struct context *c, uint64_t maps);

/* -- hold.c: by who holds agent.build -- */

struct hold {
	uint64_t since_ns;   /* something waits for an idle moment; 0: nothing does */
	uint64_t next_ns;    /* no hold before */
	uint64_t backoff_ns; /* after the next hold that is in vain */
	uint64_t begun_ns;   /* of the hold that is going on */
	uint64_t launches;   /* at the last look */
	struct stream_row *busy; /* what had not ended after the last hold */
	uint32_t busy_uses;
};
/* The device is not idle and something waits for that: whether launches may be held back for it now. */
bool hold_due(void);
/* Closes the gate and waits until nothing runs. False with *why: it does, and the gate is open again. */
bool hold_until_idle(const char **why);
/* The gate is open again; done: nothing waits any more. */
void hold_end(bool done);

/* -- build.c, variant.c ---------------------------------------------------- */

enum { MAX_PREPARED = 16 };
enum variant_state { VARIANT_PENDING, VARIANT_READY, VARIANT_REFUSED };

/* A kernel of a loaded module in a context. */
struct variant {
	_Atomic(struct variant *) next; /* in its module's list, which launches walk while it changes */
	struct variant *queued; /* in agent.queue */
	struct kernel *kernel;
	struct module *module;
	struct context *context;
	struct build *build; /* NULL once it is unloaded */
	_Atomic uint64_t links; /* 0 once it is retired */
	_Atomic int state; /* enum variant_state, stored last */
	atomic_int graph_refs; /* nodes of executable graphs that may launch it */
	bool in_queue;
	CUmodule handle;
	CUfunction function;
	CUfunction original;
	/* Of the build, which does not live as long. */
	uint32_t n_params, launch_param_offset;
	bool launch_param, sampled, reads_launch;
	uint32_t cap; /* registers a thread it was limited to, so that as many blocks fit as of the
			 original; 0: none */
	bool tight;   /* fewer blocks than of the original may fit an SM */
	atomic_int cap_tried;
	_Atomic uint64_t fit; /* the last question of resident_blocks() with its answers */
};

struct function {
	struct module *module;
	struct kernel *kernel;
	CUcontext context;                /* NULL: a CUkernel, which lives in every context */
	_Atomic(struct variant *) cached; /* the one used last */
	_Atomic(const struct params *) params;
};

struct module {
	struct module *next;
	void *handle; /* CUmodule or CUlibrary */
	bool is_library;
	bool found;    /* we came after it was loaded */
	bool nameless; /* stands for a kernel whose image is not known; handle is its struct image */
	struct context *context; /* CUmodule: where it was loaded */
	struct image *image;
	atomic_int gone;
	_Atomic(struct variant *) variants;               /* all of this module, newest first */
	_Atomic(struct context *) prepared[MAX_PREPARED]; /* contexts whose variants were made;
							     written under agent.build */
	atomic_uint n_prepared;
};

/* Attached links that match a kernel, reads programs that are new. */
void build_match(struct image *im);
/* The instrumented and compiled kernel for this device; -errno with d. Context current. */
int build_kernel(struct kernel *k, uint32_t cc, const char *const *unbound, uint32_t n_unbound,
	uint32_t max_regs, struct build **out, struct diag *d);
/* The same for a few kernels, before they are asked for one by one: what is to be compiled is so on several threads. Those that
 * fail are refused. */
void build_kernels(struct kernel *const *list, uint32_t n, uint32_t cc);
/* -- rows.c: under agent.build -- */
void kernel_refuse(struct kernel *k, const char *reason);
void kernel_state(struct kernel *k, enum session_kernel_state state, const char *reason);
/* Gives a kernel its row in the session. */
void kernel_row(struct kernel *k);
/* k goes on in the row that stood for its name alone. Under agent.build. */
void kernel_take_row(struct kernel *k, struct kernel *nameless);
/* While it is looked for, a kernel of which only the name is known counts in the row of one of that name, if there
 * is one: whether it does. */
bool kernel_borrow_row(struct kernel *nameless);
/* Whether its site ids are taken for sites that are numbered by these links; taking them, once for a kernel of the session. */
bool sites_placed(const struct kernel *k, uint64_t links);
int sites_place(struct kernel *k, uint64_t links, const struct instrument_site *sites, uint32_t n, struct diag *d);
/* The first of them, as far as that can be told before the sites are known. */
uint32_t sites_likely_first(const struct kernel *k, uint64_t links);
/* What only the instrumenter knows: which sites stay without probes. */
void sites_mark_skipped(const struct kernel *k, const struct instrument_result *r);

/* -- compile.c: any thread, the context current; compile_ptx under agent.build, whose the cache is -- */
/* m: of the text, which tells what is newer than the driver, and cc of the device then; NULL: nothing is. */
int compile(const char *ptx, size_t bytes, const struct ptx_module *m, uint32_t cc, uint32_t max_regs, char **cubin,
	size_t *cubin_bytes, struct diag *d);
/* Compiles PTX of ours with the driver for the current context, or takes it from the cache on disk. */
int compile_ptx(const char *ptx, size_t bytes, uint32_t cc, char **cubin, size_t *cubin_bytes, struct diag *d);
/* What variants read through __egpu_table: EBPF_TABLE_SYMBOLS numbers. */
void variant_table(const struct context *c, uint64_t *table);
/* A text with a NUL behind, as it is, by the driver alone. *cubin is the caller's to free. */
CUresult compile_text(const char *ptx, size_t bytes, char **cubin, size_t *cubin_bytes);
/* ptxas from PATH or the usual place. target "sm_90a". */
int ptxas_compile(const char *ptx, size_t bytes, const char *target, uint32_t max_regs,
	char **cubin, size_t *cubin_bytes, struct diag *d);

/* -- cache.c: under agent.build -- */
enum cache_kind {
	CACHE_TEXT,     /* PTX of the program -> the number that stands for it */
	CACHE_COMPILED, /* PTX of ours -> machine code */
	CACHE_VARIANT,  /* all that a build is made of -> the build (build.c) */
};
struct cache_key {
	enum cache_kind kind;
	const void *data;
	size_t bytes;
	uint32_t cc, max_regs; /* of the device and the compilation; 0 for texts */
};
/* 0 with a NUL behind *value, which the caller frees; -ENOENT. */
int cache_get(const struct cache_key *k, char **value, size_t *value_bytes);
/* Where the cache has an entry of this key already, that one stays. */
void cache_put(const struct cache_key *k, const void *value, size_t value_bytes);
/* The number that stands for a text in keys, as long as the cache keeps the text. -ENOENT: no cache. */
int cache_text(const char *text, size_t bytes, uint64_t id[2]);

/* Makes variants for all matching kernels of a module in a context: compiled, and queued for
 * loading. */
void variant_prepare(struct module *m, struct context *c);
/* The variant to launch in place of a function's kernel, made and loaded if that is possible now;
 * NULL: the original. fn: what is about to be launched as f, by its handle; NULL: nothing is, or it is loaded. */
struct variant *variant_for_launch(struct function *f, CUcontext current, void *fn);
/* v, or a variant of fewer registers, or NULL: whether all blocks of this launch that would be
 * resident together stay so. */
struct variant *variant_that_fits(struct function *f, struct variant *v, uint64_t blocks,
	uint32_t threads, size_t shared, bool cooperative);
/* Takes note of links attached or detached since. */
void variant_relink(void);
/* The same at a launch: nobody waits where a thread of ours is at work on it. */
void variant_follow(void);
/* Calls fn for the loaded variants of a function (in one context, or in all when it is a CUkernel).
 */
void variant_each(struct function *f, void (*fn)(struct variant *v, void *arg), void *arg);
/* Loads what is queued if the device is idle. */
enum load_hurry {
	LOAD_POLL, /* the program asks or launches often: not each time */
	LOAD_SYNC, /* it has just synchronised: a moment not to miss */
	LOAD_MUST, /* it launches one of them: wait for another thread that is loading */
};
void variant_load_queued(enum load_hurry hurry);
void variant_retire_module(struct module *m);
/* Links that are attached now. */
uint64_t links_attached(void);
/* Maps of programs that are attached now; fragments of others are dropped. Under agent.build. */
uint64_t build_live_maps(uint64_t attached);
uint64_t build_client_maps(uint32_t client);
uint64_t build_words_map(void); /* the map of --live, which stays as long as its context */
/* Whether a kernel has builds with links that are gone. Under agent.build. */
bool build_stale(const struct kernel *k, uint64_t attached);
/* Frees builds of a kernel with links that are gone, which no variant uses. Under agent.build. */
void build_sweep(struct kernel *k, uint64_t attached, bool (*used)(const struct build *b));
/* Takes the images of these maps from the device after a last copy. Nothing runs or will run that uses them. */
void devmap_free(struct context *c, uint64_t mask);
void devmap_drop(struct context *c, uint64_t mask); /* the same, by who holds c->copying */
bool variant_prepared(const struct module *m, const struct context *c);
void variant_context_gone(struct context *c);

/* -- symbols.c --------------------------------------------------------------- */
/* Where a variable of the loaded module is; 0: it knows none of that name. Only while nothing runs: with lazy loading a look-up may load the module's data. */
CUdeviceptr symbol_address(const struct module *m, const char *name);
/* Builds again without what cannot be bound, until all can; max_regs: registers of a thread at most, 0: as many as it takes. */
int symbols_settle(struct variant *v, uint32_t max_regs, struct diag *d);

/* -- residency.c ------------------------------------------------------------- */

/* Whether of a launch of this shape as many blocks are resident together as of the original, as far as it has them. */
bool residency_fits(struct variant *v, uint64_t blocks, uint32_t threads, size_t shared, bool cooperative);

/* -- ending.c ---------------------------------------------------------------- */

/* The program unloads it, and it is not retired yet. True: a variant that may be running uses what it has; it is unloaded for the program when
 * nothing runs. False: it has to end now. Not under agent.build; the others are. */
bool ending_later(const struct module *m);
void endings_unload(void); /* nothing runs; n_retired is the caller's */
void endings_forget(CUcontext gone); /* they go with their context */

/* -- module.c -------------------------------------------------------------- */

/* What the driver has of a kernel in the current context; NULL: it does not tell. */
CUfunction function_handle(void *fn, bool is_kernel);
/* Has the driver load a function that it would else load at the first launch. */
void function_load(void *fn, bool is_kernel);

struct function *function_get(void *handle);
/* The same; a handle that came by ways we do not see is found by its module. in: the context that it is launched in. */
struct function *function_find(void *handle, CUcontext in);

/* A handle that a launch met and nobody knows: late.c finds out, off the launch path. */
void late_ask(void *handle, CUcontext in);
/* There is something to be prepared. */
void late_poke(void);
/* Handles that were asked about may end now. */
void late_forget(void);
/* Binds a handle to a kernel of an image; the module is made where it is not known. Any thread, the
 * context current. */
struct function *function_bind(void *handle, const char *name, struct image *im);
/* Forgets that handles are strangers: other kernels are wanted now. */
void function_forget_strangers(void);
/* Calls no longer pass by us: nothing that we know of handles stays true. */
void module_purge(void);
void stream_purge(void);
void graph_purge(void);
/* The kernel's name by its handle, or NULL. */
const char *function_name(void *handle);
/* Whether it is that of a CUkernel, not of a CUfunction. */
bool function_is_kernel(void *handle);
/* An image that holds only the name of a kernel, and why there is no PTX: nobody asked for it, it is being looked for, or that is the
 * answer, which stays. */
enum nameless { NAMELESS_UNASKED, NAMELESS_SEARCHED, NAMELESS_ANSWERED };
struct image *image_nameless(const char *name, const char *why, enum nameless what);
/* The same if there is one, or NULL. */
struct image *image_of_name(const char *name);
/* One that has been read already and has this kernel's PTX, or NULL. */
struct image *image_known(const char *name);

/* -- unprobed.c ------------------------------------------------------------- */

/* This executable graph runs as it is, because of that; empty: it has nothing to be probed. */
void unprobed_note(CUgraphExec exec, const char *why);
/* It is known from here on, or has ended. */
void unprobed_forget(CUgraphExec exec);
/* One that graph.c does not know is about to be launched: its row, which counts launches, and what stands for it; NULL: none. */
struct session_kernel *unprobed_launch(CUgraphExec exec, struct kernel **row);
void unprobed_purge(void);

/* -- slots.c ---------------------------------------------------------------- */

/* Puts our functions where the process keeps the driver's (on), or the driver's back; what is to be looked through is added then,
 * and memory_sweep() called. False: there is no driver. */
bool slots_begin(bool on);
void slots_add_files(void); /* the data of loaded files */
size_t slots_changed(void); /* so far */
/* Everywhere, at once: how many slots were changed. */
size_t slots_swap(bool on);

/* -- memory.c --------------------------------------------------------------- */

/* Private memory that can be read, mapping by mapping, as it was at the call; not that of devices or of the kernel.
 * path: empty without a file, else with a newline behind it. */
struct mapping {
	uintptr_t from, to;
	bool writable, executable;
	const char *path;
};
void memory_each(void (*fn)(const struct mapping *m, void *arg), void *arg);
/* Reads what can be read: how much that was. */
size_t memory_read(uintptr_t at, void *to, size_t bytes);

/* How many threads of ours may be at work for a moment: half of the processors that the process has, at most so many. */
enum { AGENT_MAX_HELPERS = 8 };
int agent_helpers(void);

/* Memory is looked through for pointers to the driver, for PTX, or for both, or for machine code, by threads of ours. One thread opens a sweep, adds
 * parts, begins it, and asks whether it is over; until then there is no other. */
enum { MEMORY_SLOTS = 1, MEMORY_TEXT = 2, MEMORY_CODE = 4, MEMORY_MORE = 1024 };
struct memory_part {
	uintptr_t from, to;   /* to be looked through; from is that of a page */
	uintptr_t begin, end; /* of its mapping */
	unsigned int what;
	bool read_only;
};
void memory_open(void);
void memory_add(const struct memory_part *p);
void memory_add_all(unsigned int what); /* every mapping in which it may be */
void memory_sweep(void);
/* Whether it is over. Where no thread could be made, this is who looks, until the time given (now_ns). */
bool memory_swept(uint64_t until_ns);
bool memory_busy(void);
void memory_wait(void);
void memory_stop(void); /* the rest is not looked through */
/* Whether a thread that looks has this on its stack. */
bool memory_is_ours(uintptr_t at);
/* What was read at `at`; by several threads. Of text and code, up to MEMORY_MORE bytes come again with the next call. */
void slots_see(const struct memory_part *p, uintptr_t at, const char *bytes, size_t n);
void memtext_see(const struct memory_part *p, uintptr_t at, const char *bytes, size_t n);
void memcode_see(uintptr_t at, const char *bytes, size_t n);
bool slots_wants(const struct mapping *m);
bool memtext_wants(const struct mapping *m);

/* A letter of a PTX name, whatever the process's locale. */
static inline bool is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

static inline bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* -- memtext.c ---------------------------------------------------------------- */

/* All memory is looked through for PTX in the sweep that is about to be added to. */
void memtext_begin(void);
/* Whether all memory has been looked through, or, in another look, not only what is new. By one thread, as all of these. */
bool memtext_look(uint64_t until_ns);
/* What is new did not have it: the rest is looked through. */
void memtext_rest(void);
/* The texts that have this kernel, as far as memory has been looked through. */
struct texts;
void memtext_find(const char *name, struct texts *out);
/* Another look, if this one began before asked_ns: what is new first, such as a library that has been loaded since. */
bool memtext_again(uint64_t asked_ns);
void memtext_end(void); /* the next attach looks anew */

/* -- sources.c --------------------------------------------------------------- */

/* A kernel whose PTX is looked for. */
struct source_query {
	const char *name;
	CUfunction loaded; /* what it is told apart by; NULL: not known */
	uint32_t cc;
	uint64_t asked_ns;
	bool caches_done; /* the source's own: caches on disk have been asked */
	bool several;	  /* texts.c's: there is more than one */
};
/* In caches of Triton's (triton.c): as texts_image. */
int triton_find(struct source_query *q, uint64_t until_ns, struct image **out, const char **why);
/* The PTX of a kernel in compilers' caches and the process's own files and memory: 0 with *out, or with NULL and *why there is none.
 * -EAGAIN: it is not known yet; files and memory, as they are at asked_ns or later, are looked through until
 * the time given (now_ns). By one thread. */
int source_find(struct source_query *q, uint64_t until_ns, struct image **out, const char **why);

/* -- texts.c: texts that define one kernel --------------------------------------- */

enum { MAX_TEXTS = 32 }; /* of one name that are compared */
struct text {
	char *bytes; /* with a NUL behind */
	size_t n;
	char *elf; /* machine code that was made of it, and its size; NULL: not known */
	size_t elf_bytes;
};
struct texts {
	struct text list[MAX_TEXTS];
	uint32_t n;
};
/* The place where the next token begins: behind blanks and comments. */
const char *text_token(const char *p);
/* Takes over what t points to. What says the same as another as far as both go is one text, of which the longer stays. */
void texts_add(struct texts *to, const struct text *t);
void texts_free(struct texts *t);
/* The image of the text that was loaded: 0 with *out; with NULL, and *why where there are several and nothing tells which it was.
 * -EAGAIN: memory has to be looked through first, which goes on. The context is current; by the thread that searches. */
int texts_image(struct texts *t, struct source_query *q, uint64_t until_ns, struct image **out, const char **why);

/* -- memcode.c: ELF for devices in memory, by the same thread ------------------------- */

/* Whether memory has been looked through since asked_ns; begins to. */
bool memcode_look(uint64_t asked_ns, uint64_t until_ns);
/* Calls fn with a copy of each image that has this kernel's code and is not ours; one may come more than once. */
void memcode_each(const char *name, void (*fn)(const char *elf, size_t bytes, void *arg), void *arg);
void memcode_end(void);

/* -- launch.c -------------------------------------------------------------- */

/* How a kernel's n-th launch (from 0) runs programs: in one warp of one_in, which stands for one_in * times; times 0: not at all. timed: with
 * --max-overhead, it is one of the two in eight that are compared. */
struct sample {
	uint32_t one_in, times;
	bool timed;
};

/* cuLaunchKernel and what came after it; cuLaunch, cuLaunchGrid, cuLaunchGridAsync (old.c). */
enum old_launch { OLD_NOT, OLD_LAUNCH, OLD_GRID, OLD_ASYNC };

/* A launch of the program's, as long as it is under way. */
struct launch {
	void *fn; /* CUfunction or CUkernel */
	CUlaunchConfig config;
	void **params, **extra;
	bool cooperative, extended; /* through cuLaunchCooperativeKernel, cuLaunchKernelEx */
	bool per_thread;            /* the _ptsz twin */
	enum old_launch old;
	bool opaque; /* its block and parameters are not known */
	uint32_t stream;            /* stream_used */
	unsigned int lane;          /* thread_lane */
	const struct params *values; /* where its parameters are; NULL: nobody asked */
	struct sample sample;
};
static inline uint64_t launch_warps(uint64_t blocks, uint64_t threads)
{
	return blocks * ((threads + 31) / 32);
}
/* The session's links are others than those that were matched. */
static inline bool links_changed(void);
/* A kernel's row; one of a large image gets it when it is launched for the first time. */
struct session_kernel *kernel_row_of(struct kernel *k);
/* Launches, probed or as the program's own. */
CUresult launch_run(struct launch *l);

/* -- stream.c -------------------------------------------------------------- */

/* Whether it is the calling thread's own default stream. */
bool stream_is_own(CUstream stream, bool per_thread);
/* That of a stream by its handle; the current one where the driver does not say. */
CUcontext stream_context(CUstream stream);
/* Its number, if it has one already. */
uint32_t stream_number(CUstream stream);
/* Something is about to be put into a stream; inside the gate, and by a filter of streams before it too, for the number. The stream's number: 0 for default streams, k for the k-th other
 * one that got a launch; UINT32_MAX: not known. */
uint32_t stream_used(CUstream stream, bool per_thread);
/* It has been; still inside. */
void stream_used_until_now(CUstream stream, bool per_thread);
/* launches: blackbox_launches() before that began. */
void stream_synchronised(CUstream stream, bool per_thread, uint64_t launches);
/* A context was; c: its state, or NULL. `since` was drawn before that began. */
void stream_all_synchronised(CUcontext handle, struct context *c, uint64_t since);
void stream_destroying(CUstream stream);
void stream_context_gone(CUcontext handle);
uint64_t stream_epoch(void);
/* Whether nothing runs that we know of; *why says what does. The gate is closed by the caller. */
bool stream_idle(const char **why);
/* The same for one context, from any thread. */
bool stream_context_idle(CUcontext handle, bool threads);
/* Waits, at most ms milliseconds, until the streams of a context are idle. */
bool stream_settle(CUcontext handle, int ms);
/* Whether what keeps the device from being idle can be waited for at all while nobody launches. */
bool stream_can_drain(void);
/* Whether all work from before an attach is known to have ended, in every context. */
bool contexts_known(void);
/* A stream that has work, with the number of launches it has got; NULL: none that we know by its handle. */
struct stream_row *stream_busy(uint32_t *uses);
/* Whether it has work still, and nothing more has been given to it. */
bool stream_still_busy(struct stream_row *r, uint32_t uses);
/* Asks about this thread's own default stream; whether it has no work that we know of. */
bool stream_ask_own(void);
/* Whether what is given to this stream goes into a graph. */
bool stream_capturing(CUstream stream, bool per_thread);
void capture_begun(void);
void capture_ended(void);

/* -- state.c --------------------------------------------------------------- */

enum agent_mode { AGENT_IDLE, AGENT_ON, AGENT_OFF };

struct agent {
	atomic_int mode;
	atomic_int late; /* we came when the program was running already */
	pid_t pid;
	struct session *session;
	struct session_file *shared;
	struct session_agent *row; /* ours; NULL: none found */
	struct lock lock;  /* registries: images, modules, contexts, links */
	struct lock build; /* compiling and loading; never taken with lock held */
	struct lock shapes; /* lists of shapes grow */
	struct gate gate;
	struct {
		_Alignas(64) atomic_uint noted; /* launches in a lane of the black box */
	} box_lanes[SESSION_BOX_LANES];
	_Alignas(64) struct handles functions, streams;
	struct handles execs;   /* CUgraphExec -> struct graph_exec */
	struct handles unprobed; /* CUgraphExec -> struct unprobed */
	atomic_int n_unprobed;  /* rows of theirs */
	struct handles rigid;   /* CUgraphExec whose work the device launches itself -> itself */
	atomic_int n_rigid;     /* of them: as long as there are some, nothing is loaded */
	struct handles loaded;  /* CUmodule or CUlibrary -> struct module */
	struct handles aliases; /* CUmodule of a library -> struct module */
	struct handles old;     /* CUfunction -> struct old */
	struct handles kinds;   /* CUfunction -> agent.functions, CUkernel -> agent.kinds (function_is_kernel) */
	_Atomic(struct image *) images;
	_Atomic(struct module *) modules;
	_Atomic(struct context *) contexts; /* grow at the head, under lock; never shortened */
	_Atomic uint64_t generation;        /* of the session, when links were matched */
	struct arena *arena;                /* fragments, for the process's life */
	struct ebpf_fragment *fragments[SESSION_MAX_PROGS];
	struct arena *fragment_arenas[SESSION_MAX_PROGS];
	const char *fragment_error[SESSION_MAX_PROGS];
	struct link_record *links;
	struct link_product *products;
	struct variant *queue, *retired; /* under build */
	struct ending *endings;		 /* the same: modules that the program has unloaded, and that are there still */
	atomic_int n_queued, n_retired;
	atomic_int sweep_due; /* links have gone: what is theirs is to be freed */
	_Atomic uint64_t last_try_ns;
	atomic_int captures;
	_Atomic(struct stream_row *) stream_rows; /* grows at the head; rows are used again */
	_Atomic(struct thread_use *) thread_uses; /* the same */
	struct ghost *ghosts; /* under stream_lock */
	uint32_t n_streams;   /* ever launched into; the same */
	struct {
		struct lock lock;
		struct time_pair *pairs; /* under lock */
		_Atomic uint32_t stride;
		_Atomic uint64_t last_ns;
	} times; /* gputime.c */
	atomic_int asking;
	_Atomic uint64_t epoch, unknown_work; /* unknown_work: the epoch at which there was some; 0: none, or all that is over */
	struct lock stream_lock; /* never held while the driver is called */
	struct {
		atomic_int started, stop, word, parked, settled, copied, done;
	} sync;
	uint64_t cache_written; /* since make_room(); under build */
	bool cache_pruned;
	struct hold hold;       /* under build */
	int log_fd;
};
extern struct agent agent;

/* After the first successful cuInit. */
void agent_start(void);
/* The same in a process that runs already; false: no. */
bool agent_start_late(const char *dir);
/* Registers our exit handler again, so that it runs before those the driver has registered
 * meanwhile. */
void agent_stay_last(void);
static inline bool agent_on(void)
{
	return atomic_load_explicit(&agent.mode, memory_order_acquire) == AGENT_ON;
}
/* -- filter.c: what --skip, --launches, --for, --device, --stream leave out -- */
bool filter_device(const struct context *c);
bool filter_stream(CUstream stream, bool per_thread);
bool filter_over(void);   /* no launch will be probed any more */
bool filter_launch(void); /* counts this launch; whether it is one to be probed */
#define FILTER_OF_GRAPH UINT64_MAX /* n: launched by a graph, which nobody compares */
void filter_sample(const struct kernel *k, uint64_t n, struct sample *out);
/* Of the choice of warps. */
uint32_t filter_seed(void);
/* A variant is ready. */
void filter_begin(struct kernel *k);
/* Takes note of how long a launch took (one_in 0: of the original), and changes what the next ones do. */
void filter_adapt(struct kernel *k, uint32_t one_in, double ms);
static inline bool filter_active(void)
{
	return __atomic_load_n(&agent.shared->filter.active, __ATOMIC_RELAXED) != 0;
}

/* `egpu off`, a detached session or the end of what was asked for: originals run. */
static inline bool agent_off_word(void)
{
	return __atomic_load_n(&agent.shared->off, __ATOMIC_RELAXED) != 0 ||
	       (filter_active() && filter_over());
}
static inline bool links_changed(void)
{
	return atomic_load_explicit(&agent.generation, memory_order_relaxed) !=
	       __atomic_load_n(&agent.shared->generation, __ATOMIC_RELAXED);
}
/* A moment at which variants may be loaded. */
void agent_moment(enum load_hurry hurry);
/* A thread that takes none of the process's signals, whose handlers run in the process's threads. thread: to be joined; NULL: detached.
 * 0 or -errno. */
int agent_thread(pthread_t *thread, void *(*run)(void *), void *arg);
void agent_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
