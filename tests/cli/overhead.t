#!/bin/sh
# --max-overhead on the command line and in the report; what it does is the agent's test.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/streams" ] || skip_all "samples are not built"
run "$egpu" run $on --json="$tmp/json" --max-overhead 10% memtrace -- "$samples/streams" 2000 200
is $status 0 "a limit of 10 %"
is "$(json "$tmp/json" '$j->{kernels}[0]{launches}, $j->{kernels}[0]{launches_instrumented} <= 351, $j->{filter}{max_overhead_percent}')" "401 1 10" \
	"at least one launch in eight runs without"
says "the report says what was asked" 'at most 10% slower'
run "$egpu" run $on --json="$tmp/json" --max-overhead 100000 memtrace -- "$samples/streams" 2000 200
is "$(json "$tmp/json" 'my $k = $j->{kernels}[0]; $k->{sampling}{one_warp_in}, $k->{sampling}{given_up} ? 1 : 0, $k->{launches_instrumented} >= 350 && $k->{launches_instrumented} <= 351')" "1 0 1" \
	"a limit that is kept: all but the eighth that is compared with"
is "$(json "$tmp/json" 'my $n = 0; $n += $_->{executions} for grep { $_->{op} eq "store" } @{$j->{tool}{sites}}; abs($n - 2000 * 401) <= 2000')" \
	1 "counts are those of all launches, but perhaps the last: others stand for those that are compared with"

# Branches alone, in all warps that are not chosen, are above this limit: the probe is given up, and the report says with what.
cat > "$tmp/adds.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 adds;
SEC("gpu/insn:add") int each(struct egpu_insn *ctx) { adds++; return 0; }
char LICENSE[] SEC("license") = "Apache-2.0";
C
cat > "$tmp/adds.c" <<'C'
#include "common.h"
int main(int argc, char **argv)
{
	static char text[4096];
	FILE *f = argc == 3 ? fopen(argv[1], "r") : NULL;
	if (!f || !fread(text, 1, sizeof(text) - 1, f))
		die("no PTX");
	fclose(f);
	CUdevice dev = open_device();
	CUmodule module = load_module(text);
	CUfunction fn = get_kernel(module, "adds");
	CUdeviceptr out;
	CHECK(MemAlloc(&out, 4));
	void *params[] = { &out };
	for (int i = 0; i < atoi(argv[2]); i++) {
		CHECK(LaunchKernel(fn, 4, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
		CHECK(CtxSynchronize());
	}
	CHECK(MemFree(out));
	close_device(module, dev);
	return 0;
}
C
if cc -O1 -D_GNU_SOURCE -I"$EGPU_SOURCE/samples" -I"$EGPU_SOURCE/include" -o "$tmp/adds" "$tmp/adds.c" -ldl; then
	for try in 1 2 3 4 5 6; do # where others keep the processors busy, times say nothing
		run "$egpu" run $on --json="$tmp/json" --max-overhead 1% "$tmp/adds.bpf.c" -- "$tmp/adds" "$EGPU_SOURCE/tests/cli/kernels/adds.ptx" 1500
		grep -q 'given up' "$tmp/err" && break
	done
	is $status 0 "a limit that cannot be kept"
	says "the report says what it took, and that the rest ran unprobed" '^  given up: adds: [0-9.]+% slower even with one warp in 1024; its last launches ran unprobed$'
	is "$(json "$tmp/json" 'my $k = $j->{kernels}[0]; my $s = $k->{sampling}; $k->{launches}, $k->{launches_instrumented} < 1312 ? 1 : 0, $s->{given_up} ? 1 : 0, $s->{one_warp_in}, $s->{overhead_percent} > 1 ? 1 : 0')" \
		"1500 1 1 1024 1" "and so does JSON"

	# Attached one after the other to one process: each report has its own sampling and its own launches.
	LD_LIBRARY_PATH=$EGPU_BUILD/src/softgpu "$tmp/adds" "$EGPU_SOURCE/tests/cli/kernels/adds.ptx" 100000000 >"$tmp/adds.out" 2>&1 &
	pid=$!
	while [ -d /proc/$pid ] && ! grep -q libcuda /proc/$pid/maps; do sleep 0.02; done
	for part in "--sample-warps 4" "" "--sample-warps 3" "--device 3 --allow-empty"; do
		# shellcheck disable=SC2086
		run "$egpu" attach --for 300ms $part --json="$tmp/json" "$pid" "$tmp/adds.bpf.c"
		is $status 0 "attach $part"
		is "$(json "$tmp/json" 'my $s = $j->{kernels}[0]{sampling}; ($s ? $s->{one_warp_in} : 0), ($j->{filter}{seen} // 0) <= $j->{coverage}{launches} ? 1 : 0')" \
			"$(echo "$part" | sed -n 's/.*warps //p' | grep . || echo 0) 1" "says what was sampled for it, and its own launches"
		grep -q 'sampled:' "$tmp/err"
		is $? "$(echo "$part" | grep -q warps; echo $?)" "and so does the text"
	done
	# A limit that cannot be kept, and then one that can: the second is found anew.
	run "$egpu" attach --for 700ms --max-overhead 1% --allow-empty "$pid" "$tmp/adds.bpf.c"
	run "$egpu" attach --for 300ms --max-overhead 1000000% --json="$tmp/json" "$pid" "$tmp/adds.bpf.c"
	is "$status $(json "$tmp/json" 'my $k = $j->{kernels}[0]; my $s = $k->{sampling}; $s->{one_warp_in}, $s->{given_up} ? 1 : 0, $k->{launches_instrumented} > 1 ? 1 : 0')" \
		"0 1 0 1" "another limit is another search"
	kill $pid
	wait $pid 2>/dev/null
fi
for bad in "-1%" "0" "x" "5percent"; do
	run "$egpu" run $on --max-overhead="$bad" memtrace -- "$samples/streams"
	is $status 125 "--max-overhead=$bad: refused"
done
finish
