#!/bin/sh
# The samples on softgpu: each checks its own results; here are their status, what they print, and the
# bytes they write.
build=${EGPU_BUILD:-build}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export LD_LIBRARY_PATH="$build/src/softgpu"
n=0

report() { # 0 or not, what is shown
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		sed 's/^/# /' "$dir/out" "$dir/err"
	fi
}

# expect STATUS OUTPUT SAMPLE ARGS...: OUTPUT is a pattern of grep -E for standard output or error
expect() {
	want=$1 pattern=$2 name=$3
	shift 3
	timeout 120 "$build/samples/$name" "$@" >"$dir/out" 2>"$dir/err"
	got=$?
	[ $got = "$want" ] && cat "$dir/out" "$dir/err" | grep -qE "$pattern"
	report $? "$name${*:+ }$* gives $want: $pattern"
}

# What vecadd must write: 0.5 * (i % 1021) + i % 509 - 254, as floats.
wanted() {
	perl -e 'binmode STDOUT; print pack "f<*", map { $_ % 1021 * 0.5 + $_ % 509 - 254 } 0 .. $ARGV[0] - 1' "$1"
}

for count in 1 31 32 1000 1000003; do
	expect 0 "^vecadd: n=$count ok$" vecadd $count "$dir/vec"
	wanted $count | cmp -s - "$dir/vec"
	report $? "its output file holds the $count sums"
done
expect 0 'nothing to add' vecadd 0 "$dir/vec"
[ ! -s "$dir/vec" ]
report $? 'an output file of nothing'
expect 1 'no [0-9]+ bytes of free memory' vecadd 99999999999999
expect 1 'is no number' vecadd 99999999999999999999
expect 1 'is no number' vecadd -1
expect 1 'is no number' vecadd 12x
expect 1 'cannot write' vecadd 10 "$dir/none/out"
expect 2 'usage' vecadd
expect 0 'usage' vecadd --help
expect 0 '^strided: n=32768 stride=32 ok$' strided
expect 0 '^strided: n=1000 stride=7 ok$' strided 1000 7 "$dir/str"
expect 0 ok transpose 100
expect 0 'sum=-2422 ok' reduce
expect 0 'sum=0 ok' reduce 0
expect 0 ok histogram
expect 0 ok streams
expect 0 ok streams 100 200
expect 0 ok spinpair
expect 0 'illegal address reported' fault
expect 0 'kernel fault: PTX line [0-9]+' fault
expect 0 'no fault' fault 0
expect 0 ok longrun 30
# Few multiprocessors, one worker, and the schedules of several seeds.
for seed in 1 2 3; do
	export EGPU_SOFTGPU="sm_75,sms=1,workers=1,seed=$seed"
	expect 0 ok spinpair 100
	expect 0 ok reduce 50000
	expect 0 ok streams 300 10
done
unset EGPU_SOFTGPU
# Without a driver each says what to do. Where the machine has one, it is found, and this shows nothing.
LD_LIBRARY_PATH=
if "$build/samples/vecadd" 1 >/dev/null 2>&1; then
	n=$((n + 1))
	echo "ok $n # skip this machine has a driver"
else
	expect 1 'egpu run --softgpu' vecadd 1
fi
echo "1..$n"
