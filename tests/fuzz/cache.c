/* cache.c - fuzz target: an entry of the agent's cache that somebody else has written over. What is no whole entry is taken for
 * none and goes away; what is one, with a right sum, gives a build whose every field can be looked at, or none.
 *
 * A good entry is made once, of a kernel with symbols, functions and lines. Input: u8 what is done to it, then changes: u16 where,
 * u8 how many bytes, the bytes. Bit 0 of the first: the file is changed, else the value, with a sum that is right again; bit 1: it
 * ends behind the last change; bit 2: it has the rest of the input behind it; bits 3 to 5: what stands there instead of a file. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "map/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -- what cache.c wants of the rest of the agent -- */

struct agent agent = { .log_fd = -1 };

void agent_log(const char *fmt, ...)
{
	(void)fmt;
}

int thread_id(void)
{
	return 1;
}

static CUresult driver_version(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

const struct real *real_calls(void)
{
	static struct real real;
	real.cuDriverGetVersion = driver_version;
	return &real;
}

/* The driver lies in some file. */
void memory_each(void (*fn)(const struct mapping *m, void *arg), void *arg)
{
	uintptr_t at = (uintptr_t)driver_version;
	fn(&(struct mapping){ at, at + 1, false, true, "/bin/sh\n" }, arg);
}

/* -- the good entry -- */

static const char original[] =
	".version 7.8\n.target sm_80\n.address_size 64\n.file 1 \"a/b.cu\"\n"
	".global .align 4 .u32 bias = 5;\n.func put(.param .b64 p)\n{\n\t.reg .b32 %r<2>; .reg .b64 %rd<2>;\n\t.loc 1 3 5\n"
	"\tld.param.u64 %rd1, [p];\n\tst.global.u32 [%rd1], %r1;\n\tst.global.v2.u32 [%rd1], {%r1, %r1};\n\tret;\n}\n"
	".visible .entry k(.param .u64 out)\n{\n\t.reg .b32 %r<3>; .reg .b64 %rd<2>;\n\t.loc 1 9 1\n"
	"\tld.param.u64 %rd1, [out];\n\tld.global.u32 %r2, [bias];\n\tst.global.u32 [%rd1], %r2;\n"
	"\t{ .param .b64 a; st.param.b64 [a], %rd1;\n\t  call put, (a); }\n\tret;\n}\n";

static char dir[64];
static struct buf value; /* of the good entry */
static const struct cache_key key = { CACHE_VARIANT, "a key", 5, 80, 0 };

static void make_value(void)
{
	struct arena *a = arena_new();
	struct ptx_module *m;
	struct ebpf_fragment store = { .name = "p", .point = EBPF_POINT_STORE, .fields = UINT64_C(1) << EBPF_FIELD_LAUNCH,
		.max_insns = 1, .body = "{\n}\n" };
	const struct ebpf_fragment *list[] = { &store };
	struct instrument_request request = { .module = NULL, .kernel = "k", .fragments = list, .n_fragments = 1 };
	struct instrument_result r;
	if (ptx_parse(original, strlen(original), &m, NULL))
		abort();
	request.module = m;
	if (instrument_kernel(a, &request, &r, NULL) || !r.n_symbols || r.n_sites < 5)
		abort();
	r.sites[1].skipped = r.sites[2].skipped = "a reason";
	instrument_store(&r, &value);
	buf_puts(&value, "machine code");
	ptx_module_free(m);
	arena_free(a);
}

static void remove_dir(void)
{
	char command[96];
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command))
		abort();
}

static void begin(void)
{
	snprintf(dir, sizeof(dir), "/tmp/egpu-fuzz-cache-XXXXXX");
	if (!mkdtemp(dir) || setenv("EGPU_CACHE", dir, 1))
		abort();
	atexit(remove_dir);
	make_value();
}

/* The only entry's path. */
static void entry_path(char path[160])
{
	static char name[32];
	if (!name[0]) {
		FILE *f;
		char command[96];
		snprintf(command, sizeof(command), "ls %s", dir);
		f = popen(command, "r");
		if (!f || fscanf(f, "%31s", name) != 1)
			abort();
		pclose(f);
	}
	snprintf(path, 160, "%s/%s", dir, name);
}

/* -- damage -- */

struct input {
	const uint8_t *at, *end;
};

