/* session.h - the shared state of one `egpu run`: programs, links, maps, kernels, sites.
 *
 * A session is a directory, mode 0700, in /dev/shm:
 *
 *	egpu-UID-PID-STARTTIME/        loader's pid and its start time (/proc/PID/stat field 22), so that a dead loader is recognised
 *	    session                    struct session_file below, mapped shared by loader, agents, readers
 *	    prog-ID.frag               a checked fragment as text (bpf/fragment.h)
 *	    map-ID                     the host's own image: initial values, host writes. Its data first, at offset 0, so that mapping the
 *	                               file gives what mapping an array of bpf(2) gives; its struct map_image at the next multiple of 4096
 *	    map-ID.PID.N               a device instance: struct map_instance page, then the image as last synchronised
 *	    raw-ID                     RINGBUF only: groups of records that agents copied from devices (struct map_ring, map/layout.h)
 *	    map-ID.write               the host's last write to instances: struct map_write, key, value (write.c)
 *	    ring-ID                    RINGBUF only: their records, for consumers (struct map_ring)
 *	    libegpu-driver.so.1        symlink to the real driver or to softgpu (found through LD_LIBRARY_PATH)
 *
 * EGPU_DIR, when set to an absolute path, replaces /dev/shm; /tmp serves where /dev/shm is unusable. A process's second session has -1,
 * -2, ... behind its name. Loader, agents and readers hold a shared flock(2) on `session` as long as they have it mapped, which
 * protects it from session_gc across pid namespaces too.
 *
 * Nothing in it is trusted: every index, offset and size read from it is checked at use.
 * Each field names its writer. Files are 0600; the directory is removed by its loader, or by the next
 * session_gc once loader and agents are dead.
 */
#ifndef EGPU_MAP_SESSION_H
#define EGPU_MAP_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/diag.h"
#include "bpf/fragment.h"
#include "bpf/program.h"
#include "map/layout.h"

#define SESSION_MAGIC 0x5047455353494f4eu
/* SESSION_VERSION, of builds whose loaders and agents understand one another, is made of the text of the headers that describe what they
 * share (version.sh): a change of any of them makes another one. */
#define SESSION_ENV "EGPU_SESSION" /* absolute path of the directory, set for the target */

enum {
	SESSION_MAX_PROGS = 64,
	SESSION_MAX_LINKS = 64,
	SESSION_MAX_KERNELS = 8192,
	SESSION_MAX_SITES = 262144,
	SESSION_MAX_SHAPES = 16384,
	SESSION_MAX_AGENTS = 64,
	SESSION_MAX_CLIENTS = 64,
	SESSION_CLIENT_IDS = 65536, /* ids of objects that one client may give: btf-ID */
	SESSION_STRING_BYTES = 16 << 20,
	SESSION_PATTERN_BYTES = 1024,
};
#define SESSION_NO_DEVICE UINT32_MAX

/* Offset into the string area; 0 is the empty string. */
typedef uint32_t session_string;

enum session_sums {
	SESSION_SUMS_UNKNOWN, /* no program uses it yet */
	SESSION_SUMS_YES,     /* all only fold into them (struct ebpf_map_use): devices keep a replica on each multiprocessor, see map/layout.h */
	SESSION_SUMS_NO,
};

enum session_sampled {
	SESSION_WEIGHED = 1,   /* a sampled program adds to it, weighed: sums are estimates of all warps' */
	SESSION_UNWEIGHED = 2, /* one does something else: that is of the chosen warps alone */
};

enum session_link_state { SESSION_LINK_FREE, SESSION_LINK_ATTACHED, SESSION_LINK_DETACHED };

