# What the tests of loaders share: . it with loader set to the loader's name. Sets target, preload; start sets egpu_pid and pid.
. "$(dirname "$0")/../cli/lib.sh"
loader=$EGPU_BUILD/tests/loader/$loader
target=$EGPU_BUILD/tests/dynamic/target_plain
preload=$EGPU_BUILD/src/syscall/libegpu-syscall.so
if [ ! -x "$loader" ] || ! ldd "$loader" | grep -q 'libbpf.so.*=> /'; then
	echo "1..0 # SKIP no shared libbpf"
	exit 0
fi
trap 'kill $egpu_pid $loader_pid 2> /dev/null; rm -rf "$tmp"' EXIT
cat > "$tmp/none.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 x;
SEC("gpu/entry/none_of_them") int none(struct egpu_entry *ctx) { x++; return 0; }
C

start() { # a program in a session, which a probe that matches nothing has made
	"$egpu" run --softgpu --allow-empty -o "$tmp/report" "$tmp/none.bpf.c" -- "$target" linked > "$tmp/target" 2>&1 &
	egpu_pid=$!
	for _ in $(seq 200); do grep -qs running "$tmp/target" && break; sleep 0.02; done
	pid=
	for _ in $(seq 200); do
		pid=$("$egpu" ps 2> /dev/null | sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p' | head -1)
		[ -n "$pid" ] && break
		sleep 0.02
	done
}

stop() {
	kill -TERM $egpu_pid
	wait $egpu_pid
	ok $? "$1: the program ends well"
	grep -q 'wrong 0' "$tmp/target"
	ok $? "$1: its results were right"
}
