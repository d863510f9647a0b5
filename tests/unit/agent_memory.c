/* How the agent looks through memory: what lies across the borders of what is read at once is found, pages that nobody has touched stay so,
 * what goes away meanwhile is no harm, and in another look what is new is enough. With MEMORY_MB the time for that much is told.
 *
 * memory.c, memtext.c, texts.c and memcode.c alone; pointers are a word of our own, and an image is its text. */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent.h"
#include "tap.h"

enum { BORDER = 256 << 10, REGION = 9 << 20, PAGE = 4096 };
static uint64_t magic; /* in memory alone where it is put */

/* -- what they need of the agent -------------------------------------------------------- */

static bool threads = true;
static atomic_int seen;
static char text_of_image[1 << 16];
static struct image *const an_image = (struct image *)text_of_image;

int agent_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	return threads ? -pthread_create(thread, NULL, run, arg) : -EAGAIN;
}

void agent_log(const char *fmt, ...)
{
}

bool stream_ask_own(void)
{
	return false;
}

void slots_see(const struct memory_part *p, uintptr_t at, const char *bytes, size_t n)
{
	for (size_t i = 0; i + 8 <= n; i += 8)
		if (*(const uint64_t *)(bytes + i) == ~magic && !memory_is_ours(at + i))
			atomic_fetch_add(&seen, 1);
}

bool slots_wants(const struct mapping *m)
{
	return m->writable;
}

struct image *image_get_bytes(const void *data, size_t bytes, uint32_t cc)
{
	snprintf(text_of_image, sizeof(text_of_image), "%s", (const char *)data);
	return an_image;
}

/* Without a driver nothing tells what is loaded. */
const struct real *real_calls(void)
{
	static const struct real none;
	return &none;
}

CUresult compile_text(const char *ptx, size_t bytes, char **cubin, size_t *cubin_bytes)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

bool params_may_be(const char *behind_name, const char *end, CUfunction loaded, uint32_t *n)
{
	*n = UINT32_MAX;
	return true;
}

struct kernel *image_kernel(struct image *im, const char *name)
{
	return strstr((const char *)im, name) ? (struct kernel *)text_of_image : NULL;
}

/* -- the look ------------------------------------------------------------------------------ */

static void sweep_all(unsigned int what)
{
	memory_open();
	if (what & MEMORY_TEXT)
		memtext_begin();
	memory_add_all(what);
	memory_sweep();
	memory_wait();
	while (what & MEMORY_TEXT && !memtext_look(UINT64_MAX))
		;
}

static const char *why;

static bool found(const char *name)
{
	struct source_query q = { .name = name, .cc = 75 };
	struct texts t = { .n = 0 };
	struct image *im = NULL;
	why = NULL;
	memtext_find(name, &t);
	while (texts_image(&t, &q, UINT64_MAX, &im, &why))
		;
	texts_free(&t);
	return im && strstr(text_of_image, name);
}

