/* softgpu_texture.c - texture fetches, filtering and address modes, queries, surfaces. */
#include "softgpu_run.h"

#include "softgpu/texture.h"

#include <math.h>

#define N 32

struct params {
	uint64_t handle, in, out;
};

static uint64_t in_at, out_at;

/* Runs `body` once for each of N threads: %h the handle, %f0..%f3 and %r0..%r3 its four inputs as
 * floats and bits; results %r4..%r7. */
static CUresult run_body(const char *body, uint64_t handle)
{
	char ptx[4096];
	struct params p = { handle, in_at, out_at };
	snprintf(ptx, sizeof(ptx),
		PTX_HEAD
		".visible .entry k(.param .u64 ph, .param .u64 pi, .param .u64 po)\n{\n"
		".reg .b64 %%h, %%i, %%o, %%t;\n.reg .b32 %%r<12>, %%x;\n.reg .f32 %%f<8>;\n"
		"ld.param.u64 %%h, [ph]; ld.param.u64 %%i, [pi]; ld.param.u64 %%o, [po];\n"
		"mov.u32 %%x, %%tid.x; mul.wide.u32 %%t, %%x, 16;\nadd.u64 %%i, %%i, %%t; add.u64 "
		"%%o, %%o, %%t;\n"
		"ld.global.v4.b32 {%%r0, %%r1, %%r2, %%r3}, [%%i];\n"
		"mov.b32 %%f0, %%r0; mov.b32 %%f1, %%r1; mov.b32 %%f2, %%r2; mov.b32 %%f3, %%r3;\n"
		"mov.b32 %%r4, 0; mov.b32 %%r5, 0; mov.b32 %%r6, 0; mov.b32 %%r7, 0;\n%s\n"
		"st.global.v4.b32 [%%o], {%%r4, %%r5, %%r6, %%r7};\nret;\n}\n",
		body);
	return run_ptx(ptx, 1, N, 0, &p);
}

static float *fin(void)
{
	return (float *)(uintptr_t)in_at;
}

static float *fout(void)
{
	return (float *)(uintptr_t)out_at;
}

static struct sg_texture describe(enum sg_image_kind kind, CUarray_format format, uint8_t channels,
	uint32_t w, uint32_t h, uint32_t d)
{
	uint32_t unit = sg_format_bytes(format) * channels;
	struct sg_texture t = {
		.image = { .kind = kind, .format = format, .channels = channels, .n_levels = 1 }
	};
	t.image.level[0] = (struct sg_image_level){ .data = alloc((size_t)unit * w * h * d),
		.width = w,
		.height = h,
		.depth = d,
		.row_bytes = (uint64_t)unit * w,
		.slice_bytes = (uint64_t)unit * w * h };
	return t;
}

/* v[i] = i in a float image. */
static void count_up(const struct sg_texture *t)
{
	const struct sg_image_level *l = &t->image.level[0];
	float *v = (float *)(uintptr_t)l->data;
	for (uint32_t i = 0; i < l->width * l->height * l->depth * t->image.channels; i++)
		v[i] = (float)i;
}

#define TEX_2D                                                                                     \
	"tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%h, {%f0, %f1}];\nmov.b32 %r4, %f4; mov.b32 "    \
	"%r5, %f5;\n"                                                                              \
	"mov.b32 %r6, %f6; mov.b32 %r7, %f7;"

/* One fetch of a 4x4 image that counts up. */
static float fetch_2d(struct sg_texture *t, float x, float y)
{
	uint64_t h = 0;
	fin()[0] = x;
	fin()[1] = y;
	if (sg_texture_new(device, t, &h) != CUDA_SUCCESS || run_body(TEX_2D, h) != CUDA_SUCCESS)
		return NAN;
	sg_texture_free(device, h);
	return fout()[0];
}

