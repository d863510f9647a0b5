#!/bin/sh
# The agent enters programs older than the machine it was built on: it binds to no glibc symbol newer than 2.28, and to no library
# but libc, the loader of it (threads' own variables), libdl, libpthread and the session's alias of the driver.
lib=${EGPU_BUILD:-build}/src/agent/libegpu-agent.so
newest=2.28

if [ -n "$EGPU_SANITIZED" ] || ! command -v readelf >/dev/null; then
	echo "1..0 # SKIP a sanitized build, or no readelf"
	exit 0
fi
n=0
check() { # status, text
	n=$((n + 1))
	[ "$1" = 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}

[ -f "$lib" ]
check $? "$lib is there"
syms=$(readelf --dyn-syms -W "$lib")
newer=$(echo "$syms" | grep ' UND ' | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -u |
	while read -r v; do
		[ "$(printf '%s\n%s\n' "$v" $newest | sort -V | tail -1)" = $newest ] || echo "$v"
	done)
[ -z "$newer" ]
check $? "no symbol newer than glibc $newest ($newer)"
[ -z "$newer" ] || echo "$syms" | grep -F "$newer" | sed 's/^/# /'
others=$(readelf -d "$lib" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vxE 'ld-linux.*\.so\.[12]|libc\.so\.6|libdl\.so\.2|libpthread\.so\.0|libegpu-driver\.so\.1')
[ -z "$others" ]
check $? "no library but libc, its loader, libdl, libpthread and the driver's alias ($others)"
readelf -d "$lib" | grep -q 'SONAME.*\[libcuda\.so\.1\]'
check $? "carries the driver's SONAME"
readelf -d "$lib" | grep -q 'RUNPATH.*\$ORIGIN'
check $? "finds the stub beside itself"
stray=$(echo "$syms" | awk '$7 != "UND" && $7 != "Ndx" && $5 == "GLOBAL" {print $8}' | grep -v '^cu[A-Z]')
[ -z "$stray" ]
check $? "exports nothing but driver calls ($stray)"
readelf -d "$lib" | grep -q TEXTREL
[ $? = 1 ]
check $? "has no text relocations"
[ -f "$(dirname "$lib")/libegpu-driver.so.1" ]
check $? "its stub is beside it"
echo "1..$n"
