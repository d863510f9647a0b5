/* driver_copy.c - copies and memsets, in one, two and three dimensions.
 *
 * Device addresses are host addresses here, so a copy is memmove after a check of each side that
 * claims to be device memory. Host memory that was never registered (pageable) follows the
 * hardware's rules: a copy out of it has read it when the call returns, a copy into it has written
 * it.
 */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	STAGE_BYTES = 64 << 10, /* pageable sources up to this are copied aside at the call */
	QUICK_BYTES =
		256 << 10, /* copies up to this are done in the caller's thread when they can be */
	SET_THREADS = 128, /* of a block that sets memory */
};

/* -- one operation ------------------------------------------------------------------- */

struct side {
	uint64_t addr;
	size_t pitch, slice; /* bytes from row to row and plane to plane */
	bool pageable;
};

struct copy_op {
	struct side dst, src;
	size_t width, height, depth; /* bytes, rows, planes */
	void *staged;                /* freed at the end */
};

/* From the first to past the last byte of one side; false: overflow. */
static bool extent(const struct side *s, size_t width, size_t height, size_t depth, size_t *out)
{
	size_t rows, planes, sum;
	if (!width || !height || !depth) {
		*out = 0;
		return true;
	}
	if (__builtin_mul_overflow(s->pitch, height - 1, &rows) ||
		__builtin_mul_overflow(s->slice, depth - 1, &planes) ||
		__builtin_add_overflow(rows, planes, &sum) ||
		__builtin_add_overflow(sum, width, out))
		return false;
	return s->addr <= UINT64_MAX - *out;
}

static bool side_ok(const struct side *s, const struct copy_op *c)
{
	size_t bytes;
	if (!extent(s, c->width, c->height, c->depth, &bytes))
		return false;
	if (!bytes)
		return true;
	return s->pageable ? s->addr : sg_mem_check(drv.dev, s->addr, bytes);
}

static void move(const struct copy_op *c)
{
	for (size_t z = 0; z < c->depth; z++)
		for (size_t y = 0; y < c->height; y++)
			memmove((void *)(uintptr_t)(c->dst.addr + z * c->dst.slice +
						    y * c->dst.pitch),
				(void *)(uintptr_t)(c->src.addr + z * c->src.slice +
						    y * c->src.pitch),
				c->width);
}

