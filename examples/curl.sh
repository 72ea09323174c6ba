#!/usr/bin/env bash
# curl.sh: attend, attention maps, a session and decodes, with curl and nothing else.
#
#   build/attnd --config config/attnd.json &
#   examples/curl.sh [URL [MODEL]]          URL [http://127.0.0.1:8080], MODEL [the first one]
#
# API_KEY is sent where it is set.  Ends with 1 at the first request that fails.  Needs curl 7.82, which
# has --json.
set -euo pipefail
export LC_ALL=C

url=${1:-http://127.0.0.1:8080}
key=(${API_KEY:+-H "Authorization: Bearer $API_KEY"})
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Sends a request; prints the reply, cut to a line.  `path`, then options of curl.
call() {
    local path=$1
    shift
    curl -sS --fail-with-body --max-time 30 "${key[@]}" "$@" "$url$path" >"$work/reply" ||
        { cat "$work/reply"; echo; exit 1; }
    head -c 160 "$work/reply" && echo
}

# A member of the last reply: text or a number.
member() { sed -nE "s/.*\"$1\":\"?([^\",}]*).*/\1/p" "$work/reply" | sed -n 1p; }

# Rows of hidden states, [[..],[..]], uniform in +-1.
rows() { # count, seed
    awk -v rows="$1" -v seed="$2" -v width="$width" 'BEGIN {
        srand(seed)
        for (r = 0; r < rows; r++) {
            printf "%s[", r ? "," : "["
            for (i = 0; i < width; i++)
                printf "%s%.4f", i ? "," : "", 2 * rand() - 1
            printf "]"
        }
        printf "]"
    }'
}

echo "== Attention without a model: one head, two queries, two keys"
call /attend --json '{"query":[[[1,0],[0,1]]], "key":[[[1,0],[0,1]]], "value":[[[1,2],[3,4]]],
  "outputs":["output","attention_weights"]}'

echo "== The model"
call "/models${2:+/$2}"
model=${2:-$(sed -nE 's/^[^}]*"models":\[\{"name":"([^"]*)".*/\1/p' "$work/reply")}
if [ -z "$model" ]; then
    echo "curl.sh: attnd serves no model; start it with --config config/attnd.json"
    exit 1
fi
call "/models/$model"
width=$(member hidden_size)

echo "== Attention over three tokens by layer 0 of $model, and its maps, averaged over the heads"
call /attend --json "{\"model\":\"$model\",\"hidden_states\":$(rows 3 1),
  \"outputs\":[\"attention_weights\",\"lse\"],\"average_heads\":true}"

echo "== The two largest weights of each row of head 0, and statistics of that head"
call /attend --json "{\"model\":\"$model\",\"hidden_states\":$(rows 3 1),
  \"outputs\":[\"attention_weights\",\"head_stats\"],\"heads\":[0],\"top_k\":2}"

echo "== The same tokens in binary form: a reply of JSON and float32"
call /attend -H 'Accept: application/octet-stream' -D "$work/head" -o "$work/reply.bin" \
    --json "{\"model\":\"$model\",\"hidden_states\":$(rows 3 1)}"
length=$(tr -d '\r' <"$work/head" | sed -nE 's/^Inference-Header-Content-Length: ([0-9]+)$/\1/p')
head -c "$length" "$work/reply.bin" && echo
od -A n -t f4 -j "$length" -N 16 "$work/reply.bin"

echo "== A session: a prefill of three tokens, then two decodes; position makes each safe to repeat,"
echo "   and a proxy of several attnds finds the one that has the session by X-Session-Id"
call /sessions -H "Idempotency-Key: curl-$$-$RANDOM" --json "{\"model\":\"$model\",\"ttl_s\":600}"
session=$(member session_id)
call /attend -H "X-Session-Id: $session" \
    --json "{\"session_id\":\"$session\",\"position\":0,\"hidden_states\":$(rows 3 1)}"
for position in 3 4 4; do
    call /decode -H "X-Session-Id: $session" --json "{\"session_id\":\"$session\",
      \"position\":$position,\"hidden_states\":$(rows 1 "$position")}"
done
[ "$(member replayed)" = true ] || { echo "curl.sh: the repeated step was not recognised"; exit 1; }

echo "== The session, a fork of its first two tokens, and the end of both"
call "/sessions/$session" -H "X-Session-Id: $session"
call "/sessions/$session/fork" -H "X-Session-Id: $session" --json '{"length":2}'
for id in "$(member session_id)" "$session"; do
    call "/sessions/$id" -X DELETE -H "X-Session-Id: $id"
done
echo "curl.sh: ok"
