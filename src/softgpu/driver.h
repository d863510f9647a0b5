/* driver.h - what the files of softgpu's driver API share.
 *
 * The shared library libcuda.so.1: driver_init.c (start, look-ups), driver_device.c,
 * driver_context.c, driver_memory.c, driver_pool.c, driver_copy.c, driver_stream.c (the engine),
 * driver_queue.c (calls that enqueue), driver_event.c, driver_module.c, driver_function.c,
 * driver_library.c, driver_link.c, driver_launch.c, driver_graph.c (nodes and edges), driver_node.c
 * (calls by kind of node), driver_work.c (what a node does), driver_user.c (user objects),
 * driver_cond.c (conditional nodes), driver_exec.c (instantiated graphs), driver_capture.c,
 * driver_ipc.c (events between processes), driver_error.c, driver_stub.c.
 *
 * One lock (drv.lock) guards every object here. It is never held while a kernel runs, a copy moves
 * bytes, PTX is compiled or the application's code is called. Waiting is on drv.progress, which is
 * broadcast whenever a stream operation ends.
 *
 * Handles that a program holds are addresses of the structs below, but nothing is read through one
 * before drv_find has found it in drv.handles: a stale or invented handle is an error code.
 *
 * Life of an object: its handle is removed first (no new use), then its users are waited for, then
 * it is freed. Streams and event marks are counted as well, since operations outlive handles.
 */
#ifndef EGPU_SOFTGPU_DRIVER_H
#define EGPU_SOFTGPU_DRIVER_H

#define EGPU_CUDA_NO_ALIASES
#define CUDAAPI __attribute__((visibility("default")))

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "base/table.h"
#include "cuda/calls.h"
#include "egpu/cuda.h"
#include "softgpu/softgpu.h"
#include "softgpu/texture.h"

#define DRV_VERSION 13000
#define DRV_MAX_DEVICES 16

enum drv_kind {
	DRV_CONTEXT = 1,
	DRV_STREAM,
	DRV_EVENT,
	DRV_MODULE,
	DRV_FUNCTION,
	DRV_LIBRARY,
	DRV_KERNEL,
	DRV_LINK,
	DRV_POOL,
	DRV_GRAPH,
	DRV_NODE,
	DRV_EXEC,
	DRV_USER_OBJECT,
	DRV_ARRAY,
	DRV_MIPMAP,
};

/* First member of everything that has a handle. */
struct drv_object {
	enum drv_kind kind;
};

struct drv_ticket;

/* -- contexts ---------------------------------------------------------------- */

#define DRV_N_LIMITS CU_LIMIT_MAX

struct CUctx_st {
	struct drv_object object;
	struct CUctx_st *next; /* in drv.contexts */
	uint64_t id;
	unsigned int flags;
	unsigned int uses; /* cuCtxAttach, or retains of the primary one */
	unsigned int refs; /* being in the list, each stream, each waiter */
	bool primary;
	CUdevice device;
	uint32_t peers;       /* devices whose memory it may use, by bit; nothing depends on it */
	_Atomic bool closing; /* being destroyed: queued work is dropped */
	_Atomic int error;    /* sticky CUresult: the context is unusable */
	struct CUstream_st *streams; /* all that have not been freed */
	struct CUstream_st *legacy;
	struct CUmod_st *modules;
	struct CUevent_st *events;
	size_t limits[DRV_N_LIMITS];
	CUfunc_cache cache;
	CUsharedconfig banks;
	uint64_t next_stream_id;
	uint32_t n_launched; /* kernels that have not ended */
};

/* -- streams ------------------------------------------------------------------ */

/* The end of one recorded event: shared by the event, the operation and those who wait for it. */
struct drv_mark {
	unsigned int refs;
	bool done;
	uint64_t time_ns; /* CLOCK_MONOTONIC, when done */
};

/* Something that an operation waits for: a point in a stream, or a mark. */
struct drv_dep {
	struct CUstream_st *stream; /* counted; NULL: mark */
	uint64_t seq;
	struct drv_mark *mark; /* counted */
};

