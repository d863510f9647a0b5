#!/bin/sh
# Every fuzz target runs for a second and a half from seeds in the tree; `make fuzz` runs them long.
cd "$EGPU_SOURCE" || exit 1
n=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for t in ptx instrument fatbin session verifier; do
	n=$((n + 1))
	case $t in
	ptx | instrument) seeds="tests/golden/ptx/*.ptx tests/golden/instrument/*.ptx" ;;
	fatbin) seeds="tests/golden/ptx/plain.ptx $EGPU_BUILD/samples/vecadd" ;;
	*) seeds="$EGPU_BUILD/tools/memtrace.bpf.o tests/golden/ptx/plain.ptx" ;;
	esac
	# shellcheck disable=SC2086
	if "$EGPU_BUILD/tests/fuzz/fuzz_$t" 1500 "${SEED:-20261129}" $seeds >"$tmp/out" 2>&1; then
		echo "ok $n - $t: $(tail -1 "$tmp/out")"
	else
		echo "not ok $n - $t"
		tail -30 "$tmp/out" | sed 's/^/# /'
	fi
done
echo "1..$n"
