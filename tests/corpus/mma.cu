/* mma.sync of several types */
// sm: 80
extern "C" __global__ void kernel(unsigned *a, float *c, double *d, int *e)
{
	unsigned x = a[threadIdx.x];
	float r[4] = { 0, 0, 0, 0 };
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
		: "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(x));
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
		: "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(x));
	double s[2] = { d[0], d[1] };
	asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%2}, {%0,%1};" : "+d"(s[0]), "+d"(s[1]) : "d"(d[2]));
	int t[4] = { 1, 2, 3, 4 };
	asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
		: "+r"(t[0]), "+r"(t[1]), "+r"(t[2]), "+r"(t[3]) : "r"(x));
	c[threadIdx.x] = r[0] + r[3], d[3] = s[0], e[0] = t[0];
}
