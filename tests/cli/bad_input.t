#!/bin/sh
# Bad input: each says what is wrong, where and what to do, has status 125 and leaves nothing behind.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
probes=$EGPU_SOURCE/tests/cli/probes
cd "$tmp" && mkdir work && cd work || exit 1

clean() { # clean DESCRIPTION: no session, no file here
	is "$(find . "$EGPU_DIR" -mindepth 1)" "" "$1: nothing is left behind"
}

bad() { # bad DESCRIPTION PATTERN COMMAND...: status 125, a message that matches, nothing left
	case_=$1
	message=$2
	shift 2
	run "$@"
	is $status 125 "$case_: status 125"
	says "$case_: says so" "^egpu: .*($message)"
	clean "$case_"
}

compile() { # compile SOURCE OUT FLAGS...
	source=$1
	out=$2
	shift 2
	${CLANG:-clang} -O2 -target bpf -mcpu=v3 "$@" -I"$EGPU_SOURCE/include" -idirafter "/usr/include/$(uname -m)-linux-gnu" \
		-c "$source" -o "$out"
}

compile "$probes/typed.bpf.c" "$tmp/good.bpf.o" -g || exit 1
size=$(wc -c <"$tmp/good.bpf.o")
for n in 0 10 64 1000 $((size / 2)) $((size - 1)); do
	head -c "$n" "$tmp/good.bpf.o" >"$tmp/short.bpf.o"
	bad "object cut to $n bytes" 'short.bpf.o: (truncated|not a BPF object).*(build it again|clang)' \
		"$egpu" run --softgpu "$tmp/short.bpf.o" -- "$samples/vecadd" 10
done
perl -e 'local $/; open my $h, "<:raw", shift; my $s = <$h>; my $at = unpack("x40Q<", $s);
	for (1 .. unpack("x60S<", $s)) { substr($s, $at + 44, 4) = pack("L<", 200) if unpack("L<", substr($s, $at + 4, 4)) == 9; $at += 64 }
	print $s' "$tmp/good.bpf.o" >"$tmp/reloc.bpf.o"
bad "an object whose relocations are for no section" 'reloc.bpf.o: damaged.*build it again' \
	"$egpu" run --softgpu "$tmp/reloc.bpf.o" -- "$samples/vecadd" 10
bad "an x86 program as probe" 'not a BPF object.*-target bpf' "$egpu" run --softgpu "$samples/vecadd" -- "$samples/vecadd" 10
echo hello >"$tmp/text.bpf.o"
bad "a text as probe" 'text.bpf.o: not a BPF object' "$egpu" run --softgpu "$tmp/text.bpf.o" -- "$samples/vecadd" 10
bad "a directory as probe" 'directory' "$egpu" run --softgpu "$tmp" -- "$samples/vecadd" 10
bad "a probe that does not exist" 'nosuch.bpf.o.*neither a file nor a tool' "$egpu" run --softgpu nosuch.bpf.o -- "$samples/vecadd" 10
compile "$probes/typed.bpf.c" "$tmp/nobtf.bpf.o"
bad "object without BTF" 'nobtf.bpf.o: has no BTF.*clang -g' "$egpu" run --softgpu "$tmp/nobtf.bpf.o" -- "$samples/vecadd" 10
echo 'int x = ;' >"$tmp/broken.bpf.c"
run "$egpu" run --softgpu "$tmp/broken.bpf.c" -- "$samples/vecadd" 10
is $status 125 "a source that does not compile: status 125"
says "a source that does not compile: the compiler's message and ours" 'broken.bpf.c:1:9: error' '^egpu: .*does not compile'
clean "a source that does not compile"
printf '#include <egpu/probe.bpf.h>\nSEC("tp/x/y") int f(void *c) { return 0; }\n' >"$tmp/tracepoint.bpf.c"
bad "a section that is no GPU probe" 'program f: section "tp/x/y" is no GPU probe: .*function on the host' "$egpu" run --softgpu "$tmp/tracepoint.bpf.c" -- true
printf '#include <egpu/probe.bpf.h>\nSEC("gpu/entri") int f(struct egpu_entry *c) { return 0; }\n' >"$tmp/point.bpf.c"
bad "a point that does not exist" 'no known point.*nearest: entry' "$egpu" run --softgpu "$tmp/point.bpf.c" -- true
printf '#include <egpu/probe.bpf.h>\nSEC("gpu/load") int f(struct egpu_entry *c) { return 0; }\n' >"$tmp/context.bpf.c"
for command in "run --softgpu $tmp/context.bpf.c -- true" "verify $tmp/context.bpf.c" "translate $tmp/context.bpf.c" \
	"instrument $tmp/context.bpf.c $EGPU_BUILD/samples/vecadd.ptx"; do
	# shellcheck disable=SC2086
	bad "${command%% *}: a context of another point" 'program f: .*gpu/load.*struct egpu_mem \*; this one takes struct egpu_entry' "$egpu" $command
