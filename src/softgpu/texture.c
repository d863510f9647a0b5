/* texture.c - texture and surface objects: their table, and what a description must be.
 *
 * Slots are allocated once and live as long as the device, so kernels look at them without a lock.
 * A slot that is given out again has a new generation, which is part of the handle; the one that
 * was freed longest ago is taken first.
 */
#include "softgpu/tex.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OBJECTS (1u << 16)
#define SURFACE_BIT (1ull << 31)

struct object {
	_Atomic uint64_t handle; /* 0: free */
	uint32_t generation;
	uint32_t next_free; /* index + 1 */
	struct sg_texture texture;
};

struct sg_objects {
	pthread_mutex_t lock;
	uint32_t n;
	uint32_t first_free, last_free; /* index + 1 */
	_Atomic(struct object *) slot[MAX_OBJECTS];
};

uint32_t sg_format_bytes(CUarray_format format)
{
	switch ((int)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static bool image_ok(const struct sg_image *m)
{
	if (m->kind > SG_IMAGE_CUBE_LAYERED || !sg_format_bytes(m->format) || !m->n_levels ||
		m->n_levels > SG_MAX_LEVELS ||
		(m->channels != 1 && m->channels != 2 && m->channels != 4))
		return false;
	for (uint32_t i = 0; i < m->n_levels; i++) {
		const struct sg_image_level *l = &m->level[i];
		if (!l->data || !l->width || !l->height || !l->depth)
			return false;
		if (m->kind >= SG_IMAGE_CUBE && l->depth % 6)
			return false;
	}
	return true;
}

static bool texture_ok(const struct sg_texture *t)
{
	if (!image_ok(&t->image) || t->address[0] > SG_TEX_BORDER ||
		t->address[1] > SG_TEX_BORDER || t->address[2] > SG_TEX_BORDER)
		return false;
	bool is_float =
		t->image.format == CU_AD_FORMAT_HALF || t->image.format == CU_AD_FORMAT_FLOAT;
	bool whole = !is_float && (t->read_integer || sg_format_bytes(t->image.format) == 4);
	return !(whole && t->linear) && !(t->srgb && t->image.format != CU_AD_FORMAT_UNSIGNED_INT8);
}

static struct sg_objects *objects(struct sg_device *dev)
{
	struct sg_objects *o = atomic_load(&dev->objects), *none = NULL;
	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	pthread_mutex_init(&o->lock, NULL);
	if (atomic_compare_exchange_strong(&dev->objects, &none, o))
		return o;
	pthread_mutex_destroy(&o->lock);
	free(o);
	return none;
}

void sg_objects_free(struct sg_device *dev)
{
	struct sg_objects *o = atomic_load(&dev->objects);
	if (!o)
		return;
	for (uint32_t i = 0; i < o->n; i++)
		free(atomic_load(&o->slot[i]));
	pthread_mutex_destroy(&o->lock);
	free(o);
}

/* A free slot, with the lock. */
static struct object *take(struct sg_objects *o, uint32_t *index)
{
	bool fresh = o->n < MAX_OBJECTS && (!o->first_free || o->n < 64);
	if (!fresh && !o->first_free)
		return NULL;
	if (!fresh) {
		*index = o->first_free - 1;
		struct object *x = atomic_load(&o->slot[*index]);
		o->first_free = x->next_free;
		if (!o->first_free)
			o->last_free = 0;
		return x;
	}
	struct object *x = calloc(1, sizeof(*x));
	if (x) {
		*index = o->n++;
		atomic_store(&o->slot[*index], x);
	}
	return x;
}

static CUresult create(
	struct sg_device *dev, const struct sg_texture *t, uint64_t kind, uint64_t *handle)
{
	struct sg_objects *o = objects(dev);
	uint32_t index = 0;
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&o->lock);
	struct object *x = take(o, &index);
	if (x) {
		x->texture = *t;
		x->generation++;
		*handle = (uint64_t)x->generation << 32 | kind | (index + 1);
		atomic_store(&x->handle, *handle);
	}
	pthread_mutex_unlock(&o->lock);
	return x ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct object *find(struct sg_device *dev, uint64_t handle, uint64_t kind)
{
	struct sg_objects *o = atomic_load_explicit(&dev->objects, memory_order_acquire);
	uint32_t index = (uint32_t)(handle & ~SURFACE_BIT) - 1;
	if (!o || (handle & SURFACE_BIT) != kind || index >= MAX_OBJECTS)
		return NULL;
	struct object *x = atomic_load_explicit(&o->slot[index], memory_order_acquire);
	return x && atomic_load_explicit(&x->handle, memory_order_acquire) == handle ? x : NULL;
}

static CUresult get(struct sg_device *dev, uint64_t handle, uint64_t kind, struct sg_texture *out)
{
	struct sg_objects *o = atomic_load(&dev->objects);
	struct object *x = NULL;
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&o->lock);
	x = find(dev, handle, kind);
	if (x)
		*out = x->texture;
	pthread_mutex_unlock(&o->lock);
	return x ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult destroy(struct sg_device *dev, uint64_t handle, uint64_t kind)
{
	struct sg_objects *o = atomic_load(&dev->objects);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&o->lock);
	struct object *x = find(dev, handle, kind);
	if (x) {
		uint32_t self = (uint32_t)(handle & ~SURFACE_BIT);
		atomic_store(&x->handle, 0);
		x->next_free = 0;
		if (o->last_free)
			atomic_load(&o->slot[o->last_free - 1])->next_free = self;
		else
			o->first_free = self;
		o->last_free = self;
	}
	pthread_mutex_unlock(&o->lock);
	return x ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sg_texture_new(struct sg_device *dev, const struct sg_texture *desc, uint64_t *handle)
{
	return desc && handle && texture_ok(desc) ? create(dev, desc, 0, handle)
						  : CUDA_ERROR_INVALID_VALUE;
}

CUresult sg_texture_get(struct sg_device *dev, uint64_t handle, struct sg_texture *out)
{
	return get(dev, handle, 0, out);
}

CUresult sg_texture_free(struct sg_device *dev, uint64_t handle)
{
	return destroy(dev, handle, 0);
}

CUresult sg_surface_new(struct sg_device *dev, const struct sg_image *image, uint64_t *handle)
{
	if (!image || !handle || !image_ok(image))
		return CUDA_ERROR_INVALID_VALUE;
	struct sg_texture t = { .image = *image };
	return create(dev, &t, SURFACE_BIT, handle);
}

CUresult sg_surface_get(struct sg_device *dev, uint64_t handle, struct sg_image *out)
{
	struct sg_texture t;
	CUresult r = get(dev, handle, SURFACE_BIT, &t);
	if (r == CUDA_SUCCESS)
		*out = t.image;
	return r;
}

CUresult sg_surface_free(struct sg_device *dev, uint64_t handle)
{
	return destroy(dev, handle, SURFACE_BIT);
}

const struct sg_texture *sg_texture_find(struct sg_device *dev, uint64_t handle)
{
	struct object *x = find(dev, handle, 0);
	return x ? &x->texture : NULL;
}

const struct sg_image *sg_surface_find(struct sg_device *dev, uint64_t handle)
{
	struct object *x = find(dev, handle, SURFACE_BIT);
	return x ? &x->texture.image : NULL;
}
