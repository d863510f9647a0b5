/* vector loads and stores, up to 32 bytes */
struct alignas(32) wide { double v[4]; };
extern "C" __global__ void kernel(float4 *a, uchar4 *b, longlong2 *c, short2 *d, wide *e)
{
	int i = threadIdx.x;
	float4 x = a[i];
	a[i + 1] = make_float4(x.w, x.z, x.y, x.x);
	uchar4 y = b[i];
	b[i + 1] = make_uchar4(y.w, y.x, 1, y.z);
	c[i + 1] = c[i], d[i + 1] = d[i], e[i + 1] = e[i];
}
