/* templates in a namespace, mangled names */
template <typename T, int N> struct box { T v[N]; __device__ T sum() const { T s = 0; for (int i = 0; i < N; i++) s += v[i]; return s; } };
namespace space { template <typename T, int N> __global__ void fold(const box<T, N> *in, T *out) { out[threadIdx.x] = in[threadIdx.x].sum(); } }
template __global__ void space::fold<float, 4>(const box<float, 4> *, float *);
template __global__ void space::fold<long, 3>(const box<long, 3> *, long *);
