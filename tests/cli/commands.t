#!/bin/sh
# Every command once, as a user types it: list, verify, translate, instrument, test-run, tools, doctor, --help.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
probes=$EGPU_SOURCE/tests/cli/probes

# -- help
run "$egpu"
is $status 125 "egpu alone: status 125"
for c in run list doctor verify translate instrument test-run map; do
	run "$egpu" $c --help
	is $status 0 "$c --help: status 0"
	says "$c --help: usage and an example" "^usage: egpu $c" "^ +(echo .*)?.*egpu $c"
done
for c in --help "help run" "run --help" --version; do
	status=0
	"$egpu" $c >/dev/full 2>"$tmp/err" || status=$?
	is $status 125 "$c on a full disk: status 125"
done
run "$egpu" --version
says "--version" '^egpu [0-9]+\.[0-9]+'
run "$egpu" tools
says "tools lists memtrace" '^memtrace +.+'

# -- list
run "$egpu" list "$samples/vecadd.ptx" --json="$tmp/json"
is $status 0 "list PTX: status 0"
is "$(json "$tmp/json" 'map { $_->{name}, $_->{source}, $_->{instrumentable} ? 1 : 0, $_->{sites} } @{$j->{kernels}}')" \
	"vecadd PTX text 1 6" "list PTX: kernel, source and sites (entry, exit or two, 2 loads, 1 store)"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ]; then
	cat >"$tmp/k.cu" <<'CU'
namespace ns { template <typename T> __global__ void scale(T *p) { p[threadIdx.x] *= 2; } }
__device__ int (*pointer)(int);
__global__ void indirect(int *p) { p[0] = pointer(p[0]); }
int main() { ns::scale<float><<<1, 1>>>(nullptr); ns::scale<double><<<1, 1>>>(nullptr); indirect<<<1, 1>>>(nullptr); }
CU
	"$nvcc" -o "$tmp/k" "$tmp/k.cu" && "$nvcc" -gencode arch=compute_90,code=sm_90 -o "$tmp/sass" "$tmp/k.cu" &&
		"$nvcc" -arch=sm_90 -lineinfo -cubin -o "$tmp/k.cubin" "$tmp/k.cu"
	ok $? "nvcc builds three forms"
	run "$egpu" list "$tmp/k"
	is $status 0 "list of an nvcc-built program: status 0"
	says "list: demangled names, PTX in the fatbin" 'yes .* fatbin compute_[0-9]+ PTX +void ns::scale<float>\(float\*\)' \
		'yes .* void ns::scale<double>\(double\*\)'
	says "list: an indirect call is the reason" '^ +indirect\(int\*\): .*pointer'
	run "$egpu" list "$tmp/sass"
	says "list: no PTX, with the flag that helps" 'no .* none +void ns::scale<float>' 'scale<float>\(float\*\): no PTX.*sm_90.*-gencode'
	run "$egpu" list "$tmp/k.cubin"
	says "list: PTX in a cubin" 'yes .* cubin .nv_debug_ptx_txt +void ns::scale<float>'
	"$nvcc" -rdc=true -o "$tmp/rdc" "$tmp/k.cu"
	run "$egpu" list "$tmp/rdc"
	is "$(grep -c '^\(yes\|no\) .*scale<float>' "$tmp/out")" 1 "list: a kernel of separate compilation is shown once"
	says "list: with the PTX of its unit" 'yes .* fatbin compute_[0-9]+ PTX +void ns::scale<float>'
	run "$egpu" list --arch=sm_60 "$tmp/k"
	says "list: PTX too new for the device" 'scale<float>\(float\*\): its PTX is for sm_75, which sm_60 cannot run'
else
	skip "no nvcc" "list of nvcc-built programs"
fi
run "$egpu" list "$egpu"
is $status 125 "list of a program without CUDA code: status 125"
says "list of a program without CUDA code: says what to do" 'holds no CUDA code.*egpu list -- COMMAND'
run "$egpu" list --softgpu --json="$tmp/json" -- "$samples/strided"
is $status 0 "list of a command: status 0"
is "$(json "$tmp/json" 'map { $_->{name}, $_->{launches} } sort { $a->{name} cmp $b->{name} } @{$j->{kernels}}')" \
	"strided 1 unit 1" "list of a command: the kernels it launched"
says "list of a command: its output is its own" '^strided: n=32768'

# -- verify, translate, instrument
run "$egpu" verify memtrace
is $status 0 "verify: status 0"
says "verify: worst case" '^memtrace: accepted: [0-9]+ instructions, at most [0-9]+ executed a run'
run "$egpu" verify -v -p forgets "$probes/unsafe.bpf.c"
says "verify -v: the log, from the first instruction" '^ +0: \(' '\(85\) call .*map_lookup_elem' '^forgets: refused'
run "$egpu" verify -p memtrac memtrace
is $status 125 "verify: no such program"
says "verify: nearest program" "no program 'memtrac'; nearest: memtrace"
run "$egpu" translate memtrace
is $status 0 "translate: status 0"
says "translate: a fragment" '^fragment 1' '^point mem' '^warp 1' 'red|atom'
for s in vecadd strided reduce transpose histogram; do
	mkdir -p "$tmp/dir"
	run "$egpu" instrument -o "$tmp/dir" memtrace "$samples/$s.ptx"
	is $status 0 "instrument $s: status 0"
