/* work.c - launches one of the measured kernels again and again and prints how long each launch took, as a line of JSON.
 *
 *   bench_gpu_work KERNEL [--size N] [--rounds N] [--warm N] [--arms plain,counts,...] [--image FILE] [--pause MS] [--small] [--cupti]
 *
 * Times are those of events around the launch, in steady state: a read of 256 MiB goes before each, which empties the second-level cache and
 * keeps the device busy while the launch is enqueued. The arms of a round follow each other. Output is checked once all rounds are
 * done, and so is what the hand-written recordings counted; a difference is status 1. Kernel "sequence" is the small vector add,
 * launched back to back: the time of one launch, which the host's part bounds.
 */
#include "../../samples/common.h"
#include "gpu_kernels.h"
#include "record.h"

#include <math.h>

enum { MAX_ARMS = 8, MAX_ROUNDS = 1000, SITES = 4, LAUNCH_SEQUENCE = 500, FLUSH_BYTES = 256 << 20 };

struct work {
	const char *name, *kernel;
	uint64_t size, default_size, threads;
	uint64_t accesses[SITES], access_bytes[SITES]; /* of one launch; ~0: not known beforehand */
	uint64_t blocks[3];
	unsigned grid[2], block[2];
	CUdeviceptr in[3], out;
	uint64_t bits; /* hashjoin */
	uint32_t size32, bits32;
	void *params[8];
	int n_params;
};

static CUmodule module;
static CUfunction flush_fn;
static CUdeviceptr flush_buffer, wrong;
static struct record record;
static uint64_t ring_bytes = 512 << 20, flush_bytes = FLUSH_BYTES;

/* Copied, not set: a memset is a kernel of the driver's, after which CUPTI 13.0 patches nothing. */
static CUdeviceptr zeroed(uint64_t bytes)
{
	enum { PART = 64 << 20 };
	static char *zeros;
	CUdeviceptr p = device_memory(bytes);
	if (!zeros)
		zeros = calloc(1, PART);
	if (!zeros)
		die("out of memory");
	for (uint64_t at = 0; at < bytes; at += PART)
		CHECK(MemcpyHtoD(p + at, zeros, bytes - at < PART ? bytes - at : PART));
	return p;
}

static void run_helper(const char *kernel, uint64_t threads, void **params)
{
	launch_1d(get_kernel(module, kernel), threads, 256, NULL, params);
	CHECK(CtxSynchronize());
}

static CUdeviceptr floats(uint64_t n, uint32_t modulus, float scale)
{
	CUdeviceptr p = device_memory(n * 4);
	void *params[] = { &p, &n, &modulus, &scale };
	run_helper("fill_floats", 1 << 18, params);
	return p;
}

static float float_at(CUdeviceptr p, uint64_t i)
{
	float f;
	CHECK(MemcpyDtoH(&f, p + i * 4, 4));
	return f;
}

static void shape(struct work *w, unsigned gx, unsigned gy, unsigned bx, unsigned by)
{
	w->grid[0] = gx;
	w->grid[1] = gy;
	w->block[0] = bx;
	w->block[1] = by;
	w->threads = (uint64_t)gx * gy * bx * by;
}

static void param(struct work *w, void *p)
{
	w->params[w->n_params++] = p;
}

static uint64_t count_wrong(const char *kernel, uint64_t threads, void **params)
{
	uint64_t n;
	CHECK(MemsetD8(wrong, 0, 8));
	run_helper(kernel, threads, params);
	CHECK(MemcpyDtoH(&n, wrong, 8));
	return n;
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 29;
}

/* -- each kernel's data and check --------------------------------------------------------- */

static void sites(struct work *w, int n, const uint64_t *accesses, const uint64_t *bytes)
{
	memcpy(w->accesses, accesses, (size_t)n * 8);
	memcpy(w->access_bytes, bytes, (size_t)n * 8);
}

static void make_vecadd(struct work *w)
{
	uint64_t n = w->size;
	w->in[0] = floats(n, 1021, 0.5f);
	w->in[1] = floats(n, 509, 1.0f);
	w->out = zeroed(n * 4);
	shape(w, (unsigned)((n + 255) / 256), 1, 256, 1);
	param(w, &w->in[0]);
	param(w, &w->in[1]);
	param(w, &w->out);
	param(w, &w->size);
	sites(w, 3, (uint64_t[]){ n, n, n }, (uint64_t[]){ 4, 4, 4 });
}

