#!/bin/bash
# A process that an egpu of another version has attached to is not attached to by this one, and is told apart from one that
# nobody has attached to; it goes on unharmed.
. "$(dirname "$0")/../cli/lib.sh"
trap '[ -n "$pid" ] && kill $pid 2>/dev/null; rm -rf "$tmp"' EXIT
[ -n "$EGPU_SANITIZED" ] && { echo "1..0 # SKIP a sanitized agent cannot come into a program that is not"; exit 0; }
probe=$EGPU_BUILD/tests/dynamic/count.bpf.o
LD_LIBRARY_PATH=${EGPU_DRIVER_DIR:-$EGPU_BUILD/src/softgpu} EGPU_SOFTGPU_QUIET=1 "$EGPU_BUILD/tests/dynamic/target_plain" linked > "$tmp/target" 2>&1 &
pid=$!
for _ in $(seq 400); do grep -qs running "$tmp/target" && break; sleep 0.02; done
run "$egpu" attach -d -k fill "$pid" "$probe"
is $status 0 "attached"
file=$(echo "$EGPU_DIR"/egpu-*/session)
number=$(od -An -tx1 -j8 -N4 "$file" | tr -d ' ')
other() { printf "$1" | dd of="$file" bs=1 seek=8 conv=notrunc 2>/dev/null; } # the version that the file is of
other '\001\0\0\0'
run "$egpu" attach --for 0.2 -k fill "$pid" "$probe"
ok $([ $status != 0 ]; echo $?) "attach fails where another version has attached"
says "and says so" "process $pid is in session .* made by another version of egpu"
run "$egpu" detach "$pid"
ok $([ $status != 0 ]; echo $?) "detach fails"
says "and says so too" "another version of egpu"
run "$egpu" detach --all
says "what is left alone is named" "$(dirname "$file") was made by another version of egpu"
ok $([ "$(ls -d "$EGPU_DIR"/egpu-* | wc -l)" = 1 ]; echo $?) "no second session was made for it"
other "$(echo "$number" | sed 's/../\\x&/g')"
run "$egpu" detach "$pid"
is $status 0 "its own version detaches"
kill -TERM $pid; wait $pid
ok $? "the program ended well"
pid=
ok $(grep -q 'wrong 0' "$tmp/target"; echo $?) "its results were right"
finish
