/* diff.c - runs every case on a CUDA driver, and records the results or compares them.
 *
 *   diff [--driver LIB] [--family F] [--full] --record FILE    writes the results
 *   diff [--driver LIB] [--family F] --check FILE              compares; TAP, one line a family
 *   diff --list | --ptx FROM TO                                the cases; their PTX
 *
 * LIB is libcuda.so.1 unless given. A record is a zstd frame of: "egpu-diff 1\n", then for each
 * case its name and signature (NUL-terminated), 8 bytes of hash over the inputs, a byte of mode,
 * and mode 0  a byte of hash for every four threads' results (bit-exact cases) mode 1  the results
 * themselves, each result of all threads in turn, in its own width
 * --full writes mode 1 throughout, for whoever has to find out why a value differs.
 */
#include "diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "device.h"

#define CHUNK 64 /* cases of a module */
#define GROUP 4  /* threads of one check byte */

struct results {
	uint32_t n;
	uint64_t v[DIFF_SLOTS][DIFF_N];
};

/* What is left of a file, or what has been put into one. */
struct bytes {
	uint8_t *data;
	size_t len, cap, at;
};

static void put(struct bytes *b, const void *p, size_t n)
{
	if (b->len + n > b->cap) {
		b->cap = (b->len + n) * 2;
		b->data = realloc(b->data, b->cap);
		if (!b->data)
			abort();
	}
	memcpy(b->data + b->len, p, n);
	b->len += n;
}

static const void *get(struct bytes *b, size_t n)
{
	if (n > b->len - b->at)
		return NULL;
	b->at += n;
	return b->data + b->at - n;
}

static const char *get_string(struct bytes *b)
{
	const void *end = memchr(b->data + b->at, 0, b->len - b->at);
	return end ? get(b, (size_t)((const uint8_t *)end - b->data) - b->at + 1) : NULL;
}

/* -- running ------------------------------------------------------------------ */

struct runner {
	const char *library;
	struct device *dev;
	uint64_t in, out, scratch;
};

static bool runner_start(struct runner *r)
{
	const char *why;
	r->dev = device_open(r->library, &why);
	if (!r->dev) {
		fprintf(stderr, "# %s: %s\n", r->library, why);
		return false;
	}
	r->in = device_alloc(r->dev, sizeof(uint64_t) * DIFF_SLOTS * DIFF_N);
	r->out = device_alloc(r->dev, sizeof(uint64_t) * DIFF_SLOTS * DIFF_N);
	r->scratch = device_alloc(r->dev, 64 * DIFF_N);
	return r->in && r->out && r->scratch;
}

static uint32_t n_results(const struct diff_case *c)
{
	return (uint32_t)(strchr(c->results, ':') - c->results);
}

static uint64_t inputs(const struct diff_case *c, uint64_t (*in)[DIFF_N])
{
	uint32_t n = (uint32_t)strlen(c->operands);
	for (uint32_t k = 0; k < n; k++)
		diff_inputs(c, k, in[k]);
	return diff_hash(in, n * sizeof(*in), 1);
}

/* One case; false: the driver refused or failed. */
static bool run_case(struct runner *r, struct device_module *m, const struct diff_case *c,
	uint32_t index, uint64_t (*in)[DIFF_N], struct results *res)
{
	const uint32_t grid[3] = { DIFF_N / DIFF_BLOCK, 1, 1 }, block[3] = { DIFF_BLOCK, 1, 1 };
	uint64_t args[3] = { r->in, r->out, r->scratch };
	char name[16];
	snprintf(name, sizeof(name), "k%u", index);
	res->n = n_results(c);
	memset(res->v, 0, sizeof(res->v));
	size_t n_in = strlen(c->operands);
	return (!n_in || device_write(r->dev, r->in, in, n_in * sizeof(*in))) &&
	       device_write(r->dev, r->out, res->v, res->n * sizeof(res->v[0])) &&
	       device_launch(r->dev, m, name, grid, block, args, 3) && device_wait(r->dev) &&
	       device_read(r->dev, res->v, r->out, res->n * sizeof(res->v[0]));
}

typedef void (*visit)(void *arg, const struct diff_case *c, uint64_t (*in)[DIFF_N],
	uint64_t in_hash, const struct results *res);

