#!/bin/bash
# `egpu attach` to processes that were started without egpu: driver-API programs that are linked with the
# driver or keep its pointers on the heap, and programs on the shared CUDA runtime. Counts are exact,
# the process goes on with right results, detach puts everything back, attach works again.
#
# Parts run beside each other, each with its own programs and its own directory of sessions; the end puts together what they say.
. "$(dirname "$0")/../cli/lib.sh"
target=$EGPU_BUILD/tests/dynamic/target_plain
driver=${EGPU_DRIVER_DIR:-$EGPU_BUILD/src/softgpu} # a GPU's driver: tests/device/attach.t
all=$tmp
trap 'kill $(cat "$all"/*/*.pid 2>/dev/null) 2>/dev/null; rm -rf "$all"' EXIT
export ASAN_OPTIONS=detect_leaks=0
if [ -n "$EGPU_SANITIZED" ]; then
	echo "1..0 # SKIP a sanitized agent cannot come into a program that is not"
	exit 0
fi
probe=$EGPU_BUILD/tests/dynamic/count.bpf.o

start() { # NAME ARGS...: runs the target without egpu
	name=$1; shift
	LD_LIBRARY_PATH=$driver EGPU_SOFTGPU_QUIET=1 "$target" "$@" > "$work/$name.out" 2>&1 &
	pid=$!
	echo $pid > "$work/$name.pid"
	for _ in $(seq 400); do grep -qs running "$work/$name.out" && break; sleep 0.02; done
}

finish() { # NAME: stops it; its results were right
	kill -TERM "$pid"; wait "$pid"
	ok $? "$1: the program ended well"
	grep -q 'wrong 0' "$work/$1.out"
	ok $? "$1: every step's results were right"
	rm -f "$work/$1.pid"
}

attach() { "$egpu" attach "$@" > "$work/err" 2>&1; }
# For so many seconds; a machine with much else to do gets more of them until something has been counted.
attach_for() { # SECONDS ARGS...
	for seconds in "$1" 1 4; do
		"$egpu" attach --for "$seconds" "${@:2}" > "$work/err" 2>&1 && return
		grep -q 'no launch was probed' "$work/err" || return 125
	done
	return 125
}

# Threads counted = launches instrumented times 256: nothing lost, nothing twice.
exact() { exact_of 256; }
exact_of() { # THREADS of a launch
	launches=$(sed -n 's/^coverage: .* probed, \([0-9]*\) of [0-9]* launch.*/\1/p' "$work/err")
	threads=$(sed -n 's/^ *threads = \([0-9]*\)$/\1/p' "$work/err")
	[ -n "$launches" ] && [ "$launches" -gt 0 ] && [ "$threads" = $((launches * $1)) ]
}

# Beside another probe, launches may be instrumented for that one alone.
whole() {
	exact && return
	[ -n "$launches" ] && [ "$threads" -gt 0 ] && [ $((threads % 256)) = 0 ] && [ $((threads / 256)) -le "$launches" ]
}

part_again() { # HOW the program calls the driver
	start $1 $1
	attach_for 0.5 "$pid" "$probe"
	ok $? "$1: attach"
	exact; ok $? "$1: counts are exact"
	attach_for 0.4 -k fill "$pid" "$probe"
	ok $? "$1: attach again"
	exact; ok $? "$1: counts are exact again"
	for _ in $(seq 100); do "$egpu" ps 2> /dev/null | grep "^ *$pid .*idle" > /dev/null && break; sleep 0.02; done
	"$egpu" ps > "$work/err" 2>&1; grep -q "^ *$pid *idle" "$work/err"
	ok $? "$1: the agent is idle afterwards"
	finish $1
}

# The agent is gone with the program that it had come to, though the process is the same.
part_begun() {
	start begun opened
	attach_for 0.3 "$pid" "$probe"; ok $? "begun again: attach"
	attach -d "$pid" "$probe"; ok $? "begun again: attach -d"
	kill -HUP "$pid"
	for _ in $(seq 400); do [ "$(grep -c running "$work/begun.out")" = 2 ] && break; sleep 0.02; done
	attach_for 0.4 "$pid" "$probe"; ok $? "begun again: attach to the next program of the process"
	exact; ok $? "begun again: counts are exact"
	"$egpu" link > "$work/err" 2>&1; ! grep -q " $pid " "$work/err"; ok $? "begun again: what was attached to the one before is not there"
	finish begun
}

