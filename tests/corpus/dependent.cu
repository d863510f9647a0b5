/* programmatic dependent launch */
// sm: 90
extern "C" __global__ void kernel(int *a)
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
	a[threadIdx.x] += 1;
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
