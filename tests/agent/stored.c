/* What an entry of the cache stands for: this text, this kernel, these programs, these numbers. A run that takes builds from
 * the cache has the counts, the sites and the reports of the run that made them; whatever differs is made anew. */
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "harness.h"

enum { N = 200, THREADS = 64, BLOCKS = (N + THREADS - 1) / THREADS, KEYS = 64, MANY = 70 };

/* -- the programs ------------------------------------------------------------------------- */

static int launch(CUmodule mod, const char *name)
{
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 5, n = N;
	void *params[] = { &buf, &add, &n };
	CU(cuModuleGetFunction(&fn, mod, name));
	CU(cuMemAlloc(&buf, N * 4));
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	return check_fill(buf, add, N);
}

static int load(const char *text, const char *first, const char *second)
{
	CUmodule mod;
	CU(cuModuleLoadData(&mod, text));
	int bad = launch(mod, first);
	return bad || !second ? bad : launch(mod, second);
}

static int pair(void)
{
	target_context();
	return load(PTX_HEAD PTX_FILL("fill") PTX_FILL("other"), "fill", "other");
}

/* The same kernels in another text. */
static int changed(void)
{
	target_context();
	return load(PTX_HEAD PTX_FILL("fill") PTX_FILL("other") "// and a comment\n", "fill", "other");
}

/* The same text, its kernels' numbers and sites being behind others. */
static int behind(void)
{
	target_context();
	int bad = load(PTX_HEAD PTX_FILL("before"), "before", NULL);
	return bad ? bad : load(PTX_HEAD PTX_FILL("fill") PTX_FILL("other"), "fill", "other");
}

#ifdef __SANITIZE_THREAD__
enum { OWN_THREADS = 2 };
#else
enum { OWN_THREADS = 1 };
#endif

/* Many kernels, which are compiled on several threads: signals stay the program's, and the threads go. */
static atomic_int elsewhere;

static void on_alarm(int sig)
{
	if (syscall(SYS_gettid) != getpid())
		atomic_fetch_add(&elsewhere, 1);
}

static int threads(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	for (struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static int many(void)
{
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	static char text[MANY * 1200];
	CUmodule mod;
	char name[16];
	size_t n = (size_t)sprintf(text, "%s", PTX_HEAD);
	target_context();
	for (int i = 0; i < MANY; i++) {
		char one[] = PTX_FILL("f????");
		char *at = strstr(one, "????");
		snprintf(name, sizeof(name), "%04d", i);
		memcpy(at, name, 4);
		n += (size_t)sprintf(text + n, "%s", one);
	}
	struct sigaction a = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	sigaction(SIGALRM, &a, NULL);
	int before = threads();
	setitimer(ITIMER_REAL, &often, NULL);
	CU(cuModuleLoadData(&mod, text));
	setitimer(ITIMER_REAL, &never, NULL);
	/* The thread that copies maps stays, and the sanitizer's own. One that has ended is seen a moment longer. */
	for (int ms = 0; threads() > before + OWN_THREADS && ms < 1000; ms++)
		usleep(1000);
	if (threads() > before + OWN_THREADS || atomic_load(&elsewhere))
		return 3;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "f%04d", i);
		int bad = launch(mod, name);
		if (bad)
			return bad;
	}
	return 0;
}

/* The cache's directory is a file system with two pages. */
static int crowded(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		mount("none", getenv("EGPU_CACHE"), "tmpfs", 0, "size=8k,mode=0700"))
		return 77;
	return pair();
}

