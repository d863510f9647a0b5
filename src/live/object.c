/* object.c - what the agent reads of prog-ID.live. */
#include "live/object.h"

#include <errno.h>
#include <string.h>

#include "bpf/program.h"
#include "live/call.h"
#include "live_run.h" /* made from interp.c: live_run_ptx, live_at_ptx */

const char *live_object_text(const void *data, size_t *size, size_t *text_bytes)
{
	struct live_tail tail;

	if (*size < sizeof(tail))
		return NULL;
	memcpy(&tail, (const char *)data + *size - sizeof(tail), sizeof(tail));
	if (tail.magic != LIVE_MAGIC || tail.text_bytes > *size - sizeof(tail))
		return NULL;
	*size -= sizeof(tail) + tail.text_bytes;
	*text_bytes = tail.text_bytes;
	return (const char *)data + *size;
}

int live_object_parse(const void *data, size_t size, const struct live_object **object, const struct live_reloc **relocs,
	const uint64_t **insns, struct diag *d)
{
	const struct live_object *o = data;
	size_t text_bytes;

	live_object_text(data, &size, &text_bytes);
	if (size < sizeof(*o) || o->magic != LIVE_MAGIC || !o->n_insns || o->n_insns > LIVE_MAX_INSNS || o->n_relocs > o->n_insns ||
		o->point >= LIVE_POINTS || o->trace > EBPF_MAX_MAPS ||
		size != sizeof(*o) + o->n_relocs * sizeof(struct live_reloc) + o->n_insns * sizeof(uint64_t))
		return diag_set(d, EINVAL, "a live program in the session is damaged");
	*relocs = (const struct live_reloc *)(o + 1);
	*insns = (const uint64_t *)(*relocs + o->n_relocs);
	for (uint32_t i = 0; i < o->n_relocs; i++)
		if ((*relocs)[i].insn + 1 >= o->n_insns || (*relocs)[i].map >= EBPF_MAX_MAPS)
			return diag_set(d, EINVAL, "a live program in the session is damaged");
	*object = o;
	return 0;
}

void live_put_address(uint64_t *insns, const struct live_reloc *r, uint64_t map)
{
	uint64_t at = map + r->offset, *lo = &insns[r->insn];

	lo[0] = (uint32_t)lo[0] | at << 32;
	lo[1] = (uint32_t)lo[1] | at >> 32 << 32;
}

const char *live_function_text(const char *name)
{
	const char *call = live_call_text(name);

	if (call)
		return call;
	if (!strcmp(name, LIVE_RUN))
		return live_run_ptx;
	return strcmp(name, LIVE_AT) ? NULL : live_at_ptx;
}