static bool check_vecadd(struct work *w)
{
	void *params[] = { &w->in[0], &w->in[1], &w->out, &w->size, &wrong };
	return !count_wrong("check_vecadd", w->size, params);
}

static void make_matmul(struct work *w)
{
	uint64_t n = w->size;
	w->in[0] = floats(n * n, 5, 1.0f);
	w->in[1] = floats(n * n, 7, 1.0f);
	w->out = zeroed(n * n * 4);
	shape(w, (unsigned)(n / 16), (unsigned)(n / 16), 16, 16);
	param(w, &w->in[0]);
	param(w, &w->in[1]);
	param(w, &w->out);
	param(w, &w->size32);
	sites(w, 3, (uint64_t[]){ n * n * n / 16, n * n * n / 16, n * n }, (uint64_t[]){ 4, 4, 4 });
	w->blocks[0] = w->blocks[2] = n * n;
	w->blocks[1] = n * n * n / 16;
}

/* Whole numbers below 2^24: exact. Some elements, corners among them. */
static bool check_matmul(struct work *w)
{
	uint64_t n = w->size;
	float *a = host_memory(n, 4), *b = host_memory(n * n, 4);
	bool good = true;
	CHECK(MemcpyDtoH(b, w->in[1], n * n * 4));
	for (uint64_t s = 0; s < 32 && good; s++) {
		uint64_t row = s == 0 ? 0 : s == 1 ? n - 1 : mix(s) % n, col = s == 0 ? 0 : s == 1 ? n - 1 : mix(s + 99) % n;
		float sum = 0;
		CHECK(MemcpyDtoH(a, w->in[0] + row * n * 4, n * 4));
		for (uint64_t k = 0; k < n; k++)
			sum += a[k] * b[k * n + col];
		good = sum == float_at(w->out, row * n + col);
	}
	free(a);
	free(b);
	return good;
}

static void make_reduce(struct work *w)
{
	uint64_t n = w->size;
	w->in[0] = device_memory(n * 4);
	void *params[] = { &w->in[0], &n };
	run_helper("fill_numbers", 1 << 18, params);
	w->out = zeroed(8);
	shape(w, (unsigned)((n + 255) / 256 < 1056 ? (n + 255) / 256 : 1056), 1, 256, 1);
	param(w, &w->in[0]);
	param(w, &w->out);
	param(w, &w->size);
	sites(w, 2, (uint64_t[]){ n, w->grid[0] }, (uint64_t[]){ 4, 8 });
}

static uint64_t launches; /* of the kernel in all its forms */

static bool check_reduce(struct work *w)
{
	uint64_t n = w->size, rest = n % 1000, sum = n / 1000 * 499500 + (rest ? rest * (rest - 1) / 2 : 0), got;
	CHECK(MemcpyDtoH(&got, w->out, 8));
	return got == sum * launches;
}

static void make_transpose(struct work *w)
{
	uint64_t n = w->size;
	w->in[0] = floats(n * n, 65537, 1.0f);
	w->out = zeroed(n * n * 4);
	shape(w, (unsigned)(n / 32), (unsigned)(n / 32), 32, 8);
	param(w, &w->in[0]);
	param(w, &w->out);
	param(w, &w->size32);
	sites(w, 2, (uint64_t[]){ n * n, n * n }, (uint64_t[]){ 4, 4 });
}

static bool check_transpose(struct work *w)
{
	void *params[] = { &w->in[0], &w->out, &w->size32, &wrong };
	return !count_wrong("check_transpose", w->size * w->size, params);
}

enum { HEADS = 16, HEAD = 64 };

static void make_attention(struct work *w)
{
	uint64_t n = w->size * HEADS * HEAD;
	for (int i = 0; i < 3; i++)
		w->in[i] = floats(n, 201 + 10 * (uint32_t)i, 0.01f);
	w->out = zeroed(n * 4);
	shape(w, (unsigned)(w->size / 64), HEADS, 64, 1);
	for (int i = 0; i < 3; i++)
		param(w, &w->in[i]);
	param(w, &w->out);
	param(w, &w->size32);
	sites(w, 4, (uint64_t[]){ n, n * (w->size / 64), n * (w->size / 64), n }, (uint64_t[]){ 4, 4, 4, 4 });
}

