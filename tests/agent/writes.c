/* The host writes to maps that a target's kernels use: every device has the value when the call is
 * over, counts go on from it, and what runs is not disturbed. */
#include <sys/mman.h>

#include "harness.h"

enum { THREADS = 64, BLOCKS = 4, ALL = THREADS * BLOCKS };

static const char ptx[] = PTX_HEAD PTX_FILL("fill")
	/* Runs until its word becomes 1. */
	".visible .entry spin(.param .u64 word)\n{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<2>;\n"
	"\t.reg .b64 %rd<2>;\n\tld.param.u64 %rd1, [word];\nL:\n"
	"\tld.volatile.global.u32 %r1, [%rd1];\n\tsetp.eq.u32 %p1, %r1, 0;\n\t@%p1 bra L;\n"
	"\tret;\n}\n";

static CUdeviceptr buf;

static void say(const char *name)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/%s", getenv(SESSION_ENV), name);
	close(open(path, O_WRONLY | O_CREAT, 0600));
}

static void await(const char *dir, const char *name)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	for (int ms = 0; access(path, F_OK) && ms < 20000; ms++)
		usleep(1000);
}

static CUfunction load(const char *name)
{
	CUmodule mod;
	CUfunction fn;
	CU(cuModuleLoadData(&mod, ptx));
	CU(cuModuleGetFunction(&fn, mod, name));
	CU(cuMemAlloc(&buf, ALL * 4));
	return fn;
}

static void launch(CUfunction fn, CUstream stream)
{
	uint32_t add = 1, n = ALL;
	void *params[] = { &buf, &add, &n };
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
}

/* Three launches, a pause in which the host writes, two launches. */
static int paused(void)
{
	target_context();
	CUfunction fn = load("fill");
	for (int i = 0; i < 3; i++)
		launch(fn, NULL);
	CU(cuCtxSynchronize());
	say("ready");
	await(getenv(SESSION_ENV), "go");
	for (int i = 0; i < 2; i++)
		launch(fn, NULL);
	CU(cuCtxSynchronize());
	return check_fill(buf, 1, ALL);
}

/* The same in two contexts, of two devices where there are two, one launch each before and after. */
static int two(void)
{
	CUcontext c[2];
	CUfunction fn[2];
	CUdevice dev;
	int n = 0;
	CU(cuInit(0));
	CU(cuDeviceGetCount(&n));
	for (int i = 0; i < 2; i++) {
		CU(cuDeviceGet(&dev, i % n));
		CU(cuCtxCreate_v2(&c[i], 0, dev));
		fn[i] = load("fill");
		launch(fn[i], NULL);
		CU(cuCtxSynchronize());
	}
	say("ready");
	await(getenv(SESSION_ENV), "go");
	for (int i = 0; i < 2; i++) {
		CU(cuCtxSetCurrent(c[i]));
		CU(cuMemAlloc(&buf, ALL * 4));
		launch(fn[i], NULL);
		CU(cuCtxSynchronize());
	}
	return 0;
}

/* Launches all the time. */
static int busy(void)
{
	char path[512];
	target_context();
	CUfunction fn = load("fill");
	snprintf(path, sizeof(path), "%s/go", getenv(SESSION_ENV));
	for (int i = 0; access(path, F_OK) && i < 1000000; i++) {
		launch(fn, NULL);
		if (i == 3)
			say("ready");
		if (i % 7 == 0)
			CU(cuCtxSynchronize());
	}
	CU(cuCtxSynchronize());
	return check_fill(buf, 1, ALL);
}

/* One kernel runs all the time. */
static int running(void)
{
	CUstream stream;
	CUdeviceptr word;
	uint32_t one = 1;
	target_context();
	CUfunction fill = load("fill"), spin = load("spin");
	CU(cuMemAlloc(&word, 8));
	CU(cuMemsetD32(word, 0, 2));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launch(fill, NULL);
	CU(cuCtxSynchronize());
	void *params[] = { &word };
	CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	say("ready");
	await(getenv(SESSION_ENV), "go");
	CUstream other;
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU(cuMemcpyHtoDAsync(word, &one, 4, other));
	CU(cuStreamSynchronize(other));
	CU(cuStreamSynchronize(stream));
	launch(fill, NULL);
	CU(cuCtxSynchronize());
	return check_fill(buf, 1, ALL);
}

static const struct role roles[] = { { "paused", paused }, { "two", two }, { "busy", busy },
	{ "running", running }, { 0 } };

/* -- programs -------------------------------------------------------------------------- */

