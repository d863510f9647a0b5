// With samename_b.cu: two modules that each have a kernel "work".
extern "C" __device__ int scale = 2;
extern "C" __global__ void work(int *data, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		data[i] = data[i] * scale;
}