done
set -- "$tmp"/dir/*.ptx
[ $# -ge 6 ]
ok $? "instrument: a file a kernel ($#)"
ptxas=$(command -v ptxas || echo /usr/local/cuda/bin/ptxas)
if [ -x "$ptxas" ]; then
	for arch in sm_75 sm_80 sm_90 sm_90a; do
		bad=0
		for f in "$tmp"/dir/*.ptx "$tmp"/dir2/*.ptx; do
			[ -f "$f" ] || continue
			target=$(sed -n 's/^\.target sm_\([0-9]*\).*/\1/p' "$f")
			[ "$target" -gt "$(echo $arch | tr -dc 0-9)" ] && continue
			"$ptxas" -arch=$arch "$f" -o /dev/null >&2 || bad=1
		done
		ok $bad "ptxas accepts them for $arch"
	done
else
	skip "no ptxas" "ptxas accepts the output"
fi
run "$egpu" instrument memtrace "$samples/strided.ptx"
is $status 125 "instrument: two kernels to one output: status 125"
says "instrument: says what to choose" '2 kernels match.*-k'
run "$egpu" instrument -k stride memtrace "$samples/strided.ptx"
says "instrument: nearest kernels" "no kernel matches 'stride'; nearest: strided"

# Kernels whose names are alike as far as a file's name goes have a file each.
long=$(printf 'n%.0s' $(seq 249))
sed -n '/^\.version/p; /^\.target/p; /^\.address_size/p' "$samples/vecadd.ptx" >"$tmp/long.ptx"
for k in a b c; do printf '.visible .entry %s%s()\n{\n\tret;\n}\n' "$long" $k; done >>"$tmp/long.ptx"
mkdir "$tmp/long"
run "$egpu" instrument -o "$tmp/long" "$probes/typed.bpf.c" "$tmp/long.ptx"
is "$status $(cat "$tmp"/long/*.ptx | grep -c "^\.visible \.entry $long[abc]")" "0 3" "instrument: kernels of long names have a file each"

# -- test-run
try() { # try WANT DESCRIPTION HEX [MEMORY]
	for where in cpu softgpu; do
		echo "$3" | "$egpu" test-run --on=$where ${4:+"$4"} >"$tmp/out" 2>"$tmp/err"
		is "$(cat "$tmp/out")" "$1" "test-run on $where: $2"
	done
}
try 0x7 "a constant" 'b700000007000000 9500000000000000'
try 0xbb "memory" '7110010000000000 9500000000000000' 'aa bb'
try 0x3 "the length" 'bf20000000000000 9500000000000000' 'aabbcc'
try 0xffffffffffffffff "64 bits" 'b7000000ffffffff 9500000000000000'
try 0xffffffff "32 bits" 'b4000000ffffffff 9500000000000000'
try 0x0 "division by zero is 0" 'b700000007000000 b701000000000000 3f10000000000000 9500000000000000'
echo '720100007f000000 b700000000000000 9500000000000000' | "$egpu" test-run --memory --on=softgpu '0000' >"$tmp/out"
is "$(cat "$tmp/out")" "0x0
7f00" "test-run --memory: what the program wrote"
echo 'bf10000000000000 9500000000000000' | "$egpu" test-run >"$tmp/out" 2>"$tmp/err"
echo 'bf30000000000000 9500000000000000' | "$egpu" test-run >"$tmp/out" 2>"$tmp/err"
is $? 1 "test-run: a program that reads an uninitialised register is refused, status 1"
says "test-run: and says so" '^egpu: the program is refused: .*R3'
echo 'b7000000' | "$egpu" test-run >"$tmp/out" 2>"$tmp/err"
is $? 125 "test-run: half an instruction: status 125"
echo 'xy' | "$egpu" test-run >"$tmp/out" 2>"$tmp/err"
is $? 125 "test-run: no hex: status 125"

# -- doctor
run "$egpu" doctor --json="$tmp/json"
is $status 0 "doctor: status 0"
says "doctor: the parts" '^ok +software GPU' '^ok +agent on softgpu .*saw a launch' '^ok +shared memory'
is "$(json "$tmp/json" 'scalar grep { $_->{required} && !$_->{ok} } @{$j->{checks}}')" 0 "doctor --json: nothing is broken"
is "$(find "$EGPU_DIR" -mindepth 1)" "" "no session is left behind"
if command -v bash >/dev/null; then
	run bash -c '"$0" list <(sleep 0.2; cat "$1")' "$egpu" "$EGPU_BUILD/samples/vecadd.ptx"
	is $status 0 "input from a pipe whose writer takes its time"
fi
finish
