/* poll.c - how fast records come through libbpf: an ordinary loader, which knows nothing of egpu.
 *
 *   LD_PRELOAD=libegpu-syscall.so EGPU_SESSION=DIR bench_poll OBJECT RING SECONDS
 *
 * Loads and attaches the object, says "ready", and polls its ring buffer with a callback that adds up the first word of each record,
 * until nothing has come for a second after the first, or the time is over. A line of JSON: records, their rate between the first and
 * the last, and the sum. bench/poll runs it.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t records, bytes, sum;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int on_record(void *arg, void *data, size_t size)
{
	uint64_t word;
	memcpy(&word, data, sizeof(word));
	records++;
	bytes += size;
	sum += word;
	return 0;
}

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(int argc, char **argv)
{
	struct bpf_program *p;
	double first = 0, last = 0;
	if (argc != 4)
		return 2;
	struct bpf_object *o = bpf_object__open_file(argv[1], NULL);
	if (!o || bpf_object__load(o))
		return fail(argv[1]);
	bpf_object__for_each_program(p, o)
		if (!bpf_program__attach(p))
			return fail(bpf_program__name(p));
	struct ring_buffer *rb =
		ring_buffer__new(bpf_object__find_map_fd_by_name(o, argv[2]), on_record, NULL, NULL);
	if (!rb)
		return fail(argv[2]);
	printf("ready\n");
	fflush(stdout);
	for (double end = now() + atof(argv[3]); now() < end && (!first || now() < last + 1);) {
		uint64_t before = records;
		if (ring_buffer__poll(rb, 10) < 0)
			break;
		if (records != before) {
			last = now();
			first = first ? first : last;
		}
	}
	double took = last > first ? last - first : 1e-9;
	printf("{\"reader\": \"libbpf %u.%u ring_buffer__poll\", \"seconds\": %.3f, \"records\": %llu, \"bytes\": %llu, \"Mrecords_s\": %.1f, "
	       "\"sum\": %llu}\n",
		libbpf_major_version(), libbpf_minor_version(), took, (unsigned long long)records, (unsigned long long)bytes,
		(double)records / took / 1e6, (unsigned long long)sum);
	ring_buffer__free(rb);
	bpf_object__close(o);
	return 0;
}
