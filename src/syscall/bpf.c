#include "syscall/bpf.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "syscall/loader.h"
#include "syscall/object.h"

/* There is one bpf(2) in a process, and it has no argument that could carry this. */
static struct loader the_loader;
static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;
static int sweep_wanted; /* atomic */

static long id_next(struct loader *l, union bpf_attr *attr, enum object_kind kind)
{
	object_sweep(l);
	uint32_t id = object_next_id(l, kind, attr->start_id);
	if (!id)
		return -ENOENT;
	attr->next_id = id;
	return 0;
}

static long id_descriptor(struct loader *l, union bpf_attr *attr, enum object_kind kind)
{
	struct object *o = object_by_id(l, kind, attr->map_id);
	return o ? object_descriptor(o) : -ENOENT;
}

static long dispatch(struct loader *l, int cmd, union bpf_attr *attr)
{
	switch (cmd) {
	case BPF_MAP_CREATE:
		return map_create(l, attr);
	case BPF_MAP_LOOKUP_ELEM:
		return map_elem_lookup(l, attr);
	case BPF_MAP_UPDATE_ELEM:
		return map_elem_update(l, attr);
	case BPF_MAP_DELETE_ELEM:
		return map_elem_delete(l, attr);
	case BPF_MAP_GET_NEXT_KEY:
		return map_elem_next(l, attr);
	case BPF_MAP_LOOKUP_AND_DELETE_ELEM:
		return map_elem_take(l, attr);
	case BPF_MAP_FREEZE:
		return map_freeze(l, attr);
	case BPF_PROG_LOAD:
		return prog_load(l, attr);
	case BPF_PROG_BIND_MAP:
		return prog_bind_map(l, attr);
	case BPF_BTF_LOAD:
		return btf_load(l, attr);
	case BPF_RAW_TRACEPOINT_OPEN:
		return link_open(l, attr);
	case BPF_LINK_CREATE:
		return link_create(l, attr);
	case BPF_LINK_DETACH:
		return link_detach(l, attr);
	case BPF_OBJ_GET_INFO_BY_FD:
		return object_info(l, attr);
	case BPF_MAP_GET_NEXT_ID:
		return id_next(l, attr, OBJECT_MAP);
	case BPF_PROG_GET_NEXT_ID:
		return id_next(l, attr, OBJECT_PROG);
	case BPF_BTF_GET_NEXT_ID:
		return id_next(l, attr, OBJECT_BTF);
	case BPF_LINK_GET_NEXT_ID:
		return id_next(l, attr, OBJECT_LINK);
	case BPF_MAP_GET_FD_BY_ID:
		return id_descriptor(l, attr, OBJECT_MAP);
	case BPF_PROG_GET_FD_BY_ID:
		return id_descriptor(l, attr, OBJECT_PROG);
	case BPF_BTF_GET_FD_BY_ID:
		return id_descriptor(l, attr, OBJECT_BTF);
	case BPF_LINK_GET_FD_BY_ID:
		return id_descriptor(l, attr, OBJECT_LINK);
	default:
		return -EINVAL;
	}
}

/* Copies the attributes as the kernel does: those it does not know must be zero. */
static int attr_in(union bpf_attr *to, const union bpf_attr *from, unsigned int size)
{
	if (!from)
		return -EFAULT;
	memset(to, 0, sizeof(*to));
	for (unsigned int i = sizeof(*to); i < size; i++)
		if (((const char *)from)[i])
			return -E2BIG;
	memcpy(to, from, size < sizeof(*to) ? size : sizeof(*to));
	return 0;
}

/* Commands that answer in their attributes. */
static bool attr_goes_back(int cmd)
{
	return cmd == BPF_OBJ_GET_INFO_BY_FD || cmd == BPF_MAP_GET_NEXT_ID ||
	       cmd == BPF_PROG_GET_NEXT_ID || cmd == BPF_BTF_GET_NEXT_ID ||
	       cmd == BPF_LINK_GET_NEXT_ID;
}

long egpu_bpf(int cmd, union bpf_attr *attr, unsigned int size)
{
	union bpf_attr copy;
	struct loader *l = &the_loader;
	if (size > 65536)
		return -E2BIG;
	long r = attr_in(&copy, attr, size);
	if (r)
		return r;
	pthread_mutex_lock(&the_lock);
	/* A diagnostic sticks within a command; the next command's takes its place. */
	struct diag before = l->error;
	l->error = (struct diag){ 0 };
	r = l->running ? dispatch(l, cmd, &copy) : -ENOSYS;
	if (!l->error.err)
		l->error = before;
	pthread_mutex_unlock(&the_lock);
	if (__atomic_load_n(&sweep_wanted, __ATOMIC_ACQUIRE))
		loader_sweep();
	if (attr_goes_back(cmd))
		memcpy(attr, &copy, size < sizeof(copy) ? size : sizeof(copy));
	return r;
}

