/* textures.c - textures and surfaces on a CUDA driver: records what they give, or compares.
 *
 *   textures [--driver LIB] --record FILE     writes the results
 *   textures [--driver LIB] --check FILE      compares; TAP, one line a group
 *
 * A case is an image of random texels, a texture object and one instruction, run by N threads with
 * coordinates of their own: on texels' edges and centres, at the ends, outside, anywhere.
 * Everything follows from the case's name. Results must be equal, filtered ones as well, but for
 * the cases of a table below, which must differ. A record
 * is a zstd frame of "egpu-tex 1\n", then for each case its name, NUL-terminated, and the results.
 */
#include "diff.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "egpu/cuda.h"

#define N 128
#define WORDS 4 /* results of a thread */

#define CALLS(CALL)                                                                                \
	CALL(cuInit)                                                                               \
	CALL(cuDeviceGet)                                                                          \
	CALL(cuDevicePrimaryCtxRetain)                                                             \
	CALL(cuCtxSetCurrent)                                                                      \
	CALL(cuModuleLoadData)                                                                     \
	CALL(cuModuleUnload)                                                                       \
	CALL(cuModuleGetFunction)                                                                  \
	CALL(cuMemAlloc_v2)                                                                        \
	CALL(cuMemFree_v2)                                                                         \
	CALL(cuMemcpyHtoD_v2)                                                                      \
	CALL(cuMemcpyDtoH_v2)                                                                      \
	CALL(cuMemcpy3D_v2)                                                                        \
	CALL(cuMipmappedArrayCreate)                                                               \
	CALL(cuMipmappedArrayGetLevel)                                                             \
	CALL(cuMipmappedArrayDestroy)                                                              \
	CALL(cuTexObjectCreate)                                                                    \
	CALL(cuTexObjectDestroy)                                                                   \
	CALL(cuSurfObjectCreate)                                                                   \
	CALL(cuSurfObjectDestroy)                                                                  \
	CALL(cuLaunchKernel)                                                                       \
	CALL(cuCtxSynchronize)

static struct {
#define CALL(name) __typeof__(&name) name;
	CALLS(CALL)
#undef CALL
} cu;

/* -- cases ------------------------------------------------------------------------------------ */

enum geom { G_1D, G_2D, G_3D, G_A1D, G_A2D, G_CUBE, G_ACUBE };
enum op { OP_TEX, OP_LEVEL, OP_GATHER, OP_WHOLE, OP_SURFACE, OP_GRAD };

/* Where the coordinates are: FAR, also no numbers, infinities and huge ones; LAYERS, also layers
 * that are not there; SEAMS, at the edges of a cube's faces. */
enum where { NEAR, FAR, LAYERS, SEAMS };
static const char *const where_names[] = { "", " far", " layers", " seams" };

static const struct {
	const char *name;
	uint8_t dims, coords;
	bool layered;
} geoms[] = { { "1d", 1, 1, false }, { "2d", 2, 2, false }, { "3d", 3, 4, false },
	{ "a1d", 1, 2, true }, { "a2d", 2, 4, true }, { "cube", 3, 4, false },
	{ "acube", 3, 4, true } };

static const struct {
	const char *name;
	CUarray_format format;
	uint8_t bytes;
	char kind;
} formats[] = { { "u8", CU_AD_FORMAT_UNSIGNED_INT8, 1, 'u' },
	{ "s8", CU_AD_FORMAT_SIGNED_INT8, 1, 's' }, { "u16", CU_AD_FORMAT_UNSIGNED_INT16, 2, 'u' },
	{ "s16", CU_AD_FORMAT_SIGNED_INT16, 2, 's' },
	{ "u32", CU_AD_FORMAT_UNSIGNED_INT32, 4, 'u' },
	{ "s32", CU_AD_FORMAT_SIGNED_INT32, 4, 's' }, { "f16", CU_AD_FORMAT_HALF, 2, 'h' },
	{ "f32", CU_AD_FORMAT_FLOAT, 4, 'f' } };

enum { F_U8, F_S8, F_U16, F_S16, F_U32, F_S32, F_F16, F_F32 };