/* Adds value 0 of map `what` to value 0 of map `to`, once a thread. */
static struct ebpf_fragment adder(uint32_t to, uint32_t what)
{
	static char body[500];
	snprintf(body, sizeof(body),
		"{\n\t.reg .b64 %%egpu_r<3>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n"
		"\tld.const.b64 %%egpu_r1, [__egpu_table+%u];\n"
		"\tld.volatile.global.u64 %%egpu_r2, [%%egpu_r1+128];\n"
		"\tred.global.add.u64 [%%egpu_r0+128], %%egpu_r2;\n}\n",
		to * 8, what * 8);
	return (struct ebpf_fragment){ .name = "adder",
		.point = EBPF_POINT_ENTRY,
		.maps = (uint64_t)1 << to | (uint64_t)1 << what,
		.max_insns = 5,
		.body = body };
}

/* Takes value 0 of map `what` into the least value at the beginning of map `to`, and adds one to the word behind it, in this multiprocessor's
 * replica. */
static struct ebpf_fragment folder(uint32_t to, uint32_t what)
{
	static char body[700];
	snprintf(body, sizeof(body),
		"{\n\t.reg .b64 %%egpu_r<4>;\n\t.reg .b32 %%egpu_rw<1>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n"
		"\tld.const.u32 %%egpu_rw0, [__egpu_table+%u];\n\tmad.wide.u32 %%egpu_r3, %%egpu_slot, %%egpu_rw0, %%egpu_r0;\n"
		"\tld.const.b64 %%egpu_r1, [__egpu_table+%u];\n\tld.volatile.global.u64 %%egpu_r2, [%%egpu_r1+128];\n"
		"\tred.global.min.u64 [%%egpu_r3+128], %%egpu_r2;\n\tred.global.add.u64 [%%egpu_r3+136], 1;\n}\n",
		to * 8, (EBPF_TABLE_REPLICAS + to) * 8, what * 8);
	return (struct ebpf_fragment){ .name = "folder",
		.point = EBPF_POINT_ENTRY,
		.slot = true,
		.maps = (uint64_t)1 << to | (uint64_t)1 << what,
		.max_insns = 8,
		.body = body };
}

/* Stores the hash map's count of keys, as the device has it, in value 0 of map `to`. */
static struct ebpf_fragment live_count(uint32_t to, uint32_t hash)
{
	static char body[500];
	snprintf(body, sizeof(body),
		"{\n\t.reg .b64 %%egpu_r<3>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n"
		"\tld.const.b64 %%egpu_r1, [__egpu_table+%u];\n"
		"\tld.volatile.global.u64 %%egpu_r2, [%%egpu_r1+40];\n"
		"\tst.volatile.global.u64 [%%egpu_r0+128], %%egpu_r2;\n}\n",
		to * 8, hash * 8);
	return (struct ebpf_fragment){ .name = "live",
		.point = EBPF_POINT_ENTRY,
		.maps = (uint64_t)1 << to | (uint64_t)1 << hash,
		.max_insns = 5,
		.body = body };
}

/* -- the host --------------------------------------------------------------------------- */

static int put(struct run *r, uint32_t map, uint32_t key, uint64_t value, uint64_t flags)
{
	struct map *m;
	if (map_open(r->session, map, &m, NULL))
		return -1;
	int err = map_update(m, &key, &value, flags);
	map_close(m);
	return err;
}

static int drop(struct run *r, uint32_t map, uint32_t key)
{
	struct map *m;
	if (map_open(r->session, map, &m, NULL))
		return -1;
	int err = map_delete(m, &key);
	map_close(m);
	return err;
}

static void go(struct run *r)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/go", session_path(r->session));
	close(open(path, O_WRONLY | O_CREAT, 0600));
}

/* Until the copy shows it. */
static bool shows(struct run *r, uint32_t map, uint32_t key, uint64_t value)
{
	for (int ms = 0; ms < 5000; ms++) {
		if (run_count(r, map, key) == value)
			return true;
		usleep(1000);
	}
	printf("# map %u key %u is %llu\n", map, key, (unsigned long long)run_count(r, map, key));
	return false;
}

