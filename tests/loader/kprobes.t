#!/bin/bash
# A loader written for bpftime, unmodified but for what it prints: libbpf attaches its kprobes through perf_event_open.
loader=kprobes
. "$(dirname "$0")/lib.sh"
probe=$EGPU_BUILD/tests/loader/kprobes.bpf.o
start

# Every launch of 256 threads: each counts itself once, four of them send a record, 200 of them store. Links come and go one after the other.
exact() { # LABEL
	is $status 0 "$1: the loader ends well"
	read -r _ threads _ most _ sum _ behind < <(grep '^threads ' "$tmp/out")
	read -r _ entered _ left _ accesses < <(grep '^entered ' "$tmp/out")
	read -r _ records _ bad < <(grep '^records ' "$tmp/out")
	[ "$most" -gt 3 ]
	ok $? "$1: there were launches ($most)"
	is "$((entered % 256)) $left $((accesses % 200))" "0 $((256 * most)) 0" "$1: entries, exits, accesses are of whole launches"
	[ "$((entered / 256))" -ge "$most" ] && [ "$((accesses / 200))" -gt 3 ]
	ok $? "$1: entries come first ($entered), and there are accesses ($accesses)"
	is "$records $bad $behind" "$((4 * most)) 0 5a5a" "$1: records, and no more written than there is room for"
}

run env EGPU_PID="$pid" LD_PRELOAD="$preload" "$loader" "$probe" 1 "$pid"
exact "1,024 threads"
is "$threads $sum" "256 $((256 * most))" "1,024 threads: each the same"
says "and what kind of map it is" '^type 1502 entries 2 threads 1024 end 1$' '^set 0 wrong 0$'
run env EGPU_PID="$pid" BPFTIME_MAP_GPU_THREAD_COUNT=100 LD_PRELOAD="$preload" "$loader" "$probe" 1 "$pid"
exact "100 threads"
is "$threads $sum" "100 $((100 * most))" "100 threads: those that have an element"

# What is a kprobe of Linux is not taken for one of a GPU.
sed 's/cuda__left/left/; s/cuda__entered/entered/; s/cuda__access/access_of/; s/^static __u64 (\*const thread_index.*//; s/thread_index(&x, &y, &z);/x = y = z = 0;/' \
	"$EGPU_SOURCE/tests/loader/kprobes.bpf.c" > "$tmp/linux.bpf.c"
clang -O2 -g -target bpf -mcpu=v3 -I"$EGPU_SOURCE/include" -idirafter "/usr/include/$(uname -m)-linux-gnu" -c "$tmp/linux.bpf.c" -o "$tmp/linux.bpf.o"
run env EGPU_PID="$pid" LD_PRELOAD="$preload" "$loader" "$tmp/linux.bpf.o" 1 "$pid"
is $status 1 "functions whose names say nothing of a GPU are refused"
says "with what to do" 'a kprobe is one when its function.s name begins with cuda__'
run env LD_PRELOAD="$preload" cat /sys/bus/event_source/devices/software/type
is "$status $(cat "$tmp/out")" "0 1" "other files are the machine's"
stop "the program under loaders"
finish
