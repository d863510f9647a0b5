#!/bin/sh
# Probes written for bpftime: their map types, sections, helpers and names, with values that arithmetic gives; and what is refused.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
cc -O1 -D_GNU_SOURCE -I"$EGPU_SOURCE/samples" -I"$EGPU_SOURCE/include" -o "$tmp/runner" "$EGPU_SOURCE/tests/cli/kernels/runner.c" -ldl ||
	skip_all "no C compiler"

probe() { # probe KERNEL: of that kernel
	sed "s/KERNEL/$1/" "$EGPU_SOURCE/tests/cli/probes/foreign.bpf.c" >"$tmp/probe.bpf.c"
	clang -O2 -g -target bpf -mcpu="${2:-v3}" -I"$EGPU_SOURCE/include" -idirafter "/usr/include/$(uname -m)-linux-gnu" -c "$tmp/probe.bpf.c" -o "$tmp/probe.bpf.o"
}
threads() { # threads MAP KEY EXPRESSION: over @t, the elements of all threads
	json "$tmp/json" 'my ($e) = grep { $_->{key} == '"$2"' } @{$j->{maps}{'"$1"'}{entries}}; my @t = @{$e->{threads}}; '"$3"
}
keyed() { # keyed MAP KEY
	json "$tmp/json" 'my ($e) = grep { $_->{key} == '"$2"' } @{$j->{maps}{'"$1"'}{entries}}; $e->{value}'
}

# vecadd of 1,000 elements: 1,024 threads in 4 blocks.
for cpu in v3; do
	probe vecadd $cpu
	run "$egpu" run $on -v --json="$tmp/json" -o "$tmp/report" "$tmp/probe.bpf.o" -- sh -c 'echo pid $$; exec "$0" 1000' "$samples/vecadd"
	pid=$(sed -n 's/^pid //p' "$tmp/out")
	is "$status $(grep -c ' ok$' "$tmp/out")" "0 1" "$cpu: vecadd runs"
	is "$(keyed hash "$pid")" 1024 "$cpu: hash by process, which begins with BPF_NOEXIST"
	is "$(keyed calls 0) $(threads calls 0 'scalar(@t) . " " . join ",", keys %{{ map { $_ => 1 } @t }}')" "1024 1024 1" "$cpu: per-thread array: each thread once"
	is "$(threads numbers 1 'scalar grep { $t[$_] == $_ } 0 .. 1023') $(threads numbers 2 'scalar grep { $t[$_] == $_ * 3 + 1 } 0 .. 1023')" "1024 1024" \
		"$cpu: elements of 4 bytes, set and changed, are the thread's own"
	is "$(keyed shared 0) $(keyed with_kernel 0) $(keyed shared_on_host 0) $(keyed on_host 0)" "523776 2048 3072 7168" "$cpu: shared arrays, and those of the host"
	is "$(keyed spent 0)" 5120 "$cpu: a sum that is stored back into its own key loses nothing"
	is "$(keyed accesses 0) $(keyed accesses 1) $(keyed accesses 2)" "3000 3000 0" "$cpu: __memcapture: loads and stores"
	is "$(json "$tmp/json" '$j->{maps}{records}{records} . " " . $j->{maps}{records}{record_bytes}')" "1024 24576" "$cpu: a record of each thread"
	is "$(json "$tmp/json" 'join ",", grep { my ($b, $t, $p) = unpack "Q<3", pack "H*", $_; $p != '"$pid"' * (1 << 32) + '"$pid"' || $b > 3 || $t > 255 } @{$j->{maps}{records}{first_records}}')" "" \
		"$cpu: with block, thread and process"
done

# Atomics are no loads or stores: of histogram there are some.
probe histogram
run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" "$tmp/probe.bpf.o" -- "$samples/histogram" 5000
[ "$(keyed accesses 2)" -gt 1000 ] && [ "$(keyed accesses 0)" = "$(keyed accesses 1)" ]
ok $? "__memcapture: no atomics ($(keyed accesses 0), $(keyed accesses 2))"

sed '/^SEC("kprobe\/KERNEL")/,/^SEC("kprobe\/__mem/{/^SEC("kprobe\/__mem/!d}' "$EGPU_SOURCE/tests/cli/probes/foreign.bpf.c" >"$tmp/access.bpf.c"
for k in histogram other; do
	run "$egpu" run $on --allow-empty -k $k --json="$tmp/json" -o "$tmp/report" "$tmp/access.bpf.c" -- "$samples/histogram" 5000
	echo "-k $k: $status $(keyed accesses 0)" >>"$tmp/k"
done
is "$(tr '\n' ' ' <"$tmp/k")" "-k histogram: 0 6024 -k other: 0 0 " "-k names the kernels of __memcapture"

# Threads of a grid of three dimensions are numbered x first.
probe shapes
run "$egpu" run $on -v --json="$tmp/json" -o "$tmp/report" "$tmp/probe.bpf.o" -- "$tmp/runner" "$EGPU_SOURCE/tests/cli/kernels/shapes.ptx" "$tmp/bytes" "$tmp/counts" shapes 3x2x2 8x4x2 b:65536
is "$status $(keyed calls 0) $(threads calls 0 'scalar @t') $(threads numbers 1 'scalar grep { $t[$_] == $_ } 0 .. 767')" "0 768 768 768" "three dimensions"

