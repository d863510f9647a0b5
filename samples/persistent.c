/* persistent MODE [MS [BLOCKS]]: a kernel that runs until the host ends it, and how many passes it makes a second.
 *
 * queue: blocks take work that the host offers; full: as many threads as fit; memory: copies without end. A line with the rate
 * comes every 100 ms; it also ends when a pipe at its standard input is closed. At the end what full and memory have computed is checked, and
 * "persistent: MODE ... ok" comes.
 */
#include "common.h"
#include "persistent.h"

#include <poll.h>

enum { WINDOW_MS = 100, MEMORY_WORDS = 64 << 20, SOFT_WORDS = 1 << 13, THREADS = 256, AHEAD = 4096 };

static void sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Words in device memory, moved on a stream beside the kernel's. */
struct side {
	CUstream stream;
	CUdeviceptr stop, tail, head, passes;
	uint64_t *host;
	int blocks;
};

static uint64_t read_word(const struct side *s, CUdeviceptr at)
{
	uint64_t v;
	CHECK(MemcpyDtoHAsync(&v, at, sizeof(v), s->stream));
	CHECK(StreamSynchronize(s->stream));
	return v;
}

static void write_word(const struct side *s, CUdeviceptr at, uint64_t v)
{
	CHECK(MemcpyHtoDAsync(at, &v, sizeof(v), s->stream));
	CHECK(StreamSynchronize(s->stream));
}

static uint64_t sum(const struct side *s)
{
	uint64_t n = 0;
	CHECK(MemcpyDtoHAsync(s->host, s->passes, (size_t)s->blocks * 8, s->stream));
	CHECK(StreamSynchronize(s->stream));
	for (int i = 0; i < s->blocks; i++)
		n += s->host[i];
	return n;
}

/* Whether whoever started us through a pipe has closed it. */
static bool told_to_end(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	return poll(&in, 1, 0) > 0 && (in.revents & POLLHUP);
}

/* Watches the kernel for ms milliseconds, offers work, prints rates; the last number of passes. */
static uint64_t watch(const struct side *s, unsigned ms, bool queue)
{
	double start = seconds(), last = start;
	uint64_t before = 0, now = 0;
	while (seconds() - start < ms / 1e3 && !told_to_end()) {
		sleep_ms(queue ? 1 : WINDOW_MS);
		if (queue)
			write_word(s, s->tail, read_word(s, s->head) + AHEAD);
		double t = seconds();
		if (t - last < WINDOW_MS / 1e3)
			continue;
		now = sum(s);
		printf("rate %.1f\n", (double)(now - before) / (t - last));
		fflush(stdout);
		before = now;
		last = t;
	}
	return now;
}

static CUdeviceptr zeroed(size_t bytes)
{
	CUdeviceptr p;
	CHECK(MemAlloc(&p, bytes));
	CHECK(MemsetD8(p, 0, bytes));
	return p;
}

/* -- memory: word i becomes i + 1, modulo something that floats hold exactly -- */

static float word_at(uint64_t i)
{
	return (float)(i % (1 << 20));
}

static float *words_of(uint64_t words)
{
	float *w = malloc(words * sizeof(*w));
	if (!w)
		die("out of memory");
	return w;
}

static void fill(CUdeviceptr from, uint64_t words)
{
	float *w = words_of(words);
	for (uint64_t i = 0; i < words; i++)
		w[i] = word_at(i);
	CHECK(MemcpyHtoD(from, w, words * sizeof(*w)));
	free(w);
}

/* A block that began when it was told to end has copied nothing. */
static void check_memory(CUdeviceptr to, uint64_t words)
{
	float *w = words_of(words);
	CHECK(MemcpyDtoH(w, to, words * sizeof(*w)));
	for (uint64_t i = 0; i < words; i++)
		if (w[i] != 0 && w[i] != word_at(i) + 1)
			die("word %llu is %g, not %g", (unsigned long long)i, (double)w[i], (double)word_at(i) + 1);
	free(w);
}

/* full: x = 0.999 x + y goes to 1,000 y, from 1; after a pass a part 0.999^1000 of the way is left. */
static void check_full(CUdeviceptr out, uint64_t threads)
{
	float *w = words_of(threads);
	CHECK(MemcpyDtoH(w, out, threads * sizeof(*w)));
	for (uint64_t i = 0; i < threads; i++) {
		float end = 1000 * (float)(i % THREADS), low = 0.6f * end - 1, high = 1.001f * end + 1;
		if (!(w[i] >= low && w[i] <= high) && w[i] != 1)
			die("thread %llu ended with %g, not up to %g", (unsigned long long)i, (double)w[i], (double)end);
	}
	free(w);
}

int main(int argc, char **argv)
{
	usage(argc, argv, 1, 3,
		"MODE [MS [BLOCKS]]    queue, full or memory, for MS milliseconds (default 1000), BLOCKS blocks (default: what fits)");
	const char *mode = argv[1];
	unsigned ms = argc > 2 ? (unsigned)number(argv[2], "MS", 0, 3600000) : 1000;
	bool queue = !strcmp(mode, "queue"), memory = !strcmp(mode, "memory");
	if (!queue && !memory && strcmp(mode, "full"))
		die("MODE is queue, full or memory, not %s", mode);
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	CUfunction fn = get_kernel(module, mode);
	int sms, fit = 0;
	bool soft = getenv("EGPU_SAMPLE_SMALL") != NULL;
	CHECK(DeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev));
	CHECK(OccupancyMaxActiveBlocksPerMultiprocessor(&fit, fn, THREADS, 0));
	int blocks = argc > 3 ? (int)number(argv[3], "BLOCKS", 1, 65535) : queue ? sms : sms * fit;
	uint64_t words = soft ? SOFT_WORDS : MEMORY_WORDS;
	struct side s = { .stop = zeroed(8), .tail = zeroed(8), .head = zeroed(8), .passes = zeroed((size_t)blocks * 8), .blocks = blocks };
	CUdeviceptr out = zeroed(memory ? words * 4 : (size_t)blocks * THREADS * 4), from = memory ? zeroed(words * 4) : 0;
	if (memory)
		fill(from, words);
	CUstream stream;
	s.host = calloc((size_t)blocks, 8);
	CHECK(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(StreamCreate(&s.stream, CU_STREAM_NON_BLOCKING));
	write_word(&s, s.tail, AHEAD);
	CHECK(CtxSynchronize());
	void *work[] = { &s.stop, &s.tail, &s.head, &s.passes, &out };
	void *copy[] = { &s.stop, &from, &out, &s.passes, &words };
	CHECK(LaunchKernel(fn, (unsigned)blocks, 1, 1, THREADS, 1, 1, 0, stream, memory ? copy : work, NULL));
	uint64_t passes = watch(&s, ms, queue);
	if (cu.StreamQuery(stream) != CUDA_ERROR_NOT_READY)
		die("the kernel ended by itself");
	write_word(&s, s.stop, 1);
	CHECK(StreamSynchronize(stream));
	if (memory)
		check_memory(out, words);
	else if (!queue)
		check_full(out, (uint64_t)blocks * THREADS);
	printf("persistent: %s blocks=%d passes=%s ok\n", mode, blocks, passes ? "some" : "none");
	CHECK(StreamDestroy(stream));
	CHECK(StreamDestroy(s.stream));
	free(s.host);
	close_device(module, dev);
	return 0;
}