# The shared CUDA runtime: 440 pointers in its data, kernels by CUkernel, PTX in the program's fatbin.
part_runtime() {
	target=$EGPU_BUILD/tests/dynamic/target_runtime
	[ -x "$target" ] || return
	start runtime
	attach_for 0.6 --json="$work/many.json" "$pid" "$probe"; ok $? "CUDA runtime: attach"
	exact_of 1024; ok $? "CUDA runtime: counts are exact"
	! grep -q pending "$work/err"; ok $? "CUDA runtime: no kernel has a second row that waits for ever"
	grep -q 'launches of graphs ran unprobed' "$work/err"; ok $? "CUDA runtime: launches of the graph made before are reported"
	grep -q 'refused: CUDA graph 1: it was instantiated before the attach' "$work/err"; ok $? "CUDA runtime: it has a row, with the reason"
	kernel "CUDA graph 1" '$k->{launches} > 10 && !$k->{launches_instrumented} && $k->{state} eq "refused" && $k->{launches_timed} > 0'
	ok $? "CUDA runtime: its launches and their time are told"
	attach_for 0.4 -k 'scale*' --json="$work/many.json" "$pid" "$probe"; ok $? "CUDA runtime: another pattern"
	exact_of 1024; ok $? "CUDA runtime: its counts are exact"
	kernel "CUDA graph 1" '$k->{launches} > 0 && !$k->{launches_instrumented} && $k->{state} eq "refused"'; ok $? "CUDA runtime: it is told of whatever the pattern"
	! grep -q 'CUDA graph 2' "$work/err"; ok $? "CUDA runtime: and it is one still"
	finish runtime
}

# Libraries with pointers of their own: read-only tables, per-thread streams, one that comes after the attach. Kernels
# that cannot be probed are seen all the same.
part_many() {
	target=$EGPU_BUILD/tests/dynamic/target_many
	export EGPU_AGENT_LOG="$work/many.log"
	start many "$EGPU_BUILD/tests/dynamic/dynamic_early.so" "$EGPU_BUILD/tests/dynamic/dynamic_late.so" 32
	unset EGPU_AGENT_LOG
	"$egpu" attach --for 2 --json="$work/many.json" "$pid" "$probe" > "$work/err" 2>&1 & attacher=$!
	sleep 0.6; kill -USR1 "$pid"
	wait $attacher; ok $? "many libraries: attach"
	exact; ok $? "many libraries: counts are exact"
	kernel early_fill '$k->{launches_instrumented} > 50'; ok $? "many libraries: the kernel of the first is probed"
	kernel late_fill '$k->{launches_instrumented} > 10'; ok $? "many libraries: so is that of one that came later"
	[ "$(sed '/late_fill: PTX found/q' "$work/many.log" | grep -c 'memory looked through')" = 1 ]
	ok $? "many libraries: which is found without another look through all memory"
	kernel twice '$k->{launches} > 50 && !$k->{launches_instrumented} && $k->{launches_timed} > 0'
	ok $? "many libraries: what cannot be told apart is counted and timed"
	grep -q 'several PTX texts' "$work/err"; ok $? "many libraries: and the reason is given"
	finish many
}
# A kernel that no pattern named at first, and that another one names then.
part_asked() {
	target=$EGPU_BUILD/tests/dynamic/target_many
	start asked "$EGPU_BUILD/tests/dynamic/dynamic_early.so" "$EGPU_BUILD/tests/dynamic/dynamic_late.so"
	attach -d -k 'early*' "$pid" "$probe"; ok $? "asked later: a probe for one kernel"
	sleep 0.5
	attach_for 0.7 "$pid" "$probe"; ok $? "asked later: beside it one for all"
	grep -q 'refused: twice: several PTX texts' "$work/err"; ok $? "asked later: what nobody asked about before is answered"
	! grep -q 'looked for' "$work/err"; ok $? "asked later: and not pending for ever"
	"$egpu" detach "$pid" > "$work/err" 2>&1
	finish asked
}
kernel() { # NAME CONDITION on %$k
	perl -MJSON::PP -e 'local $/; my ($file, $name, $what) = @ARGV; open F, $file or exit 2; my $n = 0;
		for my $k (@{decode_json(<F>)->{kernels}}) { if ($k->{name} eq $name) { $n++; eval $what or exit 1 } }
		exit($n ? 0 : 3)' "$work/many.json" "$1" "$2"
}

