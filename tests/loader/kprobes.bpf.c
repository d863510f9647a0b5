// SPDX-License-Identifier: Apache-2.0
/* As libbpf programs for bpftime are written: kprobes, which libbpf attaches through perf_event_open. */
#include <egpu/probe.bpf.h>

struct pt_regs;
struct event {
	__u64 thread, process;
};

#define MAP(name, number, entries, type_of_value)                                                                            \
	struct {                                                                                                             \
		__uint(type, number);                                                                                        \
		__uint(max_entries, entries);                                                                                \
		__type(key, __u32);                                                                                          \
		__type(value, type_of_value);                                                                                \
	} name SEC(".maps")
MAP(calls, 1502, 2, __u64);
MAP(shared, 1503, 3, __u64);
MAP(rb, 1527, 16, struct event);

static __u64 (*const thread_index)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

static __attribute__((always_inline)) void add(__u32 key)
{
	__u64 *v = bpf_map_lookup_elem(&shared, &key);
	if (v)
		__sync_fetch_and_add(v, 1);
}

SEC("kprobe/fill")
int cuda__entered(void *ctx)
{
	add(0);
	return 0;
}

SEC("kretprobe/cuda__fill")
int cuda__left(struct pt_regs *ctx)
{
	__u32 one = 1;
	__u64 *v = bpf_map_lookup_elem(&calls, &one), x, y, z;
	if (v)
		*v += 1;
	add(1);
	thread_index(&x, &y, &z);
	struct event e = { x, bpf_get_current_pid_tgid() >> 32 };
	if (x % 64 == 3)
		bpf_perf_event_output(ctx, &rb, 0, &e, sizeof(e));
	return 0;
}

SEC("kprobe/__memcapture")
int cuda__access()
{
	add(2);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
