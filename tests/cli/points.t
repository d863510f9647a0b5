#!/bin/sh
# The points beyond memory, end to end: exact counts on samples whose control flow is known.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
probe=$EGPU_SOURCE/tests/cli/probes/points.bpf.c

variables() { # variables NAME...
	for name; do printf '$j->{maps}{".bss"}{variables}{%s},' "$name"; done
}

# One guarded branch over two loads; blocks of 256 threads.
for n in 1 1000 5000; do
	threads=$(((n + 255) / 256 * 256))
	run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/vecadd" $n
	is $status 0 "vecadd $n: status 0"
	is "$(json "$tmp/json" "$(variables blocks warp_blocks loop_heads)")" \
		"$((2 * threads + n)) $((2 * threads / 32 + (n + 31) / 32)) 0" "vecadd $n: blocks by thread and by warp"
	is "$(json "$tmp/json" "$(variables branches taken)")" "$threads $((threads - n))" "vecadd $n: branches and those taken"
	is "$(json "$tmp/json" "$(variables loads loaded_bytes)")" "$((2 * n)) $((8 * n))" "vecadd $n: loads that are done"
	is "$(json "$tmp/json" 'scalar grep { $_->{point} eq "load_done" } @{$j->{sites}}')" 2 "vecadd $n: two sites of loads done"
	is "$(json "$tmp/json" 'scalar grep { $_->{point} eq "block" } @{$j->{sites}}')" 3 "vecadd $n: three blocks"
done

# Two kernels; the tiled one has a barrier and two guarded branches. All 4,096 threads are in range.
run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/transpose" 64
is $status 0 "transpose: status 0"
grep -q "^transpose: n=64 ok" "$tmp/out"
ok $? "transpose: the program finds its results right"
is "$(json "$tmp/json" "$(variables branches taken)")" "12288 0" "transpose: branches"
is "$(json "$tmp/json" "$(variables barriers barrier_kinds)")" "4096 4096" "transpose: one barrier of the block a thread"
is "$(json "$tmp/json" "$(variables loads loaded_bytes)")" "12288 49152" "transpose: loads"
is "$(json "$tmp/json" '$j->{maps}{".bss"}{variables}{wide_operands} / $j->{maps}{".bss"}{variables}{wide_products}')" 2 "a product has two operands"
is "$(json "$tmp/json" '$j->{maps}{".bss"}{variables}{products} >= $j->{maps}{".bss"}{variables}{wide_products} ? 1 : 0')" 1 "mul.wide is a mul"

# A function that does not say what it sees sees what its section says.
cat >"$tmp/untyped.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 entered, stored, warps;
SEC("gpu/entry") int nothing() { entered++; return 0; }
SEC("gpu/store/vec*") int any(const void *ctx) { const struct egpu_mem *m = ctx; stored += m->bytes; return 0; }
SEC("gpu.warp/exit") int warp(void *ctx) { warps += ((struct egpu_warp *)ctx)->lanes; return 0; }
C
run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" "$tmp/untyped.bpf.c" -- "$samples/vecadd" 1000
is "$status $(json "$tmp/json" "$(variables entered stored warps)")" "0 1024 4000 1024" "functions of no argument, and of a void pointer"
sed 's/egpu_mem \*m/egpu_block *m/; s/m->bytes/m->loop_head/' "$tmp/untyped.bpf.c" >"$tmp/other.bpf.c"
run "$egpu" run $on -o "$tmp/report" "$tmp/other.bpf.c" -- "$samples/vecadd" 1
is "$status" 0 "bytes of a void pointer's context are fields of that point"
sed 's|"gpu/entry"|"raw_tp/gpu/entry"|' "$tmp/untyped.bpf.c" >"$tmp/raw.bpf.c"
run "$egpu" run $on "$tmp/raw.bpf.c" -- "$samples/vecadd" 1
says "behind raw_tp/ an argument has to say it" "function nothing takes no argument; it must take a pointer to struct egpu_entry"

# Lanes that a probe may have parted meet again, since some kernels hand data over within a warp without saying so; one that only adds parts none.
cat >"$tmp/parts.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 64); __type(key, __u32); __type(value, __u64); } lanes SEC(".maps");
SEC("gpu/store") int by_lane(struct egpu_mem *ctx)
{
	__u32 key = ctx->lane;
	__u64 one = 1, *v = bpf_map_lookup_elem(&lanes, &key);
	if (v)
		*v += one;
	else
		bpf_map_update_elem(&lanes, &key, &one, BPF_ANY);
	return 0;
}
char LICENSE[] SEC("license") = "GPL";
C
cat >"$tmp/adds.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 stores;
SEC("gpu/store") int adds(struct egpu_mem *ctx)
{
	stores++;
	return 0;
}
char LICENSE[] SEC("license") = "GPL";
C
for p in parts adds; do
	"$egpu" instrument -k vecadd -o "$tmp/$p.ptx" "$tmp/$p.bpf.c" "$samples/vecadd.ptx" >"$tmp/out" 2>"$tmp/err"
	ok $? "$p: instrumented"
done
is "$(grep -c 'activemask.b32 %egpu_came;' "$tmp/parts.ptx") $(grep -A2 'bar.warp.sync %egpu_came;' "$tmp/parts.ptx" | sed 's/[0-9]//g' | tail -2 | tr '\n' ' ')" "1 \$egpu_met: } " "lanes that may have parted meet where the probe ends"
is "$(grep -c egpu_came "$tmp/adds.ptx")" 0 "a probe that only adds parts none"

sed 's|gpu/block|gpu/blocks|' "$probe" >"$tmp/bad.bpf.c"
run "$egpu" run $on "$tmp/bad.bpf.c" -- "$samples/vecadd" 1
is $status 125 "a point that does not exist is an error"
says "and the points are named" "no known point" "insn:OPCODE" "nearest: block"
sed 's|gpu/insn:mul.wide|gpu/insn|' "$probe" >"$tmp/bad.bpf.c"
run "$egpu" run $on "$tmp/bad.bpf.c" -- "$samples/vecadd" 1
is $status 125 "gpu/insn without an opcode is an error"
# An opcode that no instruction has is told of: a mistyped one would count nothing, in silence.
cat >"$tmp/mistyped.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 stores, none;
SEC("gpu/insn:st.global") int right(struct egpu_insn *ctx) { stores++; return 0; }
SEC("gpu/insn:ST.GLOBAL") int mistyped(struct egpu_insn *ctx) { none++; return 0; }
C
run "$egpu" run $on -o "$tmp/report" "$tmp/mistyped.bpf.c" -- "$samples/vecadd" 100
is $status 0 "an opcode that is nowhere: status 0"
is "$(grep 'no instruction' "$tmp/report")" "  program mistyped: no instruction of the probed kernels begins with 'ST.GLOBAL'" "and the report says so, of that program alone"

# As everywhere with libbpf, a section that begins with '?' is left out.
cat >"$tmp/left.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 entries, exits;
SEC("gpu/entry") int enter(struct egpu_entry *ctx) { entries++; return 0; }
SEC("?gpu/exit") int leave(struct egpu_exit *ctx) { exits++; return 0; }
C
run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" "$tmp/left.bpf.c" -- "$samples/vecadd" 100
is "$status $(json "$tmp/json" "$(variables entries exits)")" "0 256 0" "a section that begins with ? is left out, the others run"
sed -i 's/"gpu/"?gpu/' "$tmp/left.bpf.c"
run "$egpu" run $on "$tmp/left.bpf.c" -- "$samples/vecadd" 100
is $status 125 "none is left: refused"
says "and why" 'left.bpf.c: .*begin with .\?.'

finish
