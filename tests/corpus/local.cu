/* local memory indexed at run time */
extern "C" __global__ void kernel(int *a, int n)
{
	int stack[40];
	for (int i = 0; i < 40; i++)
		stack[i] = a[i];
	stack[n % 40] = 9;
	int s = 0;
	for (int i = 0; i < n; i++)
		s += stack[(i * 13) % 40];
	a[threadIdx.x] = s;
}
