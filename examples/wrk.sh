#!/usr/bin/env bash
# wrk.sh: requests a second of attention without a model, and of decodes over sessions, with wrk.
#
#   build/attnd --config config/presets/small.json &
#   examples/wrk.sh [URL [MODEL]]           URL [http://127.0.0.1:8080], MODEL [the only one]
#
# SECONDS_EACH [5] of each run, CONNECTIONS [32].  The decodes are those of tests/load/decode.lua:
# one session for each connection, one row at a time.  API_KEY is sent where it is set.
set -euo pipefail
cd "$(dirname "$0")"

url=${1:-http://127.0.0.1:8080}
model=${2:-}
seconds=${SECONDS_EACH:-5}
connections=${CONNECTIONS:-32}
key=(${API_KEY:+-H "Authorization: Bearer $API_KEY"})
run=(wrk -t1 -c"$connections" -d"${seconds}s" --timeout 10s "${key[@]}")

echo "== POST /attend: 8 heads, 16 queries and keys, width 32"
"${run[@]}" -s attend.lua "$url" |
    awk '{ print } /^Requests\/sec/ { found = 1 } /^ *(Non-2xx|Socket errors)/ { bad = 1 }
         END { exit !found || bad }'

facts=$(curl -sSf --max-time 10 "${key[@]}" "$url/models${model:+/$model}")
width=$(sed -nE 's/.*"hidden_size":([0-9]+).*/\1/p' <<<"$facts" | sed -n 1p)
if [ -z "$width" ]; then
    echo "wrk.sh: attnd serves no model; decodes are left out"
    exit 0
fi
echo "== POST /decode: $connections sessions, rows of $width numbers in JSON"
"${run[@]}" -s ../tests/load/decode.lua "$url" -- "$width" "$connections" "wrk-$$" \
    ${model:+"$model"} |
    awk '/^RESULT/ { printf "%s requests/s, p50 %s us, p99 %s us, ", $2, $3, $4
                     printf "%s refused, %s socket errors\n", $5, $6
                     bad = $5 + $6; found = 1 }
         END { exit !found || bad > 0 }'
