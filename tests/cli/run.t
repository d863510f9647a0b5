#!/bin/sh
# What a run does besides the demo job: typed maps, trace lines, options, signals, cleaning up after a killed egpu.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
probes=$EGPU_SOURCE/tests/cli/probes

# -- maps of a raw object, typed
run "$egpu" run $on --json="$tmp/json" "$probes/typed.bpf.c" -- "$samples/vecadd" 600
is $status 0 "a raw object: status 0"
is "$(cat "$tmp/out")" "vecadd: n=600 ok" "standard output is the program's own"
says "structs, arrays, enums, strings, unions, bit fields by name" \
	'^  1 = \{ hits = 768, small = \[0, 0, 9\], color = "GREEN", name = "x", word = 1078530011, real = 3.14159.*, a = 0, b = 0 \}$' \
	'^  \{ block = 2, lane = 1 \} = 1$' '^  total = 768$' '^  text = "hello"$' '^  negative = -5$' '^  color = "GREEN"$'
says "trace_printk, as it happens" '^egpu: trace: block 1 thread -5 launch 1$'
is "$(json "$tmp/json" 'my $m = $j->{maps}; scalar @{$m->{array}{entries}}, $m->{array}{entries}[1]{value}{hits}, scalar @{$m->{hash}{entries}}, $m->{per_cpu}{entries}[1]{value}, $m->{".bss"}{variables}{total}, $m->{".data"}{variables}{negative}')" \
	"4 768 6 768 768 -5" "the same in JSON"
run "$egpu" run $on -v "$probes/typed.bpf.c" -- "$samples/vecadd" 600
says "-v: per-CPU maps slot by slot" '^    cpu [0-9]+: [0-9]+$'
says "-v: the second run compiles nothing" '^  cached in [0-9.]+ ms: vecadd, registers'
EGPU_CACHE=off run "$egpu" run $on -v --json="$tmp/json" "$probes/typed.bpf.c" -- "$samples/vecadd" 600
says "-v: EGPU_CACHE=off compiles" '^  compiled in [0-9.]+ ms: vecadd, registers'
is "$(json "$tmp/json" '$j->{kernels}[0]{compile_cached} ? 1 : 0, $j->{kernels}[0]{compile_ns} > 0 ? 1 : 0')" "0 1" "the same in JSON"
run "$egpu" run $on --json="$tmp/json" --set limit=3 --set text=bye --set color=RED --set negative=-17 --set total=18446744073709550000 \
	"$probes/typed.bpf.c" -- "$samples/vecadd" 600
is $status 0 "--set: status 0"
is "$(json "$tmp/json" 'my $m = $j->{maps}; scalar @{$m->{hash}{entries}}, @{$m->{".data"}{variables}}{qw(text color negative)}')" \
	"9 bye RED -17" "--set: constants and variables of several types"