done
# Types of maps that there are not, and shapes of those that there are: each with its own reason, and what to write instead.
maptype() { # TYPE MORE REASON
	cat >"$tmp/maptype.bpf.c" <<C
#include <egpu/probe.bpf.h>
struct { __uint(type, BPF_MAP_TYPE_$1); __uint(max_entries, 5); $2 } m SEC(".maps");
SEC("gpu/entry") int f(struct egpu_entry *c) { __u32 k = 0; return bpf_map_lookup_elem(&m, &k) != 0; }
C
	for command in "run --softgpu $tmp/maptype.bpf.c -- true" "verify $tmp/maptype.bpf.c" "translate $tmp/maptype.bpf.c"; do
		# shellcheck disable=SC2086
		bad "${command%% *}: $1" "map m: $3" "$egpu" $command
	done
}
plain='__uint(key_size, 4); __uint(value_size, 4);'
inner='__uint(key_size, 4); __array(values, struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u32); });'
maptype PROG_ARRAY "$plain" 'PROG_ARRAY is not supported: programs do not call each other.*object order'
maptype PERF_EVENT_ARRAY "$plain" 'PERF_EVENT_ARRAY is not supported.*RINGBUF'
maptype STACK_TRACE '__uint(key_size, 4); __uint(value_size, 1020);' 'key of 4 bytes, value of 1020 bytes.*not possible.*8 for each frame'
maptype ARRAY_OF_MAPS "$inner" 'a map of maps is not supported.*key begin with'
maptype HASH_OF_MAPS "$inner" 'a map of maps is not supported.*key begin with'
maptype LPM_TRIE '__uint(map_flags, BPF_F_NO_PREALLOC); __uint(key_size, 8); __uint(value_size, 4);' 'LPM_TRIE is not supported: use a HASH'
maptype QUEUE '__uint(key_size, 4); __uint(value_size, 4);' 'key of 4 bytes.*not possible .this type has no keys'
maptype STACK '__uint(value_size, 4); __uint(map_flags, EGPU_F_HOST);' 'flags 0x40000000 are not supported for this type'
maptype BLOOM_FILTER '__uint(value_size, 4); __uint(map_extra, 16);' 'map_extra of a BLOOM_FILTER.*at most 15'
maptype CPUMAP "$plain" 'this type is not supported; use ARRAY, '
bad "a program that cannot be verified" 'program forgets is refused: .*NULL' "$egpu" run --softgpu "$probes/unsafe.bpf.c" -- "$samples/vecadd" 10
says "the verifier's log shows instruction and source line" '^ +[0-9]+: \(7b\)' '\*v = 1'
run "$egpu" verify "$probes/unsafe.bpf.c"
is $status 1 "verify: status 1 when a program is refused"
says "verify: a verdict for each program" '^forgets: refused: ' '^fine: accepted: '

bad "a pattern that matches nothing" "pattern 'vecsub' matched nothing.*nearest: vecadd" \
	"$egpu" run --softgpu -k vecsub memtrace -- "$samples/vecadd" 100
