/* register budgets moved between warps */
// sm: 90a
extern "C" __global__ __launch_bounds__(256, 1) void kernel(float *a)
{
	if (threadIdx.x < 128) {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
		a[threadIdx.x] = 1;
	} else {
		asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
		a[threadIdx.x] *= 2;
	}
}
