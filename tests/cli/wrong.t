#!/bin/sh
# Wrong arguments of attach, list and map beside a program that runs, and times as every command takes them: each says what is wrong and what
# to do. What may be asked of a map is what its kind has.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/persistent" ] || skip_all "samples are not built"
cat > "$tmp/kinds.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
struct { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 8); __type(value, __u32); } work SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_BLOOM_FILTER); __uint(max_entries, 100); __type(value, __u32); } seen SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 8); __type(key, __u32); __type(value, __u64); } count SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 65536); } ring SEC(".maps");
struct limits { __u32 low, high; } bounds = { 3, 9 };
__s32 threshold = -7;
SEC("gpu/entry")
int all(struct egpu_entry *ctx)
{
	__u32 block = ctx->block.x & 7;
	__u64 *n = bpf_map_lookup_elem(&count, &block);
	if (n)
		*n += bounds.high;
	if (threshold > 0) {
		bpf_map_push_elem(&work, &block, 0);
		bpf_map_push_elem(&seen, &block, 0);
		bpf_ringbuf_output(&ring, &block, sizeof(block), 0);
	}
	return 0;
}
char LICENSE[] SEC("license") = "Apache-2.0";
C
bad() { # bad DESCRIPTION PATTERN ARGUMENT...: status 125 and this message
	case_=$1
	message=$2
	shift 2
	limit=20 run "$egpu" "$@"
	is $status 125 "$case_: status 125"
	says "$case_: says so" "^egpu: .*($message)"
}
bad "a limit without times" '--max-overhead compares times.*leave out --no-time' run $on --no-time --max-overhead 5% memtrace -- "$samples/vecadd" 10
bad "a number that is no process" '4194999: there is no process and no file' list 4194999

mkfifo "$tmp/end"
"$egpu" run $on -o "$tmp/report" "$tmp/kinds.bpf.c" -- "$samples/persistent" queue 600000 <"$tmp/end" >"$tmp/persistent" 2>&1 &
exec 3>"$tmp/end"
pid=
for i in $(seq 100); do
	pid=$("$egpu" ps 2>/dev/null | awk '$NF == "persistent" && $2 == "attached" { print $1 }')
	[ -n "$pid" ] && [ -s "$tmp/persistent" ] && break
	sleep 0.05
done
[ -n "$pid" ]
ok $? "a program runs"
map() { limit=20 run "$egpu" map "$@"; }
map get .data threshold
is "$status $(cat "$tmp/out")" "0 -7" "map get of a variable"
map get .data bounds
is "$status $(tr -d ' \n' <"$tmp/out")" '0 {low=3,high=9}' "of a struct"
map set .data threshold -12
map get .data threshold
is "$status $(cat "$tmp/out")" "0 -12" "as it was set"
bad "a variable that is not there" "no variable 'treshold'; egpu map dump .data lists them" map get .data treshold
bad "a variable where a map goes" "'threshold' is a global variable of the probe: egpu map get .data threshold" map dump threshold
bad "a key of a queue" 'work has no keys: egpu map dump, peek, push' map get work 1
bad "setting a key of a queue" 'work has no keys' map set work 1 1
bad "a key of a Bloom filter" 'seen has no keys: egpu map peek' map get seen 1
bad "a key of a ring" 'ring is a ring buffer, which has no keys' map get ring 1
bad "popping a Bloom filter" 'seen is a Bloom filter, which forgets' map pop seen
bad "pushing to an array" 'count has keys' map push count 1
bad "a value for peek of a queue" 'work is no Bloom filter' map peek work 1
bad "an order of an array" '--order is for egpu map dump of a ring buffer' map dump --order=time count
bad "an order of get" '--order is for egpu map dump of a ring buffer' map get --order=time ring 0
for command in attach list; do
	bad "$command --for 10x" "--for: '10x' is no time: write 10 or 10s, 500ms" $command --for 10x "$pid" $([ $command = list ] || echo "$tmp/kinds.bpf.c")
done
limit=20 run "$egpu" list --for 200ms "$pid"
is $status 0 "list --for 200ms"
says "what was not launched meanwhile is said to be so" 'loaded but not launched meanwhile'
for option in --json="$tmp/never" -o"$tmp/never" --for=3; do
	bad "attach -d $option" '-d returns at once, without a report' attach -d "$option" "$pid" "$tmp/kinds.bpf.c"
done
# A look leaves nothing behind, also where no probe is attached any more.
limit=20 run "$egpu" detach "$pid"
limit=20 run "$egpu" list --for 100ms "$pid"
is $status 0 "list where nothing is attached"
exec 3>&-
wait
! grep -q 'chosen:\|other devices' "$tmp/report"
ok $? "the report knows of no device that was chosen"
grep -q '^persistent: queue .* ok$' "$tmp/persistent"
ok $? "the program went on, unharmed"; tail -3 "$tmp/persistent" | sed "s/^/# /"
finish
