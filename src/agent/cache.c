/* cache.c - what took long to make, on disk: the second attach parses, instruments and compiles nothing.
 *
 * One file an entry, named by a hash of its key. The hash only finds the file: the entry holds the
 * whole key, which is compared byte for byte, so no two inputs can be taken for one another. What an
 * entry holds beside it has a checksum, against what a crash or a full disk leaves.
 *
 *	struct entry | key text | key data | value
 *
 * A program's PTX is an entry like others, its value a random number that stands for this text in the
 * keys of the variants made of it (cache_text): so it is stored once, not with each of its kernels.
 *
 * The directory is $EGPU_CACHE, else $XDG_CACHE_HOME/egpu, else $HOME/.cache/egpu. It is used only
 * when it is ours alone (owner, mode 0700); every file in it is opened relative to it, without
 * following links, and must be ours, a plain file and of the size its head tells. Whatever is wrong
 * means that we compile, and takes the entry away. Entries appear whole, under a name that nothing
 * has: of several writers the first wins. The least recently used go when the sum of sizes passes
 * the limit. Runs under agent.build.
 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "map/file.h"

enum {
	FILE_BYTES = PATH_MAX + 64,
	SELF_BYTES = 128,
	KEY_BYTES = FILE_BYTES + SELF_BYTES + 256,
	CHUNK_BYTES = 64 << 10,
	NAME_BYTES = 64,
	DEFAULT_MB = 256,
	STALE_SECONDS = 3600, /* a writer that has not finished by then is dead */
	PRUNE_TO = 4,         /* a quarter of the limit is made free at once */
};

#define NOTE_PAD(n) (((size_t)(n) + 3) & ~(size_t)3)
static const uint64_t MAX_ENTRY = 256u << 20;
#define ENTRY_MAGIC 0x3250434a55504765u /* "eGPUJCP2" */

struct entry {
	uint64_t magic, key_bytes, data_bytes, value_bytes;
	uint64_t sum; /* of the above and the value; the key is compared with what it must be */
};

/* -- where --------------------------------------------------------------------- */

static bool is_off(const char *value)
{
	return !*value || !strcmp(value, "off") || !strcmp(value, "0");
}

/* Makes the last part of a path; what is above it must be there. */
static void make_dir(const char *path)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		agent_log("no cache directory %s: %s", path, strerror(errno));
}

static bool dir_path(char path[PATH_MAX])
{
	const char *own = getenv("EGPU_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
		   *home = getenv("HOME");
	if (own) {
		if (is_off(own) || own[0] != '/' || strlen(own) >= PATH_MAX)
			return false;
		strcpy(path, own);
		make_dir(path);
		return true;
	}
	bool by_xdg = xdg && xdg[0] == '/';
	if (!by_xdg && (!home || home[0] != '/'))
		return false;
	int n = by_xdg ? snprintf(path, PATH_MAX, "%s", xdg)
		       : snprintf(path, PATH_MAX, "%s/.cache", home);
	if (n >= PATH_MAX - 8)
		return false;
	make_dir(path);
	strcpy(path + n, "/egpu");
	make_dir(path);
	return true;
}

/* The directory, or -1. Opened anew each time: a descriptor kept in a target would not survive a
 * program that closes all it does not know. */
static int dir_open(void)
{
	char path[PATH_MAX];
	struct stat st;
	int fd = dir_path(path) ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	if (fd < 0)
		return -1;
	if (!file_stat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077))
		return fd;
	agent_log("cache %s is not used: it must belong to this user, with mode 0700", path);
	close(fd);
	return -1;
}

/* -- what ---------------------------------------------------------------------- */

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* What the linker made of all that is in us, from our own memory: the file may be another one by now, and two files may agree in size
 * and time. False: it did not. */