struct drv_op;
/* Does the work, without the lock. skip: the context has failed or is closing, only release. False:
 * it was only started, and drv_op_end will say when it has ended (which may be before this
 * returns). */
typedef bool (*drv_run)(struct drv_op *op, bool skip);

/* One operation in a stream. Allocated by drv_op_new, freed when it has ended. */
struct drv_op {
	struct drv_op *next;
	struct CUstream_st *stream;
	uint64_t seq;
	drv_run run;
	bool quick; /* any thread may run it */
	struct drv_dep *deps;
	uint32_t n_deps;
	_Alignas(16) char data[]; /* the operation's own struct */
};

struct CUstream_st {
	struct drv_object object;
	struct CUstream_st *next; /* in context->streams */
	struct CUctx_st *ctx;
	unsigned int refs; /* the handle, the thread, dependencies */
	uint64_t id;
	unsigned int flags;
	int priority;
	bool non_blocking; /* takes no notice of the legacy stream */
	bool gone;         /* destroyed by the program: ends when its work is done */
	bool has_thread;
	pthread_cond_t wake;
	struct drv_op *head, **tail;
	uint64_t submitted, completed;                        /* operations, in order */
	CUstreamAttrValue policy, window, domain, domain_map; /* kept to be read back */
	/* What is called while it is captured becomes nodes that depend on these
	 * (driver_capture.c). */
	struct drv_capture *capture;
	struct CUgraphNode_st **cap_deps;
	size_t n_cap_deps;
};

struct CUevent_st {
	struct drv_object object;
	struct CUevent_st *next; /* in context->events */
	struct CUctx_st *ctx;
	unsigned int flags;
	struct drv_mark *mark; /* of the last record here; NULL: never recorded */
	struct drv_share *share; /* counted; NULL: of this process alone */
	uint64_t shared_seq;     /* of the last record here */
	/* The last record was captured: the capture's number and what the stream depended on. */
	uint64_t cap_id;
	struct CUgraphNode_st **cap_deps;
	size_t n_cap_deps;
};

/* -- modules ------------------------------------------------------------------ */

struct CUfunc_st {
	struct drv_object object;
	struct CUmod_st *module;
	struct sg_kernel *kernel;
	struct sg_kernel_info info;
	int max_dynamic_shared; /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
	int carveout;
	int cluster_width, cluster_height, cluster_depth; /* set attributes; 0: none */
	int non_portable_cluster, cluster_policy;
	bool loaded; /* with `strict`: launched before, or loaded by cuFuncLoad */
	/* cuFuncSetBlockShape and cuParamSet*, the way to launch before 4.0 */
	int shape[3];
	unsigned int old_shared;
	uint8_t *old_params;
};

struct CUmod_st {
	struct drv_object object;
	struct CUmod_st *next; /* in context->modules */
	struct CUctx_st *ctx;
	struct CUlib_st *library; /* that owns it, or NULL */
	struct sg_module *code;
	struct CUfunc_st *functions;
	uint32_t n_functions;
	uint32_t running; /* launches that have not ended */
};

struct CUkern_st {
	struct drv_object object;
	struct CUlib_st *library;
	char *name;     /* owned */
	uint32_t index; /* in the module, the same for every context */
	/* cuKernelSetAttribute before the kernel is in a context; -1: not set */
	int attrs[CU_FUNC_ATTRIBUTE_MAX];
};

struct CUlib_st {
	struct drv_object object;
	struct CUlib_st *next; /* in drv.libraries */
	char *ptx;
	size_t ptx_bytes;
	struct CUkern_st *kernels;
	uint32_t n_kernels;
	struct sg_module *first; /* compiled at the load, taken by the first context */
};

/* -- memory ------------------------------------------------------------------- */