struct session_map { /* writer: loader, before the link that uses it */
	uint32_t used;
	uint32_t type, key_size, value_size, max_entries, flags;
	char name[16];
	uint32_t internal; /* 1: made by egpu itself (trace output) */
	uint32_t live;	   /* enum live_tier: words and programs for running kernels (live/live.h): only the device's, agents do not copy it back */
	uint32_t live_why; /* session_string: why such programs are not machine code there; 0: they may be */
	uint32_t btf_id, btf_key_type_id, btf_value_type_id; /* BTF object saved as btf-ID in the directory; 0: none */
	uint32_t sums;	     /* enum session_sums: how programs use its values */
	uint32_t sampled;    /* bits of enum session_sampled; 0: no program of chosen warps changes it */
	uint32_t replicated; /* writer: agents, atomic: 1 when an instance with replicas may exist */
	uint8_t fold[EBPF_FOLD_HALVES]; /* how programs change its numbers (struct ebpf_map_use); atomic */
	uint32_t instances; /* writer: agents, atomic: instance files ever made */
	uint32_t write_seq; /* writer: the host, under the lock of map-ID: number of the request in map-ID.write */
	uint32_t writing;   /* writer: the same: odd while a host write is under way */
	uint32_t owner;	    /* number of the client that added it */
	uint32_t serial;    /* +1 each time the row is given to another map */
	uint64_t extra;	    /* map_extra: BLOOM_FILTER: bits a value sets; 0: 5. ARRAY: threads that have elements; 0: one for all */
};

struct session_prog { /* writer: loader */
	uint32_t used;
	uint32_t point; /* enum ebpf_point */
	uint32_t warp;
	uint32_t live; /* 1: prog-ID.frag holds a program for the interpreter inside kernels (live/live.h), no text */
	char name[64];
	uint32_t owner;
};

struct session_link { /* writer: loader; state is stored last, with release order */
	uint32_t state; /* enum session_link_state */
	uint32_t prog;
	uint32_t point, warp;
	uint32_t live;	 /* 1: a program for running kernels, published through the map "egpu_live" */
	uint32_t armed;	 /* writer: agents, atomic: contexts whose kernels can run it now */
	uint64_t armed_ns; /* writer: agents: CLOCK_MONOTONIC when `armed` last changed: from then on every pass runs it, or none does */
	uint32_t unheard; /* writer: agents: multiprocessors that may not have heard of the change yet */
	uint32_t released; /* 1: no descriptor refers to it any more */
	uint32_t why; /* session_string; writer: agents: why its program is not on the device; 0: it is */
	uint32_t native; /* writer: agents, atomic: contexts in which it is machine code */
	uint32_t native_why; /* session_string; writer: agents: why it is not; 0: that is not known yet */
	uint32_t inside; /* writer: agents: lanes that are inside it after its detach */
	uint64_t matched; /* writer: agents, atomic: kernels it was attached to */
	uint64_t changed; /* generation at which it was attached, or detached */
	uint64_t since_ns; /* CLOCK_MONOTONIC of that */
	uint32_t owner;
	char pattern[SESSION_PATTERN_BYTES];
};

enum session_kernel_state {
	SESSION_KERNEL_SEEN,	     /* known to the driver, no link wants it */
	SESSION_KERNEL_PENDING,	     /* variant compiled, waits for a safe moment to be loaded */
	SESSION_KERNEL_INSTRUMENTED, /* variant runs */
	SESSION_KERNEL_REFUSED,	     /* reason says why; the original runs */
};