static bool describe_self(char text[SELF_BYTES])
{
	const char *base = (const char *)&__ehdr_start;
	const ElfW(Phdr) *p = (const void *)(base + __ehdr_start.e_phoff), *end = p + __ehdr_start.e_phnum;
	for (; p < end; p++) {
		const char *at = base + p->p_offset, *to = at + p->p_filesz;
		while (p->p_type == PT_NOTE && to - at >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
			const ElfW(Nhdr) *n = (const void *)at;
			const unsigned char *id = (const unsigned char *)(n + 1) + NOTE_PAD(n->n_namesz);
			if (n->n_type == NT_GNU_BUILD_ID && n->n_descsz && n->n_descsz < SELF_BYTES / 2) {
				for (uint32_t i = 0; i < n->n_descsz; i++)
					snprintf(text + 2 * i, 3, "%02x", id[i]);
				return true;
			}
			at = (const char *)id + NOTE_PAD(n->n_descsz);
		}
	}
	return false;
}

struct lookup {
	uintptr_t at;
	char *path;
};

static void take_path(const struct mapping *m, void *arg)
{
	struct lookup *l = arg;
	if (l->at >= m->from && l->at < m->to && m->path[0] == '/' && strlen(m->path) < PATH_MAX)
		strcpy(l->path, m->path);
}

/* The file that something lies in, as it is now. dladdr(3) would wait for whoever loads a library, who may wait for us. False: it cannot
 * be found. */
static bool describe_file(void *inside, char text[FILE_BYTES])
{
	char file[PATH_MAX] = "";
	struct stat st = { 0 };
	memory_each(take_path, &(struct lookup){ (uintptr_t)inside, file });
	file[strcspn(file, "\n")] = 0;
	if (!file[0] || file_stat_at(AT_FDCWD, file, &st))
		return false;
	int n = snprintf(text, FILE_BYTES, "%s %lld %lld.%09ld", file, (long long)st.st_size,
		(long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	return n > 0 && n < FILE_BYTES;
}

/* Who makes entries: this agent and the driver, as they were when the process first asked. Empty: unknown. */
static const char *makers(void)
{
	static char text[KEY_BYTES - 64];
	static bool asked;
	char self[SELF_BYTES], driver[FILE_BYTES];
	int version = 0;
	if (asked)
		return text;
	asked = true;
	if (!real_calls()->cuDriverGetVersion ||
		!describe_file(*(void **)&real_calls()->cuDriverGetVersion, driver) || !describe_self(self))
		return text;
	REAL(cuDriverGetVersion)(&version);
	snprintf(text, sizeof(text), "egpu %s cuda %d driver %s", self, version, driver);
	return text;
}

/* What decides the value beside the key's data. 0: it cannot be told. */
static size_t key_text(const struct cache_key *k, char text[KEY_BYTES])
{
	static const char *const names[] = { "text", "compiled", "variant" };
	const char *by = k->kind == CACHE_TEXT ? "-" : makers();
	int n = snprintf(text, KEY_BYTES, "%s sm_%u maxreg %u %s", names[k->kind], k->cc, k->max_regs, by);
	return *by && n > 0 && n < KEY_BYTES ? (size_t)n : 0;
}

static void entry_name(const struct cache_key *k, const char *text, size_t text_bytes, char *name)
{
	uint64_t h = hash_bytes(k->data, k->bytes, hash_bytes(text, text_bytes, 0));
	snprintf(name, NAME_BYTES, "%016llx.jit", (unsigned long long)h);
}

static uint64_t entry_sum(const struct entry *e, const void *value)
{
	return hash_bytes(value, e->value_bytes, hash_bytes(e, offsetof(struct entry, sum), 0));
}

/* -- reading -------------------------------------------------------------------- */

static bool is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & 022);
}

static bool holds(int fd, const char *want, size_t n, uint64_t at)
{
	size_t step = n < CHUNK_BYTES ? n : CHUNK_BYTES, done = 0;
	char *chunk = malloc(step + 1);
	bool same = chunk;
	for (; same && done < n; done += step) {
		step = n - done < step ? n - done : step;
		same = !file_read_at(fd, chunk, step, at + done) && !memcmp(chunk, want + done, step);
	}
	free(chunk);
	return same;
}

