#!/bin/bash
# What `egpu attach` has to refuse: each with the reason and status 125, and the process goes on as it was.
. "$(dirname "$0")/../cli/lib.sh"
target=$EGPU_BUILD/tests/dynamic/target_plain
odd=$EGPU_BUILD/tests/dynamic/target_odd
probe=$EGPU_BUILD/tests/dynamic/count.bpf.o
all=$tmp
trap 'kill -9 $(cat "$all"/*/*.pid 2>/dev/null) 2>/dev/null; rm -rf "$all"' EXIT
export ASAN_OPTIONS=detect_leaks=0
[ -n "$EGPU_SANITIZED" ] && { echo "1..0 # SKIP a sanitized agent cannot come into a program that is not"; exit 0; }

# A program that computes on a device, started without egpu.
start() { # NAME ARGS...
	name=$1; shift
	LD_LIBRARY_PATH=${EGPU_DRIVER_DIR:-$EGPU_BUILD/src/softgpu} EGPU_SOFTGPU_QUIET=1 "$target" "$@" > "$work/$name.out" 2>&1 &
	pid=$!
	echo $pid > "$work/$name.pid"
	for _ in $(seq 400); do grep -qs running "$work/$name.out" && break; sleep 0.02; done
}
finish_target() { # NAME
	kill -TERM "$pid"; wait "$pid"; is $? 0 "$1: the program ended well"
	grep -q 'wrong 0' "$work/$1.out"; ok $? "$1: every step's results were right"
	rm -f "$work/$1.pid"
}
# A program of another kind in the background, its input open; $number is what it says of itself.
begin() { # NAME PROGRAM ARGS...
	name=$1; shift
	mkfifo "$work/$name.in"
	"$@" > "$work/$name.out" 2>&1 < "$work/$name.in" & pid=$!
	exec 9> "$work/$name.in"
	echo $pid > "$work/$name.pid"
	for _ in $(seq 200); do grep -qs 'running\|cannot' "$work/$name.out" && break; sleep 0.02; done
	number=$(sed -n 's/^running //p' "$work/$name.out")
}
end() { # WHAT: it goes on until its input ends, and ends as it should
	exec 9>&-; wait "$pid" 2> /dev/null
	is $? 0 "$1: it went on and ended well"
	rm -f "$work"/*.pid
}
look() { # PID: what must not change
	sed -n 's/^\(State\|TracerPid\):[[:space:]]*\([^[:space:]]*\).*/\1 \2/p' "/proc/$1/status" 2> /dev/null
	grep -c 'egpu-a' "/proc/$1/maps" 2> /dev/null
}
# A thread may be awake at one look and asleep at the next.
same() { [ "$(echo "$1" | sed 's/State [RSDt]/State -/')" = "$(echo "$2" | sed 's/State [RSDt]/State -/')" ]; }
refused() { # WHAT PATTERN PID
	before=$(look "$3")
	$as "$egpu" attach "$3" "$probe" > "$work/err" 2>&1
	[ $? = 125 ]; ok $? "$1 is refused"
	grep -q "$2" "$work/err"; ok $? "$1: with the reason"
	after=$(look "$3")
	same "$before" "$after"; ok $? "$1: it is as it was"
	same "$before" "$after" || echo "# $before / $after"
}
driver_file=$all/libcuda.so.1
for f in "$all/ld-musl-x86_64.so.1" "$driver_file"; do head -c 4096 /dev/zero > "$f"; done

part_numbers() {
	refused "no such process" "no process 999999999\|not the number" 999999999
	refused "what is no number" "not the number" abc
	refused "number 0" "not the number" 0
}