enum drv_mem_kind {
	DRV_MEM_DEVICE,
	DRV_MEM_HOST,       /* cuMemHostAlloc */
	DRV_MEM_REGISTERED, /* cuMemHostRegister */
	DRV_MEM_MANAGED,
	DRV_MEM_POOL,  /* stream ordered */
	DRV_MEM_ARRAY, /* of an array: its address is the driver's secret */
	DRV_MEM_GRAPH, /* of a graph's allocation node: lives as long as the graphs that have it */
};

/* One allocation, in drv.allocs by base address. */
struct drv_alloc {
	uint64_t base;
	size_t bytes;
	enum drv_mem_kind kind;
	unsigned int flags;
	uint64_t id;
	struct CUctx_st *ctx;
	struct CUmemPoolHandle_st *pool;
	bool freeing; /* cuMemFreeAsync is queued */
};

/* An image in device memory: an array of its own, or a level of a mipmapped one. */
struct CUarray_st {
	struct drv_object object;
	struct CUctx_st *ctx;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct sg_image image; /* of one level */
	uint64_t base;         /* its allocation; 0: a mipmapped array's */
};

struct CUmemPoolHandle_st {
	struct drv_object object;
	struct CUmemPoolHandle_st *next;
	bool is_default;
	CUdevice device;
	size_t max_bytes; /* 0: none */
	uint64_t used, used_high, threshold;
	int follow_events, opportunistic, internal_deps;
};

/* -- launches, graphs ----------------------------------------------------------- */

struct drv_shape {
	uint32_t grid[3], block[3], cluster[3];
	uint32_t shared;
	bool cooperative;
	CUevent event; /* recorded when the grid has ended, or NULL */
	CUstream stream;
};

/* Device memory of a graph (an allocation node's, or the word of a condition), shared by the graph,
 * its clones and executables. */
struct drv_graph_mem {
	unsigned int refs;
	uint64_t addr;
};

/* A condition: its handle is the address of the word that kernels set. */
struct drv_condition {
	struct drv_graph_mem *mem; /* counted */
	uint32_t value;            /* at each start of the graph, if assign */
	bool assign;
};

/* A conditional node. In a graph it owns the bodies; in an executable it owns executables of them,
 * and bodies has their graphs. */
struct drv_cond {
	unsigned int refs; /* the node, and launches that have not come to their end */
	CUgraphConditionalNodeType type;
	unsigned int n;
	struct drv_graph_mem *value; /* counted */
	CUgraph *bodies;
	struct CUgraphExec_st **execs; /* NULL: of a graph */
};

/* What a node does. Owns what it points to: packed, child, mem, callbacks' data excepted. */
struct drv_work {
	CUgraphNodeType type;
	union {
		struct {
			void *fn; /* CUfunction or CUkernel */
			struct drv_shape shape;
			uint8_t *packed;   /* parameters */
			uint32_t n_packed; /* bytes */
			void **pointers;   /* one a parameter, into packed */
			uint32_t n_params;
			int priority;
		} kernel;
		CUDA_MEMCPY3D copy;
		CUDA_MEMSET_NODE_PARAMS set;
		struct {
			CUhostFn fn;
			CUstreamCallback callback; /* of cuStreamAddCallback, else NULL */
			CUstream stream;
			void *data;
		} host;
		struct CUgraph_st *child;
		CUevent event;
		struct {
			uint64_t addr, bytes;
			struct drv_graph_mem *mem; /* MEM_ALLOC */
		} mem;
		struct drv_cond *cond;
	};
};

struct drv_edge {
	struct CUgraphNode_st *from;
	CUgraphEdgeData data;
};

struct CUuserObject_st {
	struct drv_object object;
	unsigned int count;
	CUhostFn destroy;
	void *data;
};

struct CUgraphNode_st {
	struct drv_object object;
	struct CUgraphNode_st *next; /* in order of creation */
	struct CUgraph_st *graph;
	uint64_t id;        /* never given twice */
	uint64_t origin_id; /* in a clone or executable: of the node it was made from */
	struct drv_edge *deps;
	size_t n_deps;
	struct drv_work work;
	/* in executables */
	bool disabled, cross; /* cross: nodes of other lanes wait for its mark */
	uint32_t lane;
	struct drv_mark *mark; /* of the launch that is being submitted */
	uint32_t state;        /* of a walk */
};