static void address_modes(void)
{
	static const struct {
		uint8_t mode;
		bool linear, normalized;
		float x, y, want;
	} rows[] = {
		{ SG_TEX_CLAMP, false, false, 1.5f, 2.5f, 9 },
		{ SG_TEX_CLAMP, false, false, -3, 9, 12 },
		{ SG_TEX_CLAMP, false, true, 0.3f, 0.6f, 9 },
		{ SG_TEX_WRAP, false, true, 1.3f, -0.4f, 9 },
		{ SG_TEX_MIRROR, false, true, 1.3f, 0.1f, 2 },
		{ SG_TEX_MIRROR, false, true, -0.3f, 0.1f, 1 },
		{ SG_TEX_BORDER, false, false, 4.5f, 1, 99 },
		{ SG_TEX_BORDER, false, false, 3.5f, 1, 7 },
		{ SG_TEX_WRAP, false, false, 5, 0, 3 }, /* only normalised coordinates wrap */
		{ SG_TEX_CLAMP, true, false, 1.5f, 2.5f, 9 },
		{ SG_TEX_CLAMP, true, false, 2, 2, 7.5f },
		{ SG_TEX_CLAMP, true, false, 2.25f, 1.5f, 5.75f },
		{ SG_TEX_CLAMP, true, false, -5, 0.5f, 0 },
		{ SG_TEX_WRAP, true, true, 0, 0.125f, 1.5f },
		{ SG_TEX_MIRROR, true, true, 0, 0.125f, 0 },
		{ SG_TEX_BORDER, true, false, 0, 0.5f, 49.5f },
		/* Normalised coordinates have 21 bits of fraction, cut off downwards. */
		{ SG_TEX_CLAMP, false, true, 0.25f + 0x1p-20f, 0.1f, 1 },
		{ SG_TEX_CLAMP, false, true, 0.25f - 0x1p-24f, 0.1f, 0 },
		{ SG_TEX_WRAP, false, true, -0x1p-40f, 0.1f, 3 },
		/* Positions between texels are rounded to 1/256. */
		{ SG_TEX_CLAMP, true, false, 1.5f + 0x1.8p-9f, 0.5f, 1 + 0x1p-8f },
		{ SG_TEX_CLAMP, true, false, 1.5f + 0x1.8p-10f, 0.5f, 1 },
	};
	struct sg_texture t = describe(SG_IMAGE_2D, CU_AD_FORMAT_FLOAT, 1, 4, 4, 1);
	count_up(&t);
	t.border[0] = 99;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		t.address[0] = t.address[1] = rows[i].mode;
		t.linear = rows[i].linear;
		t.normalized = rows[i].normalized;
		float got = fetch_2d(&t, rows[i].x, rows[i].y);
		ok(got == rows[i].want, "mode %u, %s, %s at (%g, %g): %g", rows[i].mode,
			t.linear ? "linear" : "point", t.normalized ? "normalised" : "texels",
			rows[i].x, rows[i].y, got);
	}
	fin()[0] = 1.5f;
	t.linear = t.normalized = false;
	fetch_2d(&t, 1, 1);
	ok(fout()[1] == 0 && fout()[2] == 0 && fout()[3] == 0,
		"channels that an image has not: 0");
}