# What a process launches, without touching a kernel of it; then it is attached to as ever.
part_list() {
	target=$EGPU_BUILD/tests/dynamic/target_many
	start list "$EGPU_BUILD/tests/dynamic/dynamic_early.so" "$EGPU_BUILD/tests/dynamic/dynamic_late.so"
	"$egpu" list --for 0.6 --json="$work/many.json" "$pid" > "$work/err" 2>&1; ok $? "egpu list PID"
	grep -q '^2 kernels launched, .* ms of GPU time, ' "$work/err"; ok $? "tells launches and GPU time"
	grep -q ' <<<4, 64>>> *PTX text *early_fill$' "$work/err"; ok $? "where PTX is, and how it is launched"
	grep -q ' none *twice  - several PTX texts' "$work/err"; ok $? "or why it is not"
	kernel early_fill '$k->{launches} > 20 && !$k->{launches_instrumented} && !$k->{registers_after}'; ok $? "nothing is compiled, nothing is probed"
	kernel twice '$k->{launches_timed} > 0 && $k->{state} eq "refused"'; ok $? "what has no PTX is timed as well"
	kernel twice '@{$k->{shapes}} == 1 && abs($k->{shapes}[0]{launches} - $k->{launches}) < 3 && "@{$k->{shapes}[0]{grid}} @{$k->{shapes}[0]{block}}" eq "4 1 1 64 1 1" && $k->{shapes}[0]{mean_ns} > 0'
	ok $? "its shape, stream and time are told"
	attach_for 0.4 "$pid" "$probe"; ok $? "an attach afterwards"
	exact; ok $? "counts are exact"
	attach_for 0.3 --device 0 "$pid" "$probe"; ok $? "attach --device 0"
	exact; ok $? "counts are exact"
	grep -q 'refused: twice: several PTX texts' "$work/err"; ok $? "what was found out by an earlier one is still told"
	attach --for 0.3 --device 1 "$pid" "$probe"; [ $? = 125 ]; ok $? "attach --device 1, where it launches nothing, says so"
	grep -q 'no launch was probed' "$work/err"; ok $? "with the reason"
	attach --for 0.4 --sample-warps 1 "$pid" "$probe"; ok $? "attach --sample-warps 1"
	exact; ok $? "counts are exact"
	attach -d --sample-warps 4 "$pid" "$probe"; ok $? "one in four warps stays"
	attach --for 0.3 "$pid" "$probe"; [ $? = 125 ]; ok $? "another in all warps is refused"
	grep -q 'other probes are attached .* in a part of the warps' "$work/err"; ok $? "with the reason"
	attach --for 0.5 --sample-warps 4 -v "$pid" "$probe"; ok $? "one in the same part is not"
	grep -q 'sampled: one warp in 4 of early_fill' "$work/err"; ok $? "and says so"
	"$egpu" detach "$pid" > "$work/err" 2>&1; ok $? "both are detached"
	attach --for 0.4 "$pid" "$probe"; ok $? "then all warps again"
	exact; ok $? "counts are exact"
	attach -d --device 0 "$pid" "$probe"; ok $? "one stays"
	attach --for 0.3 "$pid" "$probe"; [ $? = 125 ]; ok $? "another on all devices is refused"
	grep -q 'other probes are attached .* another device' "$work/err"; ok $? "with the reason"
	"$egpu" list --for 0.3 "$pid" > "$work/err" 2>&1; ok $? "egpu list beside a probe"
	many=$pid target=$EGPU_BUILD/tests/dynamic/target_plain
	start streams opened 3
	"$egpu" list --for 0.4 --json="$work/many.json" "$pid" > "$work/err" 2>&1; ok $? "three threads with streams of their own"
	kernel fill 'my %s; my $n = 0; for (@{$k->{shapes}}) { $s{$_->{stream}}++; $n += $_->{launches} } keys %s == 3 && abs($n - $k->{launches}) < 10 && !$s{0}'
	ok $? "each stream has its launches, in all as many as there were"
	finish streams
	pid=$many
	"$egpu" detach "$pid" > "$work/err" 2>&1
	finish list
}