static void arrays(void)
{
	struct run r;
	run_begin(&r);
	uint32_t sum = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 3),
		 step = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	put(&r, step, 0, 1, BPF_ANY);
	struct ebpf_fragment f = adder(sum, step);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	ok(shows(&r, sum, 0, 3 * ALL), "three launches are counted");
	is_int(put(&r, step, 0, 10, BPF_ANY), 0, "a value that programs read is written");
	is_int(run_count(&r, step, 0), 10, "and read back at once");
	is_int(put(&r, sum, 0, 1000, BPF_ANY), 0, "so is a counter");
	is_int(put(&r, sum, 2, 5, BPF_EXIST), 0, "and an element that nobody counts");
	is_int(run_count(&r, sum, 0), 1000, "it has the value");
	is_int(put(&r, sum, 3, 5, BPF_ANY), -E2BIG, "an element beyond the end");
	is_int(put(&r, sum, 1, 5, BPF_NOEXIST), -EEXIST, "elements exist");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target's results are right");
	is_int(run_count(&r, sum, 0), 1000 + 2 * 10 * ALL, "it counts on from there, by the new step");
	is_int(run_count(&r, sum, 2), 5, "the other element kept its value");
	is_int(put(&r, sum, 0, 7, BPF_ANY), 0, "after the target's end the host still writes");
	is_int(run_count(&r, sum, 0), 7, "and has what it wrote");
	run_end(&r);
}

static void contexts(void)
{
	struct run r;
	run_begin(&r);
	uint32_t sum = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 3),
		 step = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	put(&r, step, 0, 1, BPF_ANY);
	struct ebpf_fragment f = adder(sum, step);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "two");
	await(session_path(r.session), "ready");
	ok(shows(&r, sum, 0, 2 * ALL), "two contexts count");
	is_int(put(&r, step, 0, 10, BPF_ANY), 0, "the step is written to both");
	is_int(put(&r, sum, 0, 50, BPF_ANY), 0, "the counter is written in both");
	is_int(run_count(&r, sum, 0), 50, "it is what was written, once");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target ended well");
	is_int(run_count(&r, sum, 0), 50 + 2 * 10 * ALL, "both count on from there");
	run_end(&r);
}

static uint64_t of_device(struct run *r, uint32_t map, uint32_t device)
{
	struct map *m;
	uint32_t key = 0;
	uint64_t value = UINT64_MAX;
	if (map_open_device(r->session, map, device, &m, NULL))
		return value;
	if (map_lookup(m, &key, &value))
		value = UINT64_MAX;
	map_close(m);
	return value;
}

static void devices(void)
{
	for (int only = 0; only < 2; only++) {
		struct run r;
		run_begin(&r);
		r.env[0] = "EGPU_SOFTGPU=devices=2";
		uint32_t sum = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
		struct ebpf_fragment f = counter(sum, EBPF_POINT_ENTRY);
		run_attach(&r, &f, "fill");
		if (only) {
			r.file->filter.device = 1 + 1;
			r.file->filter.active = 1;
		}
		pid_t pid = run_start(&r, "two");
		await(session_path(r.session), "ready");
		go(&r);
		is_int(run_wait(&r, pid, 60), 0, "a target with two devices ended well");
		is_int(run_count(&r, sum, 0), (only ? 2 : 4) * ALL, "its launches are counted%s",
			only ? " on one device" : "");
		is_int(of_device(&r, sum, 1), 2 * ALL, "those of device 1");
		is_int(of_device(&r, sum, 0), only ? 0 : 2 * ALL, "those of device 0");
		run_end(&r);
	}
}

static void while_busy(void)
{
	struct run r;
	run_begin(&r);
	uint32_t sum = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 3),
		 step = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	put(&r, step, 0, 1, BPF_ANY);
	struct ebpf_fragment f = adder(sum, step);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "busy");
	await(session_path(r.session), "ready");
	bool good = true;
	for (uint32_t i = 1; i <= 20; i++)
		good &= !put(&r, sum, 1, i, BPF_ANY) && run_count(&r, sum, 1) == i;
	ok(good, "twenty writes beside launches are read back");
	is_int(put(&r, step, 0, 1001, BPF_ANY), 0, "the step is written");
	usleep(50000);
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target's results are right");
	struct session_kernel *k = run_kernel(&r, "fill");
	uint64_t launches = k ? k->launches_instrumented : 0, got = run_count(&r, sum, 0);
	/* A launch in which the value changed has threads of both kinds. */
	ok(launches && (got - launches * ALL) % 1000 == 0 && got > launches * ALL,
		"every thread added the old step or the new one");
	run_end(&r);
}