struct session_kernel { /* writer: the agent that claimed it */
	uint32_t state;	       /* enum session_kernel_state, stored last with release order */
	uint32_t pid;	       /* process that claimed it */
	uint64_t image_hash;   /* identity of the module image */
	session_string name;   /* mangled */
	session_string reason; /* REFUSED, PENDING */
	session_string source; /* where its PTX is: "fatbin sm_90 PTX", "PTX text", "cubin .nv_debug_ptx_txt", "none" */
	uint32_t first_site, n_sites;
	uint32_t last_bit_may_differ;
	uint32_t regs_before, regs_after; /* 32-bit registers a thread; 0: unknown */
	uint32_t local_before, local_after; /* bytes a thread */
	uint64_t launches;		  /* atomic: seen */
	uint64_t launches_instrumented;	  /* atomic: by the variant */
	uint64_t links;			  /* bit per link that is attached to it */
	uint64_t compile_ns;		  /* of its variant; 0: none yet */
	uint32_t compile_cached;	  /* 1: it was taken from the cache on disk */
	uint32_t pad;
	uint64_t time_ns, timed;	  /* atomic: of so many launches, how long they ran in all (agent/gputime.c) */
	uint64_t probed_ns, probed_timed; /* atomic: the part of these in which the variant ran */
	uint64_t first_ns;		  /* of its first launch, which is not among them; 0: unknown */
	uint32_t one_in;		  /* programs run in one warp of so many, now; 0: in all, or nobody has chosen yet */
	uint32_t one_in_least, one_in_most; /* so far */
	uint32_t given_up;		  /* --max-overhead cannot be kept: the original runs */
	int64_t overhead_ppm;		  /* with --max-overhead: how much longer a launch with one_in took; 0: not known */
	/* What its programs were expected to cost before they ran: how many times as long a launch takes, times 1e6, and between what, as a
	 * rule. estimate_ppm is stored last, with release order; 0: not known. */
	uint64_t estimate_ppm, estimate_least_ppm, estimate_most_ppm;
	uint64_t warps;			  /* atomic: of the launches in which programs that are sampled ran */
	uint64_t since_ns;		  /* CLOCK_MONOTONIC: in this state since */
	session_string params;		  /* types of its parameters (agent/params.c): "u64 b8[24]@8 f32", "-": it has none; 0: not known */
	uint32_t pad2;
};
#define SESSION_NO_PARAMS "-"

/* One way in which a kernel is launched outside of graphs (agent/shape.c). */
struct session_shape { /* writer: the agent that added it; of one kernel and way there may be one for each process */
	uint32_t kernel; /* row + 1, stored last with release order; 0: being written */
	uint32_t grid[3], block[3];
	uint32_t shared_bytes; /* dynamic */
	uint32_t stream;       /* 0: a default one; k: the k-th other one of its process */
	uint32_t pid;
	uint64_t launches;	 /* atomic */
	uint64_t time_ns, timed; /* atomic: of so many of them, how long they ran in all */
};

struct session_site { /* writer: the agent that claimed its kernel */
	uint32_t kernel;
	uint32_t point; /* enum ebpf_point */
	uint32_t ptx_line, line, column;
	session_string file, opcode, function;
	session_string skipped;	 /* reason; 0: probed */
	uint32_t space, bytes;	 /* enum egpu_space (0: generic), bytes a lane */
};

/* What is left when a device has faulted (agent/blackbox.c). */
/* Launches are kept by threads, so that these do not wait for each other's cache lines: in each lane those of some of them. */
enum { SESSION_LAST_LAUNCHES = 16, SESSION_BOX_LANES = 8, SESSION_PARAM_BYTES = 128 };
struct session_launch { /* writer: the agent */
	uint64_t number; /* from 1; 0: none, all ones: being written */
	uint32_t kernel; /* row; UINT32_MAX: it has none */
	uint32_t stream; /* as session_filter numbers them */
	uint32_t thread; /* whose own default stream it is; 0: it is not one */
	uint32_t ended;	 /* 1: its stream was synchronised since */
	uint64_t links;	 /* bit per link whose program ran in it */
	uint32_t graph_kernels; /* it launched a graph of so many kernels, and `kernel` is the first of them; 0: a kernel */
	uint32_t shared_bytes;	/* dynamic */
	uint32_t grid[3], block[3]; /* not of a graph */
	uint32_t param_bytes;	/* of its parameters, which session_kernel.params describes, so many are here */
	uint32_t pad;
	uint8_t params[SESSION_PARAM_BYTES];
};
struct session_blackbox { /* writer: the agent */
	uint32_t fault; /* CUresult of the first device fault; 0: none */
	uint32_t pad;
	uint64_t fault_ns, launches_then;
	uint64_t launches; /* so far */
	uint64_t done;	   /* so many of them were over at the last synchronisation that says so */
	uint64_t maps_ns;     /* maps are as of then, those in host memory as of the fault; 0: there are none, or they were never copied */
	uint64_t maps_behind; /* of so many probed launches not all is in them */
	char call[40];	   /* which returned it */
	uint64_t pad1[2];
	struct session_launch last[SESSION_BOX_LANES * SESSION_LAST_LAUNCHES]; /* of each lane the last ones, in any order */
};

