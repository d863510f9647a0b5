// A program on the shared CUDA runtime that computes until it is told to stop: two kernels a step, and a graph
// that was captured at the start. Ends with the number of steps and of wrong results.
#include <csignal>
#include <cstdio>
#include <cuda_runtime.h>
#include <unistd.h>

enum { N = 1000 };
static volatile sig_atomic_t over;

static void end(int)
{
	over = 1;
}

__global__ void scale(float *p, int n, float f)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] = p[i] * f + 1;
}

template <int K> __global__ void add(int *p, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] += K;
}

int main()
{
	float *p;
	int *q, host[N];
	long steps = 0, wrong = 0;
	cudaStream_t s;
	cudaGraph_t g;
	cudaGraphExec_t exec;
	signal(SIGTERM, end);
	cudaMalloc(&p, sizeof(float) * N);
	cudaMalloc(&q, sizeof(int) * N);
	cudaMemset(p, 0, sizeof(float) * N);
	cudaMemset(q, 0, sizeof(int) * N);
	cudaStreamCreate(&s);
	cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
	add<5><<<8, 128, 0, s>>>(q, N);
	cudaStreamEndCapture(s, &g);
	cudaGraphInstantiate(&exec, g, 0);
	printf("running\n");
	fflush(stdout);
	while (!over) {
		scale<<<8, 128>>>(p, N, 0.5f);
		add<3><<<8, 128, 0, s>>>(q, N);
		cudaGraphLaunch(exec, s);
		if (cudaDeviceSynchronize() != cudaSuccess)
			return 2;
		steps++;
		usleep(300);
	}
	cudaMemcpy(host, q, sizeof(host), cudaMemcpyDeviceToHost);
	for (int i = 0; i < N; i++)
		wrong += host[i] != (int)(8 * steps);
	printf("steps %ld wrong %ld\n", steps, wrong);
	return wrong != 0;
}
