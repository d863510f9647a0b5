#!/bin/sh
# Every fuzz target takes its seeds, the inputs that once went wrong, and a fixed number of changed ones (SEED=N: others);
# `make fuzz` runs them long, guided by coverage.
cd "$EGPU_SOURCE" || exit 1
n=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for t in ptx:800 instrument:60 fatbin:1500 module:300 session:60 cache:2000 fragment:8000 decoder:3000 verifier:1500 object:60; do
	n=$((n + 1))
	rounds=${t#*:}
	t=${t%:*}
	[ -z "$EGPU_SANITIZED" ] || rounds=$((rounds / 4))
	if tests/fuzz/corpus "$EGPU_BUILD" "$t" "$tmp/$t" >"$tmp/out" 2>&1 &&
		"$EGPU_BUILD/tests/fuzz/fuzz_$t" "$rounds" "${SEED:-20261129}" "$tmp/$t"/* >"$tmp/out" 2>&1; then
		echo "ok $n - $t: $(tail -1 "$tmp/out")"
	else
		echo "not ok $n - $t"
		tail -30 "$tmp/out" | sed 's/^/# /'
	fi
done
echo "1..$n"