static bool check_row(struct work *w, const float *q, const float *k, const float *v, const float *o)
{
	double out[HEAD] = { 0 }, weight = 0, top = -1e300;
	for (int pass = 0; pass < 2; pass++)
		for (uint64_t j = 0; j < w->size; j++) {
			double score = 0;
			for (int d = 0; d < HEAD; d++)
				score += (double)q[d] * k[j * HEAD + (uint64_t)d] / 8;
			if (pass == 0) {
				top = score > top ? score : top;
				continue;
			}
			double part = exp(score - top);
			weight += part;
			for (int d = 0; d < HEAD; d++)
				out[d] += part * v[j * HEAD + (uint64_t)d];
		}
	for (int d = 0; d < HEAD; d++)
		if (fabs(out[d] / weight - o[d]) > 1e-4)
			return false;
	return true;
}

static bool check_attention(struct work *w)
{
	size_t bytes = w->size * HEAD * 4;
	float *m[4];
	bool good = true;
	for (int i = 0; i < 4; i++)
		m[i] = host_memory(w->size * HEAD, 4);
	for (uint64_t head = 0; head < HEADS; head += HEADS - 1) {
		for (int i = 0; i < 4; i++)
			CHECK(MemcpyDtoH(m[i], (i < 3 ? w->in[i] : w->out) + head * bytes, bytes));
		for (uint64_t s = 0; s < 8 && good; s++) {
			uint64_t row = s == 0 ? 0 : mix(s) % w->size;
			good = check_row(w, m[0] + row * HEAD, m[1], m[2], m[3] + row * HEAD);
		}
	}
	for (int i = 0; i < 4; i++)
		free(m[i]);
	return good;
}

/* size keys are looked up, half as many are in a table of at least as many rows as keys. */
static void make_hashjoin(struct work *w)
{
	uint64_t keys = w->size / 2;
	while ((UINT64_C(1) << w->bits) < w->size)
		w->bits++;
	w->bits32 = (uint32_t)w->bits;
	w->in[0] = zeroed(UINT64_C(16) << w->bits);
	w->out = zeroed(8192);
	void *params[] = { &w->in[0], &w->bits32, &keys };
	run_helper("fill_table", keys, params);
	shape(w, (unsigned)((w->size + 255) / 256), 1, 256, 1);
	param(w, &w->in[0]);
	param(w, &w->bits32);
	param(w, &w->size);
	param(w, &w->out);
	sites(w, 2, (uint64_t[]){ UINT64_MAX, w->size }, (uint64_t[]){ 8, 8 });
}

static bool check_hashjoin(struct work *w)
{
	uint64_t sums[1024], got = 0, want = 0;
	CHECK(MemcpyDtoH(sums, w->out, sizeof(sums)));
	for (int i = 0; i < 1024; i++)
		got += sums[i];
	for (uint64_t i = 0; i < w->size; i++)
		want += 3 * (mix(i * 2 + 1) % (w->size / 2) + 1);
	return got == want * launches;
}

static const struct kind {
	const char *name, *kernel;
	uint64_t size, multiple, max;
	void (*make)(struct work *);
	bool (*check)(struct work *);
} kinds[] = {
	{ "small", "vecadd", 1 << 20, 1, 1 << 30, make_vecadd, check_vecadd },
	{ "sequence", "vecadd", 1 << 20, 1, 1 << 30, make_vecadd, check_vecadd },
	{ "vecadd", "vecadd", 1 << 27, 1, 1 << 30, make_vecadd, check_vecadd },
	{ "matmul", "matmul", 4096, 16, 32768, make_matmul, check_matmul },
	{ "reduce", "reduce", 1 << 27, 1, 1 << 30, make_reduce, check_reduce },
	{ "transpose", "transpose", 8192, 32, 32768, make_transpose, check_transpose },
	{ "attention", "attention", 4096, 64, 32768, make_attention, check_attention },
	{ "hashjoin", "hashjoin", 1 << 26, 2, 1 << 30, make_hashjoin, check_hashjoin },
};
enum { N_KINDS = sizeof(kinds) / sizeof(*kinds) };