/* The value with a NUL behind it, or NULL. */
static char *read_entry(
	int fd, const struct cache_key *k, const char *text, size_t text_bytes, size_t *value_bytes)
{
	struct entry e;
	struct stat st;
	if (file_stat(fd, &st) || !is_ours(&st) || file_read_at(fd, &e, sizeof(e), 0))
		return NULL;
	if (e.magic != ENTRY_MAGIC || e.key_bytes != text_bytes || e.data_bytes != k->bytes ||
		!e.value_bytes || e.value_bytes > MAX_ENTRY ||
		(uint64_t)st.st_size != sizeof(e) + e.key_bytes + e.data_bytes + e.value_bytes)
		return NULL;
	char *value = malloc(e.value_bytes + 1);
	bool good = value && holds(fd, text, text_bytes, sizeof(e)) &&
		    holds(fd, k->data, k->bytes, sizeof(e) + text_bytes) &&
		    !file_read_at(fd, value, e.value_bytes, sizeof(e) + text_bytes + k->bytes) &&
		    entry_sum(&e, value) == e.sum;
	if (!good) {
		free(value);
		return NULL;
	}
	value[e.value_bytes] = 0;
	*value_bytes = e.value_bytes;
	return value;
}

int cache_get(const struct cache_key *k, char **value, size_t *value_bytes)
{
	char text[KEY_BYTES], name[NAME_BYTES];
	size_t text_bytes = key_text(k, text);
	int dir = text_bytes ? dir_open() : -1;
	if (dir < 0)
		return -ENOENT;
	entry_name(k, text, text_bytes, name);
	/* Without O_NONBLOCK a FIFO in its place would hold the target up. */
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool in_the_way = fd >= 0 || errno == ELOOP;
	*value = fd < 0 ? NULL : read_entry(fd, k, text, text_bytes, value_bytes);
	if (*value)
		futimens(fd, NULL); /* used now */
	else if (in_the_way)
		unlinkat(dir, name, 0);
	if (fd >= 0)
		close(fd);
	close(dir);
	return *value ? 0 : -ENOENT;
}

int cache_text(const char *text, size_t bytes, uint64_t id[2])
{
	struct cache_key key = { .kind = CACHE_TEXT, .data = text, .bytes = bytes };
	char *value;
	size_t n;
	/* What is stored is looked for: another process may have stored its own meanwhile. */
	for (int i = 0; i < 2; i++) {
		if (!cache_get(&key, &value, &n)) {
			bool good = n == 2 * sizeof(*id);
			if (good)
				memcpy(id, value, n);
			free(value);
			return good ? 0 : -ENOENT;
		}
		if (i || getrandom(id, 2 * sizeof(*id), GRND_NONBLOCK) != 2 * sizeof(*id))
			break;
		cache_put(&key, id, 2 * sizeof(*id));
	}
	return -ENOENT;
}

/* -- room ------------------------------------------------------------------------ */

static uint64_t limit_bytes(void)
{
	const char *mb = getenv("EGPU_CACHE_MB");
	char *end;
	unsigned long n = mb && *mb ? strtoul(mb, &end, 10) : DEFAULT_MB;
	if (mb && *mb && (*end || n > 1 << 20))
		n = DEFAULT_MB;
	return (uint64_t)n << 20;
}

struct old {
	struct timespec used;
	uint64_t bytes;
	char name[NAME_BYTES];
};