struct tcase {
	char name[96];
	const char *group;
	enum geom geom;
	enum op op;
	uint8_t format, channels, levels;
	CUaddress_mode address;
	bool linear, normalized, integer; /* integer: texels come as they are */
	bool mip_linear, srgb;
	uint8_t where;    /* enum where */
	char component;   /* of a gather; 0: r */
	uint32_t size[3]; /* of level 0; [2]: depth or layers */
};

static struct tcase cases[512];
static uint32_t n_cases;

static const char *const address_names[] = { "wrap", "clamp", "mirror", "border" };

static void add(struct tcase c)
{
	static const char *const ops[] = { "tex", "tex.level", "tld4", "tex, whole", "surface",
		"tex.grad" };
	snprintf(c.name, sizeof(c.name), "%s.%s %s x%u %s %s%s%s%s%s%s%s%.1s %ux%ux%u", ops[c.op],
		geoms[c.geom].name, formats[c.format].name, c.channels, address_names[c.address],
		c.linear ? "linear" : "point", c.normalized ? " normalized" : "",
		c.integer ? " integer" : "", c.mip_linear ? " mip-linear" : "",
		c.srgb ? " srgb" : "", where_names[c.where], c.component ? " " : "", &c.component,
		c.size[0], c.size[1], c.size[2]);
	if (n_cases < sizeof(cases) / sizeof(cases[0]))
		cases[n_cases++] = c;
}

static struct tcase basic(enum geom g)
{
	static const uint32_t sizes[][3] = { { 19, 0, 0 }, { 13, 7, 0 }, { 7, 5, 4 }, { 17, 0, 3 },
		{ 9, 6, 3 }, { 8, 8, 6 }, { 8, 8, 12 } };
	struct tcase c = { .group = geoms[g].name,
		.geom = g,
		.format = F_F32,
		.channels = 1,
		.levels = 1,
		.address = CU_TR_ADDRESS_MODE_CLAMP };
	memcpy(c.size, sizes[g], sizeof(c.size));
	return c;
}

/* Integers read as fractions, sRGB, half floats filtered, levels and slices of integers. */
static void more_formats(void)
{
	struct tcase c = basic(G_2D);
	c.group = "formats";
	c.channels = 4;
	for (uint8_t f = 0; f < F_U32; f++) {
		c.format = f;
		add(c);
	}
	for (int k = 1; k < 4; k++) {
		c.linear = k & 1;
		c.srgb = k & 2;
		c.format = k & 2 ? F_U8 : F_F16;
		add(c);
	}
	for (uint8_t f = 0; f < F_U32; f++) {
		c = basic(G_3D);
		c.group = "formats";
		c.format = f;
		c.channels = 4;
		c.linear = c.normalized = c.mip_linear = true;
		c.levels = 3;
		c.op = OP_LEVEL;
		add(c);
	}
}

static void more_places(void)
{
	for (int k = 0; k < 16; k++) {
		struct tcase c = basic(G_2D);
		c.group = "far";
		c.where = FAR;
		c.address = (CUaddress_mode)(k & 3);
		c.linear = k & 4;
		c.normalized = k & 8;
		add(c);
	}
	for (int k = 0; k < 16; k++) {
		struct tcase c = basic(k & 1 ? G_1D : G_2D);
		c.group = "large";
		c.size[0] = k & 1 ? 16381 : 4099;
		c.size[1] = k & 1 ? 0 : 5;
		c.normalized = true;
		c.linear = k & 2;
		c.address = (CUaddress_mode)(k >> 2);
		add(c);
	}
	for (int k = 0; k < 4; k++) {
		struct tcase c = basic(k & 1 ? G_A1D : G_A2D);
		c.group = "layers";
		c.where = LAYERS;
		c.linear = k & 2;
		add(c);
	}
	for (int k = 0; k < 4; k++) {
		struct tcase c = basic(k & 1 ? G_CUBE : G_ACUBE);
		c.group = "seams";
		c.where = SEAMS;
		c.normalized = true;
		c.linear = k & 2;
		add(c);
	}
}