is "$(json "$tmp/json" '"$j->{maps}{\".bss\"}{variables}{total}"')" 18446744073709550768 "integers in JSON are exact to 64 bits"
cat > "$tmp/signs.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
enum depth { TOP = 3, LOW = -2 };
const volatile enum depth depth = TOP;
const volatile _Bool flag = 0;
enum depth seen;
__u64 flags;
SEC("gpu/entry") int signs(struct egpu_entry *ctx) { seen = depth; flags = flag; return 0; }
C
run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" --set depth=-9 --set flag=1 "$tmp/signs.bpf.c" -- "$samples/vecadd" 10
is "$status $(json "$tmp/json" '@{$j->{maps}{".bss"}{variables}}{qw(seen flags)}')" "0 -9 1" "--set: an enum with a negative constant has a sign"
run "$egpu" run $on --set flag=2 "$tmp/signs.bpf.c" -- "$samples/vecadd" 10
says "--set: a bool is one of two" "'2' is neither true nor false"

# -- patterns
run "$egpu" run $on -k 'unit' --json="$tmp/json" -o "$tmp/report" memtrace -- "$samples/strided"
is "$(json "$tmp/json" 'map { $_->{name}, $_->{state} } sort { $a->{name} cmp $b->{name} } @{$j->{kernels}}')" \
	"strided not selected unit instrumented" "-k NAME: only that kernel"
run "$egpu" run $on -k '/^str/' --json="$tmp/json" -o "$tmp/report" memtrace -- "$samples/strided"
is "$(json "$tmp/json" 'join ",", sort keys %{{map { $_->{kernel} => 1 } @{$j->{tool}{sites}}}}')" "strided" "-k /regex/"
is "$(cat "$tmp/err")" "" "-o: standard error stays empty"

# -- the environment of the command
run "$egpu" run $on --allow-empty -o /dev/null memtrace -- sh -c 'echo "$LD_LIBRARY_PATH"; test -e "$EGPU_SESSION/session" && stat -c %a "$EGPU_SESSION"'
says "the session is private" '^700$'
# Whatever becomes of the session's place in the environment, the command has the whole driver or none of ours.
run "$egpu" run $on --json="$tmp/json" memtrace -- env LD_LIBRARY_PATH= "$samples/vecadd" 10
is $status 0 "a command that clears LD_LIBRARY_PATH: its driver is whole"
is "$(json "$tmp/json" '$j->{coverage}{launches_instrumented}')" 1 "a command that clears LD_LIBRARY_PATH is probed"
cat >"$tmp/later" <<E
while [ -e "\$EGPU_SESSION" ]; do sleep 0.05; done
"$samples/vecadd" 10 2>"$tmp/later.err"
echo >"$tmp/later.done"
E
run "$egpu" run $on --allow-empty -o /dev/null memtrace -- sh -c "sh '$tmp/later' >/dev/null 2>&1 &"
for i in $(seq 200); do [ -e "$tmp/later.done" ] && break; sleep 0.05; done
is "$([ -e "$tmp/later.done" ] && grep -c 'it is too old' "$tmp/later.err")" 0 \
	"a program that starts after the run has ended does not meet half a driver"
if bash -c 'ulimit -f 0' 2>/dev/null; then
	run bash -c '"$@" 2>&1 | cat' - "$egpu" run $on memtrace -- sh -c "ulimit -f 0; '$samples/vecadd' 10 | cat"
	says "a command that may not make files is not harmed" '^vecadd: n=10 ok$'
	says "and why it is not probed is said" 'device instance of map .*File too large'
fi
LD_PRELOAD=/nonexistent.so
export LD_PRELOAD
run "$egpu" run $on --allow-empty -o /dev/null memtrace -- sh -c 'echo "$LD_PRELOAD"'
unset LD_PRELOAD
says "an LD_PRELOAD of the user's stays, after ours" 'libegpu-agent.so:/nonexistent.so$'
echo input | "$egpu" run $on --allow-empty -o /dev/null memtrace -- cat >"$tmp/out" 2>"$tmp/err"
is "$(cat "$tmp/out")" "input" "standard input is the program's own"

# -- signals: egpu stays until the command has ended, and reports
"$egpu" run $on --allow-empty -o "$tmp/report" memtrace -- sh -c 'trap "exit 9" TERM; echo ready >'"$tmp/ready"'; while :; do sleep 0.05; done' &
pid=$!
for i in $(seq 200); do [ -s "$tmp/ready" ] && break; sleep 0.05; done
kill -TERM $pid
status=0
wait $pid || status=$?
is $status 9 "SIGTERM reaches the command; its status is egpu's"
[ -s "$tmp/report" ]
ok $? "and the report is written"
is "$(find "$EGPU_DIR" -mindepth 1)" "" "nothing is left behind"

# -- nobody reads the report
(
	"$egpu" run $on --allow-empty memtrace -- sh -c "sleep 0.2" 2>&1
	echo $? >"$tmp/piped"
) | true
is "$(cat "$tmp/piped")" 125 "a report that nobody reads: status 125"
is "$(find "$EGPU_DIR" -mindepth 1)" "" "a report that nobody reads: nothing is left behind"
run "$egpu" run $on --allow-empty -o /dev/null memtrace -- sh -c 'kill -PIPE $$'
is $status 141 "SIGPIPE is the command's own as before"

# -- a killed egpu: the command goes on and is right; the next run cleans up
rm -f "$tmp/ready" "$tmp/done"
"$egpu" run $on memtrace -- sh -c 'echo $$ >'"$tmp/ready"'; sleep 0.5; '"$samples/vecadd"' 1000 '"$tmp/orphan"' >'"$tmp/orphan.out"'; echo $? >'"$tmp/done" 2>"$tmp/err" &
pid=$!
for i in $(seq 200); do [ -s "$tmp/ready" ] && break; sleep 0.05; done
kill -KILL $pid
wait $pid 2>/dev/null
for i in $(seq 200); do [ -s "$tmp/done" ] && break; sleep 0.05; done
is "$(cat "$tmp/done")" 0 "killed egpu: the command went on"
is "$(cat "$tmp/orphan.out")" "vecadd: n=1000 ok" "killed egpu: and is right"
[ -n "$(find "$EGPU_DIR" -mindepth 1)" ]
ok $? "killed egpu: its session is still there"
run "$egpu" run $on -o /dev/null memtrace -- "$samples/vecadd" 10
is "$(find "$EGPU_DIR" -mindepth 1)" "" "killed egpu: the next run cleans up"

# -- maps of a session from outside, while the command runs
rm -f "$tmp/ready"
"$egpu" run $on -o "$tmp/report" "$probes/typed.bpf.c" -- sh -c "$samples/vecadd 600; echo \$\$ >$tmp/ready; sleep 30" >"$tmp/bg" 2>&1 &
pid=$!
for i in $(seq 400); do [ -s "$tmp/ready" ] && break; sleep 0.05; done
run "$egpu" map list
is $status 0 "map list: status 0"
says "map list: the object's maps" '^ *[0-9]+ +array +array +4 +40 +4$' ' hash +hash ' ' \.bss +array'
run "$egpu" map dump --session $pid array
says "map dump: typed, after the process that counted has ended" '1 = \{ hits = 768'
run "$egpu" map get per_cpu 1
is "$(cat "$tmp/out")" 768 "map get: a per-CPU map's sum"
run "$egpu" map get hash hex:0200000001000000
is "$(cat "$tmp/out")" 1 "map get: a key in hex"
run "$egpu" map get hash hex:01
says "map get: a key of another size" 'does not fit: give .*hex: and 16 hex digits'
run "$egpu" map get array -1
says "map get: a negative number is a key, not an option" 'array: the map has no such key'
run "$egpu" map get hash hex:0900000001000000
is $status 125 "map get: no such key: status 125"
run "$egpu" map dump aray
says "map: nearest name" "no map 'aray' in this session; nearest: array"
run "$egpu" map dump --json .bss
says "map dump --json" '"total": 768'
run "$egpu" map set hash hex:0200000001000000 55
is $status 0 "map set: a key in hex"
run "$egpu" map get hash hex:0200000001000000
is "$(cat "$tmp/out")" 55 "map set: it reads as written"
run "$egpu" map set per_cpu 1 7
run "$egpu" map get per_cpu 1
is "$(cat "$tmp/out")" 7 "map set: a per-CPU map's sum"
run "$egpu" map set .bss total 5
run "$egpu" map set .data color RED
run "$egpu" map dump .data
says "map set: a variable by name, its constant by name" 'color = "RED"' 'text = "hello"'
run "$egpu" map get hash hex:0200000001000000
run "$egpu" map set .data colour 3
says "map set: no such variable" ".data has no variable 'colour'"
run "$egpu" map set .data negative 3000000000
says "map set: a value that does not fit" "'3000000000' does not fit 32 bits"
run "$egpu" map set array 1 5
says "map set: a struct" 'only integers, enums and char arrays'
run "$egpu" map set .rodata limit 5
says "map set: read-only data" 'read-only data|no map'
kill -KILL "$(cat "$tmp/ready")"
status=0
wait $pid || status=$?
is $status 137 "killed command: status 137"
says "killed command: its last synchronised maps are in the report" '.'
cp "$tmp/report" "$tmp/out"
says "killed command: counts are there" '1 = \{ hits = 768' 'total = 5$'
run "$egpu" map list
is $status 125 "map without a session: status 125"
says "map without a session: says what to do" 'no session is open'
finish