is "$(cat "$tmp/out")" "vecadd: n=100 ok" "a pattern that matches nothing: the program ran"
run "$egpu" run --softgpu -k vecsub --allow-empty memtrace -- "$samples/vecadd" 100
is $status 0 "--allow-empty: status 0"
bad "a broken regular expression" 'regular expression|regex' "$egpu" run --softgpu -k '/a(/' memtrace -- "$samples/vecadd" 100
bad "an empty pattern" 'pattern is empty' "$egpu" run --softgpu -k '' memtrace -- "$samples/vecadd" 100
bad "a command without kernels" 'launched no kernel' "$egpu" run --softgpu memtrace -- true
run "$egpu" run --softgpu memtrace -- sh -c 'exit 3'
is $status 3 "the command's own failure comes first"
run "$egpu" run --softgpu memtrace -- sh -c 'kill -TERM $$'
is $status 143 "killed by a signal: 128 + signal"
clean "killed by a signal"
bad "a command that does not exist" 'nosuchcommand: no command of this name' "$egpu" run --softgpu memtrace -- nosuchcommand
bad "a file that is not executable" 'cannot be run' "$egpu" run --softgpu memtrace -- "$tmp/text.bpf.o"
bad "no -- before the command" 'put -- before the command' "$egpu" run --softgpu memtrace "$samples/vecadd" 10
bad "an argument too many" 'unexpected argument nope' "$egpu" off nope
bad "no command" 'no command to run' "$egpu" run --softgpu memtrace
bad "an egpu command that does not exist" "no command 'rnu'; nearest: run" "$egpu" rnu
bad "help of a command that does not exist" "no command 'rnu'; nearest: run" "$egpu" help rnu
bad "an option that does not exist" 'unknown option --jsno.*--json' "$egpu" run --jsno=x memtrace -- true
bad "an option without its value" '-k needs a value' "$egpu" run -k -- true
for option in -o --json; do
	bad "$option to an unwritable file" '/nonexistent/x: cannot be written' "$egpu" run --softgpu $option /nonexistent/x memtrace -- "$samples/vecadd" 10
	is "$(cat "$tmp/out")" "" "$option to an unwritable file: noticed before the command runs"
done
if [ -w /dev/full ]; then
	bad "a report to a full disk" '/dev/full: cannot be written' "$egpu" run --softgpu -o /dev/full memtrace -- "$samples/vecadd" 10
	says "a report to a full disk: it is shown instead" '^coverage: 1 of 1 kernel' '^vecadd '
fi
bad "a verb that map does not have" "no verb 'lst'; usage: egpu map" "$egpu" map lst
bad "map get without a key" 'usage: egpu map .*get NAME KEY' "$egpu" map get counts
mkdir "$tmp/a:b"
run env EGPU_DIR="$tmp/a:b" "$egpu" run --softgpu memtrace -- "$samples/vecadd" 10
is $status 125 "a session directory that LD_PRELOAD cannot hold: status 125"
says "a session directory that LD_PRELOAD cannot hold: says so" 'a:b/egpu-.*EGPU_DIR to a directory without'
is "$(find "$tmp/a:b" -mindepth 1)" "" "a session directory that LD_PRELOAD cannot hold: nothing is left in it"
bad "a variable that does not exist" "no global variable 'limt'; nearest: limit" \
	"$egpu" run --softgpu --set limt=3 "$tmp/good.bpf.o" -- "$samples/vecadd" 10
bad "a value that does not fit" 'does not fit 32 bits' "$egpu" run --softgpu --set limit=4294967296 "$tmp/good.bpf.o" -- "$samples/vecadd" 10
bad "an unknown software device" "sm_42" "$egpu" run --softgpu=sm_42 memtrace -- "$samples/vecadd" 10
bad "two drivers at once" 'exclude' "$egpu" run --softgpu --gpu memtrace -- "$samples/vecadd" 10
if "$egpu" doctor --has-gpu; then
	skip "this machine has a GPU" "missing driver"
else
	bad "missing driver" 'no CUDA driver.*--softgpu' "$egpu" run memtrace -- "$samples/vecadd" 10
	echo b700000007000000 9500000000000000 >"$tmp/insns"
	bad "test-run: missing driver" 'no CUDA driver.*--on=softgpu' sh -c '"$0" test-run --on=gpu <"$1"' "$egpu" "$tmp/insns"
fi