# A probe on one of two devices leaves the other alone.
part_devices() {
	if [ -n "$EGPU_DRIVER_DIR" ]; then
		visible=${CUDA_VISIBLE_DEVICES-$(nvidia-smi -L | sed 's/.*/,/' | tr -d '\n' | sed 's/,$//')}
		case $visible in *,*) ;; *) ok 0 "two devices # SKIP there is one"; return ;; esac
	fi
	export EGPU_SOFTGPU=devices=2
	start devices both 2
	unset EGPU_SOFTGPU
	for d in 0 1; do
		attach_for 0.4 --device $d --json="$work/json" "$pid" "$probe"; ok $? "two devices: attach --device $d"
		exact; ok $? "two devices: counts are exact"
		perl -MJSON::PP -e 'local $/; open F, $ARGV[0]; my $k = decode_json(<F>)->{kernels}[0];
			exit !($k->{launches_instrumented} < 0.8 * $k->{launches} && $k->{launches_instrumented} > 0)' "$work/json"
		ok $? "two devices: those of the other run unprobed"
	done
	attach_for 0.4 --json="$work/json" "$pid" "$probe"; ok $? "two devices: attach to both"
	exact; ok $? "two devices: counts of both are exact"
	perl -MJSON::PP -e 'local $/; open F, $ARGV[0]; my ($n, $all) = (0, 0); for my $k (@{decode_json(<F>)->{kernels}}) { $n += $k->{launches_instrumented}; $all += $k->{launches} }
		print "# $n of $all\n"; exit !($n > 0.6 * $all)' "$work/json"
	ok $? "two devices: the launches of both are probed"
	finish devices
}

# Ended as soon as it says that it is attached, it detaches and reports.
part_brief() {
	start brief linked
	mkfifo "$work/says"
	lost=0
	for i in $(seq 12); do
		"$egpu" attach --allow-empty -o "$work/report" "$pid" "$probe" 2> "$work/says" & controller=$!
		{ read -r line; kill -$([ $((i % 2)) = 0 ] && echo INT || echo TERM) $controller; cat > /dev/null; } < "$work/says"
		wait $controller || lost=$((lost + 1))
		[ -s "$work/report" ] || lost=$((lost + 1))
		rm -f "$work/report"
	done
	[ $lost = 0 ]; ok $? "brief: it was ended 12 times at once, and has reported each time"
	[ $lost = 0 ] || echo "# $lost times not"
	finish brief
}

# Two clients at once, and detach from outside.
part_two() {
	start two opened 3
	attach -d "$pid" "$probe"; ok $? "detached attach"
	"$egpu" link > "$work/err" 2>&1; [ "$(grep -c " $pid .* count " "$work/err")" = 1 ]
	ok $? "egpu link shows it"
	attach_for 0.5 "$pid" "$probe"; ok $? "a second probe beside it"
	whole; ok $? "counts its own launches, each whole"
	"$egpu" detach "$pid" > "$work/err" 2>&1; ok $? "egpu detach"
	"$egpu" link > "$work/err" 2>&1; ! grep -q " $pid " "$work/err"; ok $? "nothing is left attached"
	finish two
}

# Two commands at one moment: one brings the agent, the other finds it.
part_both() {
	start both opened 2
	"$egpu" attach --for 1 "$pid" "$probe" > "$work/first" 2>&1 & first=$!
	attach_for 1 "$pid" "$probe"; ok $? "two at one moment: the one"
	whole; ok $? "counts launches whole"
	wait $first; ok $? "two at one moment: the other"
	cp "$work/first" "$work/err"; whole; ok $? "counts launches whole"
	finish both
	"$egpu" gc > "$work/err" 2>&1; ok $? "egpu gc"
}

# Controllers that are killed at a step (EGPU_LONG=1: at each) leave the process unharmed, and the next attach works.
part_killed() { # STEPS
	for step in "$@"; do
		start "$step" linked
		EGPU_INJECT_DIE_AT=$step attach --for 0.3 "$pid" "$probe"
		attach_for 0.4 "$pid" "$probe"; status=$?
		[ $status = 0 ] && whole; ok $? "killed at '$step': the next attach counts launches whole"
		finish "$step"
	done
}

