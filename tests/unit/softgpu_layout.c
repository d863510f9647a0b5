/* Blocks whose order in the text is not that of control: what lives around a loop keeps its register, wherever the text names it
 * first. clang lays out loops like this, the test of the end above the beginning. */
#include "softgpu_run.h"

/* %keep is named first below registers of the same block that are done with, but lives while they are used: of each kind. */
static const char ptx[] = PTX_HEAD
	".visible .entry k(.param .u64 out, .param .u32 n)\n{\n"
	"	.reg .pred %p<8>, %kp;\n	.reg .b32 %i, %n, %keep, %t<8>;\n	.reg .b64 %out, %keepd, %d<8>;\n"
	"	.reg .f32 %keepf, %f<4>;\n"
	"	ld.param.u64 %out, [out];\n	ld.param.u32 %n, [n];\n	mov.u32 %i, 0;\n	bra.uni TOP;\n"
	"BACK:\n"
	"	mov.u32 %t1, %n;\n	add.u32 %t2, %t1, 1000;\n	mov.b64 %d1, 77;\n	add.u64 %d2, %d1, %d1;\n"
	"	mov.f32 %f1, 0f3f800000;\n	add.f32 %f2, %f1, %f1;\n	setp.eq.u32 %p1, %t2, 1;\n	setp.eq.and.u32 %p2, %t2, 2, %p1;\n"
	"	st.global.u32 [%out+32], %t2;\n	st.global.u64 [%out+40], %d2;\n	st.global.f32 [%out+48], %f2;\n	selp.u32 %t3, 1, 2, %p2;\n"
	"	st.global.u32 [%out+52], %t3;\n"
	"	st.global.u64 [%out+8], %keepd;\n	st.global.f32 [%out+16], %keepf;\n	selp.u32 %t4, 1, 2, %kp;\n"
	"	st.global.u32 [%out+20], %t4;\n"
	"	add.u32 %i, %keep, 1;\n	setp.lt.u32 %p3, %i, %n;\n	@%p3 bra TOP;\n	bra.uni DONE;\n"
	"TOP:\n"
	"	mov.u32 %keep, %i;\n	cvt.u64.u32 %keepd, %i;\n	cvt.rn.f32.u32 %keepf, %i;\n	setp.le.u32 %kp, %i, 100;\n"
	"	bra.uni BACK;\n"
	"DONE:\n	st.global.u32 [%out], %i;\n	ret;\n}\n";

int main(void)
{
	device_open(1, 0);
	struct sg_module *m = load(ptx);
	uint64_t out = alloc(64);
	struct {
		uint64_t out;
		uint32_t n;
	} params = { out, 5 };
	struct run r;
	run_start(&r, sg_module_kernel(m, "k"), 1, 1, 0, &params, false);
	is_int(run_wait(&r), CUDA_SUCCESS, "a loop laid out backwards ends");
	is_int(*(uint32_t *)out, 5, "after its five rounds");
	is_int(*(uint64_t *)(out + 8), 4, "a 64-bit register kept its value across the end of the loop");
	ok(*(float *)(out + 16) == 4.0f, "so did a float");
	is_int(*(uint32_t *)(out + 20), 1, "and a predicate");
	is_int(*(uint32_t *)(out + 32), 1005, "and so did what the block computed for itself");
	is_int(*(uint64_t *)(out + 40), 154, "in 64 bits");
	is_int(*(uint32_t *)(out + 52), 2, "and by predicates");
	sg_mem_free(device, out);
	sg_module_free(m);
	sg_device_free(device);
	return tap_done();
}
