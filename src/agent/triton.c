/* triton.c - PTX in the caches of Triton and of PyTorch's Inductor, which uses Triton.
 *
 * A cache has CACHE/HASH/NAME.ptx, with NAME.cubin beside it, which was loaded. It keeps what was ever compiled: other versions of a
 * kernel, for other shapes and devices. Machine code for another architecture, or of another number of registers than the loaded
 * kernel's, is not what was loaded; if several different texts are left, texts.c compares more.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "map/file.h"

enum { MAX_FILE = 1 << 26, MAX_TEXT = 1 << 24, MAX_VALUE = 2048 };
#define DISK_NS 300000000ull /* a home directory may lie far away, and memory remains */

/* -- the process's environment ---------------------------------------------------------------- */

/* Programs change it as they go (os.environ), and nothing keeps them from doing so now: getenv(3) might follow what is freed. */
static bool environment(const char *name, char value[MAX_VALUE])
{
	size_t n = strlen(name);
	uintptr_t at = (uintptr_t)environ, entry;
	char text[MAX_VALUE];
	for (int i = 0; i < 65536 && memory_read(at, &entry, sizeof(entry)) == sizeof(entry) && entry; i++, at += sizeof(entry)) {
		size_t got = memory_read(entry, text, n + 1);
		if (got < n + 1 || memcmp(text, name, n) || text[n] != '=')
			continue;
		/* To the end of the page at first: the next one may not be there. */
		got = memory_read(entry, text, MAX_VALUE);
		if (!memchr(text, 0, got))
			return false;
		strcpy(value, text + n + 1);
		return *value != 0;
	}
	return false;
}

/* -- one candidate ---------------------------------------------------------------------------- */

struct search {
	const struct source_query *q;
	int regs, arch; /* of what was loaded; 0: not known */
	uint64_t until;
	char path[PATH_MAX]; /* of the first text */
	struct texts texts;
	bool cut; /* there was no time for all that there is */
};

static char *slurp(const char *path, size_t most, size_t *bytes)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	*bytes = 0;
	if (fd >= 0 && !file_stat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size <= most)
		text = malloc((size_t)st.st_size + 1);
	while (text && *bytes < (size_t)st.st_size) {
		ssize_t n = read(fd, text + *bytes, (size_t)st.st_size - *bytes);
		if (n <= 0)
			break;
		*bytes += (size_t)n;
	}
	if (text)
		text[*bytes] = 0;
	if (fd >= 0)
		close(fd);
	return text;
}

/* Whether the machine code beside the text may be what was loaded. */
static bool may_be_loaded(const struct search *s, const struct text *t)
{
	uint32_t regs = t->elf ? cubin_kernel_regs(t->elf, t->elf_bytes, s->q->name) : 0, arch = t->elf ? cubin_sm(t->elf, t->elf_bytes) : 0;
	return !(regs && s->regs && regs != (uint32_t)s->regs) && !(arch && s->arch && arch != (uint32_t)s->arch);
}

static void take(struct search *s, const char *ptx, const char *cubin)
{
	struct text t = { .n = 0 };
	if (access(ptx, R_OK))
		return;
	t.elf = slurp(cubin, MAX_FILE, &t.elf_bytes);
	t.bytes = may_be_loaded(s, &t) ? slurp(ptx, MAX_TEXT, &t.n) : NULL;
	if (!t.bytes) {
		free(t.elf);
		return;
	}
	if (!s->texts.n)
		strcpy(s->path, ptx);
	texts_add(&s->texts, &t);
}

/* -- where they lie ---------------------------------------------------------------------------- */

static void look_in(struct search *s, const char *cache)
{
	char ptx[PATH_MAX], cubin[PATH_MAX];
	DIR *list = opendir(cache);
	for (struct dirent *e; list && !s->cut && s->texts.n < MAX_TEXTS && (e = readdir(list));) {
		s->cut = now_ns() >= s->until;
		if (s->cut || e->d_name[0] == '.' ||
			snprintf(ptx, sizeof(ptx), "%s/%s/%s.ptx", cache, e->d_name, s->q->name) >= (int)sizeof(ptx) ||
			snprintf(cubin, sizeof(cubin), "%s/%s/%s.cubin", cache, e->d_name, s->q->name) >= (int)sizeof(cubin))
			continue;
		take(s, ptx, cubin);
	}
	if (list)
		closedir(list);
}

/* Inductor has one cache for each device: INDUCTOR/triton/N. */
static void look_in_inductor(struct search *s, const char *inductor)
{
	char triton[PATH_MAX], cache[PATH_MAX];
	if (snprintf(triton, sizeof(triton), "%s/triton", inductor) >= (int)sizeof(triton))
		return;
	DIR *list = opendir(triton);
	for (struct dirent *e; list && (e = readdir(list));)
		if (e->d_name[0] != '.' &&
			snprintf(cache, sizeof(cache), "%s/%s", triton, e->d_name) < (int)sizeof(cache))
			look_in(s, cache);
	if (list)
		closedir(list);
}

/* TMPDIR/torchinductor_USER, of whatever name the user goes by. */
static void look_in_temporary(struct search *s)
{
	char tmp[MAX_VALUE], path[PATH_MAX];
	struct stat st;
	if (!environment("TMPDIR", tmp))
		strcpy(tmp, "/tmp");
	DIR *list = opendir(tmp);
	for (struct dirent *e; list && (e = readdir(list));)
		if (!strncmp(e->d_name, "torchinductor_", 14) &&
			snprintf(path, sizeof(path), "%s/%s", tmp, e->d_name) < (int)sizeof(path) && !file_stat_at(AT_FDCWD, path, &st) &&
			st.st_uid == geteuid())
			look_in_inductor(s, path);
	if (list)
		closedir(list);
}

static void look_everywhere(struct search *s)
{
	char value[MAX_VALUE], path[MAX_VALUE + 32];
	if (environment("TRITON_CACHE_DIR", value)) {
		look_in(s, value);
	} else if (environment("TRITON_HOME", value) || environment("HOME", value)) {
		snprintf(path, sizeof(path), "%s/.triton/cache", value);
		look_in(s, path);
	}
	if (environment("TORCHINDUCTOR_CACHE_DIR", value))
		look_in_inductor(s, value);
	else
		look_in_temporary(s);
}

static int attribute(CUfunction fn, CUfunction_attribute which)
{
	int v = 0;
	return fn && REAL(cuFuncGetAttribute) && REAL(cuFuncGetAttribute)(&v, which, fn) == CUDA_SUCCESS ? v : 0;
}

int triton_find(struct source_query *q, uint64_t until_ns, struct image **out, const char **why)
{
	struct search s = { .q = q,
		.regs = attribute(q->loaded, CU_FUNC_ATTRIBUTE_NUM_REGS),
		.arch = attribute(q->loaded, CU_FUNC_ATTRIBUTE_BINARY_VERSION),
		.until = now_ns() + DISK_NS };
	const char *unclear = NULL;
	int err = 0;
	*out = NULL;
	if (strchr(q->name, '/'))
		return 0;
	look_everywhere(&s);
	if (s.cut || s.texts.n == MAX_TEXTS) /* what has not been looked at may be another version */
		*why = "Triton's cache is too large, or too far away, to be looked through";
	else
		err = texts_image(&s.texts, q, until_ns, out, &unclear);
	if (unclear)
		*why = "Triton's cache has several kernels of this name, and nothing tells which of them was loaded";
	if (*out)
		agent_log("%s: from %s%s", q->name, s.path, s.texts.n > 1 ? ", or another there" : "");
	texts_free(&s.texts);
	return err;
}