static void kinds(void)
{
	uint64_t h;
	struct sg_texture t = describe(SG_IMAGE_1D, CU_AD_FORMAT_FLOAT, 1, 8, 1, 1);
	count_up(&t);
	t.linear = true;
	t.address[0] = SG_TEX_CLAMP;
	for (int i = 0; i < N; i++)
		fin()[i * 4] = (float)i / 2;
	sg_texture_new(device, &t, &h);
	run_body("tex.1d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%h, {%f0}]; mov.b32 %r4, %f4;", h);
	bool right = true;
	for (int i = 0; i < 14; i++)
		right &= fout()[i * 4] == fmaxf((float)i / 2 - 0.5f, 0);
	ok(right, "1d, linear, each lane its own coordinate");
	sg_texture_free(device, h);

	t = describe(SG_IMAGE_3D, CU_AD_FORMAT_FLOAT, 1, 2, 2, 2);
	count_up(&t);
	t.linear = true;
	memset(t.address, SG_TEX_CLAMP, 3);
	sg_texture_new(device, &t, &h);
	fin()[0] = fin()[1] = fin()[2] = 1;
	run_body("tex.3d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%h, {%f0, %f1, %f2, %f2}]; mov.b32 %r4, "
		 "%f4;",
		h);
	ok(fout()[0] == 3.5f, "3d, the middle of eight texels");
	sg_texture_free(device, h);

	t = describe(SG_IMAGE_2D_LAYERED, CU_AD_FORMAT_FLOAT, 1, 2, 2, 3);
	count_up(&t);
	memset(t.address, SG_TEX_CLAMP, 3);
	sg_texture_new(device, &t, &h);
	((uint32_t *)(uintptr_t)in_at)[0] = 2;
	((uint32_t *)(uintptr_t)in_at)[4] = 7;
	fin()[1] = fin()[5] = 1.5f;
	fin()[2] = fin()[6] = 0.5f;
	run_body("tex.a2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%h, {%r0, %f1, %f2, %f2}]; mov.b32 "
		 "%r4, %f4;",
		h);
	ok(fout()[0] == 9 && fout()[4] == 9, "layers; past the last is the last");
	sg_texture_free(device, h);

	t = describe(SG_IMAGE_LINEAR, CU_AD_FORMAT_SIGNED_INT16, 2, 16, 1, 1);
	t.read_integer = true;
	for (int i = 0; i < 32; i++)
		((int16_t *)(uintptr_t)t.image.level[0].data)[i] = (int16_t)(-i);
	sg_texture_new(device, &t, &h);
	((uint32_t *)(uintptr_t)in_at)[0] = 5;
	((uint32_t *)(uintptr_t)in_at)[4] = 16;
	run_body("tex.1d.v4.s32.s32 {%r4, %r5, %r6, %r7}, [%h, {%r0}];", h);
	int32_t *o = (int32_t *)(uintptr_t)out_at;
	ok(o[0] == -10 && o[1] == -11 && o[4] == 0, "a buffer of short2, and zeros behind it");
	sg_texture_free(device, h);

	t = describe(SG_IMAGE_2D, CU_AD_FORMAT_UNSIGNED_INT8, 4, 4, 4, 1);
	for (int i = 0; i < 64; i++)
		((uint8_t *)(uintptr_t)t.image.level[0].data)[i] = (uint8_t)(i * 4);
	memset(t.address, SG_TEX_CLAMP, 3);
	fetch_2d(&t, 1, 1);
	ok(fout()[0] == 80 / 255.0f && fout()[3] == 92 / 255.0f, "uchar4 as fractions");
	t.srgb = true;
	fetch_2d(&t, 1, 1);
	ok(fout()[0] == 164 / 2048.0f && fout()[3] == 92 / 255.0f,
		"sRGB in eight bits, but for alpha");
}

static void more_forms(void)
{
	uint64_t h;
	struct sg_texture t = describe(SG_IMAGE_2D, CU_AD_FORMAT_FLOAT, 1, 4, 4, 1);
	struct sg_texture half = describe(SG_IMAGE_2D, CU_AD_FORMAT_FLOAT, 1, 2, 2, 1);
	count_up(&t);
	memset(t.address, SG_TEX_CLAMP, 3);
	sg_texture_new(device, &t, &h);
	fin()[0] = 2;
	fin()[1] = 2;
	run_body("tld4.r.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%h, {%f0, %f1}]; mov.b32 %r4, %f4;\n"
		 "mov.b32 %r5, %f5; mov.b32 %r6, %f6; mov.b32 %r7, %f7;",
		h);
	ok(fout()[0] == 9 && fout()[1] == 10 && fout()[2] == 6 && fout()[3] == 5,
		"tld4: four texels");
	run_body(
		"txq.width.b32 %r4, [%h]; txq.height.b32 %r5, [%h]; txq.filter_mode.b32 %r6, [%h];",
		h);
	uint32_t *o = (uint32_t *)(uintptr_t)out_at;
	ok(o[0] == 4 && o[1] == 4 && o[2] == 0, "txq");
	sg_texture_free(device, h);

	for (int i = 0; i < 4; i++)
		((float *)(uintptr_t)half.image.level[0].data)[i] = 100;
	t.image.n_levels = 2;
	t.image.level[1] = half.image.level[0];
	t.mip_linear = true;
	t.level_max = 10;
	sg_texture_new(device, &t, &h);
	fin()[0] = fin()[1] = 0.5f;
	fin()[2] = 0.5f;
	run_body("tex.level.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%h, {%f0, %f1}], %f2; mov.b32 "
		 "%r4, %f4;\n"
		 "tex.grad.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%h, {%f0, %f1}], {%f2, %f2}, {%f2, "
		 "%f2};\n"
		 "mov.b32 %r5, %f4;",
		h);
	ok(fout()[0] == 50 && fout()[1] == 0, "levels are blended; small gradients take the first");
	sg_texture_free(device, h);
	stderr_capture();
	CUresult r = run_body(TEX_2D, h);
	const char *text = stderr_end();
	ok(r == CUDA_ERROR_ILLEGAL_ADDRESS && strstr(text, "no texture object"),
		"a stale handle ends the launch");
}

