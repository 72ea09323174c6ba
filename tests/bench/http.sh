#!/usr/bin/env bash
# http.sh: how fast attnd answers, beside bare servers and the library; make bench-http.
#
# Servers have the first CPU that this process may use, clients the last, so that neither takes
# time from the other; attnd then computes on one thread, and the library beside it too.
# Alternatives take turns and medians count.  cpu_us is the server's CPU time for one request, which
# other work on the machine moves less than the rate; busy is the server's share of its CPU: where
# it is well below 100 %, other programs or the client have set the rate.  wakes are the context
# switches of the server's threads for one request.  Parts:
#   replies   a bare reply of libmicrohttpd, and of nginx where that is installed, GET /livez, and a
#             /decode with next to nothing to compute (8 wide, one head): the hand-over to the
#             scheduler and back; the system calls of a request where strace may be used
#   one       one connection: what a call costs beyond the library's; the 4096 wide model has one
#             head of 64, so that the computation does not drown the difference.  The client shares
#             the servers' CPU, or has its own: wakes cost by that
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
cpus=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
server_cpu=${cpus%%[-,]*} client_cpu=${cpus##*[-,]}
ulimit -n 8192

if [ -n "${QUICK:-}" ]; then
    rounds=1 counts="32 128 1000" decode_counts="32" calls=50
else
    rounds=3 counts="1 32 128 1000" decode_counts="1 8 32 128 256 1000" calls=400
fi

# ---- Servers -----------------------------------------------------------------------------------

pids=()
trap 'kill ${pids[@]+"${pids[@]}"} 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT

serve() { # FILE COMMAND...
    local file=$1
    shift
    taskset -c "$server_cpu" "$@" >"$work/$file" 2>>"$work/err" &
    pids+=($!)
}

cat >"$work/models.json" <<'JSON'
{"models": [
  {"name": "tiny", "random": {"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1,
                              "is_causal": true, "seed": 1}},
  {"name": "small", "random": {"hidden_size": 256, "num_attention_heads": 8, "num_hidden_layers": 1,
                               "is_causal": true, "seed": 1}},
  {"name": "wide", "random": {"hidden_size": 4096, "num_attention_heads": 1, "head_dim": 64,
                              "num_hidden_layers": 1, "is_causal": true, "seed": 1}}]}
JSON
serve bare "$out/bench_http" bare
serve attnd "$out/attnd" --config "$work/models.json" --port 0 --log error ${ATTND_FLAGS:-}
nginx=
if command -v nginx >"$work/which" || PATH=$PATH:/usr/sbin command -v nginx >"$work/which"; then
    port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
    cat >"$work/nginx.conf" <<CONF
daemon off; master_process off; pid $work/nginx.pid; error_log $work/nginx.err;
events { worker_connections 4096; }
http {
    access_log off; default_type application/json; keepalive_requests 1000000000;
    client_body_temp_path $work/b; proxy_temp_path $work/p; fastcgi_temp_path $work/f;
    uwsgi_temp_path $work/u; scgi_temp_path $work/s;
    server { listen 127.0.0.1:$port backlog=4096; location / { return 200 '{"status":"ok"}'; } }
}
CONF
    serve nginx "$(cat "$work/which")" -c "$work/nginx.conf"
    nginx=http://127.0.0.1:$port
fi
for _ in $(seq 200); do
    grep -q ready "$work/attnd" && grep -q http "$work/bare" && break
    sleep 0.1
done
bare=$(cat "$work/bare")
attnd=$(grep -om 1 'http://[^ ]*' "$work/attnd") || { cat "$work/err"; exit 1; }

# ---- Measuring ---------------------------------------------------------------------------------

# Sums of stages and batches: parse queue compute write batch_sum batch_count
stages() {
    curl -sf "$attnd/metrics" | awk '
        /^attnd_stage_seconds_sum/ { split($1, part, "\""); value[part[2]] = $2 }
        /^attnd_decode_batch_size_(sum|count)/ { sub(/{.*/, "", $1); value[$1] += $2 }
        END { print value["parse"], value["queue"], value["compute"], value["write"],
              value["attnd_decode_batch_size_sum"], value["attnd_decode_batch_size_count"] }'
}

# Microseconds that a process and its threads have run, and their context switches.
cpu_us() { cat /proc/"$1"/task/*/schedstat | awk '{ ns += $1 } END { printf "%.0f", ns / 1000 }'; }
switches() { cat /proc/"$1"/task/*/status | awk '/ctxt_switches/ { n += $2 } END { print n }'; }

# The process that serves a URL.
pid_of() {
    case $1 in
    "$bare"/) echo "${pids[0]}" ;;
    "$attnd"*) echo "${pids[1]}" ;;
    *) echo "${pids[2]}" ;;
    esac
}

