/* nested loops with breaks and early returns */
extern "C" __global__ void kernel(int *a, int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) {
		for (int k = i; k < n; k += 3) {
			if (a[k] == 7)
				continue;
			if (a[k] < 0)
				break;
			s += a[k];
		}
		do
			s ^= s << 1;
		while (s > a[i]);
	}
	if (s == 12345)
		return;
	a[threadIdx.x] = s;
}
