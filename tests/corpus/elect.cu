/* an elected lane */
// sm: 90
extern "C" __global__ void kernel(int *a)
{
	int leader;
	asm volatile("{ .reg .pred p; .reg .b32 r; elect.sync r|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(leader));
	if (leader)
		a[blockIdx.x] = 1;
}
