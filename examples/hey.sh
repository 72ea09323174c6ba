#!/usr/bin/env bash
# hey.sh: 2,000 times attention without a model, over 16 connections, with hey.
#
#   build/attnd &
#   examples/hey.sh [URL]                   URL [http://127.0.0.1:8080]
#
# REQUESTS [2000], CONNECTIONS [16].  API_KEY is sent where it is set.  Ends with 1 where a
# reply was not 200.
set -euo pipefail
export LC_ALL=C

url=${1:-http://127.0.0.1:8080}
requests=${REQUESTS:-2000}
connections=${CONNECTIONS:-16}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One head of 16 tokens, 8 wide.
matrix=$(awk 'BEGIN {
    srand(7)
    for (t = 0; t < 16; t++) {
        printf "%s[", t ? "," : "[["
        for (i = 0; i < 8; i++)
            printf "%s%.4f", i ? "," : "", 2 * rand() - 1
        printf "]"
    }
    printf "]]"
}')
echo "{\"query\":$matrix,\"key\":$matrix,\"value\":$matrix}" >"$work/body.json"

# hey divides the requests by the connections, and leaves a rest undone.
requests=$((requests - requests % connections))
hey -n "$requests" -c "$connections" -m POST -T application/json -D "$work/body.json" \
    ${API_KEY:+-H "Authorization: Bearer $API_KEY"} "$url/attend" | tee "$work/report"
done=$(sed -nE 's/^ *\[200\][[:space:]]+([0-9]+) responses$/\1/p' "$work/report")
echo "hey.sh: ${done:-0} of $requests replies were 200"
[ "${done:-0}" -eq "$requests" ]