# An agent that came and found its session gone, as when the command that brought it was killed, is no obstacle for the next one.
part_stranded() {
	mkdir "$work/gone"
	ln -s "$EGPU_BUILD/src/agent/libegpu-agent.so" "$work/gone/libegpu-attach.so"
	ln -s "${driver%%:*}/libcuda.so.1" "$work/gone/libegpu-driver.so.1"
	export TARGET_LOADS="$work/gone/libegpu-attach.so" EGPU_AGENT_LOG="$work/stranded.log"
	start stranded opened
	unset TARGET_LOADS EGPU_AGENT_LOG
	grep -q 'no session' "$work/stranded.log"; ok $? "stranded: an agent without a session is there"
	for i in 1 2; do
		attach_for 0.4 "$pid" "$probe"; ok $? "stranded: attach $i"
		exact; ok $? "stranded: counts are exact"
	done
	finish stranded
}

# A kernel that takes long to compile keeps nobody's launches waiting meanwhile.
part_huge() {
	export TARGET_HUGE=20000 EGPU_AGENT_LOG="$work/huge.log" EGPU_CACHE=off
	start huge linked
	unset TARGET_HUGE EGPU_AGENT_LOG
	attach_for 1 "$pid" "$probe"; ok $? "huge: attach"
	exact_of 256 || grep -q 'threads = [1-9]' "$work/err"; ok $? "huge: launches are counted"
	# The longest time of the compilation in which no step came to its end.
	perl -e 'my ($log, $out) = @ARGV; my ($a, $b, $worst) = (0, 0, 0);
		open F, $log; while (<F>) { $a = $1 if /([0-9.]+)\] huge: PTX found/; $b = $1 if /([0-9.]+)\] huge built/ } close F;
		open F, $out; while (<F>) { next unless /gap from ([0-9.]+) to ([0-9.]+)/; my ($x, $y) = ($1 > $a ? $1 : $a, $2 < $b ? $2 : $b); $worst = $y - $x if $y - $x > $worst }
		printf "# compiled in %.0f ms, no step in at most %.0f ms of it\n", ($b - $a) * 1e3, $worst * 1e3;
		exit !($a && $b > $a && $worst < 0.5 * ($b - $a))' "$work/huge.log" "$work/huge.out"
	ok $? "huge: steps go on while it is compiled"
	finish huge
}

# PTX in caches of Triton's, which are asked before memory: what was loaded is told from other versions by the machine code beside it, and
# where it cannot be, memory has the answer.
part_cached() {
	ptx() { perl -0777 -ne 'print $1 if /(\.version 7\.0\n[^\0]*entry fill\([^\0]*)\0/' "$target"; }
	cubin() { # REGISTERS: machine code of `fill` as far as anybody looks at it
		perl -e 'my ($regs) = @ARGV; my $names = "\0.names\0.text.fill\0.symtab\0.strtab\0.nv.info\0"; my $strings = "\0fill\0";
			my @s = ($names, "\0" x 128, "\0" x 24 . pack("VCCvQQ", 1, 0x12, 0x10, 2, 0, 128), $strings, pack("VVV", 0x00082f04, 1, $regs));
			my @at = (1, 8, 19, 27, 35); my @type = (3, 1, 2, 3, 0x70000000); my @link = (0, 0, 4, 0, 3); my ($heads, $body) = ("\0" x 64, "");
			for (0 .. 4) { $heads .= pack("VVQQQQVVQQ", $at[$_], $type[$_], 0, 0, 64 + 6 * 64 + length $body, length $s[$_], $link[$_], 0, 1, 0); $body .= $s[$_] }
			print "\x7fELF\2\1\1\x33\7", "\0" x 7, pack("vvVQQQVvvvvvv", 2, 190, 1, 0, 0, 64, 0x50055a, 64, 0, 0, 64, 6, 1), $heads, $body' "$1"
	}
	cached() { # WHAT WHERE: the attach takes it from there, or from memory
		start cached opened
		attach_for 0.4 "$pid" "$probe"; ok $? "$1: attach"
		exact; ok $? "$1: counts are exact"
		if [ -n "$2" ]; then grep -q "fill: from .*$2" "$EGPU_AGENT_LOG"; else ! grep -q 'fill: from' "$EGPU_AGENT_LOG"; fi
		ok $? "$1: it is taken from ${2:-memory}"
		finish cached; rm -f "$EGPU_AGENT_LOG"
	}
	export EGPU_AGENT_LOG="$work/cached.log" TRITON_CACHE_DIR="$work/triton" TMPDIR="$work/tmp" EGPU_CACHE=off
	mkdir -p "$work/triton/A" "$work/triton/B" "$work/tmp/torchinductor_me/triton/0/A" "$work/ind/triton/1/A"
	ptx > "$work/triton/A/fill.ptx"
	cached "cached text" triton/A
	sed 's/add.u32/sub.u32/' "$work/triton/A/fill.ptx" > "$work/triton/B/fill.ptx"
	cached "two cached texts that nothing tells apart" ''
	cubin 200 > "$work/triton/B/fill.cubin"
	cached "two of which one is machine code of other registers" triton/A
	cp "$work/triton/B/fill.cubin" "$work/triton/A/"
	cached "two that both are" ''
	# More than there is time to look at, with the other version somewhere among it: machine code that tells nothing and takes long to read.
	truncate -s 64M "$work/triton/large"
	for i in $(seq 200); do mkdir "$work/triton/C$i" && ln "$work/triton/large" "$work/triton/C$i/fill.cubin" && ln "$work/triton/A/fill.ptx" "$work/triton/C$i/"; done
	rm "$work/triton/B/fill.cubin"
	cached "a part of a large cache" ''
	rm -r "$work/triton"
	ptx > "$work/tmp/torchinductor_me/triton/0/A/fill.ptx"
	cached "Inductor's own place" torchinductor_me/triton/0/A
	ptx > "$work/ind/triton/1/A/fill.ptx"
	export TORCHINDUCTOR_CACHE_DIR="$work/ind"
	cached "the place that it was told" ind/triton/1/A
	unset TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR EGPU_AGENT_LOG TMPDIR
}

