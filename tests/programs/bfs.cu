/* Breadth-first search over a graph in compressed rows, level by level until nothing changes. */
#include "program.h"
#include <queue>

__global__ void expand(const int *rows, const int *edges, int *level, int n, int now, int *changed)
{
	int v = blockIdx.x * blockDim.x + threadIdx.x;
	/* Others set levels meanwhile: reads of them are atomic too. */
	if (v >= n || atomicAdd(&level[v], 0) != now)
		return;
	for (int e = rows[v]; e < rows[v + 1]; e++)
		if (atomicCAS(&level[edges[e]], -1, now + 1) == -1)
			atomicExch(changed, 1);
}

int main()
{
	const int n = 2000;
	unsigned seed = 10;
	std::vector<int> rows(1), edges;
	for (int v = 0; v < n; v++) {
		for (unsigned k = next_random(&seed) % 4; k; k--)
			edges.push_back((int)(next_random(&seed) % n));
		rows.push_back((int)edges.size());
	}
	std::vector<int> want(n, -1), start(n, -1);
	std::queue<int> q;
	want[0] = start[0] = 0;
	q.push(0);
	for (; !q.empty(); q.pop())
		for (int e = rows[q.front()]; e < rows[q.front() + 1]; e++)
			if (want[edges[e]] < 0) {
				want[edges[e]] = want[q.front()] + 1;
				q.push(edges[e]);
			}
	int *dr = device_copy(rows), *de = device_copy(edges), *level = device_copy(start),
	    *changed = device_new<int>(1), more = 1;
	for (int now = 0; more; now++) {
		CHECK(cudaMemset(changed, 0, 4));
		expand<<<(n + 127) / 128, 128>>>(dr, de, level, n, now, changed);
		more = host_copy(changed, 1)[0];
	}
	std::vector<int> got = host_copy(level, n);
	long wrong = 0;
	for (int v = 0; v < n; v++)
		wrong += got[v] != want[v];
	return result("bfs", n, wrong);
}
