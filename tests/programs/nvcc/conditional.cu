/* A graph that decides by itself: Newton's method for many square roots in a while node until all
 * have settled, with an if node inside that counts the rounds in which something moved much. */
#include "program.h"

__global__ void step(const double *in, double *x, int n, unsigned int *moved)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	double better = 0.5 * (x[i] + in[i] / x[i]);
	double change = fabs(better - x[i]) / better;
	x[i] = better;
	if (change > 1e-12)
		atomicMax(moved, change > 1e-3 ? 2u : 1u);
}

__global__ void decide(
	cudaGraphConditionalHandle again, cudaGraphConditionalHandle much, unsigned int *moved, int *rounds)
{
	cudaGraphSetConditional(again, *moved != 0);
	cudaGraphSetConditional(much, *moved == 2);
	*moved = 0;
	++*rounds;
}

__global__ void count(int *p)
{
	++*p;
}

static cudaGraph_t body_of(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle,
	cudaGraphConditionalNodeType type)
{
	cudaGraphNodeParams p = {};
	cudaGraphNode_t node;
	p.type = cudaGraphNodeTypeConditional;
	p.conditional.handle = handle;
	p.conditional.type = type;
	p.conditional.size = 1;
	CHECK(cudaGraphAddNode(&node, graph, &after, NULL, after ? 1 : 0, &p));
	return p.conditional.phGraph_out[0];
}

int main()
{
	const int n = 3000;
	std::vector<double> in(n), x(n, 1.0);
	for (int i = 0; i < n; i++)
		in[i] = 0.25 + i * 1.75;
	double *d_in = device_copy(in), *d_x = device_copy(x);
	std::vector<int> zero(3, 0);
	int *d = device_copy(zero);
	cudaGraph_t graph, captured;
	cudaStream_t stream;
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaStreamCreate(&stream));
	cudaGraphConditionalHandle again, much;
	CHECK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
	cudaGraph_t loop = body_of(graph, NULL, again, cudaGraphCondTypeWhile);
	CHECK(cudaGraphConditionalHandleCreate(&much, loop, 0, 0));
	CHECK(cudaStreamBeginCaptureToGraph(stream, loop, NULL, NULL, 0, cudaStreamCaptureModeRelaxed));
	step<<<(n + 127) / 128, 128, 0, stream>>>(d_in, d_x, n, (unsigned int *)d);
	decide<<<1, 1, 0, stream>>>(again, much, (unsigned int *)d, d + 1);
	CHECK(cudaStreamEndCapture(stream, &captured));
	cudaGraphNode_t nodes[4];
	size_t n_nodes = 4;
	CHECK(cudaGraphGetNodes(loop, nodes, &n_nodes));
	cudaGraph_t counting = body_of(loop, nodes[n_nodes - 1], much, cudaGraphCondTypeIf);
	CHECK(cudaStreamBeginCaptureToGraph(
		stream, counting, NULL, NULL, 0, cudaStreamCaptureModeRelaxed));
	count<<<1, 1, 0, stream>>>(d + 2);
	CHECK(cudaStreamEndCapture(stream, &captured));
	cudaGraphExec_t exec;
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	x = host_copy(d_x, n);
	std::vector<int> counts = host_copy(d, 3);
	long wrong = 0;
	for (int i = 0; i < n; i++)
		wrong += fabs(x[i] - sqrt(in[i])) > 1e-12 * x[i];
	wrong += counts[1] < 5 || counts[1] > 60 || counts[2] < 2 || counts[2] >= counts[1];
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	return result("conditional", n, wrong);
}