part_stopped() {
	sleep 60 & other=$!; echo $other > "$work/sleep.pid"
	refused "a process without CUDA" "not a CUDA process" $other
	kill -STOP $other; for _ in $(seq 100); do grep -q 'State:.T' /proc/$other/status && break; sleep 0.01; done
	refused "a stopped process" "is stopped" $other
	kill -CONT $other; kill $other; rm "$work/sleep.pid"

	start stopped opened 2
	kill -STOP "$pid"; for _ in $(seq 100); do grep -q 'State:.T' "/proc/$pid/status" && break; sleep 0.01; done
	refused "a stopped CUDA program" "is stopped" "$pid"
	kill -CONT "$pid"; finish_target stopped
}

part_sealed() {
	for how in sealed unmapped; do
		start $how opened 1 $how
		if grep -q 'no seccomp' "$work/$how.out"; then kill "$pid"; continue; fi
		refused "$how: a process whose seccomp filter forbids it" seccomp "$pid"
		finish_target $how
	done
}

part_others() {
	begin musl "$odd" map "$all/ld-musl-x86_64.so.1" "$driver_file"
	refused "a program with musl" "C library musl" "$pid"
	end "a program with musl"
	if [ -x "${odd}_static" ]; then
		begin static "${odd}_static" map "$driver_file"
		refused "a static program" "static program" "$pid"
		end "a static program"
	fi
	begin strict "$odd" strict "$driver_file"
	refused "a process in strict seccomp mode" "strict seccomp mode" "$pid"
	exec 9>&-; wait "$pid" 2> /dev/null; rm -f "$work/strict.pid"

	# A program for 32-bit x86 that waits, where the kernel runs such.
	perl -e 'print "\x7fELF\1\1\1", "\0" x 9, pack("vvVVVVVvvvvvv", 2, 3, 1, 0x8048054, 52, 0, 0, 52, 32, 1, 40, 0, 0),
		pack("VVVVVVVV", 1, 0, 0x8048000, 0x8048000, 0x60, 0x60, 5, 0x1000), "\x6a\x1d\x58\xcd\x80\xeb\xf9", "\0" x 5' > "$work/other"
	chmod +x "$work/other"
	"$work/other" 2> /dev/null & pid=$!; echo $pid > "$work/other.pid"; sleep 0.1
	if kill -0 "$pid" 2> /dev/null && [ "$(head -c 5 /proc/$pid/exe | tail -c 1 | od -An -tu1 | tr -d ' ')" = 1 ]; then
		refused "a program of another machine" "code of another machine" "$pid"
	fi
	kill -9 "$pid" 2> /dev/null; wait "$pid" 2> /dev/null; rm -f "$work/other.pid"

}

# Numbers that are no process's, or those of one that is not there yet or not any more.
part_beginning() {
	begin thread "$odd" thread "$driver_file"
	refused "a thread's number" "is a thread of process $pid: give that number" "$number"
	end "a thread's number"
	begin zombie "$odd" zombie "$driver_file"
	refused "a process that has ended" "has ended" "$number"
	end "a process that has ended"
	kernel=$(awk '/^PPid:[[:space:]]*2$/ { sub("/proc/", "", FILENAME); sub("/status", "", FILENAME); print FILENAME; exit }' /proc/[0-9]*/status 2> /dev/null)
	[ -z "$kernel" ] || refused "a thread of the kernel" "a thread of the kernel" "$kernel"
	begin vfork "$odd" vfork "$driver_file"
	child=$(cat /proc/$pid/task/$pid/children); child=${child%% *}
	refused "a process that is about to begin a program" "in the memory of process $pid" "$child"
	refused "who waits for it" "no thread of process $pid\|is about" "$pid"
	end "a process that is about to begin a program"
}

# One that begins a program again all the time: whatever is said of it, it goes on.
part_again() {
	begin exec "$odd" exec "$driver_file"
	harmed=0
	for i in $(seq $([ -n "$EGPU_LONG" ] && echo 200 || echo 10)); do
		timeout 0.4 "$egpu" attach --for 0.05 "$pid" "$probe" > "$work/err" 2>&1
		case $? in 124 | 125) kill -0 "$pid" || harmed=1 ;; *) harmed=1 ;; esac
	done
	ok $harmed "a process that begins programs all the time: refused, or given up, each time"
	end "a process that begins programs all the time"
	says=$(cat "$work/exec.out"); times=${says##*begun }; times=${times% times*}
	[ "${times:-0}" -gt 50 ]; ok $? "it began $times in the meantime"
}

