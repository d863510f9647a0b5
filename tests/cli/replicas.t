#!/bin/sh
# Counters are exact with one block, a block a multiprocessor, and 10,000 blocks. Maps that programs only add to have a replica on each
# multiprocessor; those that a program reads have one.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"

cat >"$tmp/adds.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 accesses, bytes;
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u32[2]);
} lanes SEC(".maps");

SEC("gpu/mem")
int add(struct egpu_mem *ctx)
{
	__u32 key = ctx->lane, *v = bpf_map_lookup_elem(&lanes, &key);
	accesses++;
	bytes += ctx->bytes;
	if (v) {
		__sync_fetch_and_add(&v[0], 1);
		__sync_fetch_and_add(&v[1], -1);
	}
	return 0;
}
char LICENSE[] SEC("license") = "Dual BSD/GPL";
C
sed 's|char LICENSE|SEC("gpu/exit")\nint look(struct egpu_exit *ctx)\n{\n\t__u32 key = accesses \& 31, *v = bpf_map_lookup_elem(\&lanes, \&key);\n\tif (v)\n\t\t__sync_fetch_and_add(v, 1);\n\treturn 0;\n}\nchar LICENSE|' "$tmp/adds.bpf.c" >"$tmp/reads.bpf.c"

# count PROBE THREADS SMS: runs it; replicas of .bss in $replicas, the report in $tmp/err
count() {
	on=--softgpu=sm_90,sms=$3
	run "$egpu" run $on -k vecadd "$1" -- sh -c "'$samples/vecadd' $2 >/dev/null && for f in \"\$EGPU_SESSION\"/map-[0-9].*.0; do
		od -A n -t u4 -j 4116 -N 4 \"\$f\"; done"
	replicas=$(tr -d ' ' <"$tmp/out" | sort -n | tr '\n' ' ')
	is "$status" 0 "${1##*/} with $2 threads, $3 multiprocessors"
	is "$(sed -n 's/^ *accesses = //p; s/^ *bytes = //p' "$tmp/err" | tr '\n' ' ')" "$((3 * $2)) $((12 * $2)) " "counts are exact"
}

count "$tmp/adds.bpf.c" 256 132
is "$replicas" "132 132 " "a replica on each multiprocessor"
count "$tmp/adds.bpf.c" $((132 * 256)) 132
count "$tmp/adds.bpf.c" 2560000 132
count "$tmp/adds.bpf.c" 1000 1
is "$replicas" "1 1 " "one on one"
count "$tmp/reads.bpf.c" 10000 132
is "$replicas" "1 132 " "a map that is read has one, the other many"
finish
