/* virtual functions */
struct base { int k; __device__ virtual int run(int x) { return x; } };
struct derived : base { __device__ int run(int x) override { return x * k; } };
extern "C" __global__ void kernel(int *a, int n)
{
	base b;
	derived d;
	d.k = n;
	base *p = n & 1 ? &b : (base *)&d;
	a[threadIdx.x] = p->run(a[0]);
}
