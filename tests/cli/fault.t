#!/bin/sh
# A device fault: the report names it, the launches that may have caused it with their arguments and programs, and what maps lack.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/fault" ] || skip_all "samples are not built"
probe=$EGPU_SOURCE/tests/cli/probes/launches.bpf.c
run "$egpu" run $on --json="$tmp/json" "$probe" -- "$samples/fault"
is $status 0 "the program sees its fault"
says "the report names fault, call and launch" 'device fault in process [0-9]+: illegal address \(error 700\), seen by cuCtxSynchronize' \
	'launch 1, not seen to end: fault, 1 x 1 x 1 blocks of 64 x 1 x 1 threads, stream 0, probed by on_entry$' \
	'^      arguments: 0x[0-9a-f]{9,}, 64, 1048576$' 'maps lack all or part of 1 probed launch: they (had not been copied yet|were copied [0-9.]+ ms before that)'
is "$(json "$tmp/json" 'my $f = $j->{faults}; my $l = $f->[0]{launches}; scalar @$f, $f->[0]{error}, $f->[0]{seen_by}, scalar @$l, $l->[0]{kernel}, $l->[0]{block}[0],
	$l->[0]{types}, @{$l->[0]{arguments}}[1, 2], @{$l->[0]{probes}}, $f->[0]{maps_lack_launches}')" \
	"1 700 cuCtxSynchronize 1 fault 64 u64 u64 u64 64 1048576 on_entry 1" "the same in JSON"
run "$egpu" run $on --json="$tmp/json" -k nothing --allow-empty "$probe" -- "$samples/fault"
says "the same where nothing is probed" 'illegal address' 'blocks of 64 x 1 x 1 threads, stream 0$' '^      arguments: 0x[0-9a-f]{9,}, 64, 1048576$'
is "$(grep -c 'maps lack' "$tmp/err")" 0 "where no map is concerned, none is told of"
run "$egpu" run $on --json="$tmp/json" "$probe" -- "$samples/fault" 0
is "$(json "$tmp/json" 'scalar @{$j->{faults}}')" 0 "no fault: none is reported"
sed 's/^__u64 threads;/struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __uint(map_flags, EGPU_F_HOST); __type(key, __u32); __type(value, __u64); } threads SEC(".maps");/
	s/threads++;/__u32 zero = 0; __u64 *n = bpf_map_lookup_elem(\&threads, \&zero); if (n) __sync_fetch_and_add(n, 1);/' "$probe" >"$tmp/host.bpf.c"
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && mkdir "/dev/shm/egpu-test-$$"; then
	trap 'rm -rf "$tmp" "/dev/shm/egpu-test-$$"' EXIT
	EGPU_DIR=/dev/shm/egpu-test-$$
	run "$egpu" run $on --json="$tmp/json" "$tmp/host.bpf.c" -- "$samples/fault"
	n=$(json "$tmp/json" '$j->{maps}{threads}{entries}[0]{value}')
	[ "$n" -gt 0 ] && [ "$n" -le 64 ] && ! grep -q 'maps lack' "$tmp/err"
	ok $? "a map in host memory has what was counted before the fault ($n)"
else
	skip "/dev/shm is no tmpfs" "a map in host memory"
fi
finish
