#!/bin/sh
# An install works from wherever it was put, also below a path with blanks and colons, and the command needs only the C library.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
command -v meson >/dev/null || skip_all "no meson to install with"

DESTDIR=$tmp/root meson install -C "$EGPU_BUILD" --no-rebuild --quiet >"$tmp/out" 2>"$tmp/err"
ok $? "meson install"
found=$(find "$tmp/root" -name egpu -path '*/bin/egpu')
[ -n "$found" ]
ok $? "the command is installed"
mv "$(dirname "$(dirname "$found")")" "$tmp/some where:else"
egpu="$tmp/some where:else/bin/egpu"
mv "$egpu" "$tmp/some where:else/bin/egpu.real" && ln -s egpu.real "$egpu"
cd / || exit 1
run "$egpu" run --softgpu --json="$tmp/json" memtrace -- "$samples/vecadd" 1000
is $status 0 "a run from there: status 0"
is "$(json "$tmp/json" 'map { $_->{executions} } @{$j->{tool}{sites}}')" "1000 1000 1000" "a run from there: exact"
run "$egpu" run --softgpu "$EGPU_SOURCE/tests/cli/probes/typed.bpf.c" -- "$samples/vecadd" 600
is $status 0 "its own header compiles probes"
run "$egpu" doctor
is $status 0 "doctor is content"
is "$(ldd "$egpu" | grep -v -e 'linux-vdso' -e 'ld-linux' -e 'libc\.so' -e asan -e ubsan)" "" "the command needs only the C library"
is "$(find "$EGPU_DIR" -mindepth 1)" "" "nothing is left behind"
finish
