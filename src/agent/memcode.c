/* memcode.c - machine code for devices in the process's memory: the images that its libraries keep, and those that a driver does.
 *
 * They are wanted only where several texts may be what was loaded (texts.c), so memory is looked through for them only then, for their
 * headers. Machine code that we have made ourselves names things of ours, and is left out.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum {
	ALIGN = 8, /* of an image */
	MAX_PLACES = 1 << 17,
	MAX_IMAGE = 64 << 20,
	MACHINE = 190,
};
#define OURS "__egpu_"

static struct {
	struct lock lock;
	uintptr_t *places; /* with n and cap, under lock */
	size_t n, cap;
	uint64_t begun_ns; /* 0: never */
	bool going;
} c;

void memcode_see(uintptr_t at, const char *bytes, size_t n)
{
	for (size_t i = 0; i + sizeof(Elf64_Ehdr) <= n; i += ALIGN) {
		uint16_t kind[2]; /* e_type, e_machine */
		if (memcmp(bytes + i, ELFMAG, SELFMAG))
			continue;
		memcpy(kind, bytes + i + offsetof(Elf64_Ehdr, e_type), sizeof(kind));
		if (kind[0] != ET_EXEC || kind[1] != MACHINE) /* others are what a linker has been given */
			continue;
		lock_take(&c.lock);
		if (c.n == c.cap) {
			size_t more = c.cap ? c.cap * 2 : 256;
			void *list = more <= MAX_PLACES ? realloc(c.places, more * sizeof(*c.places)) : NULL;
			c.places = list ? list : c.places;
			c.cap = list ? more : c.cap;
		}
		if (c.n < c.cap)
			c.places[c.n++] = at + i;
		lock_drop(&c.lock);
	}
}

static void add_part(const struct mapping *m, void *arg)
{
	if (memtext_wants(m))
		memory_add(&(struct memory_part){ m->from, m->to, m->from, m->to, MEMORY_CODE, !m->writable });
}

bool memcode_look(uint64_t asked_ns, uint64_t until_ns)
{
	if (!c.begun_ns || c.begun_ns < asked_ns) {
		if (memory_busy())
			return false;
		c.n = 0;
		c.begun_ns = now_ns();
		c.going = true;
		memory_open();
		memory_each(add_part, NULL);
		memory_sweep();
	}
	if (c.going && !memory_swept(until_ns))
		return false;
	if (c.going)
		agent_log("machine code in memory: %zu images, found in %.1f ms", c.n, (double)(now_ns() - c.begun_ns) / 1e6);
	c.going = false;
	return true;
}

/* -- one image ------------------------------------------------------------------------- */

static void *copy_of(uintptr_t at, size_t bytes)
{
	char *p = bytes ? malloc(bytes + 1) : NULL;
	if (p && memory_read(at, p, bytes) == bytes) {
		p[bytes] = 0;
		return p;
	}
	free(p);
	return NULL;
}

/* How long it is, by its table of sections; 0: it is none any more, or has no code of this kernel. */
static size_t extent(uintptr_t at, const char *kernel)
{
	Elf64_Ehdr h;
	size_t end = sizeof(h), wanted = 0;
	if (memory_read(at, &h, sizeof(h)) != sizeof(h) || memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_shentsize != sizeof(Elf64_Shdr) ||
		!h.e_shnum || h.e_shoff > MAX_IMAGE || h.e_shstrndx >= h.e_shnum)
		return 0;
	Elf64_Shdr *heads = copy_of(at + h.e_shoff, h.e_shnum * sizeof(*heads));
	const Elf64_Shdr *table = heads ? &heads[h.e_shstrndx] : NULL;
	bool fine = table && table->sh_offset <= MAX_IMAGE && table->sh_size <= MAX_IMAGE;
	char *names = fine ? copy_of(at + table->sh_offset, table->sh_size) : NULL;
	for (size_t i = 0; names && i < h.e_shnum; i++) {
		const Elf64_Shdr *s = &heads[i];
		const char *name = s->sh_name < table->sh_size ? names + s->sh_name : "";
		wanted += !strncmp(name, ".text.", 6) && !strcmp(name + 6, kernel);
		if (s->sh_type == SHT_NOBITS || s->sh_type == SHT_NULL)
			continue;
		if (s->sh_offset > MAX_IMAGE || s->sh_size > MAX_IMAGE)
			wanted = 0;
		else if (s->sh_offset + s->sh_size > end)
			end = s->sh_offset + s->sh_size;
	}
	free(names);
	free(heads);
	if (h.e_shoff + h.e_shnum * sizeof(*heads) > end)
		end = h.e_shoff + h.e_shnum * sizeof(*heads);
	return wanted ? end : 0;
}

void memcode_each(const char *name, void (*fn)(const char *elf, size_t bytes, void *arg), void *arg)
{
	for (size_t i = 0; i < c.n; i++) {
		size_t bytes = extent(c.places[i], name);
		char *elf = copy_of(c.places[i], bytes);
		if (elf && !memmem(elf, bytes, OURS, sizeof(OURS) - 1))
			fn(elf, bytes, arg);
		free(elf);
	}
}

void memcode_end(void)
{
	free(c.places);
	c.places = NULL;
	c.n = c.cap = 0;
	c.begun_ns = 0;
	c.going = false;
}