static void fail(struct drv_op *op)
{
	drv_fail(op->stream->ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static bool run_copy(struct drv_op *op, bool skip)
{
	struct copy_op *c = (void *)op->data;
	/* Checked at the call, but a free in stream order may have come in between. */
	if (!skip && side_ok(&c->dst, c) && side_ok(&c->src, c))
		move(c);
	else if (!skip)
		fail(op);
	free(c->staged);
	return true;
}

/* A pageable source is read now. Only for copies whose rows are adjacent or few bytes. */
static CUresult stage(struct copy_op *c, size_t bytes)
{
	uint8_t *p = malloc(bytes);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct copy_op in = *c;
	in.dst = (struct side){ (uintptr_t)p, c->width, c->width * c->height, true };
	move(&in);
	c->src = in.dst;
	c->staged = p;
	return CUDA_SUCCESS;
}

/* In the stream, with the lock. async: the caller asked not to wait. desc: the same as a
 * descriptor, for a stream that is captured, or NULL. */
static CUresult submit_copy(
	struct CUstream_st *s, struct copy_op *c, bool async, const CUDA_MEMCPY3D *desc)
{
	if (!side_ok(&c->dst, c) || !side_ok(&c->src, c))
		return CUDA_ERROR_INVALID_VALUE;
	if (s->capture && !async)
		return drv_capture_refuse(s);
	if (s->capture) {
		struct drv_work work = { .type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *desc };
		return drv_capture_add(s, &work, NULL);
	}
	size_t bytes =
		c->width * c->height * c->depth; /* no more than the extents, so no overflow */
	if (!bytes)
		return CUDA_SUCCESS;
	bool wait = !async || c->dst.pageable || (c->src.pageable && bytes > STAGE_BYTES);
	CUresult r = CUDA_SUCCESS;
	if (!wait && c->src.pageable && (r = stage(c, bytes)))
		return r;
	struct drv_op *op = drv_op_new(run_copy, sizeof(*c));
	if (!op) {
		free(c->staged);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(op->data, c, sizeof(*c));
	r = wait ? drv_submit_wait(s, op) : drv_submit(s, op, bytes <= QUICK_BYTES);
	return r;
}

/* -- linear copies ------------------------------------------------------------------------ */

/* How a call names its two sides. ANY: by address alone (unified addressing). */
enum place { DEVICE, HOST, ANY };

static struct side linear(enum place place, uint64_t addr, size_t bytes)
{
	struct side s = { .addr = addr, .pitch = bytes, .slice = bytes };
	if (place != DEVICE && bytes)
		s.pageable = !sg_mem_check(drv.dev, addr, bytes);
	return s;
}

static CUresult copy(uint64_t dst, enum place to, uint64_t src, enum place from, size_t bytes,
	CUstream stream, bool async)
{
	struct CUctx_st *ctx;
	struct CUstream_st *s;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if ((r = drv_stream_of(ctx, stream, &s)))
		return drv_leave(r);
	struct copy_op c = { .dst = linear(to, dst, bytes),
		.src = linear(from, src, bytes),
		.width = bytes,
		.height = 1,
		.depth = 1 };
	/* An address that belongs to neither side would be read as host memory: NULL and its
	 * neighbours are refused, the rest is the caller's word. */
	if (bytes && (dst < 4096 || src < 4096))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	/* Between device memories nobody waits on hardware either. */
	if (!drv_is_host(dst) && !drv_is_host(src) && !c.dst.pageable && !c.src.pageable)
		async = true;
	CUDA_MEMCPY3D desc = { .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
		.srcDevice = src,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.dstDevice = dst,
		.WidthInBytes = bytes,
		.Height = 1,
		.Depth = 1 };
	return drv_leave(submit_copy(s, &c, async, &desc));
}

CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return copy(dst, ANY, src, ANY, bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy(dst, ANY, src, ANY, bytes, stream, true);
}

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
	return copy(dst, DEVICE, (uintptr_t)src, HOST, bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(
	CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	return copy(dst, DEVICE, (uintptr_t)src, HOST, bytes, stream, true);
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
	return copy((uintptr_t)dst, HOST, src, DEVICE, bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy((uintptr_t)dst, HOST, src, DEVICE, bytes, stream, true);
}

CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return copy(dst, DEVICE, src, DEVICE, bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2(
	CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy(dst, DEVICE, src, DEVICE, bytes, stream, true);
}

static CUresult check_contexts(CUcontext a, CUcontext b)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	return drv_leave(drv_find(a, DRV_CONTEXT) && drv_find(b, DRV_CONTEXT)
				 ? CUDA_SUCCESS
				 : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult CUDAAPI cuMemcpyPeer(
	CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes)
{
	CUresult r = check_contexts(dst_ctx, src_ctx);
	return r ? r : cuMemcpyDtoD_v2(dst, src, bytes);
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
	CUcontext src_ctx, size_t bytes, CUstream stream)
{
	CUresult r = check_contexts(dst_ctx, src_ctx);
	return r ? r : cuMemcpyDtoDAsync_v2(dst, src, bytes, stream);
}

/* -- two and three dimensions ----------------------------------------------------------------- */

/* One side of a copy descriptor. */
struct box {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	size_t pitch, rows; /* rows of a plane; 0 where not given */
	size_t x, y, z;
};

/* Positions in an array are bytes, rows and slices of its one level. */
static CUresult array_side(const struct box *b, const CUDA_MEMCPY3D *size, struct side *out)
{
	const struct CUarray_st *a = drv_find(b->array, DRV_ARRAY);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	const struct sg_image_level *l = &a->image.level[0];
	size_t element = (size_t)sg_format_bytes(a->image.format) * a->image.channels;
	size_t row = l->width * element;
	if (b->x > row || size->WidthInBytes > row - b->x || b->x % element ||
		size->WidthInBytes % element || b->y > l->height ||
		size->Height > l->height - b->y || b->z > l->depth || size->Depth > l->depth - b->z)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (struct side){ .addr = l->data + b->z * l->slice_bytes + b->y * l->row_bytes + b->x,
		.pitch = l->row_bytes,
		.slice = l->slice_bytes };
	return CUDA_SUCCESS;
}

static CUresult box_side(const struct box *b, const CUDA_MEMCPY3D *size, struct side *out)
{
	struct side s = { 0 };
	size_t reach, rows, offset, plane;
	if (b->type == CU_MEMORYTYPE_ARRAY)
		return array_side(b, size, out);
	if (b->type != CU_MEMORYTYPE_HOST && b->type != CU_MEMORYTYPE_DEVICE &&
		b->type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_add_overflow(b->x, size->WidthInBytes, &reach) ||
		__builtin_add_overflow(b->y, size->Height, &rows))
		return CUDA_ERROR_INVALID_VALUE;
	s.pitch = b->pitch ? b->pitch : reach;
	if (!b->rows && size->Depth > 1 && b->y)
		return CUDA_ERROR_INVALID_VALUE;
	plane = b->rows ? b->rows : rows;
	if (s.pitch < reach || (size->Depth > 1 && plane < rows) ||
		__builtin_mul_overflow(s.pitch, plane, &s.slice))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(s.slice, b->z, &offset) ||
		__builtin_mul_overflow(s.pitch, b->y, &rows) ||
		__builtin_add_overflow(offset, rows, &offset) ||
		__builtin_add_overflow(offset, b->x, &offset))
		return CUDA_ERROR_INVALID_VALUE;
	s.addr = b->type == CU_MEMORYTYPE_HOST ? (uintptr_t)b->host : b->device;
	if (!s.addr || s.addr > UINT64_MAX - offset)
		return CUDA_ERROR_INVALID_VALUE;
	s.addr += offset;
	size_t bytes;
	if (!extent(&s, size->WidthInBytes, size->Height, size->Depth, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (b->type != CU_MEMORYTYPE_DEVICE && bytes)
		s.pageable = !sg_mem_check(drv.dev, s.addr, bytes);
	*out = s;
	return CUDA_SUCCESS;
}

static CUresult box_op(const CUDA_MEMCPY3D *p, struct copy_op *c)
{
	if (p->srcLOD || p->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	struct box src = { p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcPitch,
		p->srcHeight, p->srcXInBytes, p->srcY, p->srcZ };
	struct box dst = { p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstPitch,
		p->dstHeight, p->dstXInBytes, p->dstY, p->dstZ };
	*c = (struct copy_op){ .width = p->WidthInBytes, .height = p->Height, .depth = p->Depth };
	CUresult r = box_side(&src, p, &c->src);
	return r ? r : box_side(&dst, p, &c->dst);
}

static CUresult copy_box(const CUDA_MEMCPY3D *p, CUstream stream, bool async)
{
	struct CUctx_st *ctx;
	struct CUstream_st *s;
	struct copy_op c;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if ((r = drv_stream_of(ctx, stream, &s)) || (r = box_op(p, &c)))
		return drv_leave(r);
	if ((p->srcMemoryType & 2) && (p->dstMemoryType & 2)) /* device or array */
		async = true;
	return drv_leave(submit_copy(s, &c, async, p));
}

CUresult drv_copy_check(const CUDA_MEMCPY3D *p)
{
	struct copy_op c;
	CUresult r = box_op(p, &c);
	if (r)
		return r;
	return side_ok(&c.dst, &c) && side_ok(&c.src, &c) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A graph's copy reads and writes pageable memory when it runs. */
CUresult drv_copy_run(struct CUstream_st *s, const CUDA_MEMCPY3D *p)
{
	struct copy_op c;
	CUresult r = box_op(p, &c);
	if (r)
		return r;
	struct drv_op *op = drv_op_new(run_copy, sizeof(c));
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(op->data, &c, sizeof(c));
	size_t bytes;
	bool quick = !__builtin_mul_overflow(c.width * c.height, c.depth, &bytes) &&
		     bytes <= QUICK_BYTES;
	return drv_submit(s, op, quick);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool async)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_MEMCPY3D box = {
		.srcXInBytes = p->srcXInBytes,
		.srcY = p->srcY,
		.srcMemoryType = p->srcMemoryType,
		.srcHost = p->srcHost,
		.srcDevice = p->srcDevice,
		.srcArray = p->srcArray,
		.srcPitch = p->srcPitch,
		.dstXInBytes = p->dstXInBytes,
		.dstY = p->dstY,
		.dstMemoryType = p->dstMemoryType,
		.dstHost = p->dstHost,
		.dstDevice = p->dstDevice,
		.dstArray = p->dstArray,
		.dstPitch = p->dstPitch,
		.WidthInBytes = p->WidthInBytes,
		.Height = p->Height,
		.Depth = 1,
	};
	return copy_box(&box, stream, async);
}

CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D *p)
{
	return copy_2d(p, NULL, false);
}

CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *p)
{
	return copy_2d(p, NULL, false);
}

CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream stream)
{
	return copy_2d(p, stream, true);
}

CUresult CUDAAPI cuMemcpy3D_v2(const CUDA_MEMCPY3D *p)
{
	return p ? copy_box(p, NULL, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream stream)
{
	return p ? copy_box(p, stream, true) : CUDA_ERROR_INVALID_VALUE;
}

/* -- runs of bytes in arrays: within one row ----------------------------------------------------
 */

static CUresult copy_run(CUDA_MEMCPY3D p, size_t bytes, CUstream stream, bool async)
{
	p.WidthInBytes = bytes;
	p.Height = p.Depth = 1;
	return copy_box(&p, stream, async);
}

#define FROM_ARRAY(a, at) .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = (a), .srcXInBytes = (at)
#define TO_ARRAY(a, at) .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = (a), .dstXInBytes = (at)

CUresult CUDAAPI cuMemcpyDtoA_v2(CUarray dst, size_t offset, CUdeviceptr src, size_t bytes)
{
	return copy_run((CUDA_MEMCPY3D){ TO_ARRAY(dst, offset),
				.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = src },
		bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src, size_t offset, size_t bytes)
{
	return copy_run((CUDA_MEMCPY3D){ FROM_ARRAY(src, offset),
				.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = dst },
		bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyHtoAAsync_v2(
	CUarray dst, size_t offset, const void *src, size_t bytes, CUstream stream)
{
	return copy_run((CUDA_MEMCPY3D){ TO_ARRAY(dst, offset), .srcMemoryType = CU_MEMORYTYPE_HOST,
				.srcHost = src },
		bytes, stream, true);
}

CUresult CUDAAPI cuMemcpyAtoHAsync_v2(
	void *dst, CUarray src, size_t offset, size_t bytes, CUstream stream)
{
	return copy_run((CUDA_MEMCPY3D){ FROM_ARRAY(src, offset),
				.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = dst },
		bytes, stream, true);
}

CUresult CUDAAPI cuMemcpyHtoA_v2(CUarray dst, size_t offset, const void *src, size_t bytes)
{
	return copy_run((CUDA_MEMCPY3D){ TO_ARRAY(dst, offset), .srcMemoryType = CU_MEMORYTYPE_HOST,
				.srcHost = src },
		bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyAtoH_v2(void *dst, CUarray src, size_t offset, size_t bytes)
{
	return copy_run((CUDA_MEMCPY3D){ FROM_ARRAY(src, offset),
				.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = dst },
		bytes, NULL, false);
}

CUresult CUDAAPI cuMemcpyAtoA_v2(
	CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes)
{
	return copy_run((CUDA_MEMCPY3D){ FROM_ARRAY(src, src_offset), TO_ARRAY(dst, dst_offset) },
		bytes, NULL, false);
}

/* The descriptor differs from the plain one in the two contexts only. */
static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool async)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = check_contexts(p->dstContext, p->srcContext);
	if (r)
		return r;
	CUDA_MEMCPY3D box;
	_Static_assert(sizeof(box) == sizeof(*p), "same layout");
	memcpy(&box, p, sizeof(box));
	return copy_box(&box, stream, async);
}

CUresult CUDAAPI cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *p)
{
	return copy_peer(p, NULL, false);
}

CUresult CUDAAPI cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p, CUstream stream)
{
	return copy_peer(p, stream, true);
}

/* -- memsets ---------------------------------------------------------------------------------- */

struct set_op {
	uint64_t addr;
	size_t pitch, width, height; /* width in elements */
	uint32_t value;
	uint8_t element; /* bytes: 1, 2 or 4 */
};

static void fill_row(void *at, const struct set_op *o)
{
	uint16_t *p16 = at;
	uint32_t *p32 = at;
	switch (o->element) {
	case 1:
		memset(at, (int)(o->value & 0xff), o->width);
		break;
	case 2:
		for (size_t i = 0; i < o->width; i++)
			p16[i] = (uint16_t)o->value;
		break;
	default:
		for (size_t i = 0; i < o->width; i++)
			p32[i] = o->value;
	}
}

static bool set_range(const struct set_op *o, size_t *bytes)
{
	size_t row;
	struct side s = { .addr = o->addr, .pitch = o->pitch };
	return !__builtin_mul_overflow(o->width, (size_t)o->element, &row) &&
	       extent(&s, row, o->height, 1, bytes);
}

/* NVIDIA's driver sets memory by a kernel, which wants a place on a multiprocessor. */
static void wait_for_room(const struct CUctx_st *ctx)
{
	while (!ctx->error && !ctx->closing && !sg_has_room(drv.dev, SET_THREADS))
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

static bool run_set(struct drv_op *op, bool skip)
{
	const struct set_op *o = (void *)op->data;
	size_t bytes;
	if (!skip && drv.strict)
		wait_for_room(op->stream->ctx);
	if (skip)
		return true;
	if (!set_range(o, &bytes) || !sg_mem_check(drv.dev, o->addr, bytes)) {
		fail(op);
		return true;
	}
	for (size_t y = 0; y < o->height; y++)
		fill_row((void *)(uintptr_t)(o->addr + y * o->pitch), o);
	return true;
}

static CUresult set_check(const struct set_op *o, size_t *bytes)
{
	if (!set_range(o, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (!*bytes)
		return CUDA_SUCCESS;
	if (o->addr % o->element ||
		(o->height > 1 && (o->pitch % o->element || o->pitch / o->element < o->width)) ||
		!sg_mem_check(drv.dev, o->addr, *bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult submit_set(struct CUstream_st *s, const struct set_op *o, size_t bytes, bool wait)
{
	struct drv_op *op = drv_op_new(run_set, sizeof(*o));
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(op->data, o, sizeof(*o));
	return wait ? drv_submit_wait(s, op) : drv_submit(s, op, bytes <= QUICK_BYTES && !drv.strict);
}

static CUresult fill(const struct set_op *o, CUstream stream, bool async)
{
	struct CUctx_st *ctx;
	struct CUstream_st *s;
	size_t bytes;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if ((r = drv_stream_of(ctx, stream, &s)) || (r = set_check(o, &bytes)) || !bytes)
		return drv_leave(r);
	if (s->capture && !async)
		return drv_leave(drv_capture_refuse(s));
	if (s->capture) {
		struct drv_work work = { .type = CU_GRAPH_NODE_TYPE_MEMSET,
			.set = { o->addr, o->pitch, o->value, o->element, o->width, o->height } };
		return drv_leave(drv_capture_add(s, &work, NULL));
	}
	/* On hardware too the caller waits only where the target is host memory. */
	return drv_leave(submit_set(s, o, bytes, !async && drv_is_host(o->addr)));
}

static bool node_set(const CUDA_MEMSET_NODE_PARAMS *p, struct set_op *o)
{
	*o = (struct set_op){ p->dst, p->pitch, p->width, p->height, p->value,
		(uint8_t)p->elementSize };
	return p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4;
}

CUresult drv_set_check(const CUDA_MEMSET_NODE_PARAMS *p)
{
	struct set_op o;
	size_t bytes;
	return node_set(p, &o) ? set_check(&o, &bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult drv_set_run(struct CUstream_st *s, const CUDA_MEMSET_NODE_PARAMS *p)
{
	struct set_op o;
	size_t bytes;
	CUresult r = node_set(p, &o) ? set_check(&o, &bytes) : CUDA_ERROR_INVALID_VALUE;
	return r || !bytes ? r : submit_set(s, &o, bytes, false);
}

CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n)
{
	return fill(&(struct set_op){ dst, 0, n, 1, value, 1 }, NULL, false);
}

CUresult CUDAAPI cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t n)
{
	return fill(&(struct set_op){ dst, 0, n, 1, value, 2 }, NULL, false);
}

CUresult CUDAAPI cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t n)
{
	return fill(&(struct set_op){ dst, 0, n, 1, value, 4 }, NULL, false);
}

CUresult CUDAAPI cuMemsetD2D8_v2(
	CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height)
{
	return fill(&(struct set_op){ dst, pitch, width, height, value, 1 }, NULL, false);
}

CUresult CUDAAPI cuMemsetD2D16_v2(
	CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height)
{
	return fill(&(struct set_op){ dst, pitch, width, height, value, 2 }, NULL, false);
}

CUresult CUDAAPI cuMemsetD2D32_v2(
	CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height)
{
	return fill(&(struct set_op){ dst, pitch, width, height, value, 4 }, NULL, false);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream)
{
	return fill(&(struct set_op){ dst, 0, n, 1, value, 1 }, stream, true);
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream stream)
{
	return fill(&(struct set_op){ dst, 0, n, 1, value, 2 }, stream, true);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t n, CUstream stream)
{
	return fill(&(struct set_op){ dst, 0, n, 1, value, 4 }, stream, true);
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
	size_t height, CUstream stream)
{
	return fill(&(struct set_op){ dst, pitch, width, height, value, 1 }, stream, true);
}

CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value,
	size_t width, size_t height, CUstream stream)
{
	return fill(&(struct set_op){ dst, pitch, width, height, value, 2 }, stream, true);
}

CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
	size_t height, CUstream stream)
{
	return fill(&(struct set_op){ dst, pitch, width, height, value, 4 }, stream, true);
}
