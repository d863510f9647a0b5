/* constants, device and managed variables */
__constant__ float coefficients[64];
__constant__ struct { int a; double b; char c[5]; } settings;
__device__ int counter = 5;
__device__ float *pointer;
__managed__ int managed;
static __device__ const char text[] = "hello";
extern "C" __global__ void kernel(float *a, int i)
{
	a[i] = coefficients[i] + coefficients[3] + settings.a + (float)settings.b + settings.c[i % 5] + text[i % 5];
	counter++, pointer = a, managed = i;
}