static bool run_chunk(struct runner *r, const struct diff_list *l, uint32_t from, uint32_t to,
	visit fn, void *arg)
{
	static uint64_t in[DIFF_SLOTS][DIFF_N];
	static struct results res;
	char *ptx = diff_ptx(l, from, to);
	struct device_module *m = ptx ? device_load(r->dev, ptx) : NULL;
	if (!m)
		fprintf(stderr, "# the module with '%s' does not load\n", l->cases[from].name);
	for (uint32_t i = from; i < to; i++) {
		const struct diff_case *c = &l->cases[i];
		uint64_t hash = inputs(c, in);
		bool ok = m && run_case(r, m, c, i - from, in, &res);
		fn(arg, c, in, hash, ok ? &res : NULL);
		if (ok || !m)
			continue;
		/* After a failed launch only a new context goes on. */
		device_unload(r->dev, m);
		device_close(r->dev);
		if (!runner_start(r))
			return false;
		m = device_load(r->dev, ptx);
	}
	device_unload(r->dev, m);
	free(ptx);
	return true;
}

static bool run_all(
	struct runner *r, const struct diff_list *l, const char *family, visit fn, void *arg)
{
	for (uint32_t i = 0, j; i < l->n; i = j) {
		const char *f = l->cases[i].family;
		for (j = i + 1; j < l->n && j - i < CHUNK && !strcmp(l->cases[j].family, f); j++)
			;
		if ((!family || !strcmp(family, f)) && !run_chunk(r, l, i, j, fn, arg))
			return false;
	}
	return true;
}

/* -- records ------------------------------------------------------------------ */

static uint8_t group_hash(const struct results *res, uint32_t group)
{
	uint64_t h = 7;
	for (uint32_t k = 0; k < res->n; k++)
		h = diff_hash(&res->v[k][group * GROUP], GROUP * 8, h);
	return (uint8_t)(h ^ h >> 32);
}

struct record {
	struct bytes out;
	bool full;
	uint32_t n, failed;
};

static void record_case(void *arg, const struct diff_case *c, uint64_t (*in)[DIFF_N], uint64_t hash,
	const struct results *res)
{
	struct record *r = arg;
	(void)in;
	if (!res) {
		r->failed++;
		printf("# not recorded: %s\n", c->name);
		return;
	}
	uint8_t mode = r->full || c->bound;
	put(&r->out, c->name, strlen(c->name) + 1);
	put(&r->out, c->sig, strlen(c->sig) + 1);
	put(&r->out, &hash, 8);
	put(&r->out, &mode, 1);
	r->n++;
	for (uint32_t g = 0; !mode && g < DIFF_N / GROUP; g++) {
		uint8_t b = group_hash(res, g);
		put(&r->out, &b, 1);
	}
	for (uint32_t k = 0; mode && k < res->n; k++)
		for (uint32_t i = 0; i < DIFF_N; i++)
			put(&r->out, &res->v[k][i], diff_bytes(c->results[k]));
}

static int record(struct runner *runner, const struct diff_list *l, const char *family,
	const char *path, bool full)
{
	static const char magic[] = "egpu-diff 1\n";
	struct record r = { .full = full };
	put(&r.out, magic, sizeof(magic) - 1);
	if (!run_all(runner, l, family, record_case, &r))
		return 1;
	size_t cap = ZSTD_compressBound(r.out.len);
	void *packed = malloc(cap);
	size_t n = packed ? ZSTD_compress(packed, cap, r.out.data, r.out.len, 19) : 0;
	FILE *f = !n || ZSTD_isError(n) ? NULL : fopen(path, "wb");
	bool ok = f && fwrite(packed, 1, n, f) == n;
	ok = f && !fclose(f) && ok;
	printf("# %u cases recorded on %s, %u failed, %zu bytes\n", r.n, device_target(runner->dev),
		r.failed, n);
	free(packed);
	free(r.out.data);
	return ok && !r.failed ? 0 : 1;
}

/* -- comparing ------------------------------------------------------------------ */

struct tally {
	const char *family;
	uint32_t cases, equal, failed, missing, stale;
};

struct check {
	struct bytes file;
	size_t start;
	struct tally tally;
	uint32_t n_tests, n_failed, told;
};

