/* driver_work.c - what a node of a graph does: made from the program's parameters, copied, freed. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

void drv_graph_mem_put(struct drv_graph_mem *m)
{
	if (!m || --m->refs)
		return;
	struct drv_alloc *a = drv_alloc_at(m->addr);
	if (a && a->kind == DRV_MEM_GRAPH)
		drv_alloc_release(a);
	free(m);
}

void drv_work_free(struct drv_work *w)
{
	switch (w->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		free(w->kernel.packed);
		free(w->kernel.pointers);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		if (w->child)
			drv_graph_free(w->child);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		drv_graph_mem_put(w->mem.mem);
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		drv_cond_put(w->cond);
		break;
	default:
		break;
	}
	memset(w, 0, sizeof(*w));
	w->type = CU_GRAPH_NODE_TYPE_EMPTY;
}

int drv_work_copy(const struct drv_work *from, struct drv_work *to)
{
	*to = *from;
	if (from->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		to->kernel.packed = malloc(from->kernel.n_packed + 1);
		to->kernel.pointers = calloc(from->kernel.n_params + 1, sizeof(void *));
		if (!to->kernel.packed || !to->kernel.pointers) {
			drv_work_free(to);
			return -1;
		}
		memcpy(to->kernel.packed, from->kernel.packed, from->kernel.n_packed);
		for (uint32_t i = 0; i < from->kernel.n_params; i++)
			to->kernel.pointers[i] =
				to->kernel.packed +
				((uint8_t *)from->kernel.pointers[i] - from->kernel.packed);
	} else if (from->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		to->child = drv_graph_clone(from->child);
		if (!to->child)
			return -1;
		to->child->owned = true;
	} else if (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		to->mem.mem->refs++;
	} else if (from->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		to->cond = drv_cond_copy(from->cond);
		if (!to->cond)
			return -1;
	}
	return 0;
}

CUresult drv_work_kernel(struct CUctx_st *ctx, void *fn, const struct drv_shape *shape,
	void **params, void **extra, struct drv_work *out)
{
	struct drv_shape s = *shape;
	struct CUfunc_st *f;
	CUresult r = drv_kernel_check(ctx, fn, &s, &f);
	if (r)
		return r;
	*out = (struct drv_work){ .type = CU_GRAPH_NODE_TYPE_KERNEL };
	out->kernel.fn = fn;
	out->kernel.shape = *shape;
	out->kernel.n_packed = f->info.param_bytes;
	out->kernel.n_params = f->info.n_params;
	out->kernel.packed = calloc(1, f->info.param_bytes + 1);
	out->kernel.pointers = calloc(f->info.n_params + 1, sizeof(void *));
	r = out->kernel.packed && out->kernel.pointers
		    ? drv_kernel_pack(f, params, extra, out->kernel.packed)
		    : CUDA_ERROR_OUT_OF_MEMORY;
	if (r) {
		drv_work_free(out);
		return r;
	}
	for (uint32_t i = 0; i < f->info.n_params; i++)
		out->kernel.pointers[i] = out->kernel.packed + f->info.param_offset[i];
	return CUDA_SUCCESS;
}

CUresult drv_graph_mem_new(struct CUctx_st *ctx, size_t bytes, struct drv_graph_mem **out)
{
	struct drv_graph_mem *m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = sg_mem_alloc(drv.dev, bytes, &m->addr);
	if (!r && !drv_alloc_add(ctx, m->addr, bytes, DRV_MEM_GRAPH, 0)) {
		sg_mem_free(drv.dev, m->addr);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r) {
		free(m);
		return r;
	}
	m->refs = 1;
	*out = m;
	return CUDA_SUCCESS;
}

CUresult drv_work_alloc(struct CUctx_st *ctx, size_t bytes, struct drv_work *out)
{
	struct drv_graph_mem *m;
	CUresult r = drv_graph_mem_new(ctx, bytes, &m);
	if (r)
		return r;
	*out = (struct drv_work){ .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
		.mem = { m->addr, bytes, m } };
	return CUDA_SUCCESS;
}

static CUresult kernel_work(
	struct CUctx_st *ctx, const CUDA_KERNEL_NODE_PARAMS *p, struct drv_work *out)
{
	struct drv_shape s = { .grid = { p->gridDimX, p->gridDimY, p->gridDimZ },
		.block = { p->blockDimX, p->blockDimY, p->blockDimZ },
		.shared = p->sharedMemBytes };
	struct CUctx_st *in = p->ctx ? drv_find(p->ctx, DRV_CONTEXT) : ctx;
	if (!in)
		return CUDA_ERROR_INVALID_CONTEXT;
	return drv_work_kernel(in, p->func ? (void *)p->func : (void *)p->kern, &s, p->kernelParams,
		p->extra, out);
}

static CUresult event_work(CUgraphNodeType type, CUevent event, struct drv_work *out)
{
	*out = (struct drv_work){ .type = type, .event = event };
	return drv_find(event, DRV_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult child_work(CUgraph handle, struct drv_work *out)
{
	struct CUgraph_st *g = drv_find(handle, DRV_GRAPH);
	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	if (drv_has_cond(g))
		return CUDA_ERROR_NOT_SUPPORTED;
	*out = (struct drv_work){ .type = CU_GRAPH_NODE_TYPE_GRAPH, .child = drv_graph_clone(g) };
	if (!out->child)
		return CUDA_ERROR_OUT_OF_MEMORY;
	out->child->owned = true;
	return CUDA_SUCCESS;
}

CUresult drv_work_from(struct CUctx_st *ctx, const CUgraphNodeParams *p, struct drv_work *out)
{
	*out = (struct drv_work){ .type = p->type };
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_work(ctx, &p->kernel, out);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		out->copy = p->memcpy.copyParams;
		return drv_copy_check(&out->copy);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		memcpy(&out->set, &p->memset, sizeof(out->set));
		return drv_set_check(&out->set);
	case CU_GRAPH_NODE_TYPE_HOST:
		out->host.fn = p->host.fn;
		out->host.data = p->host.userData;
		return p->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return child_work(p->graph.graph, out);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return event_work(p->type, p->eventWait.event, out);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return event_work(p->type, p->eventRecord.event, out);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return p->alloc.bytesize ? drv_work_alloc(ctx, p->alloc.bytesize, out)
					 : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		out->mem.addr = p->free.dptr;
		return drv_alloc_at(p->free.dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}