static void per_cpu(void)
{
	struct run r;
	struct map *m;
	uint32_t key = 0;
	uint64_t total = 1;
	run_begin(&r);
	uint32_t sum = run_map(&r, BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 2);
	struct ebpf_fragment f = counter(sum, EBPF_POINT_ENTRY);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	map_open(r.session, sum, &m, NULL);
	uint64_t *slots = calloc(1, map_value_bytes(m));
	for (int ms = 0; ms < 5000 && total != 3 * ALL; ms++, usleep(1000))
		map_lookup_sum(m, &key, &total);
	is_int(total, 3 * ALL, "a per-CPU map counts");
	for (uint32_t i = 0; i < map_possible_cpus(); i++)
		slots[i] = 100;
	is_int(map_update(m, &key, slots, BPF_ANY), 0, "all its slots are written");
	map_lookup_sum(m, &key, &total);
	is_int(total, 100 * map_possible_cpus(), "their sum is what was written");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target's results are right");
	map_lookup_sum(m, &key, &total);
	is_int(total, 100 * map_possible_cpus() + 2 * ALL, "it counts on from there");
	free(slots);
	map_close(m);
	run_end(&r);
}

static void hash(void)
{
	struct run r;
	run_begin(&r);
	uint32_t live = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1),
		 map = run_map(&r, BPF_MAP_TYPE_HASH, 4, 8, 3);
	put(&r, map, 7, 70, BPF_ANY);
	struct ebpf_fragment f = live_count(live, map);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	ok(shows(&r, live, 0, 1), "the device has the key from before");
	is_int(put(&r, map, 7, 71, BPF_ANY), 0, "its value is written");
	is_int(put(&r, map, 7, 72, BPF_NOEXIST), -EEXIST, "it exists");
	is_int(put(&r, map, 8, 80, BPF_EXIST), -ENOENT, "another does not");
	is_int(put(&r, map, 8, 80, BPF_NOEXIST), 0, "it is made");
	is_int(put(&r, map, 9, 90, BPF_ANY), 0, "and a third");
	is_int(put(&r, map, 10, 100, BPF_ANY), -E2BIG, "there is no room for a fourth");
	is_int(drop(&r, map, 7), 0, "the first is deleted");
	is_int(drop(&r, map, 7), -ENOENT, "it is gone");
	is_int(run_count(&r, map, 8), 80, "the second is there");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target's results are right");
	is_int(run_count(&r, live, 0), 2, "the device had two keys");
	is_int(run_count(&r, map, 7), UINT64_MAX, "the first is not in what came back");
	is_int(run_count(&r, map, 8), 80, "the second is");
	is_int(run_count(&r, map, 9), 90, "the third is");
	is_int(put(&r, map, 10, 100, BPF_ANY), 0, "the host adds one after the end");
	is_int(run_count(&r, map, 10), 100, "and has it");
	run_end(&r);
}

/* Where a hash map is full, a key of the host's takes another's place. */
static void lru(void)
{
	struct run r;
	run_begin(&r);
	uint32_t live = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1),
		 map = run_map(&r, BPF_MAP_TYPE_LRU_HASH, 4, 8, 3), there = 0;
	struct ebpf_fragment f = live_count(live, map);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	int bad = 0;
	for (uint32_t key = 1; key <= 20; key++) {
		bad += put(&r, map, key, 10 * key, BPF_ANY) != 0;
		bad += run_count(&r, map, key) != 10 * key;
	}
	is_int(bad, 0, "an LRU map takes every key");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target's results are right");
	is_int(run_count(&r, live, 0), 3, "the device has as many as there may be");
	for (uint32_t key = 1; key <= 20; key++)
		there += run_count(&r, map, key) == 10 * key;
	is_int(there, 3, "and so came back");
	is_int(run_count(&r, map, 20), 200, "the last among them");
	run_end(&r);
}

static void while_running(void)
{
	struct run r;
	run_begin(&r);
	uint32_t live = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 2),
		 map = run_map(&r, BPF_MAP_TYPE_HASH, 4, 8, 8);
	put(&r, map, 7, 70, BPF_ANY);
	struct ebpf_fragment f = live_count(live, map);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "running");
	await(session_path(r.session), "ready");
	is_int(put(&r, live, 1, 5, BPF_ANY), 0, "an element is written beside a running kernel");
	is_int(put(&r, map, 7, 71, BPF_ANY), 0, "so is the value of a key");
	is_int(run_count(&r, map, 7), 71, "and read back");
	is_int(put(&r, map, 8, 80, BPF_ANY), -ETIMEDOUT, "a new key waits for its end, to a limit");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target is not disturbed");
	is_int(run_count(&r, live, 1), 5, "the element has its value");
	is_int(put(&r, map, 8, 81, BPF_ANY), 0, "after its end the key is written");
	is_int(run_count(&r, map, 8), 81, "and is there");
	run_end(&r);
}

/* What a loader stores through its mapping of .data reaches the next launch; a variable that the
 * device counts beside it is not harmed. */
