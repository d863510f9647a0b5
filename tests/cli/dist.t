#!/bin/sh
# The tarball of make dist works where it is unpacked.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
command -v meson >/dev/null || skip_all "no meson to install with"

cd "$EGPU_SOURCE" || exit 1
run scripts/make-dist "$EGPU_BUILD" "$tmp/dist"
is $status 0 "make dist"
mkdir "$tmp/elsewhere" && tar -C "$tmp/elsewhere" -xzf "$tmp"/dist/egpu-*.tar.gz
ok $? "the tarball unpacks"
cd "$tmp/elsewhere"/egpu-* || exit 1
run bin/egpu run --softgpu --json="$tmp/json" memtrace -- "$samples/vecadd" 777
is $status 0 "memtrace runs from there"
is "$(json "$tmp/json" 'map { $_->{executions} } @{$j->{tool}{sites}}')" "777 777 777" "its counts are exact"
[ -f docs/probes.md ] && [ -f README.md ] && [ -f LICENSE ]
ok $? "the pages come along"
finish