static void more_instructions(void)
{
	for (int k = 0; k < 6; k++) {
		struct tcase c = basic(k & 1 ? G_3D : G_2D);
		c.group = "gradients";
		c.op = OP_GRAD;
		c.levels = 3;
		c.normalized = true;
		c.linear = k >= 2;
		c.mip_linear = k >= 4;
		add(c);
	}
	for (int k = 0; k < 8; k++) {
		struct tcase c = basic(G_2D);
		c.group = "components";
		c.op = OP_GATHER;
		c.channels = 4;
		c.component = "rgba"[k & 3];
		c.normalized = true;
		c.address = k & 4 ? CU_TR_ADDRESS_MODE_MIRROR : CU_TR_ADDRESS_MODE_WRAP;
		add(c);
	}
}

/* Every address mode with both filters; every format with both ways to read it; levels. */
static void make_cases(void)
{
	for (int g = G_1D; g <= G_ACUBE; g++) {
		struct tcase c = basic((enum geom)g);
		bool cube = g >= G_CUBE;
		for (int a = 0; a < 4 && !cube; a++)
			for (int k = 0; k < 4; k++) {
				c.address = (CUaddress_mode)a;
				c.normalized = k & 1;
				c.linear = k & 2;
				/* Wrapping needs normalised coordinates. */
				if (c.normalized || a == CU_TR_ADDRESS_MODE_CLAMP ||
					a == CU_TR_ADDRESS_MODE_BORDER)
					add(c);
			}
		for (int k = 0; k < 2 && cube; k++) {
			c.linear = k;
			c.normalized = true;
			add(c);
		}
		for (uint8_t f = 0; f < 8; f++)
			for (uint8_t n = 1; n <= 4; n *= 2) {
				c = basic((enum geom)g);
				c.format = f;
				c.channels = n;
				c.normalized = cube;
				c.integer = f < F_F16;
				add(c);
				c.integer = false;
				c.linear = true;
				if (f < F_U32 && n == 4 && g < G_3D)
					add(c);
			}
		c = basic((enum geom)g);
		c.op = OP_LEVEL;
		c.levels = 3;
		c.normalized = true;
		add(c);
		c.linear = true;
		add(c);
		c.mip_linear = true;
		add(c);
		c = basic((enum geom)g);
		c.op = OP_WHOLE;
		if (!cube)
			add(c);
		c.op = OP_SURFACE;
		c.channels = 4;
		c.integer = true;
		c.format = F_U16;
		if (!cube)
			add(c);
	}
	for (uint8_t n = 1; n <= 4; n *= 4) {
		struct tcase c = basic(G_2D);
		c.group = "gather";
		c.op = OP_GATHER;
		c.channels = n;
		add(c);
	}
	more_formats();
	more_places();
	more_instructions();
}

/* -- inputs --------------------------------------------------------------------------------------
 */

static uint64_t state;

static uint64_t next(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	return z ^ z >> 27;
}

static float unit(void)
{
	return (float)(next() >> 40) / 16777216.0f;
}

static uint32_t at_least_1(uint32_t v)
{
	return v ? v : 1;
}

static size_t slices(const struct tcase *c)
{
	return at_least_1(c->size[2]);
}

static uint32_t texel_bytes(const struct tcase *c)
{
	return formats[c->format].bytes * (uint32_t)c->channels;
}

/* Texels: floats from [-1, 1], halves of them, any integers. */
static void fill(const struct tcase *c, uint8_t *out, size_t texels)
{
	for (size_t i = 0; i < texels * c->channels; i++) {
		uint64_t r = next();
		float f = (float)(int32_t)(r >> 32) / 2147483648.0f;
		if (formats[c->format].kind == 'f')
			memcpy(out + i * 4, &f, 4);
		else if (formats[c->format].kind == 'h')
			r = (r & 0x83ff) | (11 + (r >> 20) % 5) << 10, memcpy(out + i * 2, &r, 2);
		else
			memcpy(out + i * formats[c->format].bytes, &r, formats[c->format].bytes);
	}
}

