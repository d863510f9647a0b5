#!/bin/sh
# Every name under which programs find the driver leads to the agent: libcuda.so.1 and the development name libcuda.so.
. "$(dirname "$0")/lib.sh"
command -v cc >/dev/null || skip_all "no C compiler"

cat >"$tmp/names.c" <<'C'
#include "calls.h"
#include <sys/resource.h>

int main(int argc, char **argv)
{
	int err = open_driver(argv[argc - 1]);
	if (err)
		return err;
	if (argc > 2)
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, 3 });
	return run_kernel(".version 6.3\n.target sm_70\n.address_size 64\n"
			  ".visible .entry nothing() { ret; }\n", "nothing");
}
C
cc -DEGPU_CUDA_NO_ALIASES -I"$EGPU_SOURCE/include" -I"$EGPU_SOURCE/tests/cli" -o "$tmp/names" "$tmp/names.c" -ldl
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
