/* A libbpf loader as for bpftime: attaches kprobes, looks a per-thread array up with room for 1,024 threads (or as many as
 * BPFTIME_MAP_GPU_THREAD_COUNT says), and reads rings with the function that it finds by name.
 *
 *	kprobes OBJECT SECONDS PID
 *
 * Prints what threads have, what all have, and the records that came, once nothing is attached any more. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

static uint64_t records, bad, process;

static void on_record(const void *data, uint64_t bytes, void *arg)
{
	uint64_t e[2];
	memcpy(e, data, sizeof(e));
	records++;
	bad += bytes != sizeof(e) || arg != &records || e[0] % 64 != 3 || e[1] != process;
}

int main(int argc, char **argv)
{
	struct bpf_link *links[8] = { 0 };
	int n = 0;
	int (*poll)(int, void *, void (*)(const void *, uint64_t, void *)) =
		(int (*)(int, void *, void (*)(const void *, uint64_t, void *)))dlsym(RTLD_DEFAULT, "bpftime_syscall_server__poll_gpu_ringbuf_map");
	if (argc < 4 || !poll)
		return 2;
	process = strtoull(argv[3], NULL, 10);
	struct bpf_object *o = load_and_attach(argv[1], links, &n);
	if (!o)
		return 1;
	int calls = bpf_object__find_map_fd_by_name(o, "calls"), shared = bpf_object__find_map_fd_by_name(o, "shared"),
	    rb = bpf_object__find_map_fd_by_name(o, "rb");
	for (int i = 0; i < atoi(argv[2]) * 20; i++, usleep(50000))
		if (poll(rb, &records, on_record) < 0)
			return fail("poll");
	while (n)
		bpf_link__destroy(links[--n]);
	for (int i = 0; i < 40; i++, usleep(25000))
		poll(rb, &records, on_record);
	const char *said = getenv("BPFTIME_MAP_GPU_THREAD_COUNT");
	size_t threads = said ? strtoul(said, NULL, 10) : 1024, used = 0;
	uint64_t *of = calloc(threads + 1, sizeof(*of)), most = 0, sum = 0, all[3] = { 0 };
	of[threads] = 0x5a5a;
	uint32_t key = 1;
	if (bpf_map_lookup_elem(calls, &key, of))
		return fail("look-up");
	for (size_t i = 0; i < threads; i++, sum += of[i - 1]) {
		used += of[i] != 0;
		most = of[i] > most ? of[i] : most;
	}
	for (key = 0; key < 3; key++)
		bpf_map_lookup_elem(shared, &key, &all[key]);
	struct bpf_map_info info = { 0 };
	uint32_t bytes = sizeof(info), next = 7;
	bpf_obj_get_info_by_fd(calls, &info, &bytes);
	key = 1;
	int end = bpf_map_get_next_key(calls, &key, &next) ? errno : 0;
	printf("threads %zu most %llu sum %llu behind %llx\n", used, (unsigned long long)most, (unsigned long long)sum, (unsigned long long)of[threads]);
	printf("entered %llu left %llu accesses %llu\n", (unsigned long long)all[0], (unsigned long long)all[1], (unsigned long long)all[2]);
	printf("records %llu bad %llu\n", (unsigned long long)records, (unsigned long long)bad);
	printf("type %u entries %u threads %llu end %d\n", info.type, info.max_entries, (unsigned long long)info.map_extra, end == ENOENT);
	/* From the host: a value of each thread. */
	key = 1;
	for (size_t i = 0; i < threads; i++)
		of[i] = i;
	int err = bpf_map_update_elem(calls, &key, of, BPF_ANY);
	memset(of, 0, threads * sizeof(*of));
	bpf_map_lookup_elem(calls, &key, of);
	size_t wrong = 0;
	for (size_t i = 0; i < threads; i++)
		wrong += of[i] != i;
	printf("set %d wrong %zu\n", err, wrong);
	bpf_object__close(o);
	free(of);
	return 0;
}