/* The changes in `bytes`, whose length may become smaller; what is left of the input goes behind it. */
static void change(struct buf *bytes, struct input *in, uint8_t how)
{
	size_t last = bytes->len;
	while (in->end - in->at > 3) {
		size_t where = ((size_t)in->at[0] | (size_t)in->at[1] << 8) % bytes->len, n = in->at[2] % 16;
		in->at += 3;
		if (n > (size_t)(in->end - in->at))
			n = (size_t)(in->end - in->at);
		if (n > bytes->len - where)
			n = bytes->len - where;
		memcpy(bytes->data + where, in->at, n);
		in->at += n;
		last = where + n;
		if (!n)
			break;
	}
	if (how & 2)
		bytes->len = last;
	if (how & 4)
		buf_add(bytes, in->at, (size_t)(in->end - in->at));
}

static void read_file(const char *path, struct buf *out)
{
	struct stat st;
	char *text;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || file_stat(fd, &st) || !(text = malloc((size_t)st.st_size)) || file_read_at(fd, text, (size_t)st.st_size, 0))
		abort();
	buf_add(out, text, (size_t)st.st_size);
	free(text);
	close(fd);
}

static void change_file(const char *path, struct input *in, uint8_t how)
{
	struct buf bytes = { 0 };
	read_file(path, &bytes);
	change(&bytes, in, how);
	int fd = open(path, O_WRONLY | O_TRUNC);
	if (fd < 0 || file_write_at(fd, bytes.data, bytes.len, 0))
		abort();
	close(fd);
	buf_free(&bytes);
}

/* What is no file of ours; its size may be any. */
static void replace(const char *path, uint8_t how)
{
	char aside[180];
	int kind = how >> 3 & 7, err = 0;
	snprintf(aside, sizeof(aside), "%s.aside", path);
	if (kind == 1)
		err = unlink(path) || mkfifo(path, 0600);
	else if (kind == 2)
		err = rename(path, aside) || symlink(aside, path);
	else if (kind == 3)
		err = unlink(path) || mkdir(path, 0700);
	else if (kind == 4)
		err = chmod(path, 0666);
	else if (kind == 5)
		err = truncate(path, (off_t)1 << 40);
	else if (kind == 6)
		err = chmod(path, 0200);
	if (err && kind != 5)
		abort();
}

static void clear(const char *path)
{
	char aside[180];
	snprintf(aside, sizeof(aside), "%s.aside", path);
	unlink(aside);
	if (unlink(path))
		rmdir(path);
}

/* -- use: what build.c and rows.c look at -- */

static void take_bank(const char *kernel, uint64_t bytes, void *arg)
{
	*(uint64_t *)arg += strlen(kernel) + bytes;
}

static size_t length(const char *s)
{
	return s ? strlen(s) : 0;
}

static void use(const char *bytes, size_t n)
{
	struct arena *a = arena_new();
	struct instrument_result r;
	struct instrument_estimate e;
	size_t used, letters = 0;
	uint64_t banks = 0;
	if (!a || instrument_restore(a, bytes, n, &r, &used)) {
		arena_free(a);
		return;
	}
	if (used > n || r.table_entries != EBPF_TABLE_SYMBOLS + r.n_symbols)
		abort();
	for (uint32_t i = 0; i < r.n_symbols; i++)
		letters += strlen(r.symbols[i]);
	for (uint32_t i = 0; i < r.n_sites; i++) {
		const struct instrument_site *s = &r.sites[i];
		letters += length(s->file) + length(s->opcode) + length(s->function) + length(s->skipped) + length(s->unguarded);
		if (s->ordinal != i || s->point > EBPF_POINT_LOAD_DONE)
			abort();
	}
	instrument_estimate(&r.cost, &e);
	if (!(e.least >= 1 && e.slowdown >= 1 && e.most >= 1) || isinf(e.most))
		abort();
	cubin_banks(bytes + used, n - used, take_bank, &banks);
	if (letters > n * r.n_sites + n)
		abort();
	arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data + 1, data + size };
	struct buf changed = { 0 };
	char path[160], *got;
	size_t n;
	if (!size)
		return 0;
	if (!value.len)
		begin();
	bool by_file = data[0] & 1;
	buf_add(&changed, value.data, value.len);
	if (!by_file)
		change(&changed, &in, data[0]);
	cache_put(&key, changed.data, changed.len);
	entry_path(path);
	if (by_file)
		change_file(path, &in, data[0]);
	replace(path, data[0]);
	if (!cache_get(&key, &got, &n)) {
		/* Whatever was done to the file, it is what was put. */
		if (n != changed.len || memcmp(got, changed.data, n) || got[n])
			abort();
		use(got, n);
		free(got);
	}
	clear(path);
	buf_free(&changed);
	return 0;
}
