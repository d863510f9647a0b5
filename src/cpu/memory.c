#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/state.h"

int interp_region(struct interp_state *s, void *start, uint64_t bytes, bool writable, bool record)
{
	if (!s->run->check || !start)
		return 0;
	for (uint32_t k = 0; k < s->n_regions; k++)
		if (s->regions[k].start == start && s->regions[k].bytes == bytes)
			return 0;
	if (s->n_regions >= s->cap_regions) {
		size_t cap = s->cap_regions ? s->cap_regions * 2 : 16;
		struct region *p = realloc(s->regions, cap * sizeof(*p));
		if (!p)
			return interp_stop(s, ENOMEM, "out of memory");
		s->regions = p;
		s->cap_regions = cap;
	}
	s->regions[s->n_regions++] = (struct region){ start, bytes, writable, record };
	return 0;
}

void interp_forget(struct interp_state *s, const void *start)
{
	for (uint32_t k = 0; k < s->n_regions; k++)
		if (s->regions[k].start == start)
			s->regions[k--] = s->regions[--s->n_regions];
}

bool interp_is_record(const struct interp_state *s, uint64_t address)
{
	for (uint32_t k = 0; k < s->n_regions; k++)
		if (s->regions[k].record && (uint64_t)(uintptr_t)s->regions[k].start == address)
			return true;
	return false;
}

/* The frame in use that holds all of [address, address + bytes), and where. */
static struct interp_frame *frame_at(struct interp_state *s, uint64_t address, uint64_t bytes, uint64_t *offset)
{
	for (uint32_t k = 0; k < s->n_frames; k++) {
		*offset = address - (uint64_t)(uintptr_t)s->frames[k].stack;
		if (*offset < EBPF_STACK_BYTES)
			return bytes <= EBPF_STACK_BYTES - *offset ? &s->frames[k] : NULL;
	}
	return NULL;
}

static const struct region *region_at(const struct interp_state *s, uint64_t address, uint64_t bytes)
{
	for (uint32_t k = 0; k < s->n_regions; k++) {
		uint64_t offset = address - (uint64_t)(uintptr_t)s->regions[k].start;
		if (offset < s->regions[k].bytes && bytes <= s->regions[k].bytes - offset)
			return &s->regions[k];
	}
	return NULL;
}

/* A test-run's buffer (region 0 where there is one) may be read and written at any address. */
static bool misaligned(const struct interp_state *s, const struct region *r, uint64_t address, uint32_t align)
{
	bool buffer = r && r == s->regions && s->run->program->context == EBPF_CONTEXT_NONE && s->run->program->memory_bytes;
	return (address & (align - 1)) && !buffer && !s->run->any_alignment;
}

int interp_readable(struct interp_state *s, uint64_t address, uint64_t bytes, uint32_t align)
{
	uint64_t offset;
	if (!s->run->check)
		return 0;
	struct interp_frame *f = frame_at(s, address, bytes, &offset);
	const struct region *r = f ? NULL : region_at(s, address, bytes);
	if (misaligned(s, r, address, align))
		return interp_stop(s, EFAULT, "misaligned read");
	if (f && memchr(f->set + offset, 0, bytes))
		return interp_stop(s, EFAULT, "read of stack bytes that were not written");
	return f || r ? 0 : interp_stop(s, EFAULT, "read out of bounds");
}

int interp_writable(struct interp_state *s, uint64_t address, uint64_t bytes, uint32_t align)
{
	uint64_t offset;
	if (!s->run->check)
		return 0;
	struct interp_frame *f = frame_at(s, address, bytes, &offset);
	const struct region *r = f ? NULL : region_at(s, address, bytes);
	if (misaligned(s, r, address, align))
		return interp_stop(s, EFAULT, "misaligned write");
	if (f) {
		memset(f->set + offset, 1, bytes);
		return 0;
	}
	if (r && !r->writable)
		return interp_stop(s, EFAULT, "write to read-only memory");
	return r ? 0 : interp_stop(s, EFAULT, "write out of bounds");
}

int interp_reg_set(struct interp_state *s, uint32_t reg)
{
	if (!s->run->check || (s->set >> reg & 1))
		return 0;
	return interp_stop(s, EFAULT, "read of a register that was not written");
}