part_traced() {
	start traced opened 1; target_pid=$pid
	begin tracer "$odd" trace "$target_pid"; tracer=$pid
	if grep -q running "$work/tracer.out"; then
		refused "a traced process" "is traced by process $tracer (target_odd)" "$target_pid"
	fi
	kill "$tracer"; exec 9>&-; wait "$tracer" 2> /dev/null; rm -f "$work/tracer.pid"
	for by in strace gdb; do
		command -v $by > /dev/null || continue
		if [ $by = strace ]; then
			strace -f -o /dev/null -p "$target_pid" > "$work/by" 2>&1 & tracer=$!
		else
			mkfifo "$work/gdb.in"
			gdb -nx -q -batch -ex 'set confirm off' -ex "attach $target_pid" -ex 'continue' > "$work/by" 2>&1 < "$work/gdb.in" & tracer=$!
			exec 9> "$work/gdb.in"
		fi
		echo $tracer > "$work/by.pid"
		for _ in $(seq 400); do grep -q "^TracerPid:.$tracer$" "/proc/$target_pid/status" && grep -q '^State:.[SR]' "/proc/$target_pid/status" && break; sleep 0.02; done
		refused "a process under $by" "is traced by process $tracer ($by)" "$target_pid"
		[ $by = strace ] && kill "$tracer" || kill -INT "$tracer"
		exec 9>&-; wait "$tracer" 2> /dev/null; rm -f "$work/by.pid"
		grep -q '^TracerPid:.0$' "/proc/$target_pid/status" || kill -9 "$tracer" 2> /dev/null
	done
	kill -CONT "$target_pid"
	pid=$target_pid
	timeout 20 "$egpu" attach --for 0.5 "$pid" "$probe" > "$work/err" 2>&1; ok $? "when they are gone, it is attached to"
	finish_target traced
}

# Files that are not there any more, and room that it does not have.
part_replaced() {
	cp "$driver_file" "$work/libcuda.so.2"
	begin replaced "$odd" map "$work/libcuda.so.2"
	rm "$work/libcuda.so.2"
	refused "a process whose driver has been replaced" "libcuda.so.2 has been replaced" "$pid"
	end "a process whose driver has been replaced"
}
part_full() {
	start full opened 1
	if prlimit --pid "$pid" --nofile=3: 2> /dev/null; then
		refused "a process that can open no file" "did not load the agent: it goes on unchanged.*RLIMIT_NOFILE.*prlimit" "$pid"
		prlimit --pid "$pid" --nofile=1024:
		timeout 20 "$egpu" attach --for 0.5 "$pid" "$probe" > "$work/err" 2>&1; ok $? "with room again, it is attached to"
	fi
	finish_target full
}

# Whom it does not belong to.
part_foreign() {
	as="setpriv --reuid=65534 --regid=65534 --clear-groups"
	if [ "$(id -u)" = 0 ] && chmod 711 "$all" && $as test -x "$egpu" -a -r "$probe" 2> /dev/null; then
		mkdir -m 777 "$work/theirs"
		export EGPU_DIR="$work/theirs"
		start root opened 1
		refused "another user's process" "belongs to somebody else\|may not be traced" "$pid"
		finish_target root
		# One that acts as another user since it started is that user's, as a set-uid program is; root may attach to it.
		export TARGET_BECOMES=65534
		start became opened 1
		unset TARGET_BECOMES
		refused "a process that acts as us, and is root's" "belongs to somebody else\|may not be" "$pid"
		as=
		timeout 20 "$egpu" attach --for 0.5 "$pid" "$probe" > "$work/err" 2>&1; ok $? "root attaches to it"
		launches=$(sed -n 's/^coverage: .* probed, \([0-9]*\) of [0-9]* launch.*/\1/p' "$work/err")
		is "$(sed -n 's/^ *threads = \([0-9]*\)$/\1/p' "$work/err")" $((launches * 256)) "its counts are exact"
		finish_target became
	fi
}