static void globals(void)
{
	struct run r;
	struct diag d = { 0 };
	char path[512];
	uint32_t id = 0;
	struct ebpf_map def = { .name = ".data",
		.type = BPF_MAP_TYPE_ARRAY,
		.key_size = 4,
		.value_size = 24,
		.max_entries = 1,
		.flags = BPF_F_MMAPABLE };
	run_begin(&r);
	if (session_add_map(r.session, &def, &id, &d))
		printf("# %s\n", d.text);
	uint32_t sum = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	snprintf(path, sizeof(path), "%s/map-%u", session_path(r.session), id);
	int fd = open(path, O_RDWR);
	volatile uint64_t *data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	data[0] = 1;
	struct ebpf_fragment f = adder(sum, id), g = counter(id, EBPF_POINT_EXIT);
	run_attach(&r, &f, "fill");
	/* The counter is the second word. */
	char *at = strstr(g.body, "+128]");
	memcpy(at, "+136]", 5);
	run_attach(&r, &g, "fill");
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	ok(shows(&r, sum, 0, 3 * ALL), "three launches add the first value");
	data[0] = 10;
	data[2] = 0x1234;
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target's results are right");
	is_int(run_count(&r, sum, 0), 3 * ALL + 2 * 10 * ALL, "two add what was stored meanwhile");
	struct map *m;
	uint32_t key = 0;
	uint64_t v[3] = { 0 };
	map_open(r.session, id, &m, NULL);
	map_lookup(m, &key, v);
	map_close(m);
	is_int(v[0], 10, "the variable reads as stored");
	is_int(v[1], 5 * ALL, "the counter beside it lost nothing");
	is_int(v[2], 0x1234, "a third variable reads as stored");
	munmap((void *)(uintptr_t)data, 4096);
	close(fd);
	run_end(&r);
}

static void is_pair(struct run *r, uint32_t map, uint64_t a, uint64_t b, const char *what)
{
	struct map *m;
	uint32_t key = 0;
	uint64_t v[2] = { 0 };
	for (int ms = 0; ms < 5000 && (v[0] != a || v[1] != b); ms++) {
		usleep(ms ? 1000 : 0);
		if (map_open(r->session, map, &m, NULL))
			break;
		map_lookup(m, &key, v);
		map_close(m);
	}
	ok(v[0] == a && v[1] == b, "%s (%llu, %llu)", what, (unsigned long long)v[0], (unsigned long long)v[1]);
}

/* A least value and a sum, in replicas on multiprocessors, with initial values; written by call, or through a mapping. */
static void folds(bool mapped, const char *role)
{
	static const struct ebpf_map_use use = {
		.folded = true, .fold = { EBPF_FOLD_MIN_U64, EBPF_FOLD_MIN_U64, EBPF_FOLD_ADD64, EBPF_FOLD_ADD64 }
	};
	struct ebpf_map def = { .name = "folds", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 16, .max_entries = 1,
		.flags = mapped ? BPF_F_MMAPABLE : 0 };
	uint64_t start[2] = { 5000, 7 }, then[2] = { 4000, 50 }, launches = strcmp(role, "two") ? 3 : 2;
	struct diag d = { 0 };
	char path[512];
	uint32_t id = 0, key = 0;
	struct run r;
	struct map *m;
	run_begin(&r);
	r.env[0] = "EGPU_SOFTGPU=sms=3,devices=2";
	uint32_t step = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	session_add_map(r.session, &def, &id, &d);
	is_int(session_map_use(r.session, id, &use, &d), 0, "a map that programs fold into, %s, %s", mapped ? "mapped" : "not mapped", role);
	map_open(r.session, id, &m, NULL);
	map_update(m, &key, start, 0);
	put(&r, step, 0, 900, BPF_ANY);
	snprintf(path, sizeof(path), "%s/map-%u", session_path(r.session), id);
	int fd = open(path, O_RDWR);
	volatile uint64_t *data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct ebpf_fragment f = folder(id, step);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, role);
	await(session_path(r.session), "ready");
	is_pair(&r, id, 900, 7 + launches * ALL, "the least, and the sum");
	put(&r, step, 0, 950, BPF_ANY);
	if (mapped)
		data[0] = then[0];
	else
		is_int(map_update(m, &key, then, 0), 0, "the host writes both");
	if (!mapped)
		is_pair(&r, id, 4000, 50, "and reads what it wrote");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target ended well");
	is_pair(&r, id, 950, (mapped ? 7 + launches * ALL : 50) + 2 * ALL, "the least since, and the sum");
	is_int(map_update(m, &key, then, 0), 0, "after the target's end the host still writes");
	is_pair(&r, id, 4000, 50, "and reads what it wrote");
	map_close(m);
	munmap((void *)(uintptr_t)data, 4096);
	close(fd);
	run_end(&r);
}

