#!/bin/bash
# run.sh: runs fuzzing targets one after another and counts what they find.
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

number() { # name of a statistic, log
    sed -nE "s/^stat::$1: *([0-9]+)/\1/p" "$2" | tail -1
}

executions=0
findings=0
for target in "$@"; do
    corpus=$out/corpus/$target
    log=$out/$target.log
    mkdir -p "$corpus"
    mapfile -t seeds < <(seeds_of "$target")
    words=()
    if [ -e "tests/fuzz/$target.dict" ]; then
        words=(-dict="tests/fuzz/$target.dict")
    fi
    failed=0
    "$out/fuzz_$target" "$limit" -max_len=8192 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        "${words[@]}" -artifact_prefix="$out/findings/$target-" "$corpus" "${seeds[@]}" \
        >"$log" 2>&1 || failed=1
    runs=$(number number_of_executed_units "$log")
    edges=$(sed -nE 's/.* cov: ([0-9]+) .*/\1/p' "$log" | tail -1)
    printf 'fuzz: %-14s %10d executions, %5d edges, %5d inputs%s\n' "$target" "${runs:-0}" \
        "${edges:-0}" "$(find "$corpus" -type f | wc -l)" "$([ "$failed" = 0 ] || echo ', A FINDING')"
    if [ "$failed" = 1 ]; then
        tail -40 "$log"
    fi
    executions=$((executions + ${runs:-0}))
    findings=$((findings + failed))
done
echo "fuzz: $# parsers, $executions executions, $findings findings"
[ "$findings" = 0 ]
