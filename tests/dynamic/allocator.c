/* allocator.c - an allocator in the C library's place, as programs bring one along: one lock, held for a while. */
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CLASSES = 48, CHUNK = 1 << 22, CANNOT_BE_FREED = CLASSES };

struct block {
	size_t class, unused;
	struct block *next[];
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *lists[CLASSES];
static char *at, *end;

static void think(void)
{
	for (volatile int i = 0; i < 400; i++)
		;
}

static struct block *fresh(size_t class)
{
	size_t bytes = (size_t)1 << class;
	if ((size_t)(end - at) < bytes) {
		size_t room = bytes > CHUNK ? bytes : CHUNK;
		at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		end = at == MAP_FAILED ? at : at + room;
		if (at == MAP_FAILED)
			return NULL;
	}
	struct block *b = (struct block *)at;
	at += bytes;
	b->class = class;
	return b;
}

void *malloc(size_t n)
{
	size_t class = 5;
	while (class < CLASSES && (size_t)1 << class < n + sizeof(struct block))
		class++;
	if (class == CLASSES || n > (size_t)1 << 46)
		return NULL;
	pthread_mutex_lock(&lock);
	think();
	struct block *b = lists[class];
	if (b)
		lists[class] = b->next[0];
	else
		b = fresh(class);
	pthread_mutex_unlock(&lock);
	return b ? b + 1 : NULL;
}

void free(void *p)
{
	struct block *b = p ? (struct block *)p - 1 : NULL;
	if (!b || b->class == CANNOT_BE_FREED)
		return;
	pthread_mutex_lock(&lock);
	think();
	b->next[0] = lists[b->class];
	lists[b->class] = b;
	pthread_mutex_unlock(&lock);
}

void *calloc(size_t a, size_t b)
{
	void *p = b && a > SIZE_MAX / b ? NULL : malloc(a * b);
	return p ? memset(p, 0, a * b) : NULL;
}

void *realloc(void *p, size_t n)
{
	struct block *b = p ? (struct block *)p - 1 : NULL;
	size_t had = b && b->class != CANNOT_BE_FREED ? ((size_t)1 << b->class) - sizeof(*b) : 0;
	if (b && n <= had)
		return p;
	void *q = malloc(n);
	if (b && q) {
		memcpy(q, p, had ? had : n);
		free(p);
	}
	return q;
}

void *memalign(size_t align, size_t n)
{
	uintptr_t p = (uintptr_t)malloc(n + align + sizeof(struct block));
	if (!p || p % align == 0)
		return (void *)p;
	struct block *b = (struct block *)((p + sizeof(*b) + align - 1) & ~(align - 1)) - 1;
	b->class = CANNOT_BE_FREED;
	return b + 1;
}

void *aligned_alloc(size_t align, size_t n)
{
	return memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
	*p = memalign(align, n);
	return 0;
}