struct session_agent { /* writer: the agent */
	uint32_t pid; /* 0: free; claimed by compare-and-swap */
	uint32_t ended; /* 1 after its last synchronisation at exit */
	uint64_t start_time; /* /proc/PID/stat field 22 */
	uint64_t syncs;
	uint32_t has_box; /* 1: its row of `boxes` has its memory */
	uint32_t pad0;
	uint64_t clock_error_ns; /* how far device time, as programs see it, may be from CLOCK_MONOTONIC; 0: not measured */
	uint32_t wake; /* futex: the agent's thread sleeps on it; +1 by whoever wants it to look */
	uint32_t late;	  /* 1: it came when the program was running */
	uint64_t seen;	  /* generation whose links its launches follow */
	uint64_t drained; /* generation: nothing that was detached by then is loaded or referred to any more */
	uint32_t hooked;  /* late: 1: the program's calls pass through it, 0: it is idle */
	session_string trouble; /* what it could not do; 0: nothing */
	uint32_t pad;
	uint64_t graphs_unseen; /* atomic: launches of graphs that were made before it came, or that it cannot follow */
	uint64_t holds, held_ns, held_max_ns; /* atomic: how often launches were held until the device was idle; how long in all; the longest */
};

/* One loader, or one `egpu attach`: rows that it adds carry its number, which is the index here plus 1. */
struct session_client {
	uint32_t pid; /* 0: free; claimed under the writers' lock */
	uint32_t ended; /* 1: it is gone */
	uint64_t start_time;
	uint32_t stays; /* 1: its links outlive it (egpu attach -d) */
	uint32_t locked; /* 1: it holds a lock on the file as long as it lives (client.c) */
	char probe[64];
};

/* Which launches of matched kernels are probed (agent/filter.c). Launches inside of graphs obey device and ends, and are not counted. */
struct session_filter {
	uint32_t active;   /* writer: loader, last, before the target starts: 1 = look at the rest */
	uint32_t device;   /* writer: loader, egpu attach while nothing else is attached: ordinal + 1; 0: all; SESSION_NO_DEVICE: none, nothing is built */
	uint32_t stream;   /* writer: loader: number + 1; 0: all. 0 is the default stream, k the k-th other one a process launched into */
	uint32_t sample_warps; /* writer: loader: programs run in one in so many warps; 0: all, or as max_overhead_ppm wants it */
	uint64_t sample_seed;  /* writer: loader: of the choice of warps */
	uint64_t skip;	   /* writer: loader: so many launches run unprobed first */
	uint64_t launches; /* writer: loader: so many are probed then; 0: all */
	uint64_t for_ns;   /* writer: loader: from the first probed launch on; 0: always */
	uint64_t max_overhead_ppm; /* writer: loader: of the time of a kernel; 0: no limit */
	uint64_t seen;	   /* atomic: launches that the rest has let through */
	uint64_t first_ns; /* writer: an agent, once: CLOCK_MONOTONIC of the first probed launch */
};

/* Whether programs run in chosen warps only. */
static inline bool session_samples(const struct session_filter *f)
{
	return f->sample_warps || f->max_overhead_ppm;
}