/* -- arms ------------------------------------------------------------------------------------- */

struct arm {
	char name[24];
	CUfunction fn;
	bool recording;
	uint64_t launches;
	float ms[MAX_ROUNDS];
};

static void make_record(CUdevice dev)
{
	int sms;
	CHECK(DeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev));
	if (sms > RECORD_SMS)
		die("the device has more than %d multiprocessors", RECORD_SMS);
	record.counters = (unsigned long long *)(uintptr_t)zeroed(RECORD_SMS * RECORD_COUNTERS * 8);
	record.heads = (unsigned long long *)(uintptr_t)zeroed(RECORD_SMS * 16 * 8);
	record.slots = (struct record_slot *)(uintptr_t)zeroed(RECORD_SLOTS * sizeof(struct record_slot));
	record.ring = (unsigned char *)(uintptr_t)device_memory(ring_bytes);
	record.shard_bytes = ring_bytes / (uint64_t)sms / 16 * 16;
}

static void clear_record(void)
{
	CHECK(MemsetD8((CUdeviceptr)(uintptr_t)record.counters, 0, RECORD_SMS * RECORD_COUNTERS * 8));
	CHECK(MemsetD8((CUdeviceptr)(uintptr_t)record.heads, 0, RECORD_SMS * 16 * 8));
	CHECK(MemsetD8((CUdeviceptr)(uintptr_t)record.slots, 0, RECORD_SLOTS * sizeof(struct record_slot)));
}

static uint64_t counter(const uint64_t *all, int i)
{
	uint64_t sum = 0;
	for (int sm = 0; sm < RECORD_SMS; sm++)
		sum += all[sm * RECORD_COUNTERS + i];
	return sum;
}

/* Records written and dropped of one launch. */
static uint64_t records_made(uint64_t *dropped)
{
	uint64_t heads[RECORD_SMS * 16], made = 0;
	CHECK(MemcpyDtoH(heads, (CUdeviceptr)(uintptr_t)record.heads, sizeof(heads)));
	*dropped = 0;
	for (int sm = 0; sm < RECORD_SMS; sm++) {
		made += heads[sm * 16] / sizeof(struct record_access);
		*dropped += heads[sm * 16 + 1];
	}
	return made;
}

static uint64_t table_sum(uint32_t *keys)
{
	static struct record_slot slots[RECORD_SLOTS];
	uint64_t sum = 0;
	CHECK(MemcpyDtoH(slots, (CUdeviceptr)(uintptr_t)record.slots, sizeof(slots)));
	*keys = 0;
	for (int i = 0; i < RECORD_SLOTS; i++) {
		*keys += slots[i].key != 0;
		sum += slots[i].value;
	}
	return sum;
}

static void expect(const char *arm, const char *what, uint64_t got, uint64_t want)
{
	if (got != want)
		die("arm %s: %s is %" PRIu64 ", not %" PRIu64, arm, what, got, want);
}

/* What one launch has recorded. */
static void check_record(const struct work *w, const struct arm *a)
{
	static uint64_t counters[RECORD_SMS * RECORD_COUNTERS];
	uint64_t dropped, all = 0;
	uint32_t keys;
	CHECK(MemcpyDtoH(counters, (CUdeviceptr)(uintptr_t)record.counters, sizeof(counters)));
	for (int i = 0; i < SITES; i++)
		all += w->accesses[i];
	if (!strcmp(a->name, "entry"))
		expect(a->name, "the count of threads", counter(counters, 0), w->threads);
	for (int i = 0; !strcmp(a->name, "counts") && i < SITES; i++)
		if (w->accesses[i] != UINT64_MAX) {
			expect(a->name, "executions", counter(counters, 2 * i), w->accesses[i]);
			expect(a->name, "bytes", counter(counters, 2 * i + 1), w->accesses[i] * w->access_bytes[i]);
		}
	for (int i = 0; !strcmp(a->name, "blocks") && i < 3; i++)
		expect(a->name, "block", counter(counters, i), w->blocks[i]);
	if (!strcmp(a->name, "record")) {
		expect(a->name, "records", records_made(&dropped), all);
		expect(a->name, "records dropped", dropped, 0);
	}
	if (!strcmp(a->name, "warprec")) {
		expect(a->name, "records", records_made(&dropped), (w->size + 31) / 32 * 3);
		expect(a->name, "records dropped", dropped, 0);
	}
	if (!strcmp(a->name, "hash")) {
		expect(a->name, "threads in the table", table_sum(&keys), w->threads);
		expect(a->name, "keys", keys, w->grid[0] < RECORD_KEYS ? w->grid[0] : RECORD_KEYS);
	}
}

