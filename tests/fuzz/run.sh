#!/bin/bash
# run.sh: runs fuzzing targets, as many at once as there are CPUs, and counts what they find.
#
#   tests/fuzz/run.sh DIRECTORY TARGET...
#
# DIRECTORY holds the programs fuzz_TARGET.  Corpora are kept in DIRECTORY/corpus/TARGET, inputs that
# broke something in DIRECTORY/findings.  The environment sets FUZZ_SECONDS (60) or FUZZ_RUNS for each
# target.  Seeds are tests/fuzz/seeds/TARGET and, for model_config, the configurations of the tests'
# models.
set -euo pipefail

out=$1
shift
limit=-max_total_time=${FUZZ_SECONDS:-60}
if [ -n "${FUZZ_RUNS:-}" ]; then
    limit=-runs=$FUZZ_RUNS
fi
mkdir -p "$out/findings"
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:allocator_may_return_null=1:quarantine_size_mb=8
export UBSAN_OPTIONS=print_stacktrace=1

seeds_of() { # target
    echo "tests/fuzz/seeds/$1"
    if [ "$1" = model_config ]; then
        mkdir -p "$out/models"
        for file in tests/{golden,reference}/*/model/config.json; do
            { printf '\0'; cat "$file"; } >"$out/models/$(echo "$file" | tr / _)"
        done
        echo "$out/models"
    fi
}

number() { # name of a statistic, log: 0 where the log does not have it
    sed -nE "s/^stat::$1: *([0-9]+)/\1/p" "$2" | tail -1 | grep . || echo 0
}

fuzz() { # target: its line of the summary, and its log where something was found
    local target=$1 corpus=$out/corpus/$1 log=$out/$1.log seeds words=() status=0 found=
    mkdir -p "$corpus"
    mapfile -t seeds < <(seeds_of "$target")
    if [ -e "tests/fuzz/$target.dict" ]; then
        words=(-dict="tests/fuzz/$target.dict")
    fi
    "$out/fuzz_$target" "$limit" -max_len=8192 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        "${words[@]}" -artifact_prefix="$out/findings/$target-" "$corpus" "${seeds[@]}" \
        >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || found=', A FINDING'
    printf 'fuzz: %-14s %10d executions, %5d edges, %5d inputs%s\n' "$target" \
        "$(number number_of_executed_units "$log")" \
        "$(sed -nE 's/.* cov: ([0-9]+) .*/\1/p' "$log" | tail -1)" \
        "$(find "$corpus" -type f | wc -l)" "$found"
    [ "$status" = 0 ] || tail -40 "$log"
    return "$status"
}

findings=0
for target in "$@"; do
    if [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; then
        wait -n || findings=$((findings + 1))
    fi
    fuzz "$target" &
done
while [ -n "$(jobs -p)" ]; do
    wait -n || findings=$((findings + 1))
done
executions=0
for target in "$@"; do
    executions=$((executions + $(number number_of_executed_units "$out/$target.log")))
done
echo "fuzz: $# parsers, $executions executions, $findings findings"
[ "$findings" = 0 ]
