/* surfaces */
extern "C" __global__ void kernel(cudaSurfaceObject_t s, float4 *a)
{
	int x = threadIdx.x;
	a[0] = surf2Dread<float4>(s, x * 16, 1);
	surf2Dwrite(a[1], s, x * 16, 2, cudaBoundaryModeClamp);
	surf1Dwrite(5, s, x * 4), surf3Dwrite(make_float2(1, 2), s, x, 1, 2, cudaBoundaryModeZero);
	a[2].x = surf2DLayeredread<float>(s, x, 1, 2);
}
