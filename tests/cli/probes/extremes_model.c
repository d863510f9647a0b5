/* extremes_model BLOCKS THREADS: what extremes.bpf.c leaves of so many blocks of so many threads of kernels/extremes.ptx; a line a value. */
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>

#include "extremes.h"

static void keep(struct extremes *e, __u64 x)
{
	__u32 y = (__u32)x, three = y & y >> 7 & y >> 13, any = y | y >> 7 | y >> 13;
	__s64 sx = (__s64)x;
	__s32 sy = (__s32)y;
	e->least = x < e->least ? x : e->least;
	e->most = x > e->most ? x : e->most;
	e->sleast = sx < e->sleast ? sx : e->sleast;
	e->smost = sx > e->smost ? sx : e->smost;
	e->least32 = y < e->least32 ? y : e->least32;
	e->most32 = y > e->most32 ? y : e->most32;
	e->sleast32 = sy < e->sleast32 ? sy : e->sleast32;
	e->smost32 = sy > e->smost32 ? sy : e->smost32;
	e->bits |= extremes_bit(x);
	e->common &= ~extremes_bit(x >> 6);
	e->flips ^= x;
	e->sum += x;
	e->bits32 |= three;
	e->common32 &= any;
	e->flips32 ^= y;
	e->n++;
}

static void print(const char *name, int key, const struct extremes *e)
{
	printf("%s %d: %llu %llu %lld %lld %u %u %d %d %llu %llu %llu %llu %u %u %u %u\n", name, key, e->least, e->most, e->sleast, e->smost,
		e->least32, e->most32, e->sleast32, e->smost32, e->bits, e->common, e->flips, e->sum, e->bits32, e->common32, e->flips32, e->n);
}

int main(int argc, char **argv)
{
	static const struct extremes start = EXTREMES_START;
	struct extremes all = start, blocks = start, chosen = start, keyed[EXTREMES_KEYS] = { { 0 } }, hashed[EXTREMES_KEYS];
	unsigned n_blocks = argc > 2 ? (unsigned)atoi(argv[1]) : 0, threads = argc > 2 ? (unsigned)atoi(argv[2]) : 0;

	for (int k = 0; k < EXTREMES_KEYS; k++)
		hashed[k] = start;
	for (unsigned b = 0; b < n_blocks; b++)
		for (unsigned t = 0; t < threads; t++) {
			__u64 x = extremes_mix((__u64)b * threads + t);
			keep(&blocks, extremes_mix(b));
			if ((b * threads + t) % 11 == 3)
				continue;
			keep(&all, x);
			keep(&keyed[(__u32)(x >> 40) % EXTREMES_KEYS], x);
			keep(&hashed[b % EXTREMES_KEYS], x);
			if (x & 2)
				continue;
			chosen.least = x < chosen.least ? x : chosen.least;
			chosen.most = x > chosen.most ? x : chosen.most;
			chosen.sleast32 = (__s32)x < chosen.sleast32 ? (__s32)x : chosen.sleast32;
		}
	print("all", 0, &all);
	print("blocks", 0, &blocks);
	print("chosen", 0, &chosen);
	for (int k = 0; k < EXTREMES_KEYS; k++)
		print("keyed", k, &keyed[k]);
	for (int k = 0; k < EXTREMES_KEYS; k++)
		if (hashed[k].n)
			print("hashed", k, &hashed[k]);
	return 0;
}