/* A coordinate in texels: a few of each kind that could go wrong. */
static float coordinate(uint32_t size, bool whole)
{
	uint64_t r = next();
	int32_t i = (int32_t)(r >> 8) % (int32_t)(size * 3);
	switch (whole ? 7 : r & 7) {
	case 0:
		return (float)(i - (int32_t)size); /* an edge */
	case 1:
		return (float)(i - (int32_t)size) + 0.5f; /* a centre */
	case 2:
		return (float)(i - (int32_t)size) + (float)(r >> 40 & 255) / 256.0f;
	case 3:
		return r & 8 ? (float)size : 0.0f;
	case 7:
		return (float)(i - (int32_t)size);
	default:
		return (unit() * 3 - 1) * (float)size;
	}
}

/* What FAR and SEAMS put in place of some coordinates. */
static float special(enum where where, float f)
{
	static const uint32_t far[] = { 0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000, 0x7f800001,
		0x4f000000, 0xcf000000, 0x5f000000, 0xdf000000, 0x7f7fffff, 0xff7fffff, 0x00000001,
		0x80000001, 0x80000000, 0x4b000001, 0xcb000001, 0x47000010, 0xc7000010 };
	static const float seams[] = { 1, -1, 0, 0.5f, -0.5f, 0.99999994f, -0.99999994f, 2, -2 };
	uint64_t r = next();
	if (where == FAR && r & 1)
		memcpy(&f, &far[(r >> 8) % (sizeof(far) / sizeof(far[0]))], 4);
	else if (where == SEAMS && r & 3)
		f = seams[(r >> 8) % (sizeof(seams) / sizeof(seams[0]))];
	return f;
}

/* Five words a thread: coordinates (a layer first, where there are), then the level. */
static void make_input(const struct tcase *c, uint32_t in[N][5])
{
	uint32_t dims = geoms[c->geom].dims, first = geoms[c->geom].layered;
	bool cube = c->geom >= G_CUBE, whole = c->op == OP_WHOLE || c->op == OP_SURFACE;
	memset(in, 0, N * sizeof(*in));
	for (uint32_t t = 0; t < N; t++) {
		uint32_t layers = cube ? c->size[2] / 6 : c->size[2];
		if (first)
			in[t][0] = (uint32_t)(next() % at_least_1(layers));
		if (c->where == LAYERS)
			in[t][0] = t % 8 ? (uint32_t)(next() % 16) - 8 : 0x7fffffff + (t & 8);
		for (uint32_t k = 0; k < dims; k++) {
			float f = coordinate(at_least_1(cube ? 8 : c->size[k]), whole);
			/* Surfaces are left only where the instruction says what is then. */
			int32_t i = (int32_t)f;
			if (cube)
				f = unit() * 2 - 1;
			else if (c->normalized)
				f /= (float)at_least_1(c->size[k]);
			if (c->where == FAR || c->where == SEAMS)
				f = special((enum where)c->where, f);
			if (whole && c->op == OP_SURFACE && !k)
				i *= (int32_t)texel_bytes(c);
			memcpy(&in[t][first + k], whole ? (void *)&i : (void *)&f, 4);
		}
		float lod = t % 3 ? unit() * 4 - 1 : (float)(t / 3 % 4);
		if (c->op == OP_GRAD)
			lod = (unit() * 8 - 4) / (float)c->size[0];
		memcpy(&in[t][4], &lod, 4);
	}
}

/* -- text -----------------------------------------------------------------------------------------
 */

static const char *data_type(const struct tcase *c)
{
	return !c->integer ? "f32" : formats[c->format].kind == 's' ? "s32" : "u32";
}

/* The coordinates as the operand's vector: padded with the last one. */
static void coords(FILE *f, const struct tcase *c)
{
	bool whole = c->op == OP_WHOLE || c->op == OP_SURFACE;
	uint32_t own = geoms[c->geom].dims + geoms[c->geom].layered, n = geoms[c->geom].coords;
	fputc('{', f);
	for (uint32_t k = 0; k < n; k++) {
		uint32_t from = k < own ? k : own - 1;
		bool as_word = whole || (geoms[c->geom].layered && !from);
		fprintf(f, "%s%%%c%u", k ? ", " : "", as_word ? 'r' : 'f', from);
	}
	fputc('}', f);
}

