/* driver.c - runs a fuzz target a fixed number of times without libFuzzer, so that the suite needs no clang runtime.
 *
 * driver ROUNDS SEED FILE...: every file goes through the target as it is, then mutations of them (bytes set, flipped and removed,
 * ranges copied between files, numbers set to edge values). The same arguments give the same inputs. A finding is a crash; the input that
 * was at work is then in the file that FUZZ_INPUT names.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_INPUT = 1 << 18 };

struct input {
	uint8_t *data;
	size_t size;
};

static uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static size_t below(size_t n)
{
	return n ? next() % n : 0;
}

static int read_input(const char *path, struct input *in)
{
	FILE *f = fopen(path, "rb");
	if (!f)
		return -1;
	in->data = malloc(MAX_INPUT);
	in->size = in->data ? fread(in->data, 1, MAX_INPUT, f) : 0;
	fclose(f);
	return in->data ? 0 : -1;
}

/* One change of buf[0..n); the new length. */
static size_t mutate(uint8_t *buf, size_t n, const struct input *all, size_t n_all)
{
	static const uint64_t edges[] = { 0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff,
		0x80000000, 0xffffffff, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff };
	const struct input *other = &all[below(n_all)];
	size_t at = below(n), len = below(64) + 1, from = below(other->size);

	switch (below(7)) {
	case 0:
		if (n)
			buf[at] ^= (uint8_t)(1u << below(8));
		return n;
	case 1:
		if (n)
			buf[at] = (uint8_t)next();
		return n;
	case 2: /* remove a range */
		if (len > n - at)
			len = n - at;
		memmove(buf + at, buf + at + len, n - at - len);
		return n - len;
	case 3: /* double a range */
		if (len > n - at)
			len = n - at;
		if (n + len > MAX_INPUT)
			return n;
		memmove(buf + at + len, buf + at, n - at);
		return n + len;
	case 4: /* copy from another input */
		if (len > n - at)
			len = n - at;
		if (len > other->size - from)
			len = other->size - from;
		memcpy(buf + at, other->data + from, len);
		return n;
	case 5: /* an edge value */
		len = (size_t)1 << below(4);
		if (at + len <= n)
			memcpy(buf + at, &edges[below(sizeof(edges) / sizeof(*edges))], len);
		return n;
	default: /* truncate */
		return below(8) ? n : at;
	}
}

static void run(const uint8_t *data, size_t size)
{
	const char *keep = getenv("FUZZ_INPUT");
	FILE *f = keep ? fopen(keep, "wb") : NULL;
	if (f) {
		fwrite(data, 1, size, f);
		fclose(f);
	}
	/* As long as the input, so that a sanitizer sees a read past its end. */
	uint8_t *exact = malloc(size ? size : 1);
	if (!exact)
		exit(2);
	memcpy(exact, data, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: driver ROUNDS SEED FILE...\n");
		return 2;
	}
	unsigned long rounds = strtoul(argv[1], NULL, 0);
	size_t n = (size_t)argc - 3;
	struct input *inputs = calloc(n, sizeof(*inputs));
	uint8_t *buf = malloc(MAX_INPUT);

	state = strtoull(argv[2], NULL, 0) * 2654435761u + 1;
	for (size_t i = 0; i < n; i++) {
		if (!inputs || read_input(argv[i + 3], &inputs[i])) {
			fprintf(stderr, "driver: %s cannot be read\n", argv[i + 3]);
			return 2;
		}
		run(inputs[i].data, inputs[i].size);
	}
	for (unsigned long i = 0; i < rounds && buf; i++) {
		const struct input *in = &inputs[below(n)];
		size_t size = in->size;
		memcpy(buf, in->data, size);
		for (size_t changes = below(8) + 1; changes; changes--)
			size = mutate(buf, size, inputs, n);
		run(buf, size);
	}
	printf("%zu seeds, %lu inputs, seed %s\n", n, rounds, argv[2]);
	for (size_t i = 0; i < n; i++)
		free(inputs[i].data);
	free(inputs);
	free(buf);
	return buf ? 0 : 1;
}
