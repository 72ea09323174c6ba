#!/usr/bin/env bash
# journal.sh: what journal_fsync=os costs /decode on the small model, at most 5 %.
#
# Two daemons, one without durability and one with a journal, take turns under the same load (one
# session per connection, wrk), so that other work on the machine slows both alike; the daemon that
# goes first changes from turn to turn.  The figure is the median of the turns' ratios of rates.
# Beside it stands the median ratio of requests per second of processor time, which also counts
# workers that wait for the write.  The last line has both; the script fails where the first is below
# 0.95.  A busy machine needs more turns.
#
# usage: journal.sh [turns] [seconds per run]      CONNECTIONS=64 ATTND=build/attnd
set -euo pipefail
cd "$(dirname "$0")/../.."
unset "${!OPENBLAS_@}"

turns=${1:-25}
seconds=${2:-1}
attnd=${ATTND:-build/attnd}
connections=${CONNECTIONS:-64}
work=$(mktemp -d)
pids=()
trap 'kill -INT "${pids[@]}" 2>/dev/null; wait "${pids[@]}" 2>/dev/null; rm -rf "$work"' EXIT

start() { # name, arguments
    local name=$1
    shift
    "$attnd" --config config/presets/small.json --port 0 --log error "$@" \
        >"$work/$name.out" 2>"$work/$name.err" &
    pids+=($!)
    eval "pid_$name=$!"
    for _ in $(seq 100); do
        grep -q ready "$work/$name.out" && break
        sleep 0.1
    done
    grep -om 1 'http://[^ ]*' "$work/$name.out" >"$work/$name.url" || {
        cat "$work/$name.err"
        exit 1
    }
}

ticks() { # name: processor time of the daemon so far
    local pid=pid_$1
    awk '{ print $14 + $15 }' "/proc/${!pid}/stat"
}

run() { # name, turn
    local result rate bad errors before
    before=$(ticks "$1")
    result=$(wrk -t1 -c"$connections" -d"${seconds}s" --timeout 10s -s tests/load/decode.lua \
        "$(cat "$work/$1.url")" -- 256 "$connections" "$1$2" | awk '/^RESULT/ { print $2, $5, $6 }')
    read -r rate bad errors <<<"$result"
    if [ -z "${rate:-}" ] || [ "$bad" -ne 0 ] || [ "$errors" -ne 0 ]; then
        echo "check-journal: FAILED: the load met errors ($result)"
        exit 1
    fi
    eval "rate_$1=$rate"
    eval "cost_$1=$(awk -v t=$(($(ticks "$1") - before)) -v r="$rate" -v s="$seconds" \
        'BEGIN { printf "%.2f", t * 1e4 / (r * s) }')"
}

start none
start journal --durability journal --journal-fsync os --state-dir "$work/state"
rate_none=0 rate_journal=0 cost_none=0 cost_journal=0
printf '%10s %10s %6s %10s %10s %6s\n' rate journal ratio us/request journal ratio
for turn in $(seq "$turns"); do
    order=(none journal)
    if [ $((turn % 2)) -eq 0 ]; then order=(journal none); fi
    for name in "${order[@]}"; do run "$name" "$turn"; done
    awk -v a="$rate_none" -v b="$rate_journal" -v c="$cost_none" -v d="$cost_journal" \
        'BEGIN { printf "%10d %10d %6.3f %10.1f %10.1f %6.3f\n", a, b, b / a, c, d, c / d }'
done | tee "$work/turns"
median() { # column
    awk -v c="$1" '{ print $c }' "$work/turns" | sort -n |
        awk '{ r[NR] = $1 } END { printf "%.3f", (r[int((NR + 1) / 2)] + r[int((NR + 2) / 2)]) / 2 }'
}
rate=$(median 3)
cost=$(median 6)
verdict="rate with journal_fsync=os / without: $rate as clocked, $cost by processor time"
if awk -v r="$rate" 'BEGIN { exit !(r < 0.95) }'; then
    echo "check-journal: FAILED: $verdict, must be 0.95"
    exit 1
fi
echo "check-journal: $verdict, over $turns turns: ok"
