#!/bin/sh
# softgpu's checker finds nothing in code that egpu injects: every probe of the tests and every tool, on a kernel with shared memory, barriers
# and atomics. Left out are shapes.bpf.c, which sends an array that its other threads change, helpers.bpf.c, whose threads all update one
# element, and sample.bpf.c, whose threads all store to one variable; batch.bpf.c fills a tiny ring, whose hint of a free bin is read through the
# cache on purpose, and whose bins are written again after the agent has emptied them, which the checker does not see.
. "$(dirname "$0")/lib.sh"

probes=
for p in "$EGPU_SOURCE"/tests/probes/*.bpf.c "$EGPU_SOURCE"/tests/probes/tools/*.bpf.c "$EGPU_SOURCE"/tests/cli/probes/*.bpf.c "$EGPU_SOURCE"/tools/*.bpf.c; do
	case $p in
	*/shapes.bpf.c | */helpers.bpf.c | */sample.bpf.c | */batch.bpf.c | */unsafe.bpf.c) ;;
	*) probes="$probes $p" ;;
	esac
done
for p in $probes; do
	run "$egpu" run --softgpu=sm_90,sms=4,workers=2,check --allow-perturb --allow-empty -o "$tmp/report" "$p" -- "$samples/reduce" 1000
	is "$status $(grep -c 'softgpu: check' "$tmp/err")" "0 0" "${p#"$EGPU_SOURCE/"}: nothing found"
done
finish
