#!/bin/sh
# A report names the kernels that ran unprobed, with the reason, and counts those that were never launched.
. "$(dirname "$0")/lib.sh"
command -v cc >/dev/null || skip_all "no C compiler"

cat >"$tmp/many.c" <<'C'
#include "calls.h"
#include <string.h>

/* Forty kernels whose names egpu keeps for itself. */
int main(void)
{
	static char ptx[16384] = ".version 6.3\n.target sm_70\n.address_size 64\n";
	for (int i = 0; i < 40; i++)
		sprintf(ptx + strlen(ptx), ".visible .entry k%d() { .reg .b32 __egpu_own; ret; }\n", i);
	return open_driver("libcuda.so.1") || run_kernel(ptx, "k7");
}
C
cc -DEGPU_CUDA_NO_ALIASES -I"$EGPU_SOURCE/include" -I"$EGPU_SOURCE/tests/cli" -o "$tmp/many" "$tmp/many.c" -ldl
run "$egpu" run $on --json="$tmp/json" memtrace -- "$tmp/many"
is $status 0 "the program runs"
says "the kernel that ran is named with its reason" '^  refused: k7: .*egpu_'
says "the others are counted" '^  39 kernels that cannot be probed were never launched \(all in --json\)'
is "$(grep -c '^  refused' "$tmp/err")" 1 "and not listed"
is "$(json "$tmp/json" 'scalar grep { $_->{state} eq "refused" } @{$j->{kernels}}')" 40 "the JSON has them all"
finish