struct session_file {
	uint64_t magic;	      /* stored last, with release order */
	uint32_t version, size_of_file;
	uint32_t loader_pid;
	uint32_t off;	      /* writer: loader or `egpu off`: 1 = every agent runs originals */
	uint64_t loader_start_time; /* 0: it has left */
	uint64_t generation;  /* writer: loader: +1 after any change of links */
	uint64_t next_launch; /* atomic: launch ids */
	uint32_t n_kernels, n_sites; /* atomic; may exceed the maximum when full: clamp on reading */
	uint32_t strings_used;	     /* atomic */
	uint32_t kernels_lost, sites_lost; /* atomic: did not fit */
	uint32_t untimed; /* writer: loader, before the target starts: 1 = kernels are not timed */
	uint32_t known_as; /* writer: egpu attach, before the agent comes: the process's number for us, where it has another one for itself; 0: the same */
	uint32_t n_shapes; /* atomic; may exceed the maximum when full */
	struct session_filter filter;
	struct session_map maps[EBPF_MAX_MAPS];
	struct session_prog progs[SESSION_MAX_PROGS];
	struct session_link links[SESSION_MAX_LINKS];
	struct session_agent agents[SESSION_MAX_AGENTS];
	struct session_client clients[SESSION_MAX_CLIENTS];
	struct session_kernel kernels[SESSION_MAX_KERNELS];
	struct session_site sites[SESSION_MAX_SITES];
	struct session_shape shapes[SESSION_MAX_SHAPES];
	struct session_blackbox boxes[SESSION_MAX_AGENTS]; /* of the row of `agents` with this number */
	char strings[SESSION_STRING_BYTES];
};

/* First page of map-ID.PID.N. The image follows at 4096. */
struct map_instance {
	uint64_t magic;
	uint32_t map, pid;
	uint64_t image_bytes;
	uint64_t generation; /* writer: agent: odd while a copy is under way, +2 a synchronisation */
	uint64_t sync_ns;    /* CLOCK_MONOTONIC of the last one */
	uint32_t device;     /* ordinal */
	uint32_t ended;	     /* 1: the context is gone; the image is final */
	uint64_t base_offset; /* maps that the host can map: where in this file the host's data as of its creation is; 0: it cannot change */
	uint32_t write_done; /* writer: agent: the last host write it has carried out */
	int32_t write_error; /* and with what: 0, -E2BIG, -ENOENT, -ENOSPC, -EIO */
	uint32_t n;	     /* of its name */
};

/* map-ID.write: key (padded to 8) and value follow. An agent carries it out when row.write_seq is its seq and not its instance's
 * write_done. Per-CPU elements become zero in instances, whatever the value. */
enum map_write_op {
	MAP_WRITE_PUT = 1,
	MAP_WRITE_DELETE = 2,
	MAP_WRITE_PUSH = 3, /* by all instances of a BLOOM_FILTER, one of others; offset: BPF_EXIST or 0 */
	MAP_WRITE_POP = 4,  /* by one instance, whose agent writes the value where a PUT has it */
};
struct map_write { /* writer: the host */
	uint32_t seq;
	uint32_t op; /* enum map_write_op */
	uint32_t key_size;
	uint32_t offset, bytes; /* arrays: the part of the element; else 0 and value_size */
	uint32_t pid, n; /* PUSH, POP: of the instance's name */
	uint32_t pad;
};

/* ring-ID and raw-ID: consumer page, producer page, data. In ring-ID positions and records are as BPF_MAP_TYPE_RINGBUF has them, so that
 * data mapped twice serves libbpf's ring_buffer; a record's second word is the low half of its %globaltimer >> MAP_RING_TIME_SHIFT.
 * Several agents may produce: they hold raw-ID's lock word while they do. */
enum { MAP_RING_TIME_SHIFT = 5 };
struct map_ring {
	uint64_t consumer; /* page 0; writer: the consumer */
	uint32_t reader;   /* raw-ID: pid of the bulk reader; 0: agents move the records on to ring-ID */
	char pad0[4084];
	uint64_t producer; /* page 1; writer: agents */
	uint32_t lock;	   /* raw-ID: pid of the producing agent; a dead one's lock is taken over */
	uint32_t pad1;
	uint64_t lost;	   /* ring-ID: records that nobody took, atomic */
	char pad2[4072];
	/* data: max_entries bytes at 8192 */
};