static char *region(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		exit(2);
	madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

/* A text whose `.entry` begins at a place; written in parts, so that this program's own constants are no such text. */
static void put_text(char *entry, const char *name, const char *body)
{
	char head[64];
	int n = snprintf(head, sizeof(head), ".version 7.0\n.target sm_75\n.address_size 64\n.visible ");
	memcpy(entry - n, head, (size_t)n);
	memcpy(entry, ".ent", 4);
	sprintf(entry + 4, "ry %s()\n{\n\t%s\n}\n", name, body);
}

static void borders(void)
{
	char *p = region(REGION), name[32];
	int missed = 0;
	memset(p, 0, REGION);
	for (int i = 1; i < 34; i++) {
		snprintf(name, sizeof(name), "border_%d_x", i);
		put_text(p + (size_t)i * BORDER - i, name, "ret;");
	}
	/* The end of the mapping. */
	put_text(p + REGION - 40, "last_x", "ret;");
	sweep_all(MEMORY_TEXT | MEMORY_SLOTS);
	for (int i = 1; i < 34; i++) {
		snprintf(name, sizeof(name), "border_%d_x", i);
		missed += !found(name);
	}
	is_int(missed, 0, "kernels whose directive lies across a border by 1 to 33 bytes");
	ok(found("last_x"), "one at the end of a mapping");
	ok(!found("nobody"), "one that is not there");
	munmap(p, REGION);
	memtext_end();
}

static void several(void)
{
	char *p = region(REGION), *q = region(REGION);
	put_text(p + 1000, "same_x", "ret;");
	put_text(q + 5000, "same_x", "ret;");
	put_text(p + 9000, "differs_x", "ret;");
	put_text(q + 9000, "differs_x", "exit;");
	sweep_all(MEMORY_TEXT);
	ok(found("same_x"), "two texts that agree are one");
	ok(!found("differs_x") && why && strstr(why, "several"), "two that differ are none, with the reason");
	memcode_end();
	munmap(p, REGION);
	munmap(q, REGION);
	memtext_end();
}

static int resident(const char *p, size_t bytes)
{
	unsigned char *v = calloc(bytes / PAGE, 1);
	int n = 0;
	if (!v || mincore((void *)(uintptr_t)p, bytes, v))
		return -1;
	for (size_t i = 0; i < bytes / PAGE; i++)
		n += v[i] & 1;
	free(v);
	return n;
}

static void untouched(void)
{
	size_t bytes = (size_t)1 << 32;
	char *p = region(bytes);
	put_text(p + (bytes / 2) + 2 * PAGE - 3, "far_x", "ret;");
	p[5 * PAGE] = p[REGION] = 1;
	int before = resident(p, bytes);
	sweep_all(MEMORY_TEXT | MEMORY_SLOTS);
	is_int(resident(p, bytes), before, "4 GB that nobody has touched stay untouched");
	ok(found("far_x"), "what is in the middle of them is found");
	munmap(p, bytes);
	memtext_end();
}

static void pointers(void)
{
	uint64_t *p = (uint64_t *)region(REGION);
	for (size_t i = 0; i < 20; i++)
		p[i * BORDER / 8 + (i % 3) * 511] = ~magic;
	atomic_store(&seen, 0);
	sweep_all(MEMORY_SLOTS);
	is_int(seen, 20, "each word is seen once");
	atomic_store(&seen, 0);
	threads = false;
	memory_open();
	memory_add_all(MEMORY_SLOTS);
	memory_sweep();
	int slices = 0;
	while (!memory_swept(now_ns() + 20000))
		slices++;
	threads = true;
	is_int(seen, 20, "the same without a thread of its own, a little at a time");
	ok(slices > 1, "%d times", slices);
	/* The rest is left. */
	memory_open();
	memory_add_all(MEMORY_SLOTS);
	memory_stop();
	ok(!memory_busy(), "one that is not wanted any more ends");
	munmap(p, REGION);
}

static atomic_int over;

static void *come_and_go(void *arg)
{
	while (!atomic_load(&over)) {
		char *p = region(REGION);
		for (size_t i = 0; i < REGION; i += PAGE)
			p[i] = 1;
		munmap(p, REGION);
	}
	return arg;
}

static void moving(void)
{
	pthread_t t[2];
	char *p = region(REGION);
	put_text(p + 3000, "steady_x", "ret;");
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, come_and_go, NULL);
	int missed = 0;
	for (int i = 0; i < 10; i++) {
		sweep_all(MEMORY_TEXT | MEMORY_SLOTS);
		missed += !found("steady_x");
		memtext_end();
	}
	atomic_store(&over, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	is_int(missed, 0, "memory that comes and goes meanwhile is no harm, ten times");
	munmap(p, REGION);
}

static void again(void)
{
	char *p = region(REGION), *q;
	put_text(p + 1000, "early_x", "ret;");
	sweep_all(MEMORY_TEXT);
	ok(!memtext_again(0), "what was asked before the look is answered by it");
	/* One in a mapping that is new, and one in memory that was there. */
	q = region(REGION);
	put_text(q + 1000, "new_x", "ret;");
	put_text(p + 20000, "reused_x", "ret;");
	ok(memtext_again(now_ns()), "another look");
	memory_wait();
	bool all = memtext_look(UINT64_MAX);
	ok(found("new_x") && !all, "what is new is found before the rest is looked through");
	ok(found("early_x"), "what was found before counts still");
	ok(!found("reused_x"), "what came to old memory is not known yet");
	memtext_rest();
	memory_wait();
	ok(memtext_look(UINT64_MAX) && found("reused_x") && found("new_x") && found("early_x"), "in the end all of it is");
	munmap(p, REGION);
	munmap(q, REGION);
	memtext_end();
}

static void measure(size_t mib)
{
	char *p = region(mib << 20);
	unsigned int s = 1;
	for (size_t i = 0; i < 1 << 20; i++) {
		s = s * 1103515245 + 12345;
		p[i] = i % 64 < 24 ? 0 : s >> 16 & 3 ? "abcdefghijklmnopqrstuvwxyz._ ()\n"[s >> 19 & 31] : (char)(s >> 24);
	}
	for (size_t i = 1; i < mib; i++)
		memcpy(p + (i << 20), p, 1 << 20);
	put_text(p + ((mib / 2) << 20), "buried_x", "ret;");
	uint64_t t = now_ns();
	sweep_all(MEMORY_TEXT | MEMORY_SLOTS);
	double took = (double)(now_ns() - t) / 1e9;
	ok(found("buried_x"), "# %zu MiB in %.3f s: %.2f GB/s", mib, took, (double)(mib << 20) / took / 1e9);
	munmap(p, mib << 20);
	memtext_end();
}

int main(void)
{
	magic = ~(0x5ca1ab1e00000000ull | (uint64_t)getpid());
	borders();
	several();
	untouched();
	pointers();
	moving();
	again();
	const char *mib = getenv("MEMORY_MB");
	measure(mib ? strtoul(mib, NULL, 10) : 50);
	return tap_done();
}