static void launch(const struct work *w, struct arm *a)
{
	void *params[10];
	memcpy(params, w->params, sizeof(w->params));
	params[w->n_params] = &record;
	CHECK(LaunchKernel(a->fn, w->grid[0], w->grid[1], 1, w->block[0], w->block[1], 1, 0, NULL, params, NULL));
	a->launches++;
	launches++;
}

static float timed(const struct work *w, struct arm *a, CUevent from, CUevent to, int times)
{
	uint64_t n = flush_bytes / 4;
	void *params[] = { &flush_buffer, &n, &wrong };
	float ms;
	if (a->recording)
		clear_record();
	CHECK(LaunchKernel(flush_fn, 528, 1, 1, 512, 1, 1, 0, NULL, params, NULL));
	CHECK(EventRecord(from, NULL));
	for (int i = 0; i < times; i++)
		launch(w, a);
	CHECK(EventRecord(to, NULL));
	CHECK(CtxSynchronize());
	CHECK(EventElapsedTime(&ms, from, to));
	if (a->recording)
		check_record(w, a);
	return ms / (float)times;
}

static int parse_arms(char *list, const char *kernel, struct arm *arms)
{
	int n = 0;
	for (char *s = strtok(list, ","); s; s = strtok(NULL, ",")) {
		char name[64];
		if (n == MAX_ARMS || strlen(s) >= sizeof(arms[n].name))
			die("--arms: too many or too long");
		snprintf(arms[n].name, sizeof(arms[n].name), "%s", s);
		arms[n].recording = strcmp(s, "plain") != 0;
		snprintf(name, sizeof(name), "%s%s%s", kernel, arms[n].recording ? "_" : "", arms[n].recording ? s : "");
		arms[n].fn = get_kernel(module, name);
		n++;
	}
	return n;
}

static char *read_image(const char *path)
{
	FILE *f = fopen(path, "rb");
	long size = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
	char *data = size >= 0 ? calloc(1, (size_t)size + 1) : NULL;
	if (!data || fseek(f, 0, SEEK_SET) || fread(data, 1, (size_t)size, f) != (size_t)size)
		die("cannot read %s: %s", path, strerror(errno));
	fclose(f);
	return data;
}

static void report(const struct work *w, const struct arm *arms, int n_arms, int rounds, bool good, const uint64_t *counted)
{
	char device[128];
	CHECK(DeviceGetName(device, sizeof(device), 0));
	printf("{\"kernel\": \"%s\", \"size\": %" PRIu64 ", \"threads\": %" PRIu64 ", \"blocks\": %u, \"device\": \"%s\", \"output\": %s, \"accesses\": [",
		w->name, w->size, w->threads, w->grid[0] * w->grid[1], device, good ? "true" : "false");
	for (int i = 0; i < SITES; i++)
		if (w->accesses[i] == UINT64_MAX)
			printf("%snull", i ? ", " : "");
		else
			printf("%s%" PRIu64, i ? ", " : "", w->accesses[i]);
	printf("], \"access_bytes\": [");
	for (int i = 0; i < SITES; i++)
		printf("%s%" PRIu64, i ? ", " : "", w->access_bytes[i]);
	printf("], \"block_counts\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "], \"arms\": {", w->blocks[0], w->blocks[1], w->blocks[2]);
	for (int a = 0; a < n_arms; a++) {
		printf("%s\"%s\": {\"launches\": %" PRIu64 ", \"ms\": [", a ? ", " : "", arms[a].name, arms[a].launches);
		for (int i = 0; i < rounds; i++)
			printf("%s%.6f", i ? ", " : "", (double)arms[a].ms[i]);
		printf("]}");
	}
	printf("}");
	if (counted)
		printf(", \"cupti\": [%" PRIu64 ", %" PRIu64 "]", counted[0], counted[1]);
	printf("}\n");
}

