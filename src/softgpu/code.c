/* code.c - functions that a kernel finds in memory: what stands for machine code here.
 *
 * A call through a pointer that names no function of the module goes to what lies there: struct sg_code, and behind it the PTX of a
 * module that defines the function. Compiled images have this as their .text (driver_cubin.c). A grid reads it at the first call of
 * that address and never again, as hardware does that has an instruction in its cache: whoever writes a place again under a running
 * kernel gets the old function.
 */
#include <stdlib.h>
#include <string.h>

#include "softgpu/internal.h"

struct sg_foreign {
	struct sg_foreign *next;
	uint64_t at;
	struct sg_module *module;
	const struct sg_func *func;
};

static const struct sg_foreign *find(struct sg_foreign *first, uint64_t at)
{
	while (first && first->at != at)
		first = first->next;
	return first;
}

/* Whether all of it is memory that a kernel may read. */
static bool readable(struct sg_mem *m, uint64_t at, uint64_t bytes)
{
	for (uint64_t i = at & ~(uint64_t)255; i < at + bytes; i += 256)
		if (!sg_mem_at(m, i, i + 256 <= at + bytes ? 256 : (uint32_t)(at + bytes - i)))
			return false;
	return true;
}

static struct sg_foreign *load(struct sg_device *dev, uint64_t at)
{
	struct sg_code head;
	struct sg_foreign *f = NULL;
	if (at & 15 || !readable(&dev->mem, at, sizeof(head)))
		return NULL;
	memcpy(&head, (const void *)(uintptr_t)at, sizeof(head));
	if (head.magic != SG_CODE_MAGIC || head.bytes > SG_CODE_MAX || !memchr(head.name, 0, sizeof(head.name)) ||
		!readable(&dev->mem, at + sizeof(head), head.bytes) || !(f = calloc(1, sizeof(*f))))
		return NULL;
	f->at = at;
	if (sg_module_load(dev, (const char *)(uintptr_t)at + sizeof(head), head.bytes, &f->module, NULL) ||
		!(f->func = table_gets(f->module->funcs, head.name)) || f->func->is_entry || f->func->ptx->is_decl) {
		sg_module_free(f->module);
		free(f);
		return NULL;
	}
	return f;
}

const struct sg_func *sg_code_at(struct sg_grid *g, uint64_t at)
{
	const struct sg_foreign *known = find(atomic_load_explicit(&g->foreign, memory_order_acquire), at);
	if (known)
		return known->func;
	pthread_mutex_lock(&g->foreign_lock);
	struct sg_foreign *first = atomic_load_explicit(&g->foreign, memory_order_relaxed), *f = NULL;
	known = find(first, at);
	if (!known && (f = load(g->dev, at))) {
		f->next = first;
		atomic_store_explicit(&g->foreign, f, memory_order_release);
		known = f;
	}
	pthread_mutex_unlock(&g->foreign_lock);
	return known ? known->func : NULL;
}

void sg_code_free(struct sg_grid *g)
{
	struct sg_foreign *f = atomic_load(&g->foreign), *next;
	for (; f; f = next) {
		next = f->next;
		sg_module_free(f->module);
		free(f);
	}
}