/* Adds one to the value of the live slot that has the key, as after a look-up: in this multiprocessor's replica. The key's slot is found by
 * the host beforehand. */
static struct ebpf_fragment hash_folder(uint32_t map, uint64_t slot, uint64_t replicas_at, uint64_t stride)
{
	static char body[600];
	snprintf(body, sizeof(body),
		"{\n\t.reg .b64 %%egpu_r<2>;\n\t.reg .b32 %%egpu_rw<1>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n"
		"\tld.const.u32 %%egpu_rw0, [__egpu_table+%u];\n\tmad.wide.u32 %%egpu_r1, %%egpu_slot, %%egpu_rw0, %%egpu_r0;\n"
		"\tred.global.add.u64 [%%egpu_r1+%llu], 1;\n}\n",
		map * 8, (EBPF_TABLE_REPLICAS + map) * 8, (unsigned long long)(128 + replicas_at + slot * stride));
	return (struct ebpf_fragment){ .name = "hash_folder", .point = EBPF_POINT_ENTRY, .slot = true, .maps = (uint64_t)1 << map, .max_insns = 8, .body = body };
}

/* What multiprocessors have beside a key's value goes when the host writes or deletes it. */
static void hash_replicas(void)
{
	static const struct ebpf_map_use use = { .folded = true, .inserted = true, .fold = { EBPF_FOLD_ADD64, EBPF_FOLD_ADD64 } };
	struct diag d = { 0 };
	struct run r;
	uint32_t key = 7;
	run_begin(&r);
	r.env[0] = "EGPU_SOFTGPU=sms=3";
	uint32_t map = run_map(&r, BPF_MAP_TYPE_HASH, 4, 8, 3);
	put(&r, map, key, 70, BPF_ANY);
	is_int(session_map_use(r.session, map, &use, &d), 0, "a hash that programs fold into");
	struct ebpf_fragment f = hash_folder(map, map_hash_key(&key, 4) & (map_hash_slots(3) - 1), map_hash_replicas_at(4, 8, 3), 8);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	ok(shows(&r, map, key, 70 + 3 * ALL), "three launches are counted beside the key's value");
	is_int(put(&r, map, key, 1000, BPF_EXIST), 0, "the host writes it");
	is_int(run_count(&r, map, key), 1000, "and reads what it wrote");
	is_int(drop(&r, map, key), 0, "it is deleted");
	is_int(put(&r, map, key, 5, BPF_NOEXIST), 0, "and made again");
	is_int(run_count(&r, map, key), 5, "with nothing beside it");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target's results are right");
	is_int(run_count(&r, map, key), 5 + 2 * ALL, "it counts on from there");
	run_end(&r);
}

static void killed(void)
{
	struct run r;
	run_begin(&r);
	uint32_t sum = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(sum, EBPF_POINT_ENTRY);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	ok(shows(&r, sum, 0, 3 * ALL), "three launches are counted");
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	is_int(put(&r, sum, 0, 1, BPF_ANY), -ETIMEDOUT, "a stopped target does not answer");
	kill(pid, SIGKILL);
	run_wait(&r, pid, 10);
	is_int(put(&r, sum, 0, 9, BPF_ANY), 0, "of a killed one the host writes the last copy");
	is_int(run_count(&r, sum, 0), 9, "and reads it");
	run_end(&r);
}

/* -- maps without keys -- */

static int push_all(struct run *r, uint32_t map, const uint64_t *values, int n, uint64_t flags)
{
	struct map *m;
	int err = map_open(r->session, map, &m, NULL);
	for (int i = 0; i < n && !err; i++)
		err = map_push(m, &values[i], flags);
	if (m)
		map_close(m);
	return err;
}

static uint64_t pop_one(struct run *r, uint32_t map, int *err)
{
	struct map *m;
	uint64_t value = 0;
	*err = map_open(r->session, map, &m, NULL);
	if (*err)
		return 0;
	*err = map_pop(m, &value);
	map_close(m);
	return value;
}

struct listed {
	uint64_t values[16];
	int n;
};

static int list_value(void *arg, const void *value)
{
	struct listed *l = arg;
	memcpy(&l->values[l->n++ & 15], value, 8);
	return 0;
}

/* The values in the order of pops, as a decimal number: 1, 2, 3 are 123. */
static uint64_t all_values(struct run *r, uint32_t map)
{
	struct map *m;
	struct listed l = { .n = 0 };
	uint64_t all = 0;
	if (map_open(r->session, map, &m, NULL))
		return UINT64_MAX;
	if (map_each_value(m, list_value, &l))
		return UINT64_MAX;
	map_close(m);
	for (int i = 0; i < l.n; i++)
		all = all * 10 + l.values[i];
	return all;
}