static void instruction(FILE *f, const struct tcase *c)
{
	const char *g = geoms[c->geom].name;
	bool words = c->integer;
	const char *d = words ? "{%r10, %r11, %r12, %r13}" : "{%f10, %f11, %f12, %f13}";
	if (c->op == OP_SURFACE) {
		/* Read with zeros outside, write back what was read where it is inside. */
		fprintf(f, "\tsuld.b.%s.v4.b16.zero {%%h0, %%h1, %%h2, %%h3}, [%%rd1, ", g);
		coords(f, c);
		fprintf(f, "];\n\tsust.b.%s.v4.b16.zero [%%rd1, ", g);
		coords(f, c);
		fprintf(f, "], {%%h0, %%h1, %%h2, %%h3};\n\tcvt.u32.u16 %%r10, %%h0; cvt.u32.u16 "
			   "%%r11, "
			   "%%h1; cvt.u32.u16 %%r12, %%h2; cvt.u32.u16 %%r13, %%h3;\n");
		return;
	}
	char gather[] = "tld4.r";
	if (c->component)
		gather[5] = c->component;
	fprintf(f, "\t%s.%s.v4.%s.%s %s, [%%rd1, ",
		c->op == OP_LEVEL    ? "tex.level"
		: c->op == OP_GRAD   ? "tex.grad"
		: c->op == OP_GATHER ? gather
				     : "tex",
		g, data_type(c), c->op == OP_WHOLE ? "s32" : "f32", d);
	coords(f, c);
	/* Gradients: so far along x, half of it along y. */
	const char *last = c->op == OP_LEVEL  ? ", %f4"
			   : c->op != OP_GRAD ? ""
			   : c->geom == G_3D  ? ", {%f4, %f5, %f5, %f5}, {%f5, %f6, %f5, %f5}"
					      : ", {%f4, %f5}, {%f5, %f6}";
	fprintf(f, "]%s;\n", last);
}

static char *case_ptx(const struct tcase *c)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	if (!f)
		abort();
	fprintf(f,
		".version 8.0\n.target sm_75\n.address_size 64\n"
		".visible .entry k(.param .u64 p_tex, .param .u64 p_in, .param .u64 p_out)\n{\n"
		"\t.reg .b64 %%rd<6>; .reg .b32 %%r<20>; .reg .f32 %%f<20>; .reg .b16 %%h<4>;\n"
		"\tld.param.u64 %%rd1, [p_tex]; ld.param.u64 %%rd2, [p_in]; ld.param.u64 %%rd3, "
		"[p_out];\n\tmov.u32 %%r19, %%tid.x; mul.wide.u32 %%rd4, %%r19, 20; add.u64 %%rd2, "
		"%%rd2, %%rd4; mul.wide.u32 %%rd4, %%r19, 16; add.u64 %%rd3, %%rd3, %%rd4;\n");
	for (int k = 0; k < 5; k++)
		fprintf(f, "\tld.global.b32 %%r%d, [%%rd2+%d]; mov.b32 %%f%d, %%r%d;\n", k, k * 4,
			k, k);
	fprintf(f, "\tmov.f32 %%f5, 0f00000000; mul.f32 %%f6, %%f4, 0f3f000000;\n");
	instruction(f, c);
	for (int k = 10; k < 14; k++)
		fprintf(f, "\tst.global.b32 [%%rd3+%d], %%%c%d;\n", (k - 10) * 4,
			c->integer ? 'r' : 'f', k);
	fprintf(f, "\tret;\n}\n");
	fclose(f);
	return text;
}

/* -- running -------------------------------------------------------------------------------------
 */

static CUdeviceptr in_at, out_at;

static bool fine(CUresult r, const struct tcase *c, const char *what)
{
	if (r)
		printf("# %s: %s: error %d\n", c->name, what, (int)r);
	return !r;
}