static int by_age(const void *a, const void *b)
{
	const struct old *x = a, *y = b;
	if (x->used.tv_sec != y->used.tv_sec)
		return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
	return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

/* Only what is named as we name files is ours to remove: the user may have named a directory that holds other things. */
static bool is_entry(const char *name)
{
	return strspn(name, "0123456789abcdef") == 16 && !strcmp(name + 16, ".jit");
}

static bool is_temporary(const char *name)
{
	int pid, tid, end = 0;
	unsigned int serial;
	return strlen(name) < NAME_BYTES && sscanf(name, "new-%d-%d-%u%n", &pid, &tid, &serial, &end) == 3 && !name[end];
}

/* Entries of the directory, and their sum; what dead writers left is removed. */
static struct old *list_entries(int dir, size_t *n, uint64_t *sum)
{
	struct old *all = NULL;
	size_t cap = 0;
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	*n = 0;
	*sum = 0;
	if (!list && fd >= 0)
		close(fd);
	for (struct dirent *d; list && (d = readdir(list));) {
		struct stat st;
		bool temporary = is_temporary(d->d_name);
		if ((!temporary && !is_entry(d->d_name)) ||
			file_stat_at(dir, d->d_name, &st))
			continue;
		if (temporary) {
			if (st.st_mtim.tv_sec + STALE_SECONDS < time(NULL))
				unlinkat(dir, d->d_name, 0);
			continue;
		}
		if (*n == cap) {
			struct old *more = realloc(all, (cap = cap ? cap * 2 : 64) * sizeof(*all));
			if (!more)
				break;
			all = more;
		}
		all[*n] = (struct old){ .used = st.st_mtim, .bytes = (uint64_t)st.st_size };
		strcpy(all[*n].name, d->d_name);
		*sum += all[(*n)++].bytes;
	}
	if (list)
		closedir(list);
	return all;
}

/* Another process may do the same at the same time: then more goes than had to. */
static void make_room(int dir, uint64_t limit)
{
	size_t n;
	uint64_t sum;
	struct old *all = list_entries(dir, &n, &sum);
	if (sum > limit) {
		qsort(all, n, sizeof(*all), by_age);
		for (size_t i = 0; i < n && sum > limit - limit / PRUNE_TO; i++) {
			unlinkat(dir, all[i].name, 0);
			sum -= all[i].bytes;
		}
	}
	free(all);
}

/* -- writing --------------------------------------------------------------------- */

/* The file gets its name, unless another has it: that one is as good. Some file systems have no links. */
static bool give_name(int dir, const char *temporary, const char *name)
{
	if (!linkat(dir, temporary, dir, name, 0)) {
		unlinkat(dir, temporary, 0);
		return true;
	}
	if (errno != EEXIST && !renameat(dir, temporary, dir, name))
		return true;
	unlinkat(dir, temporary, 0);
	return false;
}

static bool write_entry(int dir, const char *name, const struct entry *e, const char *text,
	const void *data, const void *value)
{
	static atomic_uint serial;
	char temporary[NAME_BYTES];
	snprintf(temporary, sizeof(temporary), "new-%d-%d-%u", (int)getpid(), thread_id(),
		atomic_fetch_add(&serial, 1));
	int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return false;
	uint64_t at = sizeof(*e);
	bool good = !file_write_at(fd, e, at, 0) && !file_write_at(fd, text, e->key_bytes, at) &&
		    !file_write_at(fd, data, e->data_bytes, at += e->key_bytes) &&
		    !file_write_at(fd, value, e->value_bytes, at + e->data_bytes);
	if (close(fd) || !good) {
		unlinkat(dir, temporary, 0);
		return false;
	}
	return give_name(dir, temporary, name);
}

void cache_put(const struct cache_key *k, const void *value, size_t value_bytes)
{
	char text[KEY_BYTES], name[NAME_BYTES];
	size_t text_bytes = key_text(k, text);
	uint64_t limit = limit_bytes(), total = sizeof(struct entry) + text_bytes + k->bytes + value_bytes;
	int dir = text_bytes && total <= limit && total <= MAX_ENTRY ? dir_open() : -1;
	if (dir < 0)
		return;
	struct entry e = { .magic = ENTRY_MAGIC,
		.key_bytes = text_bytes,
		.data_bytes = k->bytes,
		.value_bytes = value_bytes };
	e.sum = entry_sum(&e, value);
	entry_name(k, text, text_bytes, name);
	if (write_entry(dir, name, &e, text, k->data, value)) {
		/* Listing costs as much as a few entries: not after each. */
		agent.cache_written += total;
		if (!agent.cache_pruned || agent.cache_written > limit / 16) {
			agent.cache_pruned = true;
			agent.cache_written = 0;
			make_room(dir, limit);
		}
	}
	close(dir);
}
