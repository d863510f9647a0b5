/* A graph built node by node and one captured from two streams, launched again and again, and a node
 * whose parameters change between launches. */
#include "program.h"

__global__ void add(int *p, int n, int v)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] += v;
}

int main()
{
	int n = 1000, v = 3, *p = device_new<int>(n), *q = device_new<int>(n);
	std::vector<int> out(n);
	cudaGraph_t g;
	cudaGraphExec_t exec;
	cudaGraphNode_t set, run, copy;
	CHECK(cudaGraphCreate(&g, 0));
	cudaMemsetParams m = {};
	m.dst = p;
	m.value = 5;
	m.elementSize = 4;
	m.width = n;
	m.height = 1;
	CHECK(cudaGraphAddMemsetNode(&set, g, nullptr, 0, &m));
	void *args[] = { &p, &n, &v };
	cudaKernelNodeParams k = {};
	k.func = (void *)add;
	k.gridDim = dim3(8);
	k.blockDim = dim3(128);
	k.kernelParams = args;
	CHECK(cudaGraphAddKernelNode(&run, g, &set, 1, &k));
	CHECK(cudaGraphAddMemcpyNode1D(&copy, g, &run, 1, out.data(), p, n * 4, cudaMemcpyDeviceToHost));
	CHECK(cudaGraphInstantiate(&exec, g, 0));
	cudaStream_t s, t;
	CHECK(cudaStreamCreate(&s));
	CHECK(cudaStreamCreate(&t));
	long wrong = 0;
	for (int round = 0; round < 4; round++) {
		if (round == 2) {
			v = 7;
			CHECK(cudaGraphExecKernelNodeSetParams(exec, run, &k));
		}
		CHECK(cudaGraphLaunch(exec, s));
		CHECK(cudaStreamSynchronize(s));
		for (int x : out)
			wrong += x != (round < 2 ? 8 : 12);
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(g));

	cudaEvent_t fork, join;
	CHECK(cudaEventCreate(&fork));
	CHECK(cudaEventCreate(&join));
	CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	CHECK(cudaMemsetAsync(p, 0, n * 4, s));
	CHECK(cudaEventRecord(fork, s));
	CHECK(cudaStreamWaitEvent(t, fork, 0));
	add<<<8, 128, 0, s>>>(p, n, 1);
	add<<<8, 128, 0, t>>>(q, n, 2);
	CHECK(cudaEventRecord(join, t));
	CHECK(cudaStreamWaitEvent(s, join, 0));
	CHECK(cudaStreamEndCapture(s, &g));
	CHECK(cudaGraphInstantiate(&exec, g, 0));
	for (int round = 0; round < 5; round++)
		CHECK(cudaGraphLaunch(exec, s));
	CHECK(cudaStreamSynchronize(s));
	std::vector<int> a = host_copy(p, n), b = host_copy(q, n);
	for (int i = 0; i < n; i++)
		wrong += (a[i] != 1) + (b[i] != 10);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(g));
	return result("graphs", 6 * n, wrong);
}
