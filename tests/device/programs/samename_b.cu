extern "C" __device__ int scale = 5;
extern "C" __global__ void work(int *data, int *more, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		data[i] = data[i] + more[i] + scale;
}