printf '.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ld.global.u32 %%r1, [%%rd1 }\n' >"$tmp/bad.ptx"
bad "malformed PTX" 'line 4' "$egpu" list "$tmp/bad.ptx"
bad "malformed PTX to instrument" 'bad.ptx: line 4, column' "$egpu" instrument memtrace "$tmp/bad.ptx"
bad "no CUDA code in a file" 'neither a fatbin' "$egpu" list "$probes/ring.bpf.c"
perl -e 'print pack("L<S<S<Q<", 0xba55ed50, 1, 16, 1 << 40), "x" x 100' >"$tmp/over.fatbin"
bad "a fatbin larger than its file" 'over.fatbin: .*exceed' "$egpu" list "$tmp/over.fatbin"
# A region with one PTX entry, compressed size and payload as given.
fatbin() { # fatbin PAYLOAD_FILE FLAGS COMPRESSED UNCOMPRESSED
	perl -e 'my ($f, $flags, $packed, $plain) = @ARGV; local $/; open my $h, "<:raw", $f; my $p = <$h>; $p .= "\0" x (-length($p) % 8);
		my $e = pack("S<S<L<Q<L<L<S<S<L<L<L<Q<Q<Q<", 1, 0x101, 64, length $p, $packed, 0, 0, 8, 80, 0, 0, $flags, 0, $plain);
		print pack("L<S<S<Q<", 0xba55ed50, 1, 16, length($e) + length $p), $e, $p;' "$@"
}
ptx=$EGPU_BUILD/samples/vecadd.ptx
plain=$(wc -c <"$ptx")
fatbin "$ptx" 0 0 0 >"$tmp/good.fatbin"
run "$egpu" list "$tmp/good.fatbin"
is $status 0 "a whole fatbin: status 0"
says "a whole fatbin: its kernel is named" 'fatbin compute_80 PTX +vecadd'
bytes=$(wc -c <"$tmp/good.fatbin")
for n in 8 30 100 $((bytes / 2)); do
	head -c "$n" "$tmp/good.fatbin" >"$tmp/cut.fatbin"
	bad "fatbin cut to $n bytes" 'cut.fatbin: ' "$egpu" list "$tmp/cut.fatbin"
done
if command -v zstd >/dev/null; then
	zstd -q -f "$ptx" -o "$tmp/ptx.zst"
	packed=$(wc -c <"$tmp/ptx.zst")
	fatbin "$tmp/ptx.zst" 32768 "$packed" "$plain" >"$tmp/zstd.fatbin"
	run "$egpu" list "$tmp/zstd.fatbin"
	is $status 0 "a compressed fatbin: status 0"
	perl -e 'local $/; open my $h, "<:raw", shift; my $s = <$h>; substr($s, 140, 1) ^= "\x10"; print $s' "$tmp/zstd.fatbin" >"$tmp/flip.fatbin"
	bad "a bit-flipped fatbin" 'flip.fatbin: ' "$egpu" list "$tmp/flip.fatbin"
	fatbin "$tmp/ptx.zst" 32768 "$packed" 999999999999 >"$tmp/huge.fatbin"
	bad "a fatbin that claims a terabyte" 'huge.fatbin: ' "$egpu" list "$tmp/huge.fatbin"
else
	skip "no zstd command" "compressed fatbins"
fi

run "$egpu" run --softgpu --json="$tmp/json" -o "$tmp/report" "$probes/ring.bpf.c" -- "$samples/vecadd" 100000
is $status 0 "full ring: the program is unharmed"
is "$(cat "$tmp/out")" "vecadd: n=100000 ok" "full ring: its results are right"
is "$(json "$tmp/json" '$j->{maps}{".bss"}{variables}{sent}')" "$(((100000 + 255) / 256 * 256))" "full ring: every thread sent"
is "$(json "$tmp/json" '$j->{maps}{events}{records} + $j->{maps}{events}{lost}')" "$(((100000 + 255) / 256 * 256))" \
	"full ring: records and losses add up"
is "$(json "$tmp/json" '$j->{coverage}{records_lost} > 0 ? 1 : 0')" 1 "full ring: some were lost"
is "$(json "$tmp/json" '$j->{coverage}{records_lost} - $j->{maps}{events}{lost}')" 0 "full ring: coverage says how many"
clean "full ring"
run "$egpu" run --softgpu --json="$tmp/json" -o "$tmp/report" "$probes/hash.bpf.c" -- "$samples/vecadd" 256
is $status 0 "full hash: the program is unharmed"
is "$(json "$tmp/json" 'my $v = $j->{maps}{".bss"}{variables}; $v->{other}, $v->{stored} + $v->{too_big}')" "0 256" \
	"full hash: -E2BIG to the probe, no other error"
is "$(json "$tmp/json" 'scalar @{$j->{maps}{seen}{entries}}, $j->{maps}{".bss"}{variables}{stored}')" "8 8" "full hash: it holds eight keys"
is "$(json "$tmp/json" '$j->{coverage}{insertions_refused}')" 248 "full hash: refusals are counted"
clean "full hash"
finish
