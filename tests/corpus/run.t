#!/bin/sh
# The corpus: every PTX that the compilers here make of these sources comes back byte for byte, has as many sites as count.pl
# finds in its text, can be instrumented at every point with every field (or is refused by name), and ptxas takes each variant for
# its own target.
#
#	tests/corpus/run.t            one target a compiler; what is not installed is skipped and counted
#	tests/corpus/run.t --full     nvcc for every target with -O3, -O0 -G, -lineinfo and -rdc, clang 14, 16 and 19: 1,637 files, an hour of one core
#
# EGPU_CORPUS_KEEP=DIR keeps what has passed there: a run that was stopped goes on where it was. A change of egpu asks for an empty
# directory. ptxas reads each distinct text once.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
export EGPU_SOURCE EGPU_BUILD
PATH=$PATH:/usr/local/cuda/bin
check=$EGPU_BUILD/tests/corpus/corpus_check

# What a source asks for: "// sm: 80", "// flags: ...", "// include: a.h b.h".
asks() {
	sed -n "s|^// $2: ||p" "$1"
}

target_of() { # target_of PTX
	sed -n 's/^\.target *\(sm_[0-9]*[af]\{0,1\}\).*/\1/p' "$1" | head -1
}

# ptxas_takes PTX: in a whole program, or as a unit of one where it leaves something open.
ptxas_takes() {
	l=$level # ptxas optimises no code that it is to debug
	grep -q '^\.target.*debug' "$1" && l=0
	seen=$keep/taken-$(sha256sum <"$1" | cut -c 1-32)-O$l
	[ -e "$seen" ] && return
	ptxas -O$l -arch="$(target_of "$1")" "$1" -o /dev/null >"$1.log" 2>&1 ||
		ptxas -c -O$l -arch="$(target_of "$1")" "$1" -o /dev/null >"$1.log" 2>&1 || return
	: >"$seen"
}

why() { # why TEXT...: the job fails
	printf '# %s\n' "$@" >>"$dir/why"
	bad=1
}

compile() { # compile COMPILER TARGET MODE SOURCE OUT
	flags=$(asks "$4" flags)
	includes=
	for h in $(asks "$4" include); do includes="$includes -include $h"; done
	case $3 in
	O0) mode="-O0 -G" ;;
	lineinfo) mode=-lineinfo ;;
	rdc) mode=-rdc=true ;;
	*) mode= ;;
	esac
	case $1 in
	hand) cp "$4" "$5" ;;
	nvcc) nvcc -std=c++17 -w -arch="sm_$2" -ptx $mode $flags $includes -o "$5" "$4" ;;
	*)
		[ "$3" = O0 ] && mode=-O0 || mode=-O2
		"$1" -x cuda --cuda-device-only --cuda-gpu-arch="sm_$2" -nocudainc -nocudalib \
			-Wno-unknown-cuda-version -Xclang -target-feature -Xclang +ptx"$(clang_ptx "$2")" -w $mode -S $flags -o "$5" "$4"
		;;
	esac >"$dir/compile.log" 2>&1
}

clang_ptx() { # the PTX version a target needs
	case $1 in
	90) echo 80 ;;
	86) echo 71 ;;
	80) echo 70 ;;
	*) echo 63 ;;
	esac
}

one() { # one COMPILER TARGET MODE SOURCE: one line of TAP without its number, then comments
	name="$(basename "$4") by $1 for sm_$2${3:+, $3}"
	dir=$(mktemp -d "$work/job.XXXXXX")
	bad=0
	if ! compile "$1" "$2" "$3" "$4" "$dir/in.ptx"; then
		echo "ok - $name # skip the compiler refuses it"
		return
	fi
	"$check" "$dir/in.ptx" "$dir" >"$dir/out" 2>&1 || why "$(grep -m3 broken "$dir/out" || tail -3 "$dir/out")"
	"$EGPU_SOURCE/tests/corpus/count.pl" "$dir/in.ptx" >"$dir/want"
	sed -n 's/^kernel \(.*\) block .*/\1/p' "$dir/out" >"$dir/got"
	while read -r line; do
		grep -qxF -e "$line" "$dir/want" || why "sites: $line" "text:  $(grep -m1 -e "^${line%% *} " "$dir/want")"
	done <"$dir/got"
	kernels=$(grep -c '^kernel' "$dir/out") refused=$(grep -c '^refused' "$dir/out")
	[ $((kernels + refused)) = "$(wc -l <"$dir/want")" ] || why "kernels: $kernels and $refused refused, the text has $(wc -l <"$dir/want")"
	if command -v ptxas >/dev/null; then
		if ptxas_takes "$dir/in.ptx"; then
			for p in "$dir"/[0-9]*.ptx; do
				[ -e "$p" ] || continue
				ptxas_takes "$p" || why "ptxas: $(head -2 "$p.log")"
			done
		else
			name="$name (ptxas does not take the original)"
		fi
	fi
	[ $bad = 0 ] && echo "ok - $name: $kernels kernels, $refused refused" || echo "not ok - $name"
	[ -s "$dir/why" ] && cat "$dir/why"
	rm -rf "$dir"
}