load() { # COUNT URL: prints what http.lua does
    taskset -c "$client_cpu" wrk -t1 -c"$1" -d1s --timeout 10s -s tests/bench/http.lua "$2" |
        awk '/^RESULT/ { $1 = ""; print; n++ } END { exit !n }' ||
        { echo "http.sh: wrk stopped early" >&2; exit 1; }
}

# One run of wrk; appends "rate p50 p99 bad errors shares... batch cpu busy wakes" to a file:
# run FILE COUNT URL
run() {
    local before after result pid cpu start wakes
    pid=$(pid_of "$3")
    before=$(stages)
    cpu=$(cpu_us "$pid") wakes=$(switches "$pid") start=${EPOCHREALTIME/./}
    result=$(load "$2" "$3")
    cpu=$(($(cpu_us "$pid") - cpu)) wakes=$(($(switches "$pid") - wakes))
    after=$(stages)
    echo "$result $before $after" | awk -v cpu="$cpu" -v wakes="$wakes" \
        -v us="$((${EPOCHREALTIME/./} - start))" '{
        for (i = 0; i < 4; i++) { took[i] = $(12 + i) - $(6 + i); all += took[i] }
        batches = $17 - $11
        print $1, $2, $3, $4, $5, all ? took[0] / all : 0, all ? took[1] / all : 0,
              all ? took[2] / all : 0, all ? took[3] / all : 0,
              batches ? ($16 - $10) / batches : 0, cpu / $1, 100 * cpu / us, wakes / $1 }' \
        >>"$work/$1"
}

# System calls of a request, each kind that there is for one in a hundred: calls WHAT COUNT URL.
# Tracing makes each call slow, so nothing else of such a run counts.
calls() {
    local result tracer
    [ -z "$json" ] && command -v strace >"$work/which" || return 0
    strace -f -c -o "$work/strace" -p "$(pid_of "$3")" 2>"$work/strace.err" &
    tracer=$!
    sleep 0.3
    result=$(load "$2" "$3")
    kill -INT "$tracer" 2>/dev/null && wait "$tracer" 2>/dev/null || true
    awk -v what="$1" -v n="$2" -v result="$result" '
        BEGIN { split(result, part); rate = part[1] }
        rate > 0 && $4 + 0 >= rate / 100 && $NF != "total" {
            kinds = kinds sprintf(" %s %.2f", $NF, $4 / rate)
        }
        $NF == "total" { printf "system calls of a request, %s, %d connections: %.2f:%s\n",
                                what, n, $4 / rate, kinds }' "$work/strace" 2>/dev/null || true
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
    [ -n "$json" ] || printf '%-22s %6s %8s %8s %8s %7s %6s %6s %5s %5s  %s\n' what conns rate \
        p50_us p99_us non-2xx batch cpu_us busy wakes 'parse queue compute write'
}