static bool start(const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	CUdevice dev;
	CUcontext ctx;
	if (!lib)
		return false;
#define CALL(name)                                                                                 \
	if (!(cu.name = (__typeof__(&name))dlsym(lib, #name)))                                     \
		return false;
	CALLS(CALL)
#undef CALL
	return !cu.cuInit(0) && !cu.cuDeviceGet(&dev, 0) &&
	       !cu.cuDevicePrimaryCtxRetain(&ctx, dev) && !cu.cuCtxSetCurrent(ctx) &&
	       !cu.cuMemAlloc_v2(&in_at, N * 5 * 4) && !cu.cuMemAlloc_v2(&out_at, N * WORDS * 4);
}

/* The levels of an image, all filled. */
static bool make_image(const struct tcase *c, CUmipmappedArray *out)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = c->size[0],
		.Height = c->size[1],
		.Depth = c->size[2],
		.Format = formats[c->format].format,
		.NumChannels = c->channels,
		.Flags = (geoms[c->geom].layered ? CUDA_ARRAY3D_LAYERED : 0) |
			 (c->geom >= G_CUBE ? CUDA_ARRAY3D_CUBEMAP : 0) |
			 (c->op == OP_GATHER ? CUDA_ARRAY3D_TEXTURE_GATHER : 0) |
			 (c->op == OP_SURFACE ? CUDA_ARRAY3D_SURFACE_LDST : 0) };
	if (!fine(cu.cuMipmappedArrayCreate(out, &d, c->levels), c, "an image"))
		return false;
	bool shrinks = c->geom == G_3D;
	for (unsigned int i = 0; i < c->levels; i++) {
		size_t w = at_least_1(c->size[0] >> i), h = at_least_1(c->size[1] >> i),
		       z = shrinks ? at_least_1(c->size[2] >> i) : slices(c);
		size_t bytes = w * h * z * texel_bytes(c);
		uint8_t *data = malloc(bytes);
		CUarray level;
		if (!data || !fine(cu.cuMipmappedArrayGetLevel(&level, *out, i), c, "a level"))
			return false;
		fill(c, data, w * h * z);
		CUDA_MEMCPY3D m = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			.srcHost = data,
			.srcPitch = w * texel_bytes(c),
			.srcHeight = h,
			.dstMemoryType = CU_MEMORYTYPE_ARRAY,
			.dstArray = level,
			.WidthInBytes = w * texel_bytes(c),
			.Height = h,
			.Depth = z };
		bool ok = fine(cu.cuMemcpy3D_v2(&m), c, "texels");
		free(data);
		if (!ok)
			return false;
	}
	return true;
}

static bool make_object(const struct tcase *c, CUmipmappedArray image, unsigned long long *out)
{
	CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_ARRAY };
	CUDA_TEXTURE_DESC t = { .addressMode = { c->address, c->address, c->address },
		.filterMode = c->linear ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT,
		.flags = (c->normalized ? CU_TRSF_NORMALIZED_COORDINATES : 0) |
			 (c->integer ? CU_TRSF_READ_AS_INTEGER : 0) | (c->srgb ? CU_TRSF_SRGB : 0),
		.mipmapFilterMode =
			c->mip_linear ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT,
		.maxMipmapLevelClamp = (float)(c->levels - 1),
		.borderColor = { 0.25f, 0.5f, 0.75f, 1 } };
	if (c->levels > 1) {
		r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
		r.res.mipmap.hMipmappedArray = image;
	} else if (!fine(cu.cuMipmappedArrayGetLevel(&r.res.array.hArray, image, 0), c,
			   "a level")) {
		return false;
	}
	return c->op == OP_SURFACE
		       ? fine(cu.cuSurfObjectCreate(out, &r), c, "a surface object")
		       : fine(cu.cuTexObjectCreate(out, &r, &t, NULL), c, "a texture object");
}