if [ "${1:-}" = --one ]; then
	work=$2 level=$3 keep=$4
	shift 4
	said=$keep/job-$1-$2-$3-$(basename "$4")
	[ -e "$said" ] || one "$1" "$2" "${3%-}" "$4" >"$said.$$"
	[ -e "$said.$$" ] && mv "$said.$$" "$said"
	# One write a job, so that lines of two jobs do not mix.
	printf '%s\n' "$(cat "$said")"
	grep -q '^ok' "$said" || rm -f "$said" # to be tried again
	exit 0
fi

jobs() { # COMPILER TARGET MODE SOURCE, one a line; MODE - is none
	for s in "$EGPU_SOURCE"/tests/corpus/hand_*.ptx; do
		t=$(target_of "$s")
		echo "hand ${t#sm_} - $s"
	done
	if command -v nvcc >/dev/null; then
		for s in "$EGPU_SOURCE"/tests/corpus/*.cu; do
			sm=$(asks "$s" sm)
			for t in $nvcc_targets; do
				case $sm,$t in
				90a,90a | 90a,90) t=90a ;;
				90a,*) continue ;;
				*) [ "${t%a}" -ge "${sm:-0}" ] || continue ;;
				esac
				for m in $modes; do echo "nvcc $t $m $s"; done
			done
		done | sort -u
	fi
	for c in $clangs; do
		command -v "$c" >/dev/null || continue
		for s in "$EGPU_SOURCE"/tests/corpus/clang_*.c; do
			sm=$(asks "$s" sm)
			for t in $clang_targets; do
				[ "$t" -ge "${sm:-0}" ] || continue
				[ "$t" = 90 ] && [ "$c" = clang-14 ] && continue
				for m in $clang_modes; do echo "$c $t $m $s"; done
			done
		done
	done
}

nvcc_targets=90 modes=- clangs=clang clang_targets=80 clang_modes=- level=0
if [ "${1:-}" = --full ]; then
	nvcc_targets="75 80 86 90 90a 100 120" modes="- O0 lineinfo rdc" level=3
	clangs="clang-14 clang-16 clang-19" clang_targets="75 80 86 90" clang_modes="- O0"
fi
if [ ! -x "$check" ]; then
	echo "1..0 # skip corpus_check is not built"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
keep=${EGPU_CORPUS_KEEP:-$work}
mkdir -p "$keep"
jobs >"$work/jobs"
n=$(wc -l <"$work/jobs")
command -v nvcc >/dev/null || echo "# no nvcc: $(ls "$EGPU_SOURCE"/tests/corpus/*.cu | wc -l) sources not tried"
command -v ptxas >/dev/null || echo "# no ptxas: its verdicts are missing"
xargs -P "$(nproc)" -L 1 "$0" --one "$work" "$level" "$keep" <"$work/jobs" >"$work/tap"
awk '/^(not )?ok - / { i++; sub(/ok -/, "ok " i " -") } { print }' "$work/tap"
echo "1..$n"
awk '/^not ok/ { bad = 1 } /# skip/ { skipped++ } /^ok/ { match($0, /: [0-9]+ kernels/); k += substr($0, RSTART + 2) }
	END { printf "# %d kernels instrumented, %d files skipped\n", k, skipped; exit bad }' "$work/tap"
