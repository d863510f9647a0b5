/* driver_user.c - user objects: what a graph keeps alive for the application, with its destructor. */
#include "softgpu/driver.h"

#include <stdlib.h>

/* Objects whose destructors are to run: with the lock, until drv_user_objects_run. */
static struct {
	struct CUuserObject_st **list;
	size_t n, cap;
} dead;

void drv_user_put(struct CUuserObject_st *o, unsigned int count)
{
	o->count -= count;
	if (o->count)
		return;
	drv_remove_handle(&o->object);
	if (dead.n == dead.cap) {
		size_t cap = dead.cap ? dead.cap * 2 : 8;
		void *list = realloc(dead.list, cap * sizeof(*dead.list));
		if (!list) /* its destructor is never called: better than to call it with the lock
			    */
			return;
		dead.list = list;
		dead.cap = cap;
	}
	dead.list[dead.n++] = o;
}

void drv_user_objects_run(void)
{
	while (dead.n) {
		struct CUuserObject_st *o = dead.list[--dead.n];
		pthread_mutex_unlock(&drv.lock);
		drv_callback(true);
		o->destroy(o->data);
		drv_callback(false);
		free(o);
		pthread_mutex_lock(&drv.lock);
	}
}

CUresult CUDAAPI cuUserObjectCreate(
	CUuserObject *out, void *data, CUhostFn destroy, unsigned int count, unsigned int flags)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out || !destroy || !count || count > INT32_MAX ||
		flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct CUuserObject_st *o = calloc(1, sizeof(*o));
	if (!o)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*o = (struct CUuserObject_st){ { DRV_USER_OBJECT }, count, destroy, data };
	if (drv_add_handle(&o->object)) {
		free(o);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*out = o;
	return drv_leave(CUDA_SUCCESS);
}

static CUresult enter_user(CUuserObject handle, unsigned int count, struct CUuserObject_st **o)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*o = drv_find(handle, DRV_USER_OBJECT);
	if (!*o || !count || count > INT32_MAX)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
	struct CUuserObject_st *o;
	CUresult r = enter_user(handle, count, &o);
	if (r)
		return r;
	if (o->count > INT32_MAX - count)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	o->count += count;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
	struct CUuserObject_st *o;
	CUresult r = enter_user(handle, count, &o);
	if (r)
		return r;
	if (count > o->count)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	drv_user_put(o, count);
	drv_user_objects_run();
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphRetainUserObject(
	CUgraph graph, CUuserObject handle, unsigned int count, unsigned int flags)
{
	struct CUuserObject_st *o;
	CUresult r = enter_user(handle, count, &o);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(graph, DRV_GRAPH);
	if (!g || flags > CU_GRAPH_USER_OBJECT_MOVE || (!flags && o->count > INT32_MAX - count))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	size_t i = 0;
	while (i < g->n_users && g->users[i].object != o)
		i++;
	if (i == g->n_users) {
		void *users = realloc(g->users, (i + 1) * sizeof(*g->users));
		if (!users)
			return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
		g->users = users;
		g->users[g->n_users++] = (struct drv_graph_user){ o, 0 };
	}
	g->users[i].count += count;
	if (!flags)
		o->count += count;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject handle, unsigned int count)
{
	struct CUuserObject_st *o;
	CUresult r = enter_user(handle, count, &o);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(graph, DRV_GRAPH);
	for (size_t i = 0; g && i < g->n_users; i++) {
		if (g->users[i].object != o || g->users[i].count < count)
			continue;
		g->users[i].count -= count;
		if (!g->users[i].count)
			g->users[i] = g->users[--g->n_users];
		drv_user_put(o, count);
		drv_user_objects_run();
		return drv_leave(CUDA_SUCCESS);
	}
	return drv_leave(CUDA_ERROR_INVALID_VALUE);
}