row() { # WHAT COUNT FILE
    median "$3" | awk -v what="$1" -v n="$2" -v json="$json" '{
        if ($4 + $5 > 0) failed = 1
        if (json)
            printf "{\"what\":\"%s\",\"connections\":%d,\"rate\":%d,\"p50_us\":%d,\"p99_us\":%d," \
                "\"non_2xx\":%d,\"socket_errors\":%d,\"parse\":%.3f,\"queue\":%.3f," \
                "\"compute\":%.3f,\"write\":%.3f,\"batch\":%.1f,\"cpu_us\":%.1f," \
                "\"busy\":%.0f,\"wakes\":%.2f}\n",
                what, n, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13
        else
            printf "%-22s %6d %8d %8d %8d %7d %6.1f %6.1f %4.0f%% %5.2f  " \
                "%4.0f%% %4.0f%% %6.0f%% %4.0f%%\n",
                what, n, $1, $2, $3, $4, $10, $11, $12, $13, 100 * $6, 100 * $7, 100 * $8, 100 * $9
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
    local n
    "$out/bench_http" sessions "$attnd" tiny 8 1000 1 tiny-
    head_of_table
    for n in $counts; do
        for _ in $(seq "$rounds"); do
            run "bare-$n" "$n" "$bare/"
            [ -z "$nginx" ] || run "nginx-$n" "$n" "$nginx/"
            run "livez-$n" "$n" "$attnd/livez"
            decode "tiny-$n" "$n" tiny 8 binary 1000 1
        done
        row 'bare reply' "$n" "bare-$n"
        [ -z "$nginx" ] || row 'nginx' "$n" "nginx-$n"
        row 'GET /livez' "$n" "livez-$n"
        row 'hand-over' "$n" "tiny-$n"
    done
    for n in $counts; do
        goal "hand-over, $n connections, of bare replies" \
            "$(quotient "$(first "tiny-$n")" "$(first "bare-$n")")" least 60 %
        [ -z "$nginx" ] || goal "hand-over, $n connections, of nginx" \
            "$(quotient "$(first "tiny-$n")" "$(first "nginx-$n")")" least 50 %
    done
    goal 'hand-over, 1000 connections, of 128' "$(quotient "$(first tiny-1000)" \
        "$(first tiny-128)")" least 85 %
    calls 'bare reply' 32 "$bare/"
    PREFIX=tiny- WIDTH=8 FORM=binary SESSIONS=1000 TOGETHER=1 calls hand-over 32 "$attnd"
}

measure_at() { # PLACEMENT CPU_OF_CLIENT
    taskset -c "$2" "$out/bench_http" one "$bare" "$attnd" "$calls" >"$work/one"
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
    measure_at 'one CPU' "$server_cpu"
    [ "$server_cpu" = "$client_cpu" ] || measure_at 'a CPU each' "$client_cpu"
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

# The goal of a form and a way of sending, of the library's rate; the same of CPU time, which other
# programs move less.
batch_goal() { # NAME FILE ROWS LIMIT
    goal "32 sessions, $1, of the library's rate" \
        "$(quotient "$(($3 * $(first "$2")))" "$(first library)")" least "$4" %
    [ -n "$json" ] || median "$2" | awk -v rows="$3" -v us="$(median library | cut -d' ' -f2)" '{
        printf "      CPU time of a row: the library %.1f us, this %.1f us: %.0f %%\n", us, $11 / rows,
               100 * rows * us / $11 }'
}

measure_batch() {
    local form
    start_small
    for _ in $(seq "$rounds"); do
        taskset -c "$server_cpu" "$out/bench_http" library small 32 "$cached" 1 >>"$work/library"
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
    [ -n "$json" ] || echo "library, batch of 32, one thread: $(first library) rows/s"
    batch_goal '32 connections in binary' batch-binary 1 75
    batch_goal 'lists in binary' list-binary 32 90
    batch_goal '32 connections in JSON' batch-json 1 50
    batch_goal 'lists in JSON' list-json 32 70
    PREFIX=small- WIDTH=256 FORM=binary SESSIONS=32 TOGETHER=1 calls '32 sessions' 32 "$attnd"
}

[ -n "$json" ] || echo "machine: $(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo), $(nproc) CPUs;" \
    "servers on CPU $server_cpu, clients on $client_cpu;" \
    "$("$out/attnd" --version | tr '\n' ' ')"
for part in replies one decode batch; do
    case $parts in *" $part "*) "measure_$part" ;; esac
done
