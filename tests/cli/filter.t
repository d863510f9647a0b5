#!/bin/sh
# --skip, --launches, --for, --device, --stream: which launches are probed.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/streams" ] || skip_all "samples are not built"
probe=$EGPU_SOURCE/tests/cli/probes/launches.bpf.c

# streams 128: 21 launches in the stream it uses first, 20 in the other, of 128 threads each.
count() { # count OPTIONS...: launches probed, by what the kernels counted; nothing when it failed
	run "$egpu" run $on --json="$tmp/json" "$@" "$probe" -- "$samples/streams" 128
	[ $status != 0 ] || echo $(($(json "$tmp/json" '$j->{maps}{".bss"}{variables}{threads}') / 128))
}
is "$(count)" 41 "all launches"
is "$(count --skip 4)" 37 "--skip 4"
says "the report says what was chosen" '^  chosen: launches from 5 on, of 41$'
is "$(count --launches 3)" 3 "--launches 3"
is "$(count --skip 4 --launches 5)" 5 "--skip 4 --launches 5"
is "$(json "$tmp/json" '$j->{coverage}{launches}, $j->{coverage}{launches_instrumented}, $j->{filter}{skip}, $j->{filter}{launches}')" "41 5 4 5" \
	"the report counts the others"
is "$(count --skip 39 --launches 5)" 2 "--skip and --launches beyond the end"
is "$(count --skip 100)" 0 "--skip of more than there are"
is "$(count --stream 0)" 0 "--stream 0"
is "$(count --stream 1)" 21 "--stream 1"
is "$(count --stream 2 --skip 3)" 17 "--stream 2 --skip 3"
is "$(count --stream 9)" 0 "a stream that is not there"
is "$(count --device 0)" 41 "--device 0"
run "$egpu" run $on --device 700 "$probe" -- touch "$tmp/ran"
is "$status $([ -e "$tmp/ran" ] && echo ran)" "125 " "a device that is not there: the command is not run"
says "and what there is" '^egpu: --device 700: there (is one device, number 0|are [0-9]+ devices, numbers 0 to [0-9]+)$'
if [ "$on" = --softgpu ]; then
	EGPU_SOFTGPU=devices=3
	export EGPU_SOFTGPU
	is "$(count --device 2)" 0 "a device that the program does not use"
	says "of which the report tells" '^  nothing was probed on device 2$' '^  1 kernel not selected by any pattern, or on other devices'
	run "$egpu" run $on --device 3 "$probe" -- "$samples/streams" 128
	says "the first that is not there" '^egpu: --device 3: there are 3 devices, numbers 0 to 2$'
	unset EGPU_SOFTGPU
fi
is "$(count --for 1h)" 41 "--for: long enough"
n=$(count --for 1us)
[ "$n" -ge 1 ] && [ "$n" -lt 41 ]
ok $? "--for: a microsecond is over soon ($n launches)"
for bad in "--skip -1" "--skip x" "--launches 0" "--for 0" "--for 3parsecs" "--for -1" "--device 5000" "--stream 1.5"; do
	run "$egpu" run $on $bad "$probe" -- "$samples/streams" 128
	is $status 125 "$bad: refused"
	says "$bad: with a reason" "^egpu: --[a-z]*: '"
done
finish