/* The record of a case: its bytes are next in the file. The order is usually the same. */
static bool find(struct check *k, const struct diff_case *c, uint64_t *hash, uint8_t *mode)
{
	struct bytes *b = &k->file;
	for (size_t from = b->at, wrapped = 0;;) {
		if (b->at >= b->len) {
			if (wrapped++)
				return false;
			b->at = k->start;
		}
		const char *name = get_string(b), *sig = name ? get_string(b) : NULL;
		const void *h = sig ? get(b, 8) : NULL, *m = h ? get(b, 1) : NULL;
		if (!m)
			return false;
		memcpy(hash, h, 8);
		*mode = *(const uint8_t *)m;
		if (!strcmp(name, c->name) && !strcmp(sig, c->sig))
			return true;
		size_t skip = 0;
		for (const char *s = sig; *mode && *s && *s != ':'; s++)
			skip += (size_t)diff_bytes(*s) * DIFF_N;
		if (!get(b, *mode ? skip : DIFF_N / GROUP))
			return false;
		if (wrapped && b->at >= from)
			return false;
	}
}

static void tell(struct check *k, const struct diff_case *c, uint64_t (*in)[DIFF_N], uint32_t lane,
	uint32_t result, uint64_t got, const uint64_t *want)
{
	if (k->told++ > 2000)
		return;
	printf("#   %s: thread %u, result %u: got 0x%llx", c->name, lane, result,
		(unsigned long long)got);
	if (want)
		printf(", recorded 0x%llx", (unsigned long long)*want);
	printf("; operands");
	for (uint32_t i = 0; c->operands[i]; i++)
		printf(" 0x%llx", (unsigned long long)in[i][lane]);
	putchar('\n');
}

/* Compares with a record of mode 1 (values) or 0 (hashes); the number of threads that differ. */
static uint32_t compare_values(struct check *k, const struct diff_case *c, uint64_t (*in)[DIFF_N],
	const struct results *res)
{
	uint32_t bad = 0;
	for (uint32_t r = 0; r < res->n; r++) {
		uint32_t width = diff_bytes(c->results[r]);
		const uint8_t *p = get(&k->file, (size_t)width * DIFF_N);
		for (uint32_t i = 0; p && i < DIFF_N; i++) {
			uint64_t want = 0, x = c->bound && !strcmp(c->bound, "div.approx")
						       ? in[1][i]
						       : in[0][i];
			memcpy(&want, p + (size_t)i * width, width);
			if (diff_close(c, r, res->v[r][i], want, c->operands[0] ? x : 0))
				continue;
			if (bad++ < 3)
				tell(k, c, in, i, r, res->v[r][i], &want);
		}
		if (!p)
			return DIFF_N;
	}
	return bad;
}

static uint32_t compare_hashes(struct check *k, const struct diff_case *c, uint64_t (*in)[DIFF_N],
	const struct results *res)
{
	const uint8_t *p = get(&k->file, DIFF_N / GROUP);
	uint32_t bad = 0;
	for (uint32_t g = 0; p && g < DIFF_N / GROUP; g++) {
		if (group_hash(res, g) == p[g])
			continue;
		if (!bad)
			for (uint32_t i = 0; i < GROUP; i++)
				tell(k, c, in, g * GROUP + i, 0, res->v[0][g * GROUP + i], NULL);
		bad += GROUP;
	}
	return p ? bad : DIFF_N;
}

static void family_done(struct check *k)
{
	struct tally *t = &k->tally;
	if (!t->family)
		return;
	bool ok = !t->failed && !t->stale;
	k->n_failed += !ok;
	printf("%sok %u - %s: %u of %u instructions equal the recorded results", ok ? "" : "not ",
		++k->n_tests, t->family, t->equal, t->cases);
	if (t->failed)
		printf(", %u differ", t->failed);
	if (t->stale)
		printf(", %u have other inputs than the record", t->stale);
	if (t->missing)
		printf(", %u have no record", t->missing);
	putchar('\n');
	fflush(stdout);
}