# Fewer threads than there are: the others are refused, and told.
probe vecadd
run env BPFTIME_MAP_GPU_THREAD_COUNT=100 "$egpu" run $on -v --json="$tmp/json" -o "$tmp/report" "$tmp/probe.bpf.o" -- "$samples/vecadd" 1000
is "$status $(keyed calls 0) $(threads calls 0 'scalar @t') $(json "$tmp/json" '$j->{maps}{calls}{lost}')" "0 100 100 924" "100 threads: no more are counted"
grep -Eq '^  924 accesses refused to threads beyond these: make map_extra' "$tmp/report" && grep -q '^map calls: per-thread array, 1 entry for each of 100 threads$' "$tmp/report"
ok $? "and that is said"
sed 's/__type(key, __u32);/__uint(map_extra, 64); &/' >"$tmp/extra.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
struct {
	__uint(type, EGPU_MAP_TYPE_THREAD_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} own SEC(".maps");
SEC("gpu/entry") int f(struct egpu_entry *ctx)
{
	__u32 i = ctx->thread.x & 1;
	__u64 *v = bpf_map_lookup_elem(&own, &i);
	if (v && *v < 2) /* no atomics are needed */
		*v = *v * 2 + 1;
	return 0;
}
C
"$egpu" run $on -v --json="$tmp/json" -o "$tmp/report" "$tmp/extra.bpf.c" -- "$samples/vecadd" 64 >"$tmp/out" 2>"$tmp/err"
is "$? $(keyed own 0) $(keyed own 1) $(threads own 1 'join "", @t') $(json "$tmp/json" '$j->{maps}{own}{threads}')" "0 32 32 $(printf '01%.0s' $(seq 32)) 64" \
	"EGPU_MAP_TYPE_THREAD_ARRAY with map_extra"

# Refused, with what to do.
refused() { # refused DESCRIPTION PATTERN <SOURCE
	cat >"$tmp/bad.bpf.c"
	run "$egpu" run $on "$tmp/bad.bpf.c" -- "$samples/vecadd" 64
	[ $status = 125 ] && grep -Eq -- "$2" "$tmp/err"
	ok $? "refused: $1"
}
head='#include <egpu/probe.bpf.h>
struct pt_regs { unsigned long di, si; };
#define MAP(name, number, entries, more) struct { __uint(type, number); __uint(max_entries, entries); __type(key, __u32); __type(value, __u64); more } name SEC(".maps");'
refused "a kernel of its own" 'kprobe/__directly_run.*kernel of its own' <<C
$head
SEC("kprobe/__directly_run") int cuda__run(struct pt_regs *ctx) { return 0; }
C
refused "a function on the host" 'section "uprobe/./x:f".*function on the host.*different objects' <<C
$head
SEC("kprobe/vecadd") int cuda__k(void) { return 0; }
SEC("uprobe/./x:f") int u(struct pt_regs *ctx) { return 0; }
C
refused "arguments in pt_regs" 'no such context \(struct pt_regs\).*egpu_entry' <<C
$head
SEC("kprobe/vecadd") int cuda__k(struct pt_regs *ctx) { return ctx->di; }
C
refused "a kernel of Linux" 'do_exit' <<C
$head
SEC("kprobe/do_exit") int k(struct pt_regs *ctx) { return 0; }
C
refused "elements of threads in a warp's program" "'m' has an element for each thread.*use gpu/" <<C
$head
MAP(m, 1502, 1, )
SEC("gpu.warp/entry") int f(struct egpu_warp *ctx) { __u32 k = 0; return bpf_map_lookup_elem(&m, &k) != 0; }
C
refused "a walk over all threads" "'m' has elements of all threads" <<C
$head
MAP(m, 1502, 1, )
static long each(void *map, __u32 *key, __u64 *value, void *ctx) { return 0; }
SEC("gpu/entry") int f(struct egpu_entry *ctx) { return bpf_for_each_map_elem(&m, each, 0, 0); }
C
refused "a null check left out" 'null|NULL' <<C
$head
MAP(m, 1502, 1, )
SEC("gpu/entry") int f(struct egpu_entry *ctx) { __u32 k = 0; __u64 *v = bpf_map_lookup_elem(&m, &k); *v = 1; return 0; }
C
refused "a perf buffer" 'PERF_EVENT_ARRAY is not supported.*RINGBUF' <<C
$head
struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __uint(key_size, 4); __uint(value_size, 4); __uint(max_entries, 64); } m SEC(".maps");
SEC("gpu/entry") int f(struct egpu_entry *ctx) { __u64 x = 1; return bpf_perf_event_output(ctx, &m, 0, &x, sizeof(x)); }
C
refused "stopping threads without leave" 'bpf_gpu_exit#507 changes what the probed kernel does; allow it with --allow-perturb' <<C
$head
static __u64 (*const leave)(void) = (void *)507;
SEC("kprobe/vecadd") int cuda__k(void) { leave(); return 0; }
C
finish