struct CUgraph_st {
	struct drv_object object;
	struct CUgraphNode_st *nodes, **tail;
	size_t n_nodes;
	bool owned;            /* by a node: the program may not destroy it */
	struct CUgraph_st *outer; /* a body: the graph that has the conditional node */
	struct drv_condition *conditions; /* handles made for it */
	size_t n_conditions;
	unsigned int captures; /* that add to it */
	struct drv_graph_user {
		struct CUuserObject_st *object;
		unsigned int count;
	} * users;
	size_t n_users;
};

/* -- the driver --------------------------------------------------------------- */

struct drv_state {
	pthread_mutex_t lock;
	pthread_cond_t progress;
	bool initialized;
	CUresult init_error; /* sticks once a start has failed */
	bool forked;         /* a child of the process that started it: nothing works here */
	bool told_runtime;   /* the message about NVIDIA's runtime is out */
	bool strict;         /* calls that NVIDIA's driver holds back while kernels run wait here too */
	/* Devices differ in their contexts, pools and shares of memory. Below, all are one: one
	 * address space and one set of workers, so that each reaches the memory of the others. */
	int n_devices;
	struct sg_device *dev;
	struct sg_config config;
	char *name;
	struct table *handles; /* address -> struct drv_object */
	struct table *allocs;  /* base address -> struct drv_alloc */
	struct CUctx_st *contexts;
	struct drv_device {
		struct CUctx_st *primary;
		struct CUctx_st *old_primary; /* its struct, kept for the next retain */
		unsigned int primary_flags;
		struct CUmemPoolHandle_st *default_pool, *current_pool;
	} devices[DRV_MAX_DEVICES];
	uint64_t device_bytes; /* memory of each */
	struct CUlib_st *libraries;
	struct CUmemPoolHandle_st *pools;
	uint64_t next_ctx_id, next_buffer_id;
	pthread_key_t thread_key;
};
extern struct drv_state drv;

/* -- entering a call (driver_init.c, driver_context.c) -------------------------
 * A call takes the lock with one of these, and lets go of it with drv_leave. Where they fail, the
 * lock is not held and the call returns the result.
 */
CUresult drv_enter_init(void);                    /* needs cuInit */
CUresult drv_enter(struct CUctx_st **ctx);        /* and a current context that has not failed */
CUresult drv_enter_failed(struct CUctx_st **ctx); /* and a current context, failed or not */
CUresult drv_leave(CUresult result);
/* The twin symbols (_ptsz, _ptds) run the plain ones with the thread's own stream as the default.
 */
void drv_per_thread(bool on);
bool drv_is_per_thread(void);
/* Around the application's code that a stream runs: driver calls from it are not permitted. */
void drv_callback(bool on);

/* With the lock. */
int drv_add_handle(struct drv_object *object); /* 0 or -ENOMEM */
void drv_remove_handle(struct drv_object *object);
void *drv_find(const void *handle, enum drv_kind kind); /* NULL: no such object */
void drv_wait(void);                                    /* for the next broadcast of drv.progress */
void drv_broadcast(void);
/* Without the lock: with `strict`, waits until no kernel of the current context runs. For calls that NVIDIA's driver may hold back until then: loads, the first
 * launch of a function that was not loaded, memory that it maps. */
void drv_hold(void);
/* Without the lock. The first failure of a context sticks, and its other grids are ended. The
 * caller holds an operation of a stream of it. */
void drv_fail(struct CUctx_st *ctx, CUresult error);
bool drv_device_ok(CUdevice dev);

int drv_settings(const char *text, struct sg_config *config, struct diag *d);

/* -- contexts ------------------------------------------------------------------ */

/* The context on top of the calling thread's stack, NULL when there is none or it is destroyed. */
struct CUctx_st *drv_current(void);
/* Whether the reason is that it was destroyed. */
bool drv_ctx_destroyed(void);
void drv_ctx_put(struct CUctx_st *ctx);
/* Waits for the work submitted so far in every stream. Returns the sticky error. */
CUresult drv_ctx_drain(struct CUctx_st *ctx);