static bool run_case(const struct tcase *c, uint32_t out[N][WORDS])
{
	uint32_t in[N][5];
	CUmipmappedArray image;
	CUmodule m;
	CUfunction f;
	unsigned long long object = 0;
	state = diff_hash(c->name, strlen(c->name), 11);
	make_input(c, in);
	memset(out, 0, N * sizeof(*out));
	char *ptx = case_ptx(c);
	if (!fine(cu.cuModuleLoadData(&m, ptx), c, "the kernel")) {
		free(ptx);
		return false;
	}
	free(ptx);
	bool ok = make_image(c, &image) && make_object(c, image, &object);
	void *args[] = { &object, &in_at, &out_at };
	ok = ok && fine(cu.cuMemcpyHtoD_v2(in_at, in, sizeof(in)), c, "inputs") &&
	     fine(cu.cuModuleGetFunction(&f, m, "k"), c, "the function") &&
	     fine(cu.cuLaunchKernel(f, 1, 1, 1, N, 1, 1, 0, NULL, args, NULL), c, "the launch") &&
	     fine(cu.cuCtxSynchronize(), c, "the end") &&
	     fine(cu.cuMemcpyDtoH_v2(out, out_at, N * sizeof(*out)), c, "results");
	if (ok && c->op == OP_SURFACE)
		cu.cuSurfObjectDestroy(object);
	else if (ok)
		cu.cuTexObjectDestroy(object);
	if (ok)
		cu.cuMipmappedArrayDestroy(image);
	cu.cuModuleUnload(m);
	return ok;
}

/* -- records
 * --------------------------------------------------------------------------------------- */

static const char magic[] = "egpu-tex 1\n";

static int record(const char *path)
{
	char *data = NULL;
	size_t size, failed = 0;
	FILE *b = open_memstream(&data, &size);
	static uint32_t out[N][WORDS];
	if (!b)
		return 1;
	fwrite(magic, 1, sizeof(magic) - 1, b);
	for (uint32_t i = 0; i < n_cases; i++) {
		if (!run_case(&cases[i], out)) {
			failed++;
			continue;
		}
		fwrite(cases[i].name, 1, strlen(cases[i].name) + 1, b);
		fwrite(out, 1, sizeof(out), b);
	}
	fclose(b);
	size_t cap = ZSTD_compressBound(size);
	void *packed = malloc(cap);
	size_t n = packed ? ZSTD_compress(packed, cap, data, size, 19) : 0;
	FILE *f = n && !ZSTD_isError(n) ? fopen(path, "wb") : NULL;
	bool ok = f && fwrite(packed, 1, n, f) == n;
	ok = f && !fclose(f) && ok;
	printf("# %zu of %u cases recorded, %zu bytes\n", n_cases - failed, n_cases, n);
	free(packed);
	free(data);
	return ok && !failed ? 0 : 1;
}

struct check {
	uint8_t *data;
	size_t len;
};

static const uint8_t *find(const struct check *k, const char *name)
{
	const size_t each = N * WORDS * 4;
	for (size_t at = sizeof(magic) - 1; at < k->len;) {
		const uint8_t *end = memchr(k->data + at, 0, k->len - at);
		size_t next_at = end ? (size_t)(end - k->data) + 1 : k->len;
		if (k->len - next_at < each)
			return NULL;
		if (!strcmp((char *)k->data + at, name))
			return k->data + next_at;
		at = next_at + each;
	}
	return NULL;
}

/* Equal bits, or zeros of different signs. */
static bool same(const struct tcase *c, uint32_t got, uint32_t want)
{
	float a, b;
	memcpy(&a, &got, 4);
	memcpy(&b, &want, 4);
	return got == want || (a == b && !c->integer);
}

static uint32_t compare(const struct tcase *c, uint32_t got[N][WORDS], const uint8_t *recorded)
{
	uint32_t bad = 0, want[N][WORDS], in[N][5];
	memcpy(want, recorded, sizeof(want));
	state = diff_hash(c->name, strlen(c->name), 11);
	make_input(c, in);
	for (uint32_t t = 0; t < N; t++)
		for (uint32_t k = 0; k < WORDS; k++) {
			if (same(c, got[t][k], want[t][k]))
				continue;
			if (bad++ < 3)
				printf("#   %s: thread %u, %u: 0x%08x, recorded 0x%08x; at %08x "
				       "%08x "
				       "%08x %08x, %08x\n",
					c->name, t, k, got[t][k], want[t][k], in[t][0], in[t][1],
					in[t][2], in[t][3], in[t][4]);
		}
	return bad;
}