struct session;

/* -- loader -- */
/* Makes the directory and the file. 0, -errno with d. */
int session_create(struct session **out, struct diag *d);
/* Frees, and removes the directory if nothing lives in it any more. NULL is allowed. */
void session_destroy(struct session *s);
/* Removes the directories of this user whose loader and agents are all dead; the number removed. */
int session_gc(void);
/* Ids are dense from 0. -ENOSPC when a table is full. */
int session_add_map(struct session *s, const struct ebpf_map *def, uint32_t *id, struct diag *d);
/* Notes how a program uses a map's values, before anything attaches it. -EBUSY with d when a device has replicas of them and the
 * program does more than add. */
int session_map_use(struct session *s, uint32_t map, const struct ebpf_map_use *use, struct diag *d);
/* Replicas that an instance of an array has on a device of so many multiprocessors: 1 unless programs only add to it. */
uint32_t session_map_replicas(struct session *s, uint32_t map, uint32_t sms);
/* Takes back a map that no program uses yet, with its files. */
void session_remove_map(struct session *s, uint32_t id);
int session_add_prog(struct session *s, const char *fragment_text, size_t size, const char *name, enum ebpf_point point, bool warp,
	uint32_t *id, struct diag *d);
int session_add_link(struct session *s, uint32_t prog, enum ebpf_point point, bool warp, const char *pattern, uint32_t *id, struct diag *d);
/* The same for a program of --live: `object` as live/program.h's live_encode makes it. */
int session_add_live_link(struct session *s, const void *object, size_t size, const char *name, enum ebpf_point point, bool warp,
	const char *pattern, uint32_t *id, struct diag *d);
int session_detach_link(struct session *s, uint32_t link);
/* No descriptor refers to it any more: once it is drained, the row of a program for running kernels is another link's. */
void session_release_link(struct session *s, uint32_t link);

/* -- several loaders in one session --
 * Rows are added under a lock between processes. What a client has added goes when it has ended, its links are detached,
 * and no agent refers to them any more. */
/* Makes the opener of a session a client of it. -ENOSPC. The maker is one already. */
int session_enter(struct session *s, const char *probe, struct diag *d);
/* This client has ended: rows that nothing uses are freed now, others by a later client. */
void session_end_client(struct session *s);
uint32_t session_client_number(const struct session *s);
/* Opens the session that a process is in. -ESRCH: it is in none; -EPROTO with d: in one of another version. */
int session_of_process(pid_t pid, struct session **out, struct diag *d);
/* Detaches all links of a client (0: of every client); the number of links. */
int session_detach_client(struct session *s, uint32_t client);
/* Whether every live agent is through with what was detached by now; waits at most ms milliseconds. */
bool session_drained(struct session *s, int ms);
/* Whether every live agent follows the links as they are now. */
bool session_seen(const struct session *s);
/* Its links outlive it. */
void session_stay(struct session *s);
/* Detaches links whose client is dead and did not mean them to stay; their number. Agents do this too. */
int session_reap(struct session *s);
/* Reaps, and frees the rows of clients that are over; the number of links freed. */
int session_recycle(struct session *s);
/* Wakes agents that wait for a change of links. */
void session_wake(struct session *s);

/* -- everybody -- */
/* Maps an existing session read-write after checking owner, size, magic, version. */
int session_open(const char *dir, struct session **out, struct diag *d);
void session_close(struct session *s);
const char *session_path(const struct session *s);
struct session_file *session_data(struct session *s);
/* The string at an offset, "" for a bad one. Always NUL-terminated within the area. */
const char *session_text(const struct session *s, session_string at);
/* Reads prog-ID.frag; the caller frees *text. */
int session_read_prog(struct session *s, uint32_t prog, char **text, size_t *size);
/* Sessions of this user (root: all), newest first: fills up to max directory names; the number found. */
int session_list(char (*dirs)[256], int max);

