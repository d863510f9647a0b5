/* Special registers. */
#include "softgpu_run.h"

#define N 26
static const char *const names[N] = { "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z",
	"%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid",
	"%warpid", "%nwarpid", "%smid", "%nsmid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt",
	"%lanemask_ge", "%lanemask_gt", "%dynamic_smem_size", "%total_smem_size",
	"%cluster_nctaid.x", "%nclusterid.y" };

int main(void)
{
	static char text[8192];
	device_open(2, 0);
	size_t at = (size_t)sprintf(text,
		PTX_HEAD ".shared .b8 s[100];\n.visible .entry k(.param .u64 p)\n{ .reg .b32 "
			 "%%r<40>; .reg .b64"
			 " %%rd<20>; .reg .pred %%q;\n ld.param.u64 %%rd1, [p]; mov.u32 %%r30, "
			 "%%tid.x; setp.ne.u32 %%q, %%r30, 4; @%%q exit;"
			 " mov.u32 %%r31, %%tid.y; setp.ne.u32 %%q, %%r31, 1; @%%q exit; mov.u32 "
			 "%%r32, %%ctaid.x; setp.ne.u32 %%q, %%r32, 2; @%%q exit;"
			 " mov.u32 %%r33, s; st.shared.u32 [%%r33], 1;\n");
	for (int i = 0; i < N; i++)
		at += (size_t)sprintf(text + at,
			" mov.u32 %%r1, %s; st.global.u32 [%%rd1+%d], %%r1;\n", names[i], i * 4);
	sprintf(text + at, " mov.u64 %%rd2, %%clock64; mov.u32 %%r2, %%clock; mov.u64 %%rd3, "
			   "%%globaltimer; nanosleep.u32 1; mov.u64 %%rd4, %%clock64;"
			   " mov.u64 %%rd5, %%globaltimer; mov.u32 %%r4, %%globaltimer_hi; mov.u32 "
			   "%%r5, %%globaltimer_lo; mov.u64 %%rd7, %%gridid;\n"
			   " st.global.u64 [%%rd1+128], %%rd2; st.global.u64 [%%rd1+136], %%rd4; "
			   "st.global.u64 [%%rd1+144], %%rd3;"
			   " st.global.u64 [%%rd1+152], %%rd5; st.global.v2.u32 [%%rd1+160], "
			   "{%%r5, %%r4}; st.global.u64 [%%rd1+168], %%rd7; ret; }\n");
	struct sg_module *m = load(text);
	uint64_t p = alloc(256);
	struct sg_launch l = { .kernel = sg_module_kernel(m, "k"),
		.grid = { 3, 2, 1 },
		.block = { 20, 2, 1 },
		.dynamic_shared_bytes = 64,
		.params = &p };
	struct run r = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	ok(!sg_grid_start(device, &l, run_done, &r) && !run_wait(&r), "a kernel reads them all");
	/* The last of the two blocks (2, 0) and (2, 1) wins; thread (4, 1) is number 24 of warp 0.
	 */
	uint32_t *v = (uint32_t *)p;
	const uint32_t want[N] = { 4, 1, 0, 20, 2, 1, 2, v[7] & 1, 0, 3, 2, 1, 24, 0, 2, v[15] & 3,
		4, 1u << 24, 0x1ffffff, 0xffffff, 0xff000000, 0xfe000000, 64, 112 + 64, 1, 2 };
	for (int i = 0; i < N; i++)
		is_int(v[i], want[i], "%s", names[i]);
	uint64_t *t = (uint64_t *)(p + 128);
	ok(t[1] >= t[0] && t[3] >= t[2], "clocks do not run back");
	ok(t[4] >= t[3] && t[4] - t[3] < 1000000000, "halves of the global timer make one");
	ok(t[5] == 1, "the first grid has number 1");
	sg_module_free(m);
	sg_device_free(device);
	return tap_done();
}
