#!/usr/bin/env bash
# http.sh: how fast attnd answers, beside a bare libmicrohttpd and beside the library; make bench-http.
#
# Alternatives take turns and medians count.  cpu_us is the server's CPU time for one request, which
# other work on the machine moves less than the rate.  Parts:
#   replies   a bare reply, GET /livez, and a /decode with next to nothing to compute (8 wide, one
#             head): the hand-over to the scheduler and back
#   one       one connection: what a call costs beyond the library's; the 4096 wide model has one
#             head of 64, so that the computation does not drown the difference.  Client and event
#             threads, the bare server's too, share a CPU or have one each: wakes cost by that
#   decode    /decode on the small model, JSON and binary
#   batch     32 sessions of the small model, by 32 connections and as lists, beside the library
# Each goal is said to be met or unmet.  The status is 1 only where something failed.
#
# usage: http.sh [--json]      QUICK=1 for a short run, OUT=build, PARTS="replies one decode batch"
set -euo pipefail
cd "$(dirname "$0")/../.."
unset "${!OPENBLAS_@}"

json=
[ "${1:-}" = --json ] && json=1
out=${OUT:-build}
parts=" ${PARTS:-replies one decode batch} "
work=$(mktemp -d)
cached=128 # tokens of each session of the small model
ulimit -n 8192

if [ -n "${QUICK:-}" ]; then
    rounds=1 counts="1 32 256" decode_counts="1 32 256" calls=50
else
    rounds=3 counts="1 16 32 128 256 1000" decode_counts="1 8 32 128 256 1000" calls=400
fi

# ---- Servers -----------------------------------------------------------------------------------

cat >"$work/models.json" <<'JSON'
{"models": [
  {"name": "tiny", "random": {"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1,
                              "is_causal": true, "seed": 1}},
  {"name": "small", "random": {"hidden_size": 256, "num_attention_heads": 8, "num_hidden_layers": 1,
                               "is_causal": true, "seed": 1}},
  {"name": "wide", "random": {"hidden_size": 4096, "num_attention_heads": 1, "head_dim": 64,
                              "num_hidden_layers": 1, "is_causal": true, "seed": 1}}]}
JSON
"$out/bench_http" bare >"$work/bare" 2>"$work/err" &
bare_pid=$!
trap 'kill $bare_pid $attnd_pid 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
"$out/attnd" --config "$work/models.json" --port 0 --log error ${ATTND_FLAGS:-} \
    >"$work/attnd" 2>>"$work/err" &
attnd_pid=$!
for _ in $(seq 200); do
    grep -q ready "$work/attnd" && grep -q http "$work/bare" && break
    sleep 0.1
done
bare=$(cat "$work/bare")
attnd=$(grep -o 'http://[^ ]*' "$work/attnd") || { cat "$work/err"; exit 1; }

# ---- Measuring ---------------------------------------------------------------------------------