/* -- streams -------------------------------------------------------------------- */

/* The stream for a handle: 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included. */
CUresult drv_stream_of(struct CUctx_st *ctx, CUstream handle, struct CUstream_st **out);
struct CUstream_st *drv_stream_new(struct CUctx_st *ctx, unsigned int flags, int priority);
void drv_stream_put(struct CUstream_st *s);
/* Releases the thread's default stream of a context that ends, or all of a thread that ends. */
void drv_stream_retire(struct CUstream_st *s);
struct drv_op *drv_op_new(drv_run run, size_t bytes); /* NULL when memory is out */
void drv_op_free(struct drv_op *op);
/* Adds a wait. */
CUresult drv_op_wait_mark(struct drv_op *op, struct drv_mark *mark);
/* Hands the operation to the stream, with the waits that the default stream implies. Takes op over,
 * on failure too. quick: the work is small enough to be done in this thread if the stream is idle,
 * with the lock dropped meanwhile. s may be gone afterwards. */
CUresult drv_submit(struct CUstream_st *s, struct drv_op *op, bool quick);
/* The same, and waits for its end. Returns the context's sticky error. */
CUresult drv_submit_wait(struct CUstream_st *s, struct drv_op *op);
/* Waits until the stream has completed seq. Returns the context's sticky error. */
CUresult drv_stream_wait(struct CUstream_st *s, uint64_t seq);
/* Everything before now, blocking streams included where s is the legacy one. */
CUresult drv_stream_sync(struct CUstream_st *s);
bool drv_stream_idle(struct CUstream_st *s);
/* What an operation started has ended. Without the lock. */
void drv_op_end(struct drv_op *op);
struct drv_mark *drv_mark_new(void);
void drv_mark_put(struct drv_mark *m);
uint64_t drv_now_ns(void);

/* -- graphs (all with the lock) -------------------------------------------------- */

struct CUgraph_st *drv_graph_new(void);
void drv_graph_free(struct CUgraph_st *g);
/* A deep copy; nodes remember the id of their original. */
struct CUgraph_st *drv_graph_clone(const struct CUgraph_st *g);
/* Takes work over, on failure too. */
CUresult drv_graph_add(struct CUgraph_st *g, struct CUgraphNode_st *const *deps, size_t n,
	struct drv_work *work, struct CUgraphNode_st **out);
void drv_work_free(struct drv_work *w);
int drv_work_copy(const struct drv_work *from, struct drv_work *to);
/* What the destructors of user objects that are no longer held must be called with: call with the
 * lock, which is away while the application's functions run. */
void drv_user_objects_run(void);
void drv_user_put(struct CUuserObject_st *o, unsigned int count); /* gives references back */
/* Enters with a node; type -1: any. Also fails when out is NULL. */
CUresult drv_enter_node(
	CUgraphNode handle, int type, const void *out, struct CUgraphNode_st **node);
/* Nodes so that each comes after those it depends on; NULL: they form a circle, or no memory. */
struct CUgraphNode_st **drv_graph_order(struct CUgraph_st *g);
/* The parameters of a node from what the program gives. */
CUresult drv_work_from(struct CUctx_st *ctx, const CUgraphNodeParams *p, struct drv_work *out);
CUresult drv_work_kernel(struct CUctx_st *ctx, void *fn, const struct drv_shape *shape,
	void **params, void **extra, struct drv_work *out);

/* A capturing stream: adds the work as a node, takes it over. */
CUresult drv_capture_add(
	struct CUstream_st *s, struct drv_work *work, struct CUgraphNode_st **node);
/* cuMemAllocAsync in a captured stream. */
CUresult drv_capture_alloc(struct CUstream_st *s, size_t bytes, CUdeviceptr *addr);
CUresult drv_graph_mem_new(struct CUctx_st *ctx, size_t bytes, struct drv_graph_mem **out);
void drv_graph_mem_put(struct drv_graph_mem *m);

