#include "syscall/object.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int object_anonymous(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int object_new(struct loader *l, enum object_kind kind, int fd, struct object **out)
{
	struct stat st;
	struct object *o = calloc(1, sizeof(*o));
	int err = !o ? -ENOMEM : fstat(fd, &st) ? -errno : 0;
	if (err) {
		free(o);
		close(fd);
		return err;
	}
	o->kind = kind;
	o->fd = fd;
	o->dev = st.st_dev;
	o->ino = st.st_ino;
	/* Clients of one session number in ranges of their own: what they store there has the id in its
	 * name. */
	uint32_t client = session_client_number(l->options.session);
	o->id = ++l->next_id[kind] + (client ? (client - 1) * SESSION_CLIENT_IDS : 0);
	struct object **at = &l->objects;
	while (*at)
		at = &(*at)->next;
	*at = o;
	*out = o;
	return 0;
}

int object_descriptor(const struct object *o)
{
	/* Never 0 to 2: loaders take those for the standard streams. */
	int fd = fcntl(o->fd, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}

int object_by_fd(struct loader *l, int fd, enum object_kind kind, struct object **out)
{
	struct stat st;
	if (fd < 0 || fstat(fd, &st))
		return -EBADF;
	for (struct object *o = l->objects; o; o = o->next)
		if (o->dev == st.st_dev && o->ino == st.st_ino) {
			*out = o;
			return o->kind == kind || kind == OBJECT_KINDS ? 0 : -EINVAL;
		}
	return -EINVAL;
}

struct object *object_by_id(struct loader *l, enum object_kind kind, uint32_t id)
{
	for (struct object *o = l->objects; o; o = o->next)
		if (o->kind == kind && o->id == id)
			return o;
	return NULL;
}

uint32_t object_next_id(struct loader *l, enum object_kind kind, uint32_t after)
{
	uint32_t best = 0;
	for (struct object *o = l->objects; o; o = o->next)
		if (o->kind == kind && o->id > after && (!best || o->id < best))
			best = o->id;
	return best;
}

void object_unref(struct object *o)
{
	if (o)
		o->refs--;
}

static void object_free(struct loader *l, struct object *o)
{
	switch (o->kind) {
	case OBJECT_MAP:
		map_object_release(l, o);
		break;
	case OBJECT_PROG:
		prog_object_release(l, o);
		break;
	case OBJECT_BTF:
		btf_object_release(l, o);
		break;
	default:
		link_object_release(l, o);
	}
	close(o->fd);
	free(o);
}

/* How many descriptors of this process are the object's, our own not counted. */
struct census {
	struct object *o;
	uint32_t n;
};

static bool object_is_idle(const struct object *o)
{
	return !o->refs && !o->keep;
}

/* Counts descriptors of idle objects. False when /proc does not tell. */
static bool object_count(struct loader *l, struct census *list, size_t n)
{
	DIR *dir = opendir("/proc/self/fd");
	if (!dir)
		return false;
	for (struct dirent *e; (e = readdir(dir));) {
		struct stat st;
		int fd = atoi(e->d_name);
		if (e->d_name[0] == '.' || fd == dirfd(dir) || fstat(fd, &st))
			continue;
		for (size_t i = 0; i < n; i++)
			list[i].n += list[i].o->dev == st.st_dev && list[i].o->ino == st.st_ino &&
				     list[i].o->fd != fd;
	}
	closedir(dir);
	return true;
}

/* An object may be held by a descriptor that another thread is moving while we count (dup3, then
 * close), so only what is missed twice is gone. map_open holds a descriptor of a map's file too. */
static bool object_sweep_once(struct loader *l)
{
	size_t n = 0, gone = 0;
	for (struct object *o = l->objects; o; o = o->next)
		n += object_is_idle(o);
	struct census *list = n ? calloc(n, sizeof(*list)) : NULL;
	if (!list)
		return false;
	n = 0;
	for (struct object *o = l->objects; o; o = o->next)
		if (object_is_idle(o))
			list[n++].o = o;
	bool counted = object_count(l, list, n) && object_count(l, list, n);
	for (size_t i = 0; i < n && counted; i++) {
		struct object *o = list[i].o, **at = &l->objects;
		if (list[i].n > 2u * (o->kind == OBJECT_MAP && o->map.map))
			continue;
		while (*at != o)
			at = &(*at)->next;
		*at = o->next;
		object_free(l, o);
		gone++;
	}
	free(list);
	return gone > 0;
}

void object_sweep(struct loader *l)
{
	/* A link that goes may have been the last to hold its program, and so on. */
	while (object_sweep_once(l))
		;
}

void object_free_all(struct loader *l)
{
	/* Links before programs before maps and BTF. */
	static const enum object_kind order[] = { OBJECT_LINK, OBJECT_PROG, OBJECT_MAP,
		OBJECT_BTF };
	for (int k = 0; k < 4; k++)
		for (struct object **at = &l->objects; *at;) {
			struct object *o = *at;
			if (o->kind != order[k]) {
				at = &o->next;
				continue;
			}
			*at = o->next;
			object_free(l, o);
		}
}

int object_name(const char given[16], char out[16])
{
	memcpy(out, given, 16);
	if (out[15])
		return -EINVAL;
	for (const char *p = out; *p; p++)
		if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
			    (*p >= '0' && *p <= '9') || *p == '_' || *p == '.'))
			return -EINVAL;
	return 0;
}