# Sums of stages and batches: parse queue compute write batch_sum batch_count
stages() {
    curl -sf "$attnd/metrics" | awk '
        /^attnd_stage_seconds_sum/ { split($1, part, "\""); value[part[2]] = $2 }
        /^attnd_decode_batch_size_(sum|count)/ { sub(/{.*/, "", $1); value[$1] += $2 }
        END { print value["parse"], value["queue"], value["compute"], value["write"],
              value["attnd_decode_batch_size_sum"], value["attnd_decode_batch_size_count"] }'
}

# Microseconds that a process and its threads have run.
cpu_us() { cat /proc/"$1"/task/*/schedstat | awk '{ ns += $1 } END { printf "%.0f", ns / 1000 }'; }

# One run of wrk; appends "rate p50 p99 bad errors shares... batch cpu" to a file: run FILE COUNT URL
run() {
    local before after result pid=$attnd_pid cpu
    [ "$3" = "$bare/" ] && pid=$bare_pid
    before=$(stages)
    cpu=$(cpu_us "$pid")
    result=$(wrk -t1 -c"$2" -d1s --timeout 10s -s tests/bench/http.lua "$3" |
        awk '/^RESULT/ { $1 = ""; print }')
    [ -n "$result" ] || { echo "http.sh: wrk stopped early" >&2; exit 1; }
    cpu=$(($(cpu_us "$pid") - cpu))
    after=$(stages)
    echo "$result $before $after" | awk -v cpu="$cpu" '{
        for (i = 0; i < 4; i++) { took[i] = $(12 + i) - $(6 + i); all += took[i] }
        batches = $17 - $11
        print $1, $2, $3, $4, $5, all ? took[0] / all : 0, all ? took[1] / all : 0,
              all ? took[2] / all : 0, all ? took[3] / all : 0,
              batches ? ($16 - $10) / batches : 0, cpu / $1 }' >>"$work/$1"
}

decode() { # FILE COUNT MODEL WIDTH FORM SESSIONS TOGETHER
    PREFIX="$3-" WIDTH=$4 FORM=$5 SESSIONS=$6 TOGETHER=$7 run "$1" "$2" "$attnd"
}

# The median of each column of a file.
median() {
    local column
    for column in $(seq "$(awk '{ print NF; exit }' "$work/$1")"); do
        awk -v c="$column" '{ print $c }' "$work/$1" | sort -g | awk '{ v[NR] = $1 }
            END { printf "%s ", v[int((NR + 1) / 2)] }'
    done
}

head_of_table() {
    [ -n "$json" ] || printf '%-22s %6s %8s %8s %8s %7s %6s %6s  %s\n' what conns rate p50_us \
        p99_us non-2xx batch cpu_us 'parse queue compute write'
}

row() { # WHAT COUNT FILE
    median "$3" | awk -v what="$1" -v n="$2" -v json="$json" '{
        if ($4 + $5 > 0) failed = 1
        if (json)
            printf "{\"what\":\"%s\",\"connections\":%d,\"rate\":%d,\"p50_us\":%d,\"p99_us\":%d," \
                "\"non_2xx\":%d,\"socket_errors\":%d,\"parse\":%.3f,\"queue\":%.3f," \
                "\"compute\":%.3f,\"write\":%.3f,\"batch\":%.1f,\"cpu_us\":%.1f}\n",
                what, n, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
        else
            printf "%-22s %6d %8d %8d %8d %7d %6.1f %6.1f  %4.0f%% %4.0f%% %6.0f%% %4.0f%%\n",
                what, n, $1, $2, $3, $4, $10, $11, 100 * $6, 100 * $7, 100 * $8, 100 * $9
        exit failed }' || { echo "http.sh: $1 at $2 connections: requests failed" >&2; exit 1; }
}

goal() { # NAME VALUE least|most LIMIT UNIT
    awk -v name="$1" -v value="$2" -v kind="$3" -v limit="$4" -v unit="$5" -v json="$json" 'BEGIN {
        met = (kind == "least" ? value >= limit : value <= limit) ? "met" : "unmet"
        if (json)
            printf "{\"goal\":\"%s\",\"value\":%.2f,\"%s\":%s,\"unit\":\"%s\",\"verdict\":\"%s\"}\n",
                name, value, kind, limit, unit, met
        else
            printf "goal: %s: %.2f %s, at %s %s: %s\n", name, value, unit, kind, limit, met }'
}

first() { median "$1" | awk '{ print $1 }'; }
quotient() { awk -v a="$1" -v b="$2" 'BEGIN { print 100 * a / b }'; }

# ---- Parts -------------------------------------------------------------------------------------

measure_replies() {
    local n best=0 best_bare=0 rate
    "$out/bench_http" sessions "$attnd" tiny 8 1000 1 tiny-
    head_of_table
    for n in $counts; do
        for _ in $(seq "$rounds"); do
            run "bare-$n" "$n" "$bare/"
            run "livez-$n" "$n" "$attnd/livez"
            decode "tiny-$n" "$n" tiny 8 binary 1000 1
        done
        row 'bare reply' "$n" "bare-$n"
        row 'GET /livez' "$n" "livez-$n"
        row 'hand-over' "$n" "tiny-$n"
        rate=$(first "tiny-$n")
        [ "$rate" -gt "$best" ] && best=$rate
        rate=$(first "bare-$n")
        [ "$rate" -gt "$best_bare" ] && best_bare=$rate
    done
    goal 'best rate through the hand-over' "$best" least 75000 requests/s
    goal 'the same, of the best rate of bare replies' "$(quotient "$best" "$best_bare")" least 50 %
}

# Puts both event threads on a CPU; attnd's other threads run where they like.
serve_on() {
    local task
    taskset -cp "$1" "$bare_pid" >/dev/null
    for task in /proc/"$attnd_pid"/task/*; do
        [ "$(cat "$task/comm")" != attnd-event ] || taskset -cp "$1" "${task##*/}" >/dev/null
    done
}