/* -- agent -- */
/* Forgets the mapping of a ring that is no more: its number will be another map's. Nobody drains it meanwhile. */
void session_forget_ring(struct session *s, uint32_t id);
int session_join(struct session *s, pid_t pid);	   /* takes a row of agents[] */
void session_leave(struct session *s, pid_t pid);
session_string session_add_text(struct session *s, const char *text); /* 0 when full */
/* Finds the kernel (image hash and name) or claims a new row; *created tells. -ENOSPC when full. */
int session_add_kernel(struct session *s, uint64_t image_hash, const char *name, uint32_t *id, bool *created);
/* A row like this one, whose `kernel` is the kernel's row. NULL when full. */
struct session_shape *session_add_shape(struct session *s, const struct session_shape *like);
/* n consecutive site rows; -ENOSPC. */
int session_add_sites(struct session *s, uint32_t n, uint32_t *first);
/* Creates and maps map-ID.PID.N (N: 0, 1, ... per process) for an image of n_replicas; the image is initialised from
 * the host's own image (per-CPU: zeroed). The mapping stays until process end or map_instance_close. */
int map_instance_create(struct session *s, uint32_t map, uint32_t n_replicas, uint32_t device, struct map_instance **out,
	struct map_image **image, size_t *image_bytes, struct diag *d);
void map_instance_close(struct map_instance *inst);
/* Before the first write behind the head of an image: takes the memory, which creation may leave for later. A write without
 * it could fault. 0, also when it is there; -ENOSPC and the like. */
int map_instance_reserve(struct session *s, struct map_instance *inst);
/* Around every write to the image: readers wait until the end, or take what is there when the writer is dead. */
void map_instance_begin(struct map_instance *inst);
void map_instance_end(struct map_instance *inst, uint64_t sync_ns);
/* Ring buffers. The agent takes room in raw-ID, copies groups from the device into it (positions at, at + bytes, ...), and ends: then
 * they are there for a bulk reader, or their records go to ring-ID. map_ring_begin: 0 with the ring's lock held, or -EAGAIN: fewer
 * than `least` bytes are free, or another agent copies. map_ring_end: the records moved to ring-ID. */
struct map_ring_room {
	uint64_t at, bytes;
};
int map_ring_begin(struct session *s, uint32_t map, uint64_t least, struct map_ring_room *room);
/* Memory of position `at`: of `bytes` bytes so many are in one piece. */
uint64_t map_ring_piece(struct session *s, uint32_t map, uint64_t at, uint64_t bytes, void **to);
int map_ring_end(struct session *s, uint32_t map, const struct map_ring_room *room, uint64_t bytes);
/* Records in raw-ID go on to ring-ID. The number moved; -EAGAIN: some found no room. */
int map_ring_flush(struct session *s, uint32_t map);
/* A descriptor of ring-ID, which is struct map_ring as consumers of the kernel's layout map it. -errno. */
int map_ring_file(struct session *s, uint32_t map);
/* Where it has been written and read to, after what waits in raw-ID was moved on as far as there is room. */
int map_ring_positions(struct session *s, uint32_t map, uint64_t *produced, uint64_t *consumed);
/* All of that memory, to be pinned. */
int map_ring_memory(struct session *s, uint32_t map, void **at, size_t *bytes);
/* At the end of a context: counts records that nobody will take, `lost` of them on the device, as lost. */
void map_ring_give_up(struct session *s, uint32_t map, uint64_t lost);

/* -- names -- */
/* Whether a kernel (mangled name, and its demangled form or NULL) matches: literal equality with base, qualified or mangled name
 * first, then a shell pattern over each, or /regex/ (ERE, searched). -EINVAL for a bad regex. */
int session_match(const char *pattern, const char *mangled, const char *demangled);

#endif
