/* Every place of a word in a text. */
#include "program.h"

__constant__ char word[16];

__global__ void search(const char *text, int n, int length, int *found, int *count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i + length > n)
		return;
	for (int k = 0; k < length; k++)
		if (text[i + k] != word[k])
			return;
	found[i] = 1;
	atomicAdd(count, 1);
}

int main()
{
	const char w[16] = "abab";
	unsigned seed = 11;
	std::vector<char> text(20000);
	for (char &c : text)
		c = (char)('a' + next_random(&seed) % 3);
	int n = (int)text.size(), length = (int)strlen(w), want = 0;
	char *d = device_copy(text);
	int *found = device_new<int>(n), *count = device_new<int>(1);
	CHECK(cudaMemcpyToSymbol(word, w, sizeof(w)));
	search<<<(n + 255) / 256, 256>>>(d, n, length, found, count);
	std::vector<int> got = host_copy(found, n);
	long wrong = 0;
	for (int i = 0; i < n; i++) {
		int is = i + length <= n && !memcmp(&text[i], w, length);
		want += is;
		wrong += got[i] != is;
	}
	return result("search", want, wrong + (host_copy(count, 1)[0] != want));
}