static bool unpack(const char *path, struct check *k)
{
	FILE *f = fopen(path, "rb");
	static uint8_t packed[4 << 20];
	size_t n = f ? fread(packed, 1, sizeof(packed), f) : 0;
	if (f)
		fclose(f);
	unsigned long long size = n ? ZSTD_getFrameContentSize(packed, n) : 0;
	if (!size || size > 64 << 20 || !(k->data = malloc(size + 1)))
		return false;
	k->len = ZSTD_decompress(k->data, size, packed, n);
	k->data[size] = 0;
	return k->len == size && size > sizeof(magic) && !memcmp(k->data, magic, sizeof(magic) - 1);
}

/* Cases in which softgpu is known to differ from an H200, and how; each must, or leave the table.
 */
static const struct {
	const char *name, *why;
} known[] = {
	{ "tex.2d u8 x4 clamp linear srgb 13x7x0",
		"no values of the bytes 87 and 234 were found that fit each sum" },
	{ "tex.grad.2d f32 x1 clamp linear normalized mip-linear 13x7x0",
		"the level is log2 to within 1.2/256, by an approximation that was not found" },
	{ "tex.grad.3d f32 x1 clamp linear normalized mip-linear 7x5x4", "as with tex.grad.2d" },
};

static const char *why_known(const char *name)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, name))
			return known[i].why;
	return NULL;
}

static int check(const char *path)
{
	struct check k = { 0 };
	static uint32_t out[N][WORDS];
	uint32_t tests = 0, failed = 0;
	if (!unpack(path, &k)) {
		printf("Bail out! %s is not a record\n", path);
		return 1;
	}
	for (uint32_t i = 0, j; i < n_cases; i = j) {
		uint32_t good = 0, missing = 0, differ = 0;
		for (j = i; j < n_cases && !strcmp(cases[j].group, cases[i].group); j++) {
			const uint8_t *want = find(&k, cases[j].name);
			missing += !want;
			uint32_t bad = want && run_case(&cases[j], out)
					       ? compare(&cases[j], out, want)
					       : N;
			const char *why = want ? why_known(cases[j].name) : NULL;
			good += !bad && !why;
			differ += bad && why;
			if (bad && want)
				printf("#   %s: %u of %u words differ%s%s\n", cases[j].name, bad,
					N * WORDS, why ? ", as is known: " : "", why ? why : "");
			else if (why)
				printf("#   %s: equal, but in the table of known differences\n",
					cases[j].name);
		}
		if (missing == j - i) {
			printf("ok %u - %s # skip no record\n", ++tests, cases[i].group);
			continue;
		}
		bool ok = good + differ == j - i;
		failed += !ok;
		printf("%sok %u - %s: %u of %u cases equal the recorded results", ok ? "" : "not ",
			++tests, cases[i].group, good, j - i);
		if (differ)
			printf(", %u differ as is known", differ);
		printf(missing ? ", %u have no record\n" : "\n", missing);
	}
	printf("1..%u\n", tests);
	free(k.data);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	const char *library = "libcuda.so.1", *to = NULL, *from = NULL;
	for (int i = 1; i + 1 < argc; i += 2) {
		const char **slot = !strcmp(argv[i], "--driver")   ? &library
				    : !strcmp(argv[i], "--record") ? &to
				    : !strcmp(argv[i], "--check")  ? &from
								   : NULL;
		if (!slot)
			break;
		*slot = argv[i + 1];
	}
	if (!to == !from) {
		fprintf(stderr, "usage: textures [--driver LIB] --record FILE | --check FILE\n");
		return 2;
	}
	make_cases();
	if (!start(library)) {
		fprintf(stderr, "# %s cannot be used\n", library);
		return 1;
	}
	return to ? record(to) : check(from);
}