/* Conditional nodes (driver_cond.c). */
CUresult drv_cond_work(
	struct CUgraph_st *g, const CUDA_CONDITIONAL_NODE_PARAMS *p, struct drv_work *out);
struct drv_cond *drv_cond_copy(const struct drv_cond *from); /* with clones of the bodies */
void drv_cond_put(struct drv_cond *c);
bool drv_has_cond(const struct CUgraph_st *g);
int drv_conditions_copy(const struct CUgraph_st *from, struct CUgraph_st *to);
void drv_conditions_free(struct CUgraph_st *g);
/* What instantiating checks: every condition belongs to a node, bodies have the allowed nodes. */
CUgraphInstantiateResult drv_cond_check(const struct CUgraph_st *g);
/* In a lane of an executable: decides when the stream comes to it. */
CUresult drv_cond_run(struct CUstream_st *s, struct drv_cond *c);
/* Gives conditions their first values: at the operation's turn. */
CUresult drv_conditions_assign(struct CUstream_st *s, const struct CUgraph_st *g);
/* An executable of a graph that it takes over, on failure too. It has no handle. */
CUresult drv_exec_new(struct CUgraph_st *g, struct CUgraphExec_st **out);
void drv_exec_free(struct CUgraphExec_st *e);
/* Submits all nodes at once; end, when done, says that they are through. */
CUresult drv_exec_start(struct CUgraphExec_st *e, struct CUctx_st *ctx, struct drv_mark **end);

/* Memory for an allocation node, found now and kept while a graph has the node. */
CUresult drv_work_alloc(struct CUctx_st *ctx, size_t bytes, struct drv_work *out);
/* For calls that cannot be captured: an error while the stream is capturing, which ends the
 * capture. */
CUresult drv_capture_refuse(struct CUstream_st *s);
/* For calls that could block or synchronise, by the capture mode of this thread. */
CUresult drv_capture_unsafe(void);
void drv_capture_invalidate(struct drv_capture *c);
void drv_capture_forget(struct CUstream_st *s); /* the stream goes */
bool drv_capture_active(uint64_t id);
uint64_t drv_capture_id(const struct CUstream_st *s);
/* s waits for an event that was recorded in a capture, or s is captured: it joins. */
CUresult drv_capture_wait(struct CUstream_st *s, struct CUevent_st *e);

/* -- events between processes (driver_ipc.c; with the lock, drv_share_end, _done and _wait also
 * without) ---------------------------------------------------------------------------- */

struct drv_share *drv_share_new(void); /* NULL: no memory or descriptors */
struct drv_share *drv_share_get(struct drv_share *s);
void drv_share_put(struct drv_share *s);
uint64_t drv_share_begin(struct drv_share *s);           /* a record: its number */
void drv_share_end(struct drv_share *s, uint64_t seq);   /* its stream has come to it */
uint64_t drv_share_last(const struct drv_share *s);      /* of all processes; 0: none */
bool drv_share_done(const struct drv_share *s, uint64_t seq);
void drv_share_wait(struct drv_share *s, uint64_t seq, const struct CUctx_st *ctx);
CUresult drv_share_queue(struct CUstream_st *s, struct drv_share *share, uint64_t seq);
/* Takes share (or NULL) over, on failure too. */
struct CUevent_st *drv_event_new(
	struct CUctx_st *ctx, unsigned int flags, struct drv_share *share);
void drv_event_free(struct CUevent_st *e); /* that is in no list */

/* One node's work in a stream that is not captured. */
CUresult drv_kernel_check(
	struct CUctx_st *ctx, const void *handle, struct drv_shape *s, struct CUfunc_st **f);
CUresult drv_kernel_pack(const struct CUfunc_st *f, void **params, void **extra, uint8_t *packed);
CUresult drv_kernel_run(struct CUstream_st *s, const void *handle, const struct drv_shape *shape,
	const uint8_t *packed);
