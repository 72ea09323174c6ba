#!/bin/bash
# run.sh: starts attnd and shows some requests with their replies, for `make run`.
#
#   tests/tools/run.sh [build/attnd]
#
# Starts the daemon on config/attnd.json, waits until it is ready, posts an /attend, a prefill, three
# /decode steps and rows of a sentence for a trained head with curl, prints requests and replies, and
# leaves the daemon serving until Ctrl-C.  ATTND_RUN_ONCE=1 stops it after the requests.  ATTN_PORT
# and the other ATTN_* variables reach the daemon as usual; the address is read from the daemon's
# ready line.
set -euo pipefail
cd "$(dirname "$0")/../.."

attnd=${1:-build/attnd}
log=build/attnd.log
width=512 # hidden_size of mha and gqa of config/attnd.json
daemon=
ready_seconds=60
address_of='s/.*ready on (http:\/\/[^" ]+).*/\1/p'

# Stops the daemon, which first finishes the requests in progress, and waits for its end.
stop() {
    trap '' INT TERM HUP
    if [ -n "$daemon" ] && kill -INT "$daemon" 2>/dev/null; then
        wait "$daemon" || true
    fi
}
trap 'stop' EXIT
trap 'echo; echo "Stopping attnd."; exit 0' INT TERM HUP

start() {
    mkdir -p "$(dirname "$log")"
    : >"$log" # before the daemon starts: the ready line of the last run must not be found
    # In a session of its own, so that Ctrl-C reaches this script only, which sends the daemon one
    # SIGINT.  A second one would end the daemon at once.
    setsid "$attnd" --config config/attnd.json >>"$log" 2>&1 &
    daemon=$!
    local tenths
    for ((tenths = 0; tenths < ready_seconds * 10; tenths++)); do
        url=$(sed -nE "$address_of" "$log" | sed -n 1p)
        if [ -n "$url" ]; then
            return
        fi
        if ! kill -0 "$daemon" 2>/dev/null; then
            refused
        fi
        sleep 0.1
    done
    echo "run: attnd was not ready after $ready_seconds s; the end of its log, $log:" >&2
    tail -n 5 "$log" >&2
    exit 1
}

# Prints why attnd ended before it was ready.
refused() {
    echo "run: attnd did not start; the end of its log, $log:" >&2
    tail -n 5 "$log" >&2
    if grep -qi 'in use' "$log"; then
        echo "run: the port is in use; stop the program that has it, or take any free port: ATTN_PORT=0 make run" >&2
    fi
    exit 1
}

# Rows of hidden states, [[..],[..]]: uniform in +-1, the same for the same seed.
rows() { # count, seed
    awk -v rows="$1" -v seed="$2" -v width="$width" -f tests/tools/rows.awk
}

# Posts a body; prints the request, of a file its name, and the reply.
post() { # path, body or @FILE
    local reply status
    echo
    echo "POST $1"
    if [ "${2:0:1}" = @ ]; then
        echo "    $2"
    else
        awk -f tests/tools/pretty.awk <<<"$2"
    fi
    reply=$(curl -sS --max-time 30 -H 'Content-Type: application/json' -w '\n%{http_code}' \
        --data-binary "$2" "$url$1")
    status=${reply##*$'\n'}
    echo "Reply: HTTP $status"
    awk -f tests/tools/pretty.awk <<<"${reply%$'\n'*}"
    if [ "${status:0:1}" != 2 ]; then
        echo "run: POST $1 failed with HTTP status $status" >&2
        exit 1
    fi
}

show() {
    local session="run-$$" step
    echo "1. Multi-head attention over three tokens, with the attention weights of each token."
    post /attend "{\"model\":\"mha\",\"hidden_states\":$(rows 3 1),\
\"outputs\":[\"output\",\"attention_weights\"],\"average_heads\":true}"

    echo
    echo "2. A session keeps the keys and values of its tokens: create it, prefill four tokens, then"
    echo "   decode three tokens, one per request.  Each token attends to itself and all before it."
    post /sessions "{\"session_id\":\"$session\",\"model\":\"gqa\"}"
    post /attend "{\"model\":\"gqa\",\"session_id\":\"$session\",\"hidden_states\":$(rows 4 2)}"
    for step in 4 5 6; do
        post /decode "{\"model\":\"gqa\",\"session_id\":\"$session\",\"position\":$step,\
\"hidden_states\":$(rows 1 "$step")}"
    done

    echo
    echo "3. A trained model, examples/demo: in a sentence that occurs again this head attends to what"
    echo "   followed the last time (target_hits)."
    post /attend @examples/demo/sentence.json
}

start
echo "attnd is ready on $url (two small models with random weights and a trained one, config/attnd.json)."
if viewer=$(grep -oE 'attention viewer: http.*' "$log"); then
    echo "Its $viewer"
fi
echo "Long rows are shortened here: \"... 509 more\" stands for 509 numbers."
echo
show
echo
if [ -n "${ATTND_RUN_ONCE:-}" ]; then
    exit 0
fi
echo "attnd keeps serving on $url; its log is $log.  In another terminal, try:"
echo "    curl $url/models"
echo "Press Ctrl-C to stop attnd."

status=0
wait "$daemon" || status=$?
daemon=
echo "run: attnd ended unexpectedly with status $status; the end of its log, $log:" >&2
tail -n 5 "$log" >&2
exit 1
