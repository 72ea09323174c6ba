#!/usr/bin/env bash
# decode.sh: /decode under load: one session per connection, 32, 256 and 1,000 connections.
#
# Prints for each: requests/s, p50 and p99 in microseconds, replies other than 2xx, socket errors,
# and the mean number of steps that were computed as one batch (from /metrics).  Fails where a
# request failed, where the mean batch is 4 or less, or where 1,000 connections reach less than half
# the rate of 32.
#
# usage: decode.sh [seconds per run]      CONNECTIONS="32 256 1000" ATTND=build/attnd
set -euo pipefail
cd "$(dirname "$0")/../.."
unset "${!OPENBLAS_@}"

seconds=${1:-20}
attnd=${ATTND:-build/attnd}
connections=${CONNECTIONS:-32 256 1000}
work=$(mktemp -d)
ulimit -n 8192

"$attnd" --config config/presets/small.json --port 0 --log error \
    >"$work/out" 2>"$work/err" &
pid=$!
trap 'kill -INT "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do
    grep -q ready "$work/out" && break
    sleep 0.1
done
url=$(grep -om 1 'http://[^ ]*' "$work/out") || { cat "$work/err"; exit 1; }

# The sum of a metric over its labels.
metric() {
    curl -sf "$url/metrics" | awk -F'[ {]' -v name="$1" '$1 == name { sum += $NF } END { print sum + 0 }'
}

failed=()
declare -A rate
curl -sf "$url/models" | grep -o '"kernels":{[^}]*}' | sed -n 1p
printf '%11s %10s %8s %8s %8s %7s %11s\n' connections rate p50_us p99_us non-2xx errors mean_batch
for n in $connections; do
    sum=$(metric attnd_decode_batch_size_sum) count=$(metric attnd_decode_batch_size_count)
    result=$(wrk -t1 -c"$n" -d"${seconds}s" --timeout 10s -s tests/load/decode.lua "$url" \
        -- 256 "$n" "c$n-$$" | awk '/^RESULT/ { $1 = ""; print }')
    [ -n "$result" ] || { echo "wrk stopped early"; exit 1; }
    read -r r p50 p99 bad errors <<<"$result"
    batch=$(awk -v s="$(metric attnd_decode_batch_size_sum)" -v s0="$sum" -v c0="$count" \
        -v c="$(metric attnd_decode_batch_size_count)" 'BEGIN { print (s - s0) / (c - c0) }')
    printf '%11d %10d %8d %8d %8d %7d %11.1f\n' "$n" "$r" "$p50" "$p99" "$bad" "$errors" "$batch"
    rate[$n]=$r
    [ "$bad" -eq 0 ] || failed+=("$bad replies other than 2xx on $n connections")
    [ "$errors" -eq 0 ] || failed+=("$errors socket errors on $n connections")
    awk -v b="$batch" 'BEGIN { exit !(b <= 4) }' &&
        failed+=("the mean batch of $n connections is $batch, must be above 4")
done
if [ -n "${rate[32]:-}" ] && [ -n "${rate[1000]:-}" ]; then
    awk -v a="${rate[32]}" -v b="${rate[1000]}" 'BEGIN {
        printf "1,000 connections run at %.2f of the rate of 32\n", b / a; exit !(b < a / 2) }' &&
        failed+=("1,000 connections run at less than half the rate of 32")
fi
if [ ${#failed[@]} -ne 0 ]; then
    printf 'decode load: FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "decode load: ok"
