/* What nvcc leaves unrounded: products and sums of halves, and inline assembly; parameters as tests/device/floats.c asks. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct cell {
	unsigned long long bits;
};

__device__ static unsigned index_of()
{
	return blockIdx.x * blockDim.x + threadIdx.x;
}

template <class T> __device__ static T get(const cell *from, unsigned cell_number)
{
	T v;
	memcpy(&v, &from[index_of() * 8 + cell_number], sizeof(v));
	return v;
}

template <class T> __device__ static void put(cell *to, unsigned cell_number, T v)
{
	memcpy(&to[index_of() * 8 + cell_number], &v, sizeof(v));
}

#define KERNEL(name) extern "C" __global__ void name(const cell *from, cell *to, unsigned rounds)

KERNEL(cuda_dot_f16x2)
{
	__half2 sum = get<__half2>(from, 0);
	for (unsigned i = 0; i < rounds; i++)
		sum = __hadd2(sum, __hmul2(get<__half2>(from, i), get<__half2>(from, i + 1)));
	put(to, 7, sum);
}

KERNEL(cuda_unrolled_f16x2)
{
	__half2 sum = get<__half2>(from, 0);
#pragma unroll
	for (unsigned i = 0; i < 6; i++) {
		sum = __hadd2(sum, __hmul2(get<__half2>(from, i), get<__half2>(from, i + 1)));
		put(to, i, sum);
	}
	put(to, 7, sum);
}

KERNEL(cuda_branches_f16)
{
	__half x = __hmul(get<__half>(from, 0), get<__half>(from, 1));
	if (index_of() % 3 == 1)
		put(to, 0, x);
	else if (index_of() % 3 == 2)
		x = __hsub(x, get<__half>(from, 2));
	x = __hadd(x, get<__half>(from, 3));
	put(to, 7, x);
}

KERNEL(cuda_horner_bf16x2)
{
	__nv_bfloat162 x = get<__nv_bfloat162>(from, 0), p = x;
	for (unsigned i = 1; i < 7; i++) {
		p = __hadd2(__hmul2(p, x), get<__nv_bfloat162>(from, i));
		if (i == rounds)
			put(to, 1, p);
	}
	put(to, 7, p);
}

__device__ static float unrounded(float a, float b, float c)
{
	float r;
	asm("{ .reg .f32 %%t; mul.f32 %%t, %1, %2; add.f32 %0, %%t, %3; }" : "=f"(r) : "f"(a), "f"(b), "f"(c));
	return r;
}

KERNEL(cuda_shared_f32)
{
	__shared__ float tile[64];
	float sum = get<float>(from, 0);
	tile[threadIdx.x % 64] = get<float>(from, 1);
	__syncthreads();
	for (unsigned i = 0; i < 16; i++)
		sum = unrounded(tile[(threadIdx.x + i) % 64], sum, 0.375f);
	__syncthreads();
	put(to, 7, sum);
}

KERNEL(cuda_split_f32)
{
	float x, y;
	asm volatile("mul.f32 %0, %1, %2;" : "=f"(x) : "f"(get<float>(from, 0)), "f"(get<float>(from, 1)));
	put(to, 0, get<float>(from, 2));
	asm volatile("add.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(get<float>(from, 3)));
	put(to, 7, y);
}

KERNEL(cuda_split_f64)
{
	double x, y;
	asm volatile("mul.f64 %0, %1, %2;" : "=d"(x) : "d"(get<double>(from, 0)), "d"(get<double>(from, 1)));
	put(to, 0, get<double>(from, 2));
	__syncthreads();
	asm volatile("sub.f64 %0, %1, %2;" : "=d"(y) : "d"(x), "d"(get<double>(from, 3)));
	put(to, 7, y);
}

/* Contracted by nvcc itself, with everything that a compiler does around it. */
KERNEL(cuda_matrix_f32)
{
	float m[4][4], v[4], w[4];
	for (int i = 0; i < 4; i++)
		v[i] = get<float>(from, i);
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			m[i][k] = get<float>(from, (i + k) % 8) * v[k] + 0.25f;
	for (unsigned r = 0; r < rounds; r++) {
		for (int i = 0; i < 4; i++) {
			w[i] = 0;
			for (int k = 0; k < 4; k++)
				w[i] += m[i][k] * v[k] / (1 + v[k] * v[k]);
		}
		for (int i = 0; i < 4; i++)
			v[i] = w[i];
	}
	for (int i = 0; i < 4; i++)
		put(to, 4 + i, v[i]);
}

KERNEL(cuda_math_f64)
{
	double x = get<double>(from, 0), y = get<double>(from, 1);
	put(to, 6, sin(x) * exp(y) + sqrt(fabs(x * y + 1)));
	put(to, 7, x * y - log(fabs(x)) / y);
}
