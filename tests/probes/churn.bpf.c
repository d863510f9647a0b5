// SPDX-License-Identifier: Apache-2.0
/* Insertion and deletion of few keys by many lanes; then the books must balance. */
#include <egpu/probe.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} keys SEC(".maps");

__u64 inserted, deleted, existed, absent, other;

SEC("gpu/entry")
int churn(struct egpu_entry *ctx)
{
	__u32 key = bpf_get_prandom_u32() & 7;
	__u64 value = key * 1000003ull;
	long err = bpf_map_update_elem(&keys, &key, &value, BPF_NOEXIST);
	if (!err)
		inserted++;
	else if (err == -17)
		existed++;
	else
		other++;
	if (ctx->thread.x & 1) {
		err = bpf_map_delete_elem(&keys, &key);
		if (!err)
			deleted++;
		else if (err == -2)
			absent++;
		else
			other++;
	}
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