/* -- the loader's side -- */

int loader_start(const struct loader_options *options, struct diag *d)
{
	struct loader *l = &the_loader;
	int err = 0;
	if (!egpu_syscall_is_ours())
		return diag_set(d, ENOTSUP,
			"bpf(2) does not reach egpu in this process: another library defines "
			"syscall(2)");
	pthread_mutex_lock(&the_lock);
	if (l->running) {
		err = diag_set(d, EBUSY, "a loader runs in this process already");
	} else {
		*l = (struct loader){ .options = *options };
		l->reports_end = &l->reports;
		if (options->default_pattern) {
			l->default_pattern = strdup(options->default_pattern);
			err = l->default_pattern ? 0 : diag_set(d, ENOMEM, "out of memory");
		}
		l->running = !err;
	}
	pthread_mutex_unlock(&the_lock);
	return err;
}

static void reports_free(struct report *r)
{
	for (struct report *next; r; r = next) {
		next = r->next;
		arena_free(r->arena);
		buf_free(&r->log);
		free(r);
	}
}

void loader_stop(void)
{
	struct loader *l = &the_loader;
	pthread_mutex_lock(&the_lock);
	l->running = false; /* from here on nothing of the session is taken back */
	object_free_all(l);
	reports_free(l->reports);
	free(l->default_pattern);
	*l = (struct loader){ 0 };
	pthread_mutex_unlock(&the_lock);
}

/* The lock may be held by this very thread, which closes what it frees: whoever has it comes here when
 * it is through. */
void loader_sweep(void)
{
	__atomic_store_n(&sweep_wanted, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&sweep_wanted, __ATOMIC_ACQUIRE) && !pthread_mutex_trylock(&the_lock)) {
		__atomic_store_n(&sweep_wanted, 0, __ATOMIC_RELEASE);
		if (the_loader.running)
			object_sweep(&the_loader);
		pthread_mutex_unlock(&the_lock);
	}
}

void loader_last_error(struct diag *out)
{
	pthread_mutex_lock(&the_lock);
	*out = the_loader.error;
	pthread_mutex_unlock(&the_lock);
}

void loader_clear_error(void)
{
	pthread_mutex_lock(&the_lock);
	the_loader.error = (struct diag){ 0 };
	pthread_mutex_unlock(&the_lock);
}

const struct loader_prog *loader_prog(uint32_t index)
{
	const struct loader_prog *found = NULL;
	pthread_mutex_lock(&the_lock);
	for (struct report *r = the_loader.reports; r && !found; r = r->next)
		if (!index--)
			found = &r->info;
	pthread_mutex_unlock(&the_lock);
	return found;
}

/* Without BTF the name that reached us is cut at 15 bytes. */
static bool report_is(const struct report *r, const char *name)
{
	return !strcmp(r->name, name) ||
	       (strlen(r->name) == 15 && !strncmp(r->name, name, 15) && !r->info.program);
}

const struct loader_prog *loader_prog_by_name(const char *name)
{
	const struct loader_prog *found = NULL;
	pthread_mutex_lock(&the_lock);
	for (struct report *r = the_loader.reports; r; r = r->next)
		if (report_is(r, name))
			found = &r->info;
	pthread_mutex_unlock(&the_lock);
	return found;
}

const struct loader_prog *loader_prog_by_fd(int fd)
{
	struct object *o;
	const struct loader_prog *found = NULL;
	pthread_mutex_lock(&the_lock);
	if (!object_by_fd(&the_loader, fd, OBJECT_PROG, &o) && o->prog.report)
		found = &o->prog.report->info;
	pthread_mutex_unlock(&the_lock);
	return found;
}

static int session_id(int fd, enum object_kind kind, uint32_t *id)
{
	struct object *o;
	pthread_mutex_lock(&the_lock);
	int err = object_by_fd(&the_loader, fd, kind, &o) ? -ENOENT : 0;
	if (!err)
		*id = kind == OBJECT_MAP ? o->map.id : o->link.id;
	pthread_mutex_unlock(&the_lock);
	return err;
}

int loader_map_id(int fd, uint32_t *id)
{
	return session_id(fd, OBJECT_MAP, id);
}

int loader_link_id(int fd, uint32_t *id)
{
	return session_id(fd, OBJECT_LINK, id);
}
