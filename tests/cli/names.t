#!/bin/sh
# Every name under which programs find the driver leads to the agent: libcuda.so.1 and the development name libcuda.so.
. "$(dirname "$0")/lib.sh"
command -v cc >/dev/null || skip_all "no C compiler"

cat >"$tmp/names.c" <<'C'
#include <dlfcn.h>
#include <egpu/cuda.h>
#include <stdio.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
	static const char ptx[] = ".version 6.3\n.target sm_70\n.address_size 64\n"
				  ".visible .entry nothing() { ret; }\n";
	void *h = dlopen(argv[argc - 1], RTLD_NOW);
	if (!h)
		return fprintf(stderr, "%s\n", dlerror()), 2;
	CUresult (*init)(unsigned) = dlsym(h, "cuInit");
	CUresult (*retain)(CUcontext *, CUdevice) = dlsym(h, "cuDevicePrimaryCtxRetain");
	CUresult (*current)(CUcontext) = dlsym(h, "cuCtxSetCurrent");
	CUresult (*load)(CUmodule *, const void *) = dlsym(h, "cuModuleLoadData");
	CUresult (*function)(CUfunction *, CUmodule, const char *) = dlsym(h, "cuModuleGetFunction");
	CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		CUstream, void **, void **) = dlsym(h, "cuLaunchKernel");
	CUresult (*sync)(void) = dlsym(h, "cuCtxSynchronize");
	CUcontext ctx;
	CUmodule m;
	CUfunction f;
	if (init(0) || retain(&ctx, 0) || current(ctx))
		return 1;
	if (argc > 2)
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, 3 });
	return load(&m, ptx) || function(&f, m, "nothing") ||
	       launch(f, 2, 1, 1, 32, 1, 1, 0, 0, 0, 0) || sync();
}
C
cc -DEGPU_CUDA_NO_ALIASES -I"$EGPU_SOURCE/include" -o "$tmp/names" "$tmp/names.c" -ldl
for name in libcuda.so.1 libcuda.so; do
	run "$egpu" run $on --json="$tmp/json" memtrace -- "$tmp/names" $name
	is $status 0 "$name: the program runs"
	is "$(json "$tmp/json" '$j->{coverage}{launches_instrumented}')" 1 "$name: its launch is instrumented"
done
# From here on the agent cannot open anything: the command is not harmed, and the report does not say that it launched nothing.
run "$egpu" run $on memtrace -- "$tmp/names" no-files libcuda.so.1
is $status 125 "a session out of reach: the command succeeds, nothing was probed"
says "a session out of reach: said so" 'not recorded: kernels .*could not open the session' 'no kernel of the command could be recorded'
[ "$(cat "$tmp/out" "$tmp/err" | grep -c 'launched no kernel')" = 0 ]
ok $? "a session out of reach: and not that no kernel was launched"
finish
