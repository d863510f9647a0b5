/* Textures: bilinear filtering and border modes against a calculation on the host, a surface that is
 * written and read back through a texture, and a linear buffer. */
#include "program.h"

__global__ void sample(cudaTextureObject_t t, float *out, int n, float scale, float offset)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x < n && y < n)
		out[y * n + x] = tex2D<float>(t, x * scale + offset, y * scale + offset);
}

__global__ void paint(cudaSurfaceObject_t s, int w, int h)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x < w && y < h)
		surf2Dwrite(make_uchar4(x, y, x ^ y, 255), s, x * 4, y);
}

__global__ void linear(cudaTextureObject_t t, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = tex1Dfetch<int>(t, n - 1 - i);
}

static float at(const std::vector<float> &v, int w, int h, int x, int y)
{
	x = x < 0 ? 0 : x >= w ? w - 1 : x;
	y = y < 0 ? 0 : y >= h ? h - 1 : y;
	return v[y * w + x];
}

int main()
{
	const int w = 24, h = 20, n = 60;
	unsigned seed = 21;
	std::vector<float> image(w * h);
	for (float &v : image)
		v = next_float(&seed);
	cudaArray_t array;
	cudaChannelFormatDesc desc = cudaCreateChannelDesc<float>();
	CHECK(cudaMallocArray(&array, &desc, w, h));
	CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), w * 4, w * 4, h, cudaMemcpyHostToDevice));
	cudaResourceDesc r = {};
	r.resType = cudaResourceTypeArray;
	r.res.array.array = array;
	cudaTextureDesc d = {};
	d.addressMode[0] = d.addressMode[1] = cudaAddressModeClamp;
	d.filterMode = cudaFilterModeLinear;
	cudaTextureObject_t t;
	CHECK(cudaCreateTextureObject(&t, &r, &d, nullptr));
	float *out = device_new<float>(n * n), scale = 0.375f, offset = -0.25f;
	sample<<<dim3(8, 8), dim3(8, 8)>>>(t, out, n, scale, offset);
	std::vector<float> got = host_copy(out, n * n);
	long wrong = 0;
	for (int y = 0; y < n; y++)
		for (int x = 0; x < n; x++) {
			float fx = x * scale + offset - 0.5f, fy = y * scale + offset - 0.5f;
			int ix = (int)floorf(fx), iy = (int)floorf(fy);
			float a = fx - ix, b = fy - iy;
			float want = (1 - b) * ((1 - a) * at(image, w, h, ix, iy) +
						       a * at(image, w, h, ix + 1, iy)) +
				     b * ((1 - a) * at(image, w, h, ix, iy + 1) +
						 a * at(image, w, h, ix + 1, iy + 1));
			wrong += !near(got[y * n + x], want, 1.0f / 256);
		}
	CHECK(cudaDestroyTextureObject(t));
	CHECK(cudaFreeArray(array));

	cudaArray_t picture;
	cudaChannelFormatDesc bytes = cudaCreateChannelDesc<uchar4>();
	CHECK(cudaMallocArray(&picture, &bytes, w, h, cudaArraySurfaceLoadStore));
	r.res.array.array = picture;
	cudaSurfaceObject_t s;
	CHECK(cudaCreateSurfaceObject(&s, &r));
	paint<<<dim3(3, 3), dim3(8, 8)>>>(s, w, h);
	std::vector<uchar4> back(w * h);
	CHECK(cudaMemcpy2DFromArray(back.data(), w * 4, picture, 0, 0, w * 4, h, cudaMemcpyDeviceToHost));
	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++) {
			uchar4 v = back[y * w + x];
			wrong += v.x != x || v.y != y || v.z != (x ^ y) || v.w != 255;
		}
	CHECK(cudaDestroySurfaceObject(s));
	CHECK(cudaFreeArray(picture));

	const int m = 1000;
	std::vector<int> numbers(m);
	for (int i = 0; i < m; i++)
		numbers[i] = i * i;
	cudaResourceDesc b = {};
	b.resType = cudaResourceTypeLinear;
	b.res.linear.devPtr = device_copy(numbers);
	b.res.linear.desc = cudaCreateChannelDesc<int>();
	b.res.linear.sizeInBytes = m * sizeof(int);
	cudaTextureDesc plain = {};
	CHECK(cudaCreateTextureObject(&t, &b, &plain, nullptr));
	int *reversed = device_new<int>(m);
	linear<<<4, 256>>>(t, reversed, m);
	std::vector<int> rev = host_copy(reversed, m);
	for (int i = 0; i < m; i++)
		wrong += rev[i] != numbers[m - 1 - i];
	return result("texture", n * n + w * h + m, wrong);
}