# Two PTX texts of a kernel's name: the one that was loaded is probed, or none where nothing tells. A wrong one would give wrong results.
part_twins() {
	target=$EGPU_BUILD/tests/dynamic/target_twins
	export EGPU_AGENT_LOG="$work/twins.log" EGPU_CACHE=off
	for what in params bounds shared registers comments linked broken both; do
		start $what $what
		attach_for 0.2 "$pid" "$probe"; ok $? "twins, $what: attach"
		exact && ! grep -q 'refused:' "$work/err"; ok $? "twins, $what: the loaded text is probed, counts are exact"
		finish $what
	done
	# NVIDIA's driver keeps the machine code that it has loaded: there that tells.
	for what in kept alone foreign; do
		start $what $what
		attach --for 0.2 --allow-empty "$pid" "$probe"; ok $? "twins, $what: attach"
		if [ -n "${EGPU_DRIVER_DIR:-}" ] && ! grep -q 'refused:' "$work/err"; then
			exact; ok $? "twins, $what: the loaded text is probed, counts are exact"
		else
			grep -q 'refused: twin: several PTX texts' "$work/err"; ok $? "twins, $what: refused with the reason"
		fi
		finish $what
	done
	unset EGPU_AGENT_LOG
}

# One kernel in two contexts, where the second begins later: each handle is found where it belongs.
part_contexts() {
	target=$EGPU_BUILD/tests/dynamic/target_twins
	start contexts contexts
	"$egpu" attach --json="$work/many.json" "$pid" "$probe" > "$work/err" 2>&1 & attacher=$!
	for _ in $(seq 200); do "$egpu" link 2> /dev/null | grep -q " $pid  *1  *1 " && break; sleep 0.02; done
	kill -USR1 "$pid"; sleep 1.5; kill -INT $attacher
	wait $attacher; ok $? "contexts: attach"
	exact; ok $? "contexts: counts are exact"
	kernel twin '$k->{launches} > 100 && $k->{launches_instrumented} > 0.7 * $k->{launches} or print "# $k->{launches_instrumented} of $k->{launches}\n" and undef'
	ok $? "contexts: launches in both are probed, those of a graph among them"
	! grep -q 'CUDA graph' "$work/err"; ok $? "contexts: the graph goes on being probed"
	finish contexts
}

# A graph that ran unprobed in one attach, and is probed in the next, is none of its report.
part_graph() {
	target=$EGPU_BUILD/tests/dynamic/target_twins
	start graph graph
	attach_for 0.4 "$pid" "$probe"; ok $? "graph: attach"
	grep -q 'refused: CUDA graph 1' "$work/err"; ok $? "graph: one from before is told of"
	attach -d "$pid" "$probe"; ok $? "graph: attach -d"
	for _ in $(seq 200); do "$egpu" link 2> /dev/null | grep -q " $pid  *1  *1 " && break; sleep 0.02; done
	kill -USR1 "$pid"; sleep 0.2
	attach_for 0.4 "$pid" "$probe"; ok $? "graph: attach after an update"
	whole; ok $? "graph: counts are whole"
	! grep -q 'CUDA graph' "$work/err"; ok $? "graph: it is probed, and not told of"
	"$egpu" detach "$pid" > "$work/err" 2>&1
	finish graph
}

