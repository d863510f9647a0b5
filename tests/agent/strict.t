#!/bin/sh
# No call of the agent fails: checkers such as compute-sanitizer report those that do, and a program may ask for the last error.
# Programs run under a probe with strict.c behind the agent, which writes down what fails, and beside that without egpu.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
programs=$EGPU_BUILD/tests/programs
strict=$EGPU_BUILD/tests/agent/libegpu-strict.so
[ -x "$programs/reduction" ] || skip_all "this build has no programs (sanitizers)"

mkdir "$tmp/driver"
ln -s "$strict" "$tmp/driver/libcuda.so.1"
ln -s "$EGPU_BUILD/src/softgpu/libcuda.so.1" "$tmp/driver/libegpu-shim-target.so.1"
for v in 12 13; do
	[ -e "$EGPU_BUILD/src/softgpu/libcudart.so.$v" ] && ln -s "$EGPU_BUILD/src/softgpu/libcudart.so.$v" "$tmp/driver/"
done
STRICT_SELF=$tmp/driver/libcuda.so.1
export STRICT_SELF

fails() { # fails LOG COMMAND...: what fails in it
	STRICT_LOG=$tmp/$1.log
	export STRICT_LOG
	shift
	rm -f "$STRICT_LOG"
	LD_LIBRARY_PATH=$tmp/driver run "$@"
	sort -u "$STRICT_LOG" 2>/dev/null
}

# The log works: this asks for a device that is not there.
cat >"$tmp/bad.c" <<'C'
#include <dlfcn.h>
int main(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit"), device, (*get)(int *, int) = (int (*)(int *, int))dlsym(lib, "cuDeviceGet");
	return init(0) || !get(&device, 1234);
}
C
cc -o "$tmp/bad" "$tmp/bad.c" -ldl
is "$(fails bad "$tmp/bad" | awk '{ print $1 }')" cuDeviceGet "a call that fails is written down"

# A kernel of the program's faults: nothing is asked of the device any more but what the program asks.
cat >"$tmp/faulty.c" <<'C'
#define EGPU_CUDA_NO_ALIASES
#include "egpu/cuda.h"
#include <unistd.h>
static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry poke(.param .u64 at)\n{\n\t.reg .b64 %rd<2>;\n"
	"\tld.param.u64 %rd1, [at];\n\tst.global.u32 [%rd1], 7;\n\tret;\n}\n";
int main(void)
{
	CUdevice dev; CUcontext ctx; CUmodule mod; CUfunction f; CUdeviceptr at;
	if (cuInit(0) || cuDeviceGet(&dev, 0) || cuDevicePrimaryCtxRetain(&ctx, dev) || cuCtxSetCurrent(ctx) || cuModuleLoadData(&mod, ptx) ||
		cuModuleGetFunction(&f, mod, "poke") || cuMemAlloc_v2(&at, 4))
		return 1;
	void *params[] = { &at };
	for (int i = 0; i < 3; i++, at += (CUdeviceptr)(i == 1) << 40)
		if (cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, params, 0) && i < 2) /* the last may tell of it by itself */
			return 2;
	if (cuCtxSynchronize() != CUDA_ERROR_ILLEGAL_ADDRESS)
		return 3;
	usleep(200000); /* what others had begun to ask before ends */
	return cuDeviceGet(&dev, 1234) ? 0 : 4;
}
C
cc -I"$EGPU_SOURCE/include" -o "$tmp/faulty" "$tmp/faulty.c" -L"$tmp/driver" -l:libcuda.so.1 -Wl,-rpath-link,"$tmp/driver"
is "$(fails plain "$tmp/faulty" | grep -v '^cuLaunchKernel' | tr '\n' ' ')" "cuCtxSynchronize 700 cuDeviceGet 101 " "a fault: the program sees it"
is "$(fails probed "$egpu" run --gpu -o "$tmp/report" memtrace -- "$tmp/faulty" | grep -cE "cuCtxSynchronize 700|cuDeviceGet 101")" 2 "a fault, under memtrace: it sees the same"
is "$(sed '1,/^cuDeviceGet 101/d' "$tmp/probed.log")" "" "and nothing more is asked of the device, to the end of the process"

try() { # try NAME PROBE [OPTION]...
	name=$1 probe=$2
	shift 2
	[ -x "$programs/$name" ] || { skip "not built" "$name"; return; }
	plain=$(fails plain "$programs/$name")
	probed=$(fails probed "$egpu" run --gpu "$@" -o "$tmp/report" "$probe" -- "$programs/$name")
	is "$probed" "$plain" "$name under $probe${1:+ $*}: the driver refuses nothing more"
	grep -Eq '^coverage: .*[1-9][0-9,]* of [0-9,]+ launch' "$tmp/report"
	ok $? "$name: there were probes in it"
}

for name in reduction managed graphs streams multidevice heap nvcc-symbols nvcc-cooperative nvcc-texture nvcc-perthread; do
	try $name memtrace
done
# A graph that egpu leaves alone: it cannot be cloned.
plain=$(fails plain "$programs/nvcc-conditional" 2>/dev/null)
is "$(fails probed "$egpu" run --gpu --allow-empty -o "$tmp/report" memtrace -- "$programs/nvcc-conditional")" "$plain" "conditional nodes: nothing is tried"
[ ! -x "$programs/nvcc-conditional" ] || grep -q 'refused: CUDA graph 1: it has conditional nodes' "$tmp/report"
ok $? "conditional nodes: the graph is told of by its number, with the reason"
# On a file system in memory maps are pinned.
mkdir -p "/dev/shm/egpu-strict-$$" && EGPU_DIR=/dev/shm/egpu-strict-$$ && try reduction memtrace
rm -rf "/dev/shm/egpu-strict-$$"

EGPU_DIR=$tmp/shm
# Into a program that runs: what a handle of it is, is asked once. Copies, since the driver is found by the name of its file.
mkdir "$tmp/copies"
cp "$strict" "$tmp/copies/libcuda.so.1"
cp "$EGPU_BUILD/src/softgpu/libcuda.so.1" "$tmp/copies/libegpu-shim-target.so.1"
STRICT_SELF=$tmp/copies/libcuda.so.1
for target in target_plain target_runtime; do
	dynamic=$EGPU_BUILD/tests/dynamic
	[ -x "$dynamic/$target" ] || { skip "not built" "attach to $target"; continue; }
	STRICT_LOG=$tmp/attach.log
	export STRICT_LOG
	rm -f "$STRICT_LOG"
	LD_LIBRARY_PATH=$tmp/copies:$tmp/driver EGPU_SOFTGPU_QUIET=1 "$dynamic/$target" opened >"$tmp/out" 2>&1 &
	pid=$!
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do grep -qs running "$tmp/out" && break; sleep 0.1; done
	"$egpu" attach --for 1 $pid "$dynamic/count.bpf.o" >"$tmp/err" 2>&1
	ok $? "attach to $target"
	kill -TERM $pid
	wait $pid
	# A handle of a module is not known as one before somebody has asked.
	is "$(sort "$STRICT_LOG" 2>/dev/null | uniq -c | grep -v ' 1 cuKernelGetLibrary 400$')" "" "$target: the driver refuses nothing else"
done
finish