/* Nobody can write the cache's directory, root not either. */
static int frozen(void)
{
	const char *dir = getenv("EGPU_CACHE");
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount(dir, dir, NULL, MS_BIND, NULL) ||
		mount(NULL, dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
		return 77;
	return pair();
}

static const struct role roles[] = { { "pair", pair }, { "changed", changed }, { "behind", behind },
	{ "crowded", crowded }, { "frozen", frozen }, { "many", many }, { 0 } };

/* -- a run of one -------------------------------------------------------------------------- */

static char top[] = "/tmp/egpu-stored-XXXXXX", setting[64];

/* Counts by site. `more`: adds two at a time. */
static struct ebpf_fragment by_site(uint32_t map, enum ebpf_point point, bool more)
{
	static char bodies[4][400];
	static int next;
	char *body = bodies[next++ % 4];
	snprintf(body, sizeof(bodies[0]),
		"{\n\t.reg .b64 %%egpu_r<2>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n"
		"\tmul.wide.u32 %%egpu_r1, %%egpu_site, 8;\n\tadd.u64 %%egpu_r0, %%egpu_r0, %%egpu_r1;\n"
		"\tred.global.add.u64 [%%egpu_r0+128], %d;\n}\n",
		map * 8, more ? 2 : 1);
	return (struct ebpf_fragment){ .name = "sites",
		.point = point,
		.fields = UINT64_C(1) << EBPF_FIELD_SITE,
		.maps = UINT64_C(1) << map,
		.max_insns = 5,
		.body = body };
}

struct seen {
	int status, cached, made; /* of the kernels fill and other: how many builds came from where */
	char *text;               /* all that the session says of the two, and their counts */
};

static void describe(struct run *r, const char *name, uint32_t map, struct seen *s, struct buf *b)
{
	struct session_kernel *k = run_kernel(r, name);
	if (!k)
		return;
	s->cached += k->compile_ns && k->compile_cached;
	s->made += k->compile_ns && !k->compile_cached;
	buf_printf(b, "%s state %u, %u sites, %u and %u registers, %llu of %llu launches, bit %u\n", name, k->state,
		k->n_sites, k->regs_before, k->regs_after, (unsigned long long)k->launches_instrumented,
		(unsigned long long)k->launches, k->last_bit_may_differ);
	for (uint32_t i = 0; i < k->n_sites && k->first_site + i < KEYS; i++) {
		const struct session_site *t = &r->file->sites[k->first_site + i];
		buf_printf(b, "  %u line %u %u:%u %s %s in %s, space %u, %u bytes, %s: %llu\n", t->point, t->ptx_line,
			t->line, t->column, session_text(r->session, t->file), session_text(r->session, t->opcode),
			session_text(r->session, t->function), t->space, t->bytes,
			session_text(r->session, t->skipped),
			(unsigned long long)run_count(r, map, k->first_site + i));
	}
}

enum { STORES = 1, ALL_POINTS = 2, DOUBLE = 4 };

static struct seen look(const char *role, int how, pid_t *started)
{
	struct run r;
	struct buf b = { 0 };
	struct seen s = { 0 };
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, KEYS);
	struct ebpf_fragment f = by_site(map, EBPF_POINT_STORE, how & DOUBLE),
			     g = by_site(map, EBPF_POINT_ENTRY, false), h = by_site(map, EBPF_POINT_BLOCK, false);
	run_attach(&r, &f, "*");
	if (how & ALL_POINTS) {
		run_attach(&r, &g, "*");
		run_attach(&r, &h, "*");
	}
	r.env[0] = setting;
	if (started) {
		*started = run_start(&r, role);
		usleep((useconds_t)(rand() % 60000));
		kill(*started, SIGKILL);
		run_wait(&r, *started, 10);
	} else {
		s.status = run_role(&r, role);
	}
	describe(&r, "fill", map, &s, &b);
	describe(&r, "other", map, &s, &b);
	run_end(&r);
	s.text = b.data ? b.data : strdup("");
	return s;
}

/* A run, of which so many builds come from the cache and so many are made; it looks like `model`. The text, the caller's. */
static char *expect(const char *role, int how, int cached, int made, const char *model, const char *what)
{
	struct seen s = look(role, how, NULL);
	bool like = !model || !strcmp(s.text, model);
	if (!ok(!s.status && s.cached == cached && s.made == made && like && strstr(s.text, how & DOUBLE ? ": 400" : ": 200") && strstr(s.text, "state 2"),
		    "%s", what))
		printf("# status %d, %d cached, %d made, got\n%swant\n%s", s.status, s.cached, s.made, s.text,
			model ? model : "");
	return s.text;
}

static void check(const char *role, int how, int cached, int made, const char *model, const char *what)
{
	free(expect(role, how, cached, made, model, what));
}

/* -- the directory -------------------------------------------------------------------------- */

static int each(bool remove_all, int remove_one)
{
	char path[400];
	int n = 0;
	DIR *d = opendir(top);
	for (struct dirent *e; d && (e = readdir(d));) {
		snprintf(path, sizeof(path), "%s/%s", top, e->d_name);
		if (e->d_name[0] == '.')
			continue;
		if (remove_all || n == remove_one)
			unlink(path);
		n++;
	}
	if (d)
		closedir(d);
	return n;
}

