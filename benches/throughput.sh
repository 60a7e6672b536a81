#!/bin/sh
# Measures how many commands per second `tally run`, xargs and GNU parallel run on the same machine, one after the
# other.
#
#   benches/throughput.sh            2,000 times `true`, eight at a time, the best of three
#   COUNT=500 RUNS=1 TALLY=target/debug/tally benches/throughput.sh
#
# Prints figures and asserts nothing. Tools that are not installed are skipped with a message.
set -eu

cd "$(dirname "$0")/.."
COUNT=${COUNT:-2000}
WIDTH=${WIDTH:-8}
RUNS=${RUNS:-3}
TALLY=${TALLY:-${CARGO_TARGET_DIR:-target}/shipped/tally}

if [ ! -x "$TALLY" ]; then
    echo "there is no $TALLY; make it with: cargo build --profile shipped" >&2
    exit 1
fi

now() { date +%s%N; }

# The time of a command line in milliseconds, or the earlier result $1 if that was shorter.
least() {
    began=$(now)
    sh -c "$2" >/dev/null 2>&1 || { echo "failed: $2" >&2; exit 1; }
    took=$((($(now) - began) / 1000000))
    if [ -n "$1" ] && [ "$1" -lt "$took" ]; then echo "$1"; else echo "$took"; fi
}

show() { awk -v name="$1" -v ms="$2" -v n="$COUNT" 'BEGIN { printf "%-14s %7.2f s  %6.0f a second\n", name, ms / 1000, n * 1000 / ms }'; }
ratio() { awk -v name="$1" -v other="$2" -v ours="$3" 'BEGIN { printf "tally run is %.2f times as fast as %s\n", other / ours, name }'; }

echo "$COUNT times \`true\`, $WIDTH at a time, the best of $RUNS, $(nproc) processors"
ours= indexed= xargs= parallel=
# moreutils installs another program of this name.
gnu=$(parallel --version 2>/dev/null | head -n 1 | grep GNU || true)
# The tools take turns, so that other load on the machine affects all of them.
for _ in $(seq "$RUNS"); do
    ours=$(least "$ours" "'$TALLY' run --quiet --completions $COUNT --parallelism $WIDTH -- true")
    indexed=$(least "$indexed" "'$TALLY' run --quiet --indexed --completions $COUNT --parallelism $WIDTH -- true")
    if command -v xargs >/dev/null 2>&1; then xargs=$(least "$xargs" "seq $COUNT | xargs -P $WIDTH -n 1 true"); fi
    if [ -n "$gnu" ]; then parallel=$(least "$parallel" "seq $COUNT | parallel -j $WIDTH true"); fi
done
show "tally run" "$ours"
show "  --indexed" "$indexed"
if [ -n "$xargs" ]; then show "xargs -P" "$xargs"; else echo "xargs is missing (Debian: findutils)"; fi
if [ -n "$parallel" ]; then show "GNU parallel" "$parallel"; else echo "GNU parallel is missing (Debian: parallel)"; fi
[ -z "$xargs" ] || ratio xargs "$xargs" "$ours"
[ -z "$parallel" ] || ratio "GNU parallel" "$parallel" "$ours"