static void check_case(void *arg, const struct diff_case *c, uint64_t (*in)[DIFF_N], uint64_t hash,
	const struct results *res)
{
	struct check *k = arg;
	if (!k->tally.family || strcmp(k->tally.family, c->family)) {
		family_done(k);
		k->tally = (struct tally){ .family = c->family };
	}
	struct tally *t = &k->tally;
	uint64_t want;
	uint8_t mode;
	t->cases++;
	if (!find(k, c, &want, &mode)) {
		t->missing++;
		return;
	}
	if (want != hash)
		t->stale++;
	if (!res)
		printf("#   %s: not executed\n", c->name);
	uint32_t width = 0;
	for (const char *s = c->results; *s != ':'; s++)
		width += diff_bytes(*s);
	uint32_t bad = DIFF_N;
	if (res && want == hash)
		bad = mode ? compare_values(k, c, in, res) : compare_hashes(k, c, in, res);
	else
		get(&k->file, mode ? (size_t)width * DIFF_N : DIFF_N / GROUP);
	if (bad && res && want == hash)
		printf("#   %s: %u of %u differ\n", c->name, bad, DIFF_N);
	t->failed += bad && want == hash;
	t->equal += !bad;
}

static bool unpack(const char *path, struct bytes *out)
{
	static const char magic[] = "egpu-diff 1\n";
	FILE *f = fopen(path, "rb");
	struct bytes in = { 0 };
	char part[65536];
	for (size_t n; f && (n = fread(part, 1, sizeof(part), f));)
		put(&in, part, n);
	if (f)
		fclose(f);
	unsigned long long n = in.len ? ZSTD_getFrameContentSize(in.data, in.len) : 0;
	bool ok = n && n < 1ull << 30 && (out->data = malloc(n)) &&
		  ZSTD_decompress(out->data, n, in.data, in.len) == n;
	out->len = ok ? n : 0;
	free(in.data);
	const void *head = get(out, sizeof(magic) - 1);
	return head && !memcmp(head, magic, sizeof(magic) - 1);
}

static int check(
	struct runner *runner, const struct diff_list *l, const char *family, const char *path)
{
	struct check k = { 0 };
	if (!unpack(path, &k.file)) {
		printf("Bail out! %s is not a record\n", path);
		free(k.file.data);
		return 1;
	}
	k.start = k.file.at;
	bool ok = run_all(runner, l, family, check_case, &k);
	family_done(&k);
	printf("1..%u\n", k.n_tests);
	free(k.file.data);
	return ok && !k.n_failed ? 0 : 1;
}

/* -- command ------------------------------------------------------------------- */

static int usage(void)
{
	fprintf(stderr,
		"usage: diff [--driver LIB] [--family F] [--full] --record FILE | --check FILE\n"
		"       diff --list | --ptx FROM TO\n");
	return 2;
}

static int text(const struct diff_list *l, const char *from, const char *to)
{
	uint32_t a = from ? (uint32_t)strtoul(from, NULL, 10) : 0,
		 b = to ? (uint32_t)strtoul(to, NULL, 10) : 0;
	for (uint32_t i = 0; !from && i < l->n; i++)
		printf("%u\t%s\t%s\t%s\t%s\n", i, l->cases[i].family, l->cases[i].sig,
			l->cases[i].bound ? l->cases[i].bound : "exact", l->cases[i].name);
	char *ptx = from ? diff_ptx(l, a, b < l->n ? b : l->n) : NULL;
	if (ptx)
		fputs(ptx, stdout);
	free(ptx);
	return 0;
}

int main(int argc, char **argv)
{
	struct runner r = { .library = "libcuda.so.1" };
	struct diff_list list = { 0 };
	const char *family = NULL, *to = NULL, *from = NULL;
	bool full = false;
	int rc = -1;
	diff_cases(&list);
	for (int i = 1; i < argc && rc < 0; i++) {
		const char *arg = argv[i], *next = argv[i + 1];
		if (!strcmp(arg, "--list"))
			rc = text(&list, NULL, NULL);
		else if (!strcmp(arg, "--ptx") && i + 2 < argc)
			rc = text(&list, next, argv[i + 2]);
		else if (!strcmp(arg, "--full"))
			full = true;
		else if (!next)
			rc = usage();
		else if (i++, !strcmp(arg, "--driver"))
			r.library = next;
		else if (!strcmp(arg, "--family"))
			family = next;
		else if (!strcmp(arg, "--record"))
			to = next;
		else if (!strcmp(arg, "--check"))
			from = next;
		else
			rc = usage();
	}
	if (rc < 0 && !to == !from)
		rc = usage();
	if (rc < 0 && !runner_start(&r))
		rc = 1;
	if (rc < 0)
		rc = to ? record(&r, &list, family, to, full) : check(&r, &list, family, from);
	device_close(r.dev);
	diff_cases_free(&list);
	return rc;
}