static void one_missing(const char *model)
{
	int files = each(false, -1);
	is_int(files, 3, "a text is stored once, with a build for each kernel");
	for (int i = 0; i < files; i++) {
		each(false, i);
		struct seen s = look("pair", STORES, NULL);
		ok(!s.status && s.made && !strcmp(s.text, model), "an entry is gone: what it was for is made again");
		free(s.text);
		check("pair", STORES, 2, 0, model, "and found the next time");
		/* With the text goes what was made of it. */
		if (each(false, -1) != files) {
			each(true, -1);
			check("pair", STORES, 0, 2, model, "from the start");
		}
	}
}

static void killed(const char *model)
{
	pid_t pid;
	for (int i = 0; i < 12; i++) {
		if (i % 4 == 0)
			each(true, -1);
		free(look("pair", STORES, &pid).text);
	}
	struct seen s = look("pair", STORES, NULL);
	ok(!s.status && s.cached + s.made == 2 && !strcmp(s.text, model), "after writers that were killed (%d cached)", s.cached);
	free(s.text);
	check("pair", STORES, 2, 0, model, "all is in the cache");
}

/* A run in a file system of its own. */
static void mounted(const char *role, int cached, const char *model, const char *what)
{
	struct seen s = look(role, STORES, NULL);
	if (s.status == 77)
		tap_skip("no file systems can be mounted");
	else
		ok(!s.status && s.cached == cached && s.made == 2 - cached && !strcmp(s.text, model), "%s", what);
	free(s.text);
}

static void read_only(const char *model)
{
	chmod(top, 0500);
	check("pair", STORES, 2, 0, model, "from a directory that cannot be written");
	chmod(top, 0700);
	mounted("frozen", 2, model, "from a file system that cannot be written");
	each(true, -1);
	mounted("frozen", 0, model, "of which nothing comes to be");
	is_int(each(false, -1), 0, "in it");
}

/* All of them are probed, whoever compiled them, once each. */
static void of_many(int cached)
{
	struct run r;
	int wrong = 0, found = 0, from_cache = 0;
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 4 * MANY);
	struct ebpf_fragment f = by_site(map, EBPF_POINT_STORE, false);
	run_attach(&r, &f, "*");
	r.env[0] = setting;
	int status = run_role(&r, "many");
	for (uint32_t i = 0; i < r.file->n_kernels; i++) {
		const struct session_kernel *k = &r.file->kernels[i];
		uint64_t sum = 0;
		for (uint32_t j = 0; j < k->n_sites; j++)
			sum += run_count(&r, map, k->first_site + j);
		wrong += k->state != SESSION_KERNEL_INSTRUMENTED || sum != N || k->launches_instrumented != 1;
		from_cache += k->compile_cached;
		found++;
	}
	ok(!status && found == MANY && !wrong && from_cache == cached, "%d kernels at once, %d of them from the cache", MANY, cached);
	if (status || wrong)
		printf("# status %d, %d found, %d wrong, %d cached\n", status, found, wrong, from_cache);
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	if (!mkdtemp(top))
		return 1;
	snprintf(setting, sizeof(setting), "EGPU_CACHE=%s", top);
	char *first = expect("pair", STORES, 0, 2, NULL, "the first run makes two builds");
	check("pair", STORES, 2, 0, first, "the second finds them, and looks the same");
	free(expect("changed", STORES, 0, 2, first, "another text, if only by a comment, is another"));
	check("changed", STORES, 2, 0, first, "which is found too");
	check("pair", STORES, 2, 0, first, "as is the first still");
	char *twice = expect("pair", STORES | DOUBLE, 0, 2, NULL, "another program is made into other builds");
	ok(strcmp(first, twice), "that count otherwise");
	check("pair", STORES | DOUBLE, 2, 0, twice, "and are found");
	char *more = expect("pair", STORES | ALL_POINTS, 0, 2, NULL, "with points that number more sites");
	check("pair", STORES | ALL_POINTS, 2, 0, more, "these are found with their sites");
	check("behind", STORES, 0, 2, first, "kernels with other numbers are made anew");
	check("behind", STORES, 2, 0, first, "and found under these");
	check("pair", STORES, 2, 0, first, "without taking the place of the others");
	each(true, -1);
	check("pair", STORES, 0, 2, first, "an empty cache");
	of_many(0);
	of_many(MANY);
	each(true, -1);
	check("pair", STORES, 0, 2, first, "an empty cache again");
	one_missing(first);
	read_only(first);
	killed(first);
	mounted("crowded", 0, first, "on a full disk all is made each time");
	each(true, -1);
	rmdir(top);
	free(first);
	free(twice);
	free(more);
	return tap_done();
}
