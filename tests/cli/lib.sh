# lib.sh - TAP from shell: sourced by the tests of the command.
#
# $egpu is the command, $tmp a private directory (removed at the end), and sessions live in $tmp/shm (EGPU_DIR), so that a test sees
# what its own runs leave behind whatever else runs on the machine.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
egpu=$EGPU_BUILD/egpu
samples=$EGPU_BUILD/samples
on=${EGPU_ON:---softgpu}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/shm"
EGPU_DIR=$tmp/shm
EGPU_CACHE=$tmp/cache
export EGPU_DIR EGPU_CACHE
test_count=0
test_failed=0

ok() { # ok STATUS DESCRIPTION
	test_count=$((test_count + 1))
	if [ "$1" = 0 ]; then
		echo "ok $test_count - $2"
	else
		test_failed=1
		echo "not ok $test_count - $2"
		for f in "$tmp/out" "$tmp/err"; do
			[ -s "$f" ] && sed "s|^|# ${f##*/}: |" "$f" | head -40
		done
	fi
}

is() { # is GOT WANT DESCRIPTION
	[ "$1" = "$2" ]
	ok $? "$3"
	[ "$1" = "$2" ] || printf '# got:  %s\n# want: %s\n' "$1" "$2"
}

# run COMMAND...: output into $tmp/out and $tmp/err, exit status into $status.
run() {
	status=0
	timeout "${limit:-120}" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
}

says() { # says DESCRIPTION PATTERN...: every ERE matches standard error or output
	what=$1
	shift
	for pattern; do
		if ! cat "$tmp/out" "$tmp/err" | grep -Eq -- "$pattern"; then
			ok 1 "$what"
			echo "# no line matches: $pattern"
			return
		fi
	done
	ok 0 "$what"
}

skip() { # skip WHY DESCRIPTION
	test_count=$((test_count + 1))
	echo "ok $test_count - $2 # skip $1"
}

takes() { # takes PTX ARCH...: ptxas does
	ptxas=$(command -v ptxas || echo /usr/local/cuda/bin/ptxas) ptx=$1
	shift
	[ -x "$ptxas" ] || { skip "no ptxas" "ptxas takes it"; return; }
	for arch; do
		"$ptxas" -arch="$arch" "$ptx" -o /dev/null >&2
		ok $? "ptxas takes it for $arch"
	done
}
skip_all() {
	echo "1..0 # skip $1"
	exit 0
}

finish() {
	echo "1..$test_count"
	exit $test_failed
}

# json FILE EXPRESSION: a Perl expression over $j, the decoded file; numbers print as they are in the file.
json() {
	perl -MJSON::PP -e '
		my $f = shift; local $/; open my $h, "<", $f or die "$f: $!";
		my $j = JSON::PP->new->allow_bignum->decode(<$h>);
		my @r = eval shift; die $@ if $@;
		print join(" ", map { defined $_ ? $_ : "null" } @r), "\n";' "$1" "$2"
}
