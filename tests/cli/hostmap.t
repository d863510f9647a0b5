#!/bin/sh
# Maps in host memory (EGPU_F_HOST): what a kernel that has not ended wrote is there; where a session does not lie on a tmpfs the kernel is left
# alone, and the reason names the map.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/longrun" ] || skip_all "samples are not built"
cat > "$tmp/host.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, EGPU_F_HOST);
	__type(key, __u32);
	__type(value, __u64);
} progress SEC(".maps");
SEC("gpu/entry")
int mark(struct egpu_entry *ctx)
{
	__u32 two = 2;
	__u64 *n = bpf_map_lookup_elem(&progress, &two);
	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}
char LICENSE[] SEC("license") = "Apache-2.0";
C
kind() { stat -f -c %T "$1" 2>/dev/null; }

if [ "$(kind "$tmp")" = tmpfs ]; then
	skip "$tmp is a tmpfs" "a session on a disk"
else
	run "$egpu" run $on "$tmp/host.bpf.c" -- "$samples/vecadd" 100
	says "a session on a disk: the map is named, the program goes on" 'refused: vecadd: map progress is to be in host memory.*tmpfs' '^vecadd: n=100 ok'
fi
if [ "$(kind /dev/shm)" != tmpfs ] || ! mkdir "/dev/shm/egpu-test-$$"; then
	skip "/dev/shm is no tmpfs" "a session in memory"
	finish
fi
trap 'rm -rf "$tmp" "/dev/shm/egpu-test-$$"' EXIT
EGPU_DIR=/dev/shm/egpu-test-$$
run "$egpu" run $on --json="$tmp/json" "$tmp/host.bpf.c" -- "$samples/vecadd" 1000
is "$status $(json "$tmp/json" '$j->{maps}{progress}{entries}[2]{value}')" "0 1024" "what threads counted"
"$egpu" run $on -o "$tmp/report" "$tmp/host.bpf.c" -- "$samples/longrun" 3000 >"$tmp/longrun" 2>&1 &
for i in $(seq 100); do
	[ "$("$egpu" map get progress 2 2>/dev/null)" = 64 ] && break
	sleep 0.02
done
run "$egpu" map get progress 2
is "$(cat "$tmp/out") $(wc -c <"$tmp/longrun")" "64 0" "while the kernel runs they are there"
kill $! 2>/dev/null
wait
finish