CUresult drv_copy_check(const CUDA_MEMCPY3D *p);
CUresult drv_copy_run(struct CUstream_st *s, const CUDA_MEMCPY3D *p);
CUresult drv_set_check(const CUDA_MEMSET_NODE_PARAMS *p);
CUresult drv_set_run(struct CUstream_st *s, const CUDA_MEMSET_NODE_PARAMS *p);
CUresult drv_host_run(struct CUstream_st *s, const struct drv_work *w);
CUresult drv_event_record(struct CUstream_st *s, CUevent event);
CUresult drv_event_wait(struct CUstream_st *s, CUevent event);

/* -- memory ---------------------------------------------------------------------- */

struct drv_alloc *drv_alloc_at(uint64_t base);
/* The allocation that holds addr, or NULL (module variables are in none). */
struct drv_alloc *drv_alloc_holding(uint64_t addr);
struct drv_alloc *drv_alloc_add(struct CUctx_st *ctx, uint64_t base, size_t bytes,
	enum drv_mem_kind kind, unsigned int flags);
/* Gives the memory back and drops the record. */
void drv_alloc_release(struct drv_alloc *a);
/* Whether the device has room for so many bytes more. */
bool drv_device_room(CUdevice dev, size_t bytes);
void drv_device_memory(CUdevice dev, size_t *free_bytes, size_t *total);
/* An allocation that other processes may have opened goes. */
void drv_shared_forget(uint64_t base);
bool drv_is_host(uint64_t addr); /* inside host memory that is known to the driver */

/* -- modules ---------------------------------------------------------------------- */

/* Options of a load (CUjit_option), with the log buffers filled by drv_jit_done. */
struct drv_jit {
	char *error_log, *info_log;
	size_t error_bytes, info_bytes;
	void **error_size, **info_size, **wall_time, **threads;
};
CUresult drv_jit_read(
	unsigned int n, const CUjit_option *options, void **values, struct drv_jit *jit);
void drv_jit_done(struct drv_jit *jit, const struct diag *d, double ms);
/* PTX text of an image of unknown extent, as a malloc'd string. Without the lock. */
CUresult drv_image_ptx(const void *image, char **ptx, size_t *bytes, struct diag *d);
/* The same of bytes of known extent. */
CUresult drv_bytes_ptx(const void *data, size_t size, char **ptx, size_t *bytes, struct diag *d);
/* The image that the linker makes of a text: malloc'd; NULL: no memory. */
void *drv_make_cubin(const struct sg_module *code, const char *ptx, size_t bytes, size_t *size);
/* One input of the linker, and of images with several translation units. */
struct drv_text {
	char *text; /* NUL-terminated PTX */
	size_t bytes;
	const char *name; /* for messages */
};
/* One PTX text that has the definitions of all (driver_link.c). Without the lock. */
CUresult drv_link_texts(
	const struct drv_text *texts, size_t n, char **ptx, size_t *bytes, struct diag *d);
CUresult drv_read_file(const char *path, char **data, size_t *size);
/* A module around compiled code, with the lock; takes code over on success. */
CUresult drv_module_new(
	struct CUctx_st *ctx, struct CUlib_st *lib, struct sg_module *code, struct CUmod_st **out);
/* Waits for its launches and frees it; the handles are gone at once. */
void drv_module_free(struct CUmod_st *m);
/* The function for a CUfunction, or for a CUkernel in ctx (loaded there on first use). */
CUresult drv_function_of(struct CUctx_st *ctx, const void *handle, struct CUfunc_st **out);
CUresult drv_library_module(struct CUctx_st *ctx, struct CUlib_st *lib, struct CUmod_st **out);
CUresult drv_function_attribute(const struct CUfunc_st *f, CUfunction_attribute attr, int *value);
CUresult drv_function_set(struct CUfunc_st *f, CUfunction_attribute attr, int value);
uint32_t drv_shared_limit(void);                        /* bytes a block can opt in to */
uint32_t drv_shared_default(void);                      /* without opting in */
int drv_attribute(CUdevice_attribute attr, int *value); /* 0 or -EINVAL */

#endif
