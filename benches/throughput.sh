#!/bin/sh
# Measures how many commands per second `tally run` and comparable tools run on the same machine.
#
#   benches/throughput.sh            2,000 times `true`, eight at a time, the best of three rounds
#   COUNT=500 RUNS=1 TALLY=target/debug/tally benches/throughput.sh
#
# Prints figures and asserts nothing. Tools that are not installed are skipped with a message. HyperQueue is asked for in
# the Python of $PYTHON (pip install hyperqueue).
set -eu

cd "$(dirname "$0")/.."
COUNT=${COUNT:-2000}
WIDTH=${WIDTH:-8}
RUNS=${RUNS:-3}
PYTHON=${PYTHON:-python3}
TALLY=${TALLY:-${CARGO_TARGET_DIR:-target}/release/tally}

if [ ! -x "$TALLY" ]; then
    echo "there is no $TALLY; make it with: cargo build --release" >&2
    exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
seq "$COUNT" >"$scratch/list"
{ printf 'all:'; seq -f ' t%.0f' "$COUNT" | tr -d '\n'; printf '\n'; seq -f 't%.0f: ; @true' "$COUNT"; } >"$scratch/makefile"
# moreutils installs another program named parallel.
parallel=$(parallel --version 2>/dev/null | head -n 1 | grep GNU || true)
spooler=$(command -v tsp || true)
hyperqueue=$("$PYTHON" -c 'import hyperqueue' 2>/dev/null && echo yes || true)

now() { date +%s%N; }

# Runs the tool $1 with the command line $2 and keeps its milliseconds, if no earlier round was faster.
measure() {
    began=$(now)
    sh -c "$2" >"$scratch/out" 2>&1 || { echo "failed: $2" >&2; cat "$scratch/out" >&2; exit 1; }
    keep "$1" $((($(now) - began) / 1000000))
}
keep() {
    if [ ! -e "$scratch/$1.ms" ] || [ "$2" -lt "$(cat "$scratch/$1.ms")" ]; then echo "$2" >"$scratch/$1.ms"; fi
}

# task-spooler has no list: every command is a request of its own to its server.
spool() {
    TS_SOCKET=$scratch/spooler
    export TS_SOCKET
    "$spooler" -S "$WIDTH"
    measure task-spooler "for _ in \$(seq $COUNT); do '$spooler' -n true; done; '$spooler' -w"
    "$spooler" -K
}

echo "$COUNT times \`true\`, $WIDTH at a time, the best of $RUNS rounds, $(nproc) processors"
# The tools take turns, so that other load on the machine affects all of them.
for round in $(seq "$RUNS"); do
    measure tally "'$TALLY' run --quiet --completions $COUNT --parallelism $WIDTH -- true"
    measure indexed "'$TALLY' run --quiet --indexed --completions $COUNT --parallelism $WIDTH -- true"
    measure each "'$TALLY' run --quiet --each '$scratch/list' --parallelism $WIDTH -- true {}"
    measure kept "'$TALLY' run --quiet --data-dir '$scratch/kept.$round' --completions $COUNT --parallelism $WIDTH -- true"
    if command -v xargs >/dev/null 2>&1; then measure xargs "xargs -P $WIDTH -n 1 true <'$scratch/list'"; fi
    if command -v make >/dev/null 2>&1; then measure make "make -s -j $WIDTH -f '$scratch/makefile'"; fi
    if [ -n "$parallel" ]; then measure parallel "parallel -j $WIDTH true <'$scratch/list'"; fi
    if [ -n "$spooler" ]; then spool; fi
    if [ -n "$hyperqueue" ]; then keep hyperqueue "$("$PYTHON" benches/with_hyperqueue.py "$COUNT" "$WIDTH" 2>/dev/null | tail -n 1)"; fi
done

tally=$(cat "$scratch/tally.ms")
kept=$(cat "$scratch/kept.ms")
# A row: a name, the file with its milliseconds, and the package that has the tool.
row() {
    if [ ! -e "$scratch/$2.ms" ]; then
        echo "$1 is missing ($3)"
        return
    fi
    awk -v name="$1" -v ms="$(cat "$scratch/$2.ms")" -v n="$COUNT" -v tally="$tally" -v kept="$kept" 'BEGIN {
        printf "%-22s %7.2f s  %6.0f a second", name, ms / 1000, n * 1000 / ms
        if (name !~ /^tally/) printf "   tally run is %.2f times as fast, kept %.2f", ms / tally, ms / kept
        print ""
    }'
}
row "tally run" tally
row "tally run --indexed" indexed
row "tally run --each" each
row "tally run --data-dir" kept
row "xargs -P" xargs "Debian: findutils"
row "make -j" make "Debian: make"
row "GNU parallel" parallel "Debian: parallel"
row "task-spooler" task-spooler "Debian: task-spooler"
row "HyperQueue" hyperqueue "pip install hyperqueue"
