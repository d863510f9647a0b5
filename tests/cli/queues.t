#!/bin/sh
# Queues, stacks and Bloom filters: under contention, on one multiprocessor and many, in order and in shuffled order; one thread's order;
# what the host pushes and pops. tests/device/queues.t does the first on a GPU, with more.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/queues.sh"

probe=$EGPU_SOURCE/tests/probes/queues.bpf.c

for device in sms=1,workers=1 sms=3,workers=4,seed=11 sms=132,workers=2,seed=3; do
	run "$egpu" run --softgpu=sm_90,$device --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/vecadd" 3000
	exact "$device"
done
run "$egpu" run --softgpu=sm_90,sms=4,workers=2,check --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/vecadd" 1000
is $status 0 "checked: the program is unharmed"
is "$(grep -c 'softgpu: check' "$tmp/err")" 0 "checked: no race in any of them"

# Stacks of sites: an id for each place, which the reader names.
run "$egpu" run --softgpu=sms=5 --json="$tmp/json" -o "$tmp/report" "$EGPU_SOURCE/tests/probes/stacks.bpf.c" -- "$samples/vecadd" 3000
is $status 0 "stacks: the program is unharmed"
is "$(json "$tmp/json" 'my %v = %{$j->{maps}{".bss"}{variables}}; @v{qw(errors taken exists bad_flags)}')" "0 9000 9000 9000" "stacks: the program has the kernel's answers"
is "$(json "$tmp/json" 'my %n = map { $_->{key} => $_->{value} } @{$j->{maps}{counts}{entries}}; join ",", map { "$n{$_->{key}}:$_->{frames}[1]" } @{$j->{maps}{stacks}{entries}}')" \
	"3000:kernel vecadd,3000:kernel vecadd,3000:kernel vecadd" "stacks: each id that was counted is a place in the kernel"
grep -Eq '^  [0-9]+ = .*vecadd\.cu:[0-9]+ in vecadd < kernel vecadd$' "$tmp/report"
ok $? "stacks: with its line"
finish
