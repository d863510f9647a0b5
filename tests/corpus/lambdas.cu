/* device lambdas */
// flags: --extended-lambda
template <typename F> __global__ void apply(int *a, F f) { a[threadIdx.x] = f(a[threadIdx.x]); }
void host(int *a, int k) {
	apply<<<1, 32>>>(a, [=] __device__(int x) { return x * k + 1; });
	apply<<<1, 32>>>(a, [=] __device__(int x) { return x ^ k; });
}
