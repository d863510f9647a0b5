/* double precision */
extern "C" __global__ void kernel(double *a)
{
	int i = threadIdx.x;
	double x = a[i], y = a[i + 1];
	a[i] = x / y + sqrt(x) + fma(x, y, 1.0) + sin(x) + exp(y) + __dadd_rd(x, y) + rint(x) + (double)(float)y;
	a[i + 32] = __longlong_as_double(__double_as_longlong(x) ^ 1) + __hiloint2double(__double2hiint(x), 7) + min(x, y);
}