static void queues(bool stack)
{
	static const uint64_t three[] = { 1, 2, 3 }, more[] = { 4, 5, 6 };
	const char *name = stack ? "stack" : "queue";
	struct run r;
	int err;
	run_begin(&r);
	uint32_t seen = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1),
		 map = run_map(&r, stack ? BPF_MAP_TYPE_STACK : BPF_MAP_TYPE_QUEUE, 0, 8, 5);
	struct ebpf_fragment f = live_count(seen, map);
	run_attach(&r, &f, "fill");
	is_int(push_all(&r, map, three, 3, BPF_ANY), 0, "%s: values wait for a device", name);
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	for (int ms = 0; ms < 5000 && (uint32_t)run_count(&r, seen, 0) != 3; ms++)
		usleep(1000);
	is_int((uint32_t)run_count(&r, seen, 0), 3, "%s: the device has them", name);
	is_int(all_values(&r, map), stack ? 321 : 123, "%s: each is there once", name);
	is_int(push_all(&r, map, more, 3, BPF_ANY), -E2BIG, "%s: two more fit, a third does not", name);
	is_int(all_values(&r, map), stack ? 54321 : 12345, "%s: and is not there", name);
	is_int(push_all(&r, map, &more[2], 1, BPF_EXIST), 0, "%s: where it may take the place of the oldest, it does", name);
	is_int(all_values(&r, map), stack ? 65432 : 23456, "%s: those are left", name);
	is_int(pop_one(&r, map, &err), stack ? 6 : 2, "%s: the host pops", name);
	is_int(all_values(&r, map), stack ? 5432 : 3456, "%s: what it popped is gone", name);
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "%s: the target ended well", name);
	is_int((uint32_t)run_count(&r, seen, 0), 4, "%s: and found what the host had left", name);
	for (int i = 0; i < 4; i++)
		is_int(pop_one(&r, map, &err), stack ? 5 - i : 3 + i, "%s: after the end the host pops what is left", name);
	pop_one(&r, map, &err);
	is_int(err, -ENOENT, "%s: until it is empty", name);
	is_int(push_all(&r, map, three, 2, BPF_ANY), 0, "%s: for another target", name);
	pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "%s: it ended well", name);
	is_int(all_values(&r, map), stack ? 21 : 12, "%s: and nobody else", name);
	run_end(&r);
}

/* A kernel runs: values wait for its end, and are not lost. */
static void queue_while_running(void)
{
	static const uint64_t one = 7, eight = 8;
	struct run r;
	int err;
	run_begin(&r);
	uint32_t seen = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1), map = run_map(&r, BPF_MAP_TYPE_QUEUE, 0, 8, 5);
	struct ebpf_fragment f = live_count(seen, map);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "running");
	await(session_path(r.session), "ready");
	is_int(push_all(&r, map, &one, 1, BPF_ANY), -ETIMEDOUT, "beside a kernel nothing is pushed");
	is_int(push_all(&r, map, &one, 1, BPF_ANY), -EBUSY, "and the next one waits for the first");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target ended well");
	is_int(push_all(&r, map, &eight, 1, BPF_ANY), 0, "after its end a value is pushed");
	uint64_t all = all_values(&r, map);
	/* What the target has left lies behind what the host has. */
	if (!ok(all == 8 || all == 78 || all == 87, "it is there, and the first once at most"))
		printf("# %llu\n", (unsigned long long)all);
	for (int n = all > 10 ? 2 : 1; n; n--)
		pop_one(&r, map, &err);
	is_int(err, 0, "as many are popped");
	pop_one(&r, map, &err);
	is_int(err, -ENOENT, "and no more");
	run_end(&r);
}

static int bloom_has(struct run *r, uint32_t map, uint64_t value)
{
	struct map *m;
	if (map_open(r->session, map, &m, NULL))
		return -1;
	int err = map_peek(m, &value);
	map_close(m);
	return err;
}

