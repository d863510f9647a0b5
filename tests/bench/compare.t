#!/bin/sh
# bench/compare: what counts as slower, and what its status says.
cd "$EGPU_SOURCE" || exit 1
if ! command -v python3 >/dev/null; then
	echo '1..0 # SKIP no python3'
	exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

# A result of rows KERNEL:RATIO:MAX.
result() {
	printf '{"machine": {"gpu": "%s"}, "rows": [' "$1"
	shift
	comma=
	for row in "$@"; do
		k=${row%%:*} rest=${row#*:}
		printf '%s{"kernel": "%s", "arm": "egpu:counts", "against": "native", "ratio": %s, "min": 1.0, "max": %s, "target": 1.3, "met": %s}' \
			"$comma" "$k" "${rest%:*}" "${rest#*:}" "$(awk "BEGIN { print ${rest%:*} <= 1.3 ? \"true\" : \"false\" }")"
		comma=,
	done
	printf ']}\n'
}

check() { # STATUS PATTERN NAME, on old.json and new.json
	n=$((n + 1))
	bench/compare "$tmp/old.json" "$tmp/new.json" >"$tmp/out" 2>&1
	if [ $? = "$1" ] && grep -Eq "$2" "$tmp/out"; then
		echo "ok $n - $3"
	else
		echo "not ok $n - $3"
		sed 's/^/# /' "$tmp/out"
	fi
}

result H200 vecadd:1.25:1.27 matmul:1.1:1.2 >"$tmp/old.json"
result H200 vecadd:1.26:1.27 matmul:1.1:1.2 >"$tmp/new.json"
check 0 '1\.250 -> +1\.260 *$' 'a hundredth is not slower'
result H200 vecadd:1.25:1.27 matmul:1.19:1.2 >"$tmp/new.json"
check 0 'matmul.*1\.190 *$' 'nor is what the old pairs had seen'
result H200 vecadd:1.25:1.27 matmul:1.25:1.3 >"$tmp/new.json"
check 1 'matmul.*SLOWER' 'a tenth beyond that is'
result H200 vecadd:1.31:1.32 matmul:1.1:1.2 >"$tmp/new.json"
check 1 'vecadd.*MISSES 1\.3' 'a target that is no longer met'
result H200 matmul:1.1:1.2 >"$tmp/new.json"
check 1 'vecadd.*GONE' 'a row that is gone'
result A100 vecadd:1.25:1.27 matmul:1.02:1.2 >"$tmp/new.json"
check 0 'gpu differs: H200, A100' 'another GPU is said'
echo "1..$n"
