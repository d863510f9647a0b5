/* object.h - what bpf(2) made: maps, programs, BTF and links behind descriptors; internal to
 * src/syscall.
 *
 * Everything here runs under the loader's lock.
 */
#ifndef EGPU_SYSCALL_OBJECT_H
#define EGPU_SYSCALL_OBJECT_H

#include <sys/types.h>

#include "map/map.h"
#include "syscall/loader.h"

struct btf;

enum object_kind { OBJECT_MAP, OBJECT_PROG, OBJECT_BTF, OBJECT_LINK, OBJECT_KINDS };

struct object {
	struct object *next; /* by id, of all kinds */
	enum object_kind kind;
	uint32_t id; /* from 1 in each kind, as the kernel's */
	int fd;      /* our own, so that the inode lives as long as we do */
	dev_t dev;   /* identity of every descriptor of it */
	ino_t ino;
	uint32_t refs; /* by other objects */
	bool keep;     /* stays without descriptors */
	union {
		struct {
			uint32_t id; /* in the session */
			struct map *map;
			bool frozen;
			struct object *btf; /* counted in its refs; or NULL */
		} map;
		struct {
			uint32_t type;         /* enum bpf_prog_type */
			struct report *report; /* NULL: a feature probe, which nothing runs */
			struct object *maps[EBPF_MAX_MAPS]; /* counted */
			uint32_t n_maps;
			struct object *btf; /* counted, or NULL */
			/* Session programs made of it, one a point. */
			struct {
				enum ebpf_point point;
				bool warp;
				uint32_t id;
			} made[16];
			uint32_t n_made;
			char name[16];
			uint32_t n_insns;
		} prog;
		struct {
			void *data;
			uint32_t size;
			struct btf *parsed; /* at first use */
			bool saved;         /* as btf-ID in the session */
		} btf;
		struct {
			uint32_t id;         /* in the session */
			struct object *prog; /* counted */
			char *name;          /* as given to BPF_RAW_TRACEPOINT_OPEN */
			bool detached;
		} link;
	};
};

/* A program's report and what it points to. */
struct report {
	struct report *next;
	struct loader_prog info;
	struct arena *arena;
	struct ebpf_fragment fragment;
	struct ebpf_program program;
	enum ebpf_context context;
	struct buf log;
	char name[256];
};

struct loader {
	bool running;
	struct loader_options options;
	char *default_pattern;
	struct object *objects;
	uint32_t next_id[OBJECT_KINDS];
	struct report *reports, **reports_end;
	uint32_t trace_map; /* session id + 1 of "egpu_trace"; 0: not made */
	struct diag error;
};

/* Takes fd over; on failure closes it. */
int object_new(struct loader *l, enum object_kind kind, int fd, struct object **out);
/* A new descriptor for the caller. */
int object_descriptor(const struct object *o);
/* Anonymous file for a program, BTF or link. */
int object_anonymous(const char *name);
/* The object behind a descriptor. -EBADF, -EINVAL (of another kind). */
int object_by_fd(struct loader *l, int fd, enum object_kind kind, struct object **out);
struct object *object_by_id(struct loader *l, enum object_kind kind, uint32_t id);
/* The smallest id above `after`; 0: none. */
uint32_t object_next_id(struct loader *l, enum object_kind kind, uint32_t after);
void object_unref(struct object *o);
/* Frees what no descriptor and no object holds any more. */
void object_sweep(struct loader *l);
void object_free_all(struct loader *l);

/* What each kind does when it goes. */
void map_object_release(struct loader *l, struct object *o);
void prog_object_release(struct loader *l, struct object *o);
void btf_object_release(struct loader *l, struct object *o);
void link_object_release(struct loader *l, struct object *o);

/* Commands, by file. Results as egpu_bpf's. */
#define COMMAND(name) long name(struct loader *l, union bpf_attr *attr)
COMMAND(map_create); /* map_cmd.c */
COMMAND(map_elem_lookup);
COMMAND(map_elem_update);
COMMAND(map_elem_delete);
COMMAND(map_elem_next);
COMMAND(map_elem_take);
COMMAND(map_freeze);
COMMAND(prog_load); /* prog.c */
COMMAND(prog_bind_map);
COMMAND(btf_load);  /* btf_cmd.c */
COMMAND(link_open); /* link.c */
COMMAND(link_create);
COMMAND(link_detach);
COMMAND(object_info); /* info.c */

/* The context of a program's section, as sections.c has libbpf hand it over (bpf(2) does not tell the section): in expected_attach_type, which no
 * type of the kernel's has so high. */
enum { SECTION_CONTEXT = 0x65670000 };

/* btf_cmd.c */
int btf_object_parse(struct object *o, struct btf **out, struct diag *d);
/* Stores the blob as btf-ID, where readers of map types find it. */
int btf_object_save(struct loader *l, struct object *o);
/* The context type of a function's first argument, and its name (owned by btf). `section` is that of the program's section, NONE where that is not
 * known: it holds for a function that takes nothing, a void pointer or struct pt_regs * (*opaque: there is no such thing). */
int btf_context(const struct btf *btf, uint32_t func_type, enum ebpf_context section, enum ebpf_context *context,
	bool *opaque, const char **name, struct diag *d);

/* foreign.c: makes a map type of bpftime's examples, and EGPU_MAP_TYPE_THREAD_ARRAY, one of ours. */
int foreign_map(const struct loader *l, struct ebpf_map *def, struct diag *d);

/* map_cmd.c */
int map_object_open(struct loader *l, struct object *o);
/* The program's view of it; values of frozen arrays go to the arena. */
int map_object_describe(
	struct loader *l, struct object *o, struct arena *arena, struct ebpf_map *out);
/* "egpu_trace", which trace_printk writes to. */
int trace_map_describe(struct loader *l, struct arena *arena, struct ebpf_map *out, struct diag *d);

/* The name of a bpf_attr, terminated and checked as the kernel does: letters, digits, '_' and '.'.
 */
int object_name(const char given[16], char out[16]);

#endif