static void bloom(void)
{
	static const uint64_t values[] = { 11, 22, 33 };
	struct run r;
	run_begin(&r);
	uint32_t seen = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1), map = run_map(&r, BPF_MAP_TYPE_BLOOM_FILTER, 0, 8, 100);
	struct ebpf_fragment f = live_count(seen, map);
	run_attach(&r, &f, "fill");
	is_int(push_all(&r, map, values, 1, BPF_ANY), 0, "a value is put into a Bloom filter");
	pid_t pid = run_start(&r, "two");
	await(session_path(r.session), "ready");
	is_int(push_all(&r, map, &values[1], 1, BPF_ANY), 0, "another when two devices have it");
	is_int(bloom_has(&r, map, 11) | bloom_has(&r, map, 22), 0, "both are in it");
	is_int(bloom_has(&r, map, 33), -ENOENT, "a third is not");
	is_int(push_all(&r, map, &values[2], 1, BPF_EXIST), -EINVAL, "it has no flags");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target ended well");
	is_int(push_all(&r, map, &values[2], 1, BPF_ANY), 0, "a third after the end");
	is_int(bloom_has(&r, map, 11) | bloom_has(&r, map, 22) | bloom_has(&r, map, 33), 0, "all are in it");
	run_end(&r);
}

/* -- maps in host memory -- */

static uint32_t host_map(struct run *r, uint32_t type, uint32_t entries)
{
	struct ebpf_map def = { .name = "here", .type = type, .key_size = 4, .value_size = 8, .max_entries = entries, .flags = MAP_FLAG_HOST };
	struct diag d = { 0 };
	uint32_t id = 0;
	if (session_add_map(r->session, &def, &id, &d))
		printf("# %s\n", d.text);
	return id;
}

/* Copies of the map that its first instance says there were; -1: it has none. */
static int64_t copies(struct run *r, uint32_t map, pid_t pid)
{
	struct map_instance head;
	char path[512];
	snprintf(path, sizeof(path), "%s/map-%u.%d.0", session_path(r->session), map, (int)pid);
	int fd = open(path, O_RDONLY);
	int64_t n = fd >= 0 && read(fd, &head, sizeof(head)) == sizeof(head) ? (int64_t)head.generation / 2 : -1;
	close(fd);
	return n;
}

static void host_memory(void)
{
	struct run r;
	run_begin(&r);
	uint32_t sum = host_map(&r, BPF_MAP_TYPE_ARRAY, 3), step = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	put(&r, step, 0, 1, BPF_ANY);
	put(&r, sum, 2, 9, BPF_ANY);
	struct ebpf_fragment f = adder(sum, step);
	run_attach(&r, &f, "fill");
	pid_t pid = run_start(&r, "paused");
	await(session_path(r.session), "ready");
	is_int(run_count(&r, sum, 0), 3 * ALL, "in host memory: what launches counted is there when they have ended");
	is_int(copies(&r, sum, pid), 0, "without a copy");
	is_int(put(&r, sum, 0, 1000, BPF_ANY), 0, "it is written");
	is_int(run_count(&r, sum, 0), 1000, "and read");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target's results are right");
	is_int(run_count(&r, sum, 0), 1000 + 2 * ALL, "it counts on from there");
	is_int(run_count(&r, sum, 2), 9, "the other element kept its value");
	run_end(&r);
}

/* The kernel goes on while the host reads what it has counted. */
static void host_memory_while_running(void)
{
	struct run r;
	run_begin(&r);
	uint32_t seen = host_map(&r, BPF_MAP_TYPE_ARRAY, 1), keys = host_map(&r, BPF_MAP_TYPE_HASH, 8);
	put(&r, keys, 7, 70, BPF_ANY);
	struct ebpf_fragment f = counter(seen, EBPF_POINT_ENTRY), g = live_count(seen, keys);
	run_attach(&r, &f, "spin");
	run_attach(&r, &g, "fill");
	pid_t pid = run_start(&r, "running");
	await(session_path(r.session), "ready");
	ok(shows(&r, seen, 0, 2), "in host memory: a kernel that runs is counted, over what the one before it has stored");
	is_int(put(&r, keys, 7, 71, BPF_ANY), 0, "the value of a key is written beside it");
	is_int(run_count(&r, keys, 7), 71, "and read");
	is_int(put(&r, keys, 8, 80, BPF_ANY), -ETIMEDOUT, "a new key waits for its end");
	go(&r);
	is_int(run_wait(&r, pid, 60), 0, "the target ended well");
	is_int(put(&r, keys, 8, 81, BPF_ANY), 0, "after its end the key is written");
	is_int(run_count(&r, keys, 8), 81, "and is there");
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	host_memory();
	host_memory_while_running();
	queues(false);
	queues(true);
	queue_while_running();
	bloom();
	arrays();
	contexts();
	devices();
	while_busy();
	per_cpu();
	hash();
	lru();
	while_running();
	globals();
	folds(false, "paused");
	folds(true, "paused");
	folds(false, "two");
	hash_replicas();
	killed();
	return tap_done();
}