measure_at() { # PLACEMENT CPU_OF_CLIENT CPU_OF_SERVERS
    serve_on "$3"
    "$out/bench_http" one "$bare" "$attnd" "$calls" "$2" >"$work/one"
    at() { awk -v m="$1" -v k="$2" '$1 == m && $2 == k { print $3 }' "$work/one"; }
    if [ -n "$json" ]; then
        awk -v where="$1" '{
            printf "{\"what\":\"one connection, %s\",\"model\":\"%s\",\"cpus\":\"%s\",\"us\":%s}\n",
                   $2, $1, where, $3 }' "$work/one"
    else
        awk -v where="$1" '{
            printf "one connection, %s, %s: %-31s %9.1f us\n", where, $1, $2, $3 }' "$work/one"
    fi
    goal "$1, hand-over beyond bare reply and library call, p50 at one connection" \
        "$(at tiny binary-beyond-library-and-bare)" most 15 us
    goal "$1, one row of 4096 in binary beyond the library call" \
        "$(at wide binary-beyond-library)" most 60 us
    goal "$1, one row of 4096 in JSON beyond the library call" \
        "$(at wide json-beyond-library)" most 200 us
}

measure_one() {
    local cpus first last
    cpus=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
    first=${cpus%%[-,]*} last=${cpus##*[-,]}
    measure_at 'one CPU' "$first" "$first"
    [ "$first" = "$last" ] || measure_at 'a CPU each' "$first" "$last"
    serve_on "$cpus"
}

start_small() {
    [ -e "$work/started" ] ||
        "$out/bench_http" sessions "$attnd" small 256 1000 "$cached" small-
    touch "$work/started"
}

measure_decode() {
    local n form
    start_small
    head_of_table
    for n in $decode_counts; do
        for _ in $(seq "$rounds"); do
            for form in json binary; do
                decode "small-$form-$n" "$n" small 256 "$form" "$((n > 32 ? n : 32))" 1
            done
        done
        for form in json binary; do
            row "/decode small, $form" "$n" "small-$form-$n"
        done
    done
}

measure_batch() {
    local form limit
    start_small
    for _ in $(seq "$rounds"); do
        "$out/bench_http" library small 32 "$cached" 1 >>"$work/library"
        for form in json binary; do
            decode "batch-$form" 32 small 256 "$form" 32 1
            decode "list-$form" 2 small 256 "$form" 64 32
        done
    done
    head_of_table
    for form in json binary; do
        row "32 connections, $form" 32 "batch-$form"
        row "lists of 32, $form" 2 "list-$form"
    done
    [ -n "$json" ] || echo "library, batch of 32: $(first library) rows/s"
    for form in json binary; do
        limit=$([ $form = json ] && echo 60 || echo 85)
        goal "32 sessions by 32 connections in $form, of the library's rate" \
            "$(quotient "$(first "batch-$form")" "$(first library)")" least "$limit" %
        goal "the same as lists of 32, two connections" \
            "$(quotient "$((32 * $(first "list-$form")))" "$(first library)")" least "$limit" %
    done
}

[ -n "$json" ] || echo "machine: $(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo), $(nproc) CPUs;" \
    "$("$out/attnd" --version | tr '\n' ' ')"
for part in replies one decode batch; do
    case $parts in *" $part "*) "measure_$part" ;; esac
done