# One in another root directory (chroot) is attached to there; one that has gone there since cannot be. Mounts of ours alone.
part_rooted() {
	[ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null && [ -z "$EGPU_DRIVER_DIR" ] || return
	export -f start finish_target refused look same ok is
	export work egpu target probe EGPU_BUILD test_count
	unshare -m bash -c '
		root=$work/root as=
		mkdir -p "$root"/{usr,dev,proc,tmp,gpu,bin}
		for d in lib lib64; do [ -L /$d ] && cp -P /$d "$root/" || { mkdir "$root/$d"; mount --bind /$d "$root/$d"; }; done
		mount --bind /usr "$root/usr" && mount --bind /dev "$root/dev" && mount -t proc proc "$root/proc" && mount --bind "$EGPU_BUILD/src/softgpu" "$root/gpu" || exit 0
		cp "$target" "$root/bin/"
		chroot "$root" env LD_LIBRARY_PATH=/gpu EGPU_SOFTGPU_QUIET=1 /bin/target_plain opened 1 > "$work/rooted.out" 2>&1 & pid=$!
		echo $pid > "$work/rooted.pid"
		for _ in $(seq 400); do grep -qs running "$work/rooted.out" && break; sleep 0.02; done
		timeout 20 "$egpu" attach --for 0.5 "$pid" "$probe" > "$work/err" 2>&1; ok $? "in another root directory: it is attached to"
		launches=$(sed -n "s/^coverage: .* probed, \([0-9]*\) of [0-9]* launch.*/\1/p" "$work/err")
		is "$(sed -n "s/^ *threads = \([0-9]*\)$/\1/p" "$work/err")" $((launches * 256)) "in another root directory: counts are exact"
		finish_target rooted
		export TARGET_ROOT=$root
		start moved opened 1
		refused "a process that has changed its root directory" "has changed its root directory (chroot) since it loaded" "$pid"
		finish_target moved'
}
# A driver in a directory whose name has a space and a line'"'"'s end.
part_named() {
	odd_name="$work/a driver"$'\n'"here"
	mkdir "$odd_name"; ln "${EGPU_DRIVER_DIR:-$EGPU_BUILD/src/softgpu}/libcuda.so.1" "$odd_name/" 2> /dev/null || cp "$EGPU_BUILD/src/softgpu/libcuda.so.1" "$odd_name/"
	EGPU_DRIVER_DIR=$odd_name; start named linked 1
	timeout 20 "$egpu" attach --for 0.5 "$pid" "$probe" > "$work/err" 2>&1; ok $? "a driver in a directory of an odd name: it is attached to"
	finish_target named
}
# Its first thread has ended.
part_headless() {
	begin headless "$odd" headless "$driver_file"
	refused "a process whose first thread has ended" "the first thread of process $pid has ended" "$pid"
	end "a process whose first thread has ended"
}

parts=
part() { # NAME FUNCTION ARGS...: beside the others
	name=$1; shift
	parts="$parts $name"
	(
		work=$all/$name EGPU_DIR=$all/$name/shm tmp=$all/$name as=
		mkdir -p "$EGPU_DIR"
		trap 'kill -9 $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null' EXIT
		"$@" > "$work/tap" 2>&1
		touch "$work/done"
	) &
}
for name in rooted named headless full numbers stopped sealed others beginning again traced replaced foreign; do part $name part_$name; done
wait
for name in $parts; do
	[ -e "$all/$name/done" ] || echo "not ok 0 - $name came to its end"
	cat "$all/$name/tap"
done > "$all/tap" 2> /dev/null
awk '/^(not )?ok [0-9]+/ { n++; sub(/ok [0-9]+/, "ok " n) } { print } END { print "1.." n }' "$all/tap"
! grep -q '^not ok' "$all/tap"
