/* An ordinary libbpf loader, which knows nothing of egpu: opens an object, loads it, attaches what
 * attaches by itself, and consumes its ring buffer with a callback.
 *
 *	loader OBJECT RING SECONDS [WORK] [free]
 *
 * Ends when the time is over or SIGTERM comes. A record is a 64-bit number and a 32-bit one; prints
 * how many came, the sum of the first, how many polls there were, and records a second while they
 * came, and before that two counts that the program has. WORK: microseconds the callback takes for
 * each 1,000 records. free: links are destroyed before the last records are consumed. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

static volatile sig_atomic_t over;
static uint64_t records, sum, bad;
static long work;
static double first, last, until; /* until: 0: to the end */

static void end(int sig)
{
	over = 1;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int on_record(void *arg, void *data, size_t bytes)
{
	uint64_t n;
	memcpy(&n, data, sizeof(n));
	bad += bytes != 12 || arg != &records;
	records++;
	sum += n;
	if (work && !(records % 1000))
		usleep((useconds_t)work);
	/* A poll goes on as long as records come. */
	return until > 0 && !(records % 1000) && now() > until ? -EINTR : 0;
}

/* The program's own counts, through the map of its globals. */
static void globals(struct bpf_object *o, uint64_t out[2])
{
	struct bpf_map *m;
	uint32_t key = 0;
	bpf_object__for_each_map(m, o)
		if (bpf_map__is_internal(m) && bpf_map__value_size(m) == 2 * sizeof(*out))
			bpf_map_lookup_elem(bpf_map__fd(m), &key, out);
}

int main(int argc, char **argv)
{
	struct bpf_link *links[8] = { 0 };
	int n_links = 0;
	double start = now();
	if (argc < 4)
		return 2;
	double seconds = atof(argv[3]);
	work = argc > 4 ? atol(argv[4]) : 0;
	signal(SIGTERM, end);
	struct bpf_object *o = load_and_attach(argv[1], links, &n_links);
	if (!o)
		return 1;
	int map = bpf_object__find_map_fd_by_name(o, argv[2]);
	struct ring_buffer *rb = ring_buffer__new(map, on_record, &records, NULL);
	if (!rb)
		return fail("ring_buffer__new");
	printf("ready\n");
	fflush(stdout);
	uint64_t polls = 0, woken = 0;
	until = start + seconds;
	while (!over && now() < until) {
		int n = ring_buffer__poll(rb, 100);
		polls++;
		if (n < 0 && n != -EINTR)
			return fail("ring_buffer__poll");
		if (n <= 0)
			continue;
		woken++;
		last = now();
		first = first ? first : last;
	}
	for (int i = 0; argc > 5 && i < n_links; i++)
		bpf_link__destroy(links[i]);
	/* With nothing attached any more, all that was recorded comes, in its time. */
	until = 0;
	uint64_t told[2] = { 0 };
	double give_up = now() + 5;
	do {
		ring_buffer__consume(rb);
		usleep(argc > 5 ? 20000 : 0);
		globals(o, told);
	} while (argc > 5 && now() < give_up &&
		 records + (told[0] < told[1] ? told[0] : told[1]) !=
			 (told[0] < told[1] ? told[1] : told[0]));
	printf("threads %llu dropped %llu\n", (unsigned long long)(told[0] > told[1] ? told[0] : told[1]),
		(unsigned long long)(told[0] > told[1] ? told[1] : told[0]));
	printf("records %llu sum %llu bad %llu polls %llu woken %llu rate %.0f\n",
		(unsigned long long)records, (unsigned long long)sum, (unsigned long long)bad,
		(unsigned long long)polls, (unsigned long long)woken,
		last > first ? (double)records / (last - first) : 0);
	ring_buffer__free(rb);
	bpf_object__close(o);
	return 0;
}