#ifdef HAVE_CUPTI
void cupti_open(void);
void cupti_start(void); /* cupti.c: ends the program with a sentence when it cannot */
void cupti_stop(const char *kernel, uint64_t counts[2]); /* executed loads and stores of global memory, by warps */
#else
static void cupti_open(void)
{
	die("--cupti: built without CUPTI");
}
static void cupti_start(void)
{
}
static void cupti_stop(const char *kernel, uint64_t counts[2])
{
}
#endif

int main(int argc, char **argv)
{
	static struct arm arms[MAX_ARMS];
	char plain[] = "plain", *list = plain;
	const char *image = NULL;
	uint64_t rounds = 10, warm = 3, size = 0, pause_ms = 0;
	bool cupti = false, small = false;
	struct work w = { 0 };
	const struct kind *kind = NULL;
	usage(argc, argv, 1, 99, "KERNEL [--size N] [--rounds N] [--warm N] [--arms A,B] [--image FILE] [--pause MS] [--small] [--cupti]");
	for (int i = 0; i < N_KINDS; i++)
		if (!strcmp(argv[1], kinds[i].name))
			kind = &kinds[i];
	if (!kind)
		die("no kernel '%s'", argv[1]);
	for (int i = 2; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		if (!strcmp(argv[i], "--cupti") || !strcmp(argv[i], "--small")) {
			*(argv[i][2] == 'c' ? &cupti : &small) = true;
			continue;
		}
		if (!strcmp(argv[i], "--size"))
			size = number(value, "--size", kind->multiple, kind->max);
		else if (!strcmp(argv[i], "--rounds"))
			rounds = number(value, "--rounds", 1, MAX_ROUNDS);
		else if (!strcmp(argv[i], "--warm"))
			warm = number(value, "--warm", 0, 1000);
		else if (!strcmp(argv[i], "--pause"))
			pause_ms = number(value, "--pause", 0, 10000);
		else if (!strcmp(argv[i], "--arms"))
			list = argv[i + 1];
		else if (!strcmp(argv[i], "--image"))
			image = value;
		else
			die("no option %s", argv[i]);
		if (!argv[++i])
			die("%s needs a value", argv[i - 1]);
	}
	w.name = kind->name;
	w.kernel = kind->kernel;
	w.size = (size ? size : kind->size) / kind->multiple * kind->multiple;
	w.size32 = (uint32_t)w.size;
	if (small) /* as on softgpu, which has no cache to empty */
		flush_bytes = 1 << 20, ring_bytes = 64 << 20;

	if (cupti)
		cupti_open();
	CUdevice dev = open_device();
	char *data = image ? read_image(image) : NULL;
	module = load_module(data ? data : sample_ptx);
	flush_fn = get_kernel(module, "flush");
	flush_buffer = zeroed(flush_bytes);
	wrong = zeroed(8);
	kind->make(&w);
	int n_arms = parse_arms(list, kind->kernel, arms), times = strcmp(kind->name, "sequence") ? 1 : LAUNCH_SEQUENCE;
	for (int a = 0; a < n_arms; a++)
		if (arms[a].recording && !record.counters)
			make_record(dev);
	CUevent from, to;
	CHECK(EventCreate(&from, 0));
	CHECK(EventCreate(&to, 0));
	/* CUPTI patches the kernel that is launched first, and no other. */
	if (cupti) {
		cupti_start();
		launch(&w, &arms[0]);
		CHECK(CtxSynchronize());
	}
	for (uint64_t r = 0; r < warm + rounds; r++)
		for (int a = 0; a < n_arms; a++) {
			float ms = timed(&w, &arms[a], from, to, times);
			if (r >= warm)
				arms[a].ms[r - warm] = ms;
			if (pause_ms)
				nanosleep(&(struct timespec){ (time_t)(pause_ms / 1000), (long)(pause_ms % 1000) * 1000000 }, NULL);
		}
	uint64_t counted[2] = { 0 };
	if (cupti)
		cupti_stop(kind->kernel, counted);
	bool good = kind->check(&w);
	report(&w, arms, n_arms, (int)rounds, good, cupti ? counted : NULL);
	if (!good)
		fprintf(stderr, "%s: %s: the output is wrong\n", sample_name, w.name);
	close_device(module, dev);
	free(data);
	return good ? 0 : 1;
}
