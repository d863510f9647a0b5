/* What each thread of extremes.bpf.c gives, and what it keeps: the probe's and the model's alike. */
#ifndef EXTREMES_H
#define EXTREMES_H

enum { EXTREMES_KEYS = 5 };

struct extremes {
	__u64 least, most;
	__s64 sleast, smost;
	__u32 least32, most32;
	__s32 sleast32, smost32;
	__u64 bits, common, flips, sum;
	__u32 bits32, common32, flips32, n;
};

/* Splitmix64's finish. */
static __attribute__((always_inline)) inline __u64 extremes_mix(__u64 x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* One bit in 64. */
static __attribute__((always_inline)) inline __u64 extremes_bit(__u64 x)
{
	return 1ull << (x & 63);
}

#define EXTREMES_START { .least = ~0ull, .sleast = 0x7fffffffffffffff, .smost = -0x7fffffffffffffff - 1, .least32 = ~0u, .sleast32 = 0x7fffffff, \
	.smost32 = -0x7fffffff - 1, .common = ~0ull, .common32 = ~0u }

#endif
