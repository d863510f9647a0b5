#!/bin/sh
# What a program that runs once a warp gathers from lanes is what each lane sees by itself.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
probe=$EGPU_SOURCE/tests/cli/probes/gather.bpf.c

compare() { # compare NAME... : sums of lanes and of warps, numbers read, what lanes had that did not take part
	for name; do
		is "$(json "$tmp/json" "join ' ', map { \$j->{maps}{'.bss'}{variables}{'${name}_' . \$_} } qw(warps others)")" \
			"$(json "$tmp/json" "\$j->{maps}{'.bss'}{variables}{'${name}_threads'}") 0" "$sample: $name"
	done
}

all="load_address store_value atomic_address mem_space done_value done_address branch_taken barrier_id insn_value"
for sample in "vecadd 1000" "transpose 64" "histogram 1000" "reduce 1000"; do
	run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/${sample%% *}" ${sample#"${sample%% *}"}
	is $status 0 "$sample: status 0"
	compare $all
	case $sample in
	vecadd*) want="2000 1000 0 3000 1024 0" ;;
	transpose*) want="12288 12288 0 24576 12288 4096" ;;
	*) continue ;;
	esac
	got=
	for name in load_address store_value atomic_address mem_space branch_taken barrier_id; do
		got="$got$(json "$tmp/json" "\$j->{maps}{'.bss'}{variables}{${name}_reads}") "
	done
	is "$got" "$want " "$sample: lanes that took part"
done

cat >"$tmp/bad.bpf.c" <<'END'
#include <egpu/probe.bpf.h>
__u64 sum;
SEC("gpu.warp/entry") int none(struct egpu_warp *c) { sum += egpu_lane_read(3, taken); return 0; }
char LICENSE[] SEC("license") = "GPL";
END
run "$egpu" run $on "$tmp/bad.bpf.c" -- "$samples/vecadd" 1
is $status 125 "a field that lanes have at other points alone"
says "and it is named" "no taken there for egpu_lane_read"
run "$egpu" verify "$tmp/bad.bpf.c"
is $status 125 "verify says so too"
sed 's/taken/cycles/' "$tmp/bad.bpf.c" >"$tmp/worse.bpf.c"
run "$egpu" verify "$tmp/worse.bpf.c"
is $status 1 "a field that no program of this context gathers"
says "with those that can" "at branch taken, at barrier id and threads, at insn value"
sed 's/warp.entry/warp\/mem/; s/egpu_warp /egpu_warp_mem /; s/taken/value[3]) + egpu_lane_read(1, value[2]) + egpu_lane_read(1, value[1]) + egpu_lane_read(1, value[0]) + egpu_lane_read(1, address/' \
	"$tmp/bad.bpf.c" >"$tmp/wide.bpf.c"
run "$egpu" verify "$tmp/wide.bpf.c"
is $status 1 "five fields of all lanes"
says "are more than the budget" "needs 1280 bytes of local memory in each thread, and 1024 are allowed" "read fewer fields of other lanes"
run "$egpu" verify --max-local 1280 "$tmp/wide.bpf.c"
is $status 0 "until it is raised"
finish
