#!/bin/sh
# Attach by process number beside a kernel that was running before and never ends: other kernels are found, listed and given their reason, and
# what is detached goes at once. Once the kernel has ended they are probed.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
. "$EGPU_SOURCE/tests/cli/lib.sh"
[ "$EGPU_SANITIZED" ] && skip_all "the agent cannot be brought into a sanitized process"
cat > "$tmp/probe.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 threads;
SEC("gpu/entry") int enter(struct egpu_entry *ctx) { threads++; return 0; }
char LICENSE[] SEC("license") = "Apache-2.0";
C
cat > "$tmp/before.ptx" <<'P'
.version 7.0
.target sm_75
.address_size 64
.visible .entry forever(.param .u64 stop)
{
	.reg .pred %p;
	.reg .b32 %r1;
	.reg .b64 %rd1;
	ld.param.u64 %rd1, [stop];
$again:
	nanosleep.u32 1000;
	ld.volatile.global.u32 %r1, [%rd1];
	setp.eq.u32 %p, %r1, 0;
	@%p bra $again;
	ret;
}
.visible .entry brief(.param .u64 at)
{
	.reg .b64 %rd1;
	ld.param.u64 %rd1, [at];
	st.global.u32 [%rd1+4], 7;
	ret;
}
P
cat > "$tmp/before.c" <<'C'
#include "common.h"
#include <signal.h>
static volatile sig_atomic_t told;
static void tell(int sig) { (void)sig; told = 1; }
int main(int argc, char **argv)
{
	static char text[4096];
	FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
	if (!f || !fread(text, 1, sizeof(text) - 1, f))
		die("no PTX");
	fclose(f);
	signal(SIGUSR1, tell);
	CUdevice dev = open_device();
	CUmodule module = load_module(text);
	CUfunction forever = get_kernel(module, "forever"), brief = get_kernel(module, "brief");
	CUstream a, b;
	CUdeviceptr at;
	volatile int *stop;
	CHECK(StreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CHECK(StreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CHECK(MemHostAlloc((void **)&stop, 8, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(MemHostGetDevicePointer(&at, (void *)stop, 0));
	*stop = 0;
	void *params[] = { &at };
	CHECK(LaunchKernel(forever, 1, 1, 1, 32, 1, 1, 0, a, params, NULL));
	puts("running");
	fflush(stdout);
	for (int i = 0; i < 20000; i++) { /* it is killed long before, however slow the machine is */
		CHECK(LaunchKernel(brief, 1, 1, 1, 32, 1, 1, 0, b, params, NULL));
		CHECK(StreamSynchronize(b));
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
		*stop |= told;
	}
	*stop = 1;
	CHECK(StreamSynchronize(a));
	close_device(module, dev);
	return 0;
}
C
cc -O1 -D_GNU_SOURCE -I"$EGPU_SOURCE/samples" -I"$EGPU_SOURCE/include" -o "$tmp/before" "$tmp/before.c" -ldl || skip_all "no compiler"
LD_LIBRARY_PATH=$EGPU_BUILD/src/softgpu "$tmp/before" "$tmp/before.ptx" >"$tmp/target" 2>&1 &
pid=$!
for i in $(seq 200); do
	[ -s "$tmp/target" ] && break
	sleep 0.02
done
run "$egpu" list --for 600ms --json="$tmp/json" "$pid"
is $status 0 "a process with a kernel that does not end can be looked at"
says "what it launches beside is listed, with its PTX" '[0-9] +<<<1, 32>>> +PTX text +brief$'
run "$egpu" attach --for 600ms --allow-empty -k brief --json="$tmp/json" "$pid" "$tmp/probe.bpf.c"
is "$status $(json "$tmp/json" 'my ($k) = grep { $_->{name} eq "brief" } @{$j->{kernels}}; $k->{state}, $k->{reason}, $k->{launches} > 10 ? 1 : 0, $k->{launches_instrumented}')" \
	"0 pending work that was given before the attach has not ended 1 0" "it waits, for a reason that is the right one"
"$egpu" attach --allow-empty -k brief "$pid" "$tmp/probe.bpf.c" >"$tmp/killed" 2>&1 &
killed=$!
for i in $(seq 100); do
	grep -q 'attached to process' "$tmp/killed" && break
	sleep 0.02
done
kill -9 $killed
wait $killed 2>/dev/null
for i in $(seq 100); do
	[ "$("$egpu" ps 2>/dev/null | awk -v p="$pid" '$1 == p { print $3 }')" = 1 ] || break
	sleep 0.05
done
is "$("$egpu" ps 2>/dev/null | awk -v p="$pid" '$1 == p { print $3 }')" 0 "what a killed command had attached goes meanwhile"
kill -USR1 $pid
run "$egpu" attach --for 600ms -k brief --json="$tmp/json" "$pid" "$tmp/probe.bpf.c"
is "$status $(json "$tmp/json" 'my ($k) = grep { $_->{name} eq "brief" } @{$j->{kernels}}; $k->{state}, $j->{maps}{".bss"}{variables}{threads} == 32 * $k->{launches_instrumented} ? 1 : 0, $k->{launches_instrumented} > 10 ? 1 : 0')" \
	"0 instrumented 1 1" "once the kernel has ended it is probed"
kill $pid
wait $pid 2>/dev/null
finish
