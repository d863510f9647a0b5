/* textures of each shape */
extern "C" __global__ void kernel(cudaTextureObject_t t, cudaTextureObject_t u, float4 *a, int *b)
{
	float x = threadIdx.x;
	a[0] = tex1D<float4>(t, x), a[1] = tex2D<float4>(t, x, 1), a[2] = tex3D<float4>(t, x, 1, 2), a[3] = tex2DLod<float4>(t, x, 1, 2);
	a[4] = tex1Dfetch<float4>(t, 3), a[5] = tex2DLayered<float4>(t, x, 1, 2), a[6] = texCubemap<float4>(t, x, 1, 2);
	a[7] = tex2DGrad<float4>(t, x, 1, make_float2(1, 0), make_float2(0, 1)), a[8] = tex2Dgather<float4>(t, x, 1, 2);
	b[0] = tex2D<int>(u, x, 1);
}
