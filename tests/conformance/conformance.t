#!/bin/sh
# Verdicts and instruction results against recorded ones. The data lies beside the source tree and is not part of it.
data=${EGPU_SOURCE:-.}/../shared/conformance
bin=${EGPU_BUILD:-build}/tests/conformance
echo 1..6
if [ ! -r "$data/verdicts.jsonl" ] || [ ! -r "$data/isa.jsonl" ]; then
	for what in 'no program is accepted that must not be' 'verdicts agree' 'no instruction computes something else' 'instructions agree' \
		'no test kernel computes something else' 'test kernels agree'; do
		n=$((${n:-0} + 1))
		echo "ok $n # skip $what: 2015 recorded cases are not on this machine"
	done
	exit 0
fi
verdicts=$("$bin/verdicts" "$data/verdicts.jsonl") || wrong=' with status not 0'
echo "$verdicts" | sed 's/^/# /'
last=$(echo "$verdicts" | tail -n 1)
case $last$wrong in
*' with status not 0') echo "not ok 1 - every refusal has its reason ($last$wrong)" ;;
'false accept 0,'*) echo "ok 1 - no program is accepted that must not be ($last)" ;;
*) echo "not ok 1 - no program is accepted that must not be ($last)" ;;
esac
# Known differences, each with its reason: tests/conformance/known.txt.
case $verdicts in
*'not in known.txt'*) echo "not ok 2 - verdicts agree but for the known differences" ;;
*) echo "ok 2 - verdicts agree but for the known differences ($last)" ;;
esac
# What an executor computes, as tests $2 and $3; $4: instructions or test kernels.
compare() {
	isa=$(EGPU_TEST_DRIVER=${EGPU_BUILD:-build}/src/softgpu/libcuda.so.1 "$bin/isa" --on "$1" "$data/isa.jsonl")
	echo "$isa" | sed 's/^/# /'
	last=$(echo "$isa" | tail -n 1)
	case $last$isa in
	*'not in known.txt'*) echo "not ok $2 - every $4 that is not run is known" ;;
	*'disagree 0,'*) echo "ok $2 - no $4 computes something else ($last)" ;;
	*) echo "not ok $2 - no $4 computes something else ($last)" ;;
	esac
	case $last in
	'agree 0,'* | '') echo "not ok $3 - ${4}s agree" ;;
	*) echo "ok $3 - ${4}s agree" ;;
	esac
}
compare cpu 3 4 instruction
compare softgpu 5 6 'test kernel'