# A program that egpu run has started, with sessions in another place than ours.
part_elsewhere() {
	[ -z "$EGPU_DRIVER_DIR" ] || return
	mkdir "$work/elsewhere"
	EGPU_DIR=$work/elsewhere "$egpu" run --softgpu -o "$work/report" "$probe" -- "$target" linked > "$work/elsewhere.out" 2>&1 & runner=$!
	for _ in $(seq 400); do grep -qs running "$work/elsewhere.out" && break; sleep 0.02; done
	pid=$(cat /proc/$runner/task/$runner/children); pid=${pid%% *}
	attach_for 0.4 "$pid" "$probe"; ok $? "elsewhere: attach to what egpu run has started"
	whole; ok $? "elsewhere: counts launches whole"
	"$egpu" attach "$pid" "$probe" > "$work/err" 2>&1 & attached=$!
	for _ in $(seq 400); do "$egpu" link 2> /dev/null | grep -q "$attached" && break; sleep 0.02; done
	sleep 0.2
	kill -TERM "$pid"; wait $runner; ok $? "elsewhere: it ended well"
	wait $attached; ok $? "elsewhere: an attach that was still there reports"
	whole; ok $? "elsewhere: and has what was counted to the end, though egpu run has ended first"
	[ -z "$(ls "$work/elsewhere")" ]; ok $? "elsewhere: no session is left"
	grep -q 'wrong 0' "$work/elsewhere.out"; ok $? "elsewhere: every step's results were right"
}

# Root attaches to a process of another user, where that user has attached before.
part_other() {
	[ "$(id -u)" = 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$egpu" -a -r "$probe" 2> /dev/null || return
	chmod 711 "$all"; chmod 777 "$work" "$EGPU_DIR"
	as="setpriv --reuid=65534 --regid=65534 --clear-groups"
	LD_LIBRARY_PATH=$driver EGPU_SOFTGPU_QUIET=1 $as "$target" linked > "$work/other_user.out" 2>&1 & pid=$!
	echo $pid > "$work/other_user.pid"
	for _ in $(seq 400); do grep -qs running "$work/other_user.out" && break; sleep 0.02; done
	EGPU_CACHE=off $as "$egpu" attach --for 1 "$pid" "$probe" > "$work/err" 2>&1; ok $? "another user: attaches to its own process"
	exact; ok $? "another user: counts are exact"
	attach_for 0.3 "$pid" "$probe"; ok $? "another user: root attaches too"
	exact; ok $? "another user: its counts are exact"
	finish other_user
}

parts=
part() { # NAME FUNCTION ARGS...
	name=$1; shift
	parts="$parts $name"
	(
		tmp=$all/$name work=$all/$name EGPU_DIR=$all/$name/shm
		mkdir -p "$EGPU_DIR"
		trap 'kill $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null' EXIT
		"$@" > "$work/tap" 2>&1
		echo "$test_count" > "$work/done"
	) &
}
part linked part_again linked
part opened part_again opened
part updated part_again updated
part begun part_begun
part runtime part_runtime
part many part_many
part asked part_asked
part list part_list
part devices part_devices
part two part_two
part brief part_brief
part both part_both
if [ -n "$EGPU_LONG" ]; then
	for step in seized stopped framed set running returned skipped restored done; do part killed_$step part_killed $step; done
else
	part killed part_killed stopped set
	part killed_late part_killed returned skipped
fi
part stranded part_stranded
part cached part_cached
part twins part_twins
part contexts part_contexts
part graph part_graph
part elsewhere part_elsewhere
part other part_other
part huge part_huge
wait
for name in $parts; do
	[ -s "$all/$name/done" ] || echo "not ok 0 - $name came to its end"
	cat "$all/$name/tap"
done > "$all/tap" 2> /dev/null
awk '/^(not )?ok [0-9]+/ { n++; sub(/ok [0-9]+/, "ok " n) } { print } END { print "1.." n }' "$all/tap"
! grep -q '^not ok' "$all/tap"