static void surfaces(void)
{
	struct sg_texture t = describe(SG_IMAGE_2D, CU_AD_FORMAT_UNSIGNED_INT16, 2, 4, 4, 1);
	uint16_t *v = (uint16_t *)(uintptr_t)t.image.level[0].data;
	uint32_t *in = (uint32_t *)(uintptr_t)in_at, *out = (uint32_t *)(uintptr_t)out_at;
	uint64_t h;
	is_int(sg_surface_new(device, &t.image, &h), CUDA_SUCCESS, "a surface object");
	for (uint32_t i = 0; i < N; i++) {
		in[i * 4] = i % 4 * 4; /* bytes */
		in[i * 4 + 1] = i / 4;
		in[i * 4 + 2] = i << 16 | (i + 100);
	}
	is_int(run_body(".reg .b16 %h8, %h9;\nsust.b.2d.b32.zero [%h, {%r0, %r1}], %r2;\n"
			"suld.b.2d.b32.zero %r4, [%h, {%r0, %r1}];\n"
			"suld.b.2d.v2.b16.clamp {%h8, %h9}, [%h, {%r0, %r1}];\n"
			"cvt.u32.u16 %r5, %h8; cvt.u32.u16 %r6, %h9; suq.width.b32 %r7, [%h];",
		       h),
		CUDA_SUCCESS, "stores and loads in and out of range");
	ok(v[2] == 101 && v[3] == 1 && v[30] == 115, "what was stored");
	ok(out[4] == (1 << 16 | 101) && out[16 * 4] == 0, "what was loaded, and zero outside");
	ok(out[16 * 4 + 2] == 12 && out[16 * 4 + 3] == 4, "clamped to the last row; the width");
	is_int(run_body("sust.p.2d.v2.b32.zero [%h, {%r1, %r1}], {%r2, %r2};", h), CUDA_SUCCESS,
		"sust.p");
	is_int(v[5 * 2], 65535, "sust.p clamps to the format");
	stderr_capture();
	CUresult r = run_body("suld.b.2d.b32.trap %r4, [%h, {%r0, %r1}];", h);
	const char *text = stderr_end();
	ok(r == CUDA_ERROR_ILLEGAL_ADDRESS && strstr(text, "surface access at (0, 4, 0)"),
		"trap says where: %s", text);
	sg_surface_free(device, h);
}

static void refused(void)
{
	struct sg_texture t = describe(SG_IMAGE_2D, CU_AD_FORMAT_UNSIGNED_INT32, 1, 4, 4, 1);
	uint64_t h, g;
	t.linear = true;
	is_int(sg_texture_new(device, &t, &h), CUDA_ERROR_INVALID_VALUE,
		"integers are not blended");
	t.linear = false;
	t.image.channels = 3;
	is_int(sg_texture_new(device, &t, &h), CUDA_ERROR_INVALID_VALUE, "three channels");
	t.image.channels = 1;
	is_int(sg_texture_new(device, &t, &h), CUDA_SUCCESS, "a good one");
	is_int(sg_surface_free(device, h), CUDA_ERROR_INVALID_VALUE, "a texture is no surface");
	is_int(sg_texture_free(device, h), CUDA_SUCCESS, "freed");
	is_int(sg_texture_free(device, h), CUDA_ERROR_INVALID_VALUE, "not twice");
	for (int i = 0; i < 1000; i++) {
		sg_texture_new(device, &t, &g);
		sg_texture_free(device, g);
	}
	ok(g != h && sg_texture_get(device, h, &t) == CUDA_ERROR_INVALID_VALUE,
		"handles are not used again");
}

int main(void)
{
	device_open(1, 0);
	in_at = alloc(16 * N);
	out_at = alloc(16 * N);
	address_modes();
	kinds();
	more_forms();
	surfaces();
	refused();
	sg_device_free(device);
	return tap_done();
}
