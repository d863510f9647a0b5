#!/bin/sh
# Ring buffers from kernels to a reader: what was read and what was lost is what was sent, on one multiprocessor and many, with rings of
# all sizes, several threads of softgpu, and kernels that follow each other.
. "$(dirname "$0")/lib.sh"

probes=$EGPU_SOURCE/tests/probes

sums() { # LABEL
	is $status 0 "$1: the program is unharmed"
	# What was sent and found no reader before the end is lost too.
	is "$(json "$tmp/json" '$j->{maps}{ring}{records} + $j->{maps}{tiny}{records} + $j->{maps}{ring}{lost} + $j->{maps}{tiny}{lost}')" \
		"$(json "$tmp/json" '$j->{maps}{".bss"}{variables}{sent} + $j->{maps}{".bss"}{variables}{dropped} + $j->{maps}{".bss"}{variables}{impossible}')" \
		"$1: what was read and what was lost is what was sent"
	is "$(json "$tmp/json" '$j->{maps}{ring}{lost} + $j->{maps}{tiny}{lost} >= $j->{maps}{".bss"}{variables}{dropped} ? 1 : 0')" 1 \
		"$1: what was dropped was counted"
	is "$(json "$tmp/json" '$j->{maps}{".bss"}{variables}{sent} > 200 ? 1 : 0')" 1 "$1: a ring at least"
}

for device in sms=1,workers=1 sms=3,workers=4 sms=132,workers=2; do
	run "$egpu" run --softgpu=sm_90,$device --json="$tmp/json" -o "$tmp/report" "$probes/shapes.bpf.c" -- "$samples/vecadd" 4000
	sums "$device"
done

# A record a lane, and warp records that a reader takes apart.
cat > "$tmp/warp.bpf.c" <<'EOF'
#include <egpu/probe.bpf.h>
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 1 << 20); } ring SEC(".maps");
__u64 lanes;
SEC("gpu/mem")
int record(struct egpu_mem *ctx)
{
	if (!egpu_access_output(&ring, ctx))
		lanes++;
	return 0;
}
char LICENSE[] SEC("license") = "Apache-2.0";
EOF
run "$egpu" run --softgpu --json="$tmp/json" -o "$tmp/report" "$tmp/warp.bpf.c" -- "$samples/vecadd" 3000
is $status 0 "warp records: the program is unharmed"
is "$(json "$tmp/json" '$j->{maps}{ring}{records}')" $((3 * 94)) "warp records: one for each warp's access"
is "$(json "$tmp/json" '$j->{maps}{ring}{record_bytes}')" $((3 * 94 * 16)) "warp records: of 16 bytes where lanes lie side by side"
is "$(json "$tmp/json" '$j->{maps}{".bss"}{variables}{lanes}')" 9000 "warp records: every lane took part"

# Records that no ring can hold, and flags that no kernel knows: never a record, whatever the program would do with it.
run "$egpu" run --softgpu --json="$tmp/json" -o "$tmp/report" "$probes/helpers.bpf.c" -- "$samples/vecadd" 1
is $status 0 "impossible records: the program is unharmed"
is "$(json "$tmp/json" 'join ",", @{$j->{maps}{".bss"}{variables}{results}}[45..47]')" 1,1,77 "impossible records: the probe is told"

# Lanes that part and meet again as chance has it, with hints of where there is room that differ.
run env EGPU_SOFTGPU=sms=132,seed=2 "$EGPU_BUILD/tests/unit/unit_translate_run"
is "$status $(grep -c '^not ok' "$tmp/out")" "0 0" "shuffled lanes of 132 multiprocessors write whole records"

ls -A "$EGPU_DIR" >"$tmp/left"
is "$(cat "$tmp/left")" "" "nothing is left in the session directory"
finish
