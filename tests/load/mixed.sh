#!/usr/bin/env bash
# mixed.sh: decodes beside a long attend, measured by build/mixed against a daemon of its own.
#
# Two small models: `short` is decoded, `long` (grouped heads, RoPE) takes the attends.  The engine
# has one thread less than there are CPUs, since clients and event threads need one too.
#
# usage: mixed.sh [seconds per run] [share of the capacity] [tokens]
#        ATTND=build/attnd MIXED=build/mixed THREADS=1
set -euo pipefail
cd "$(dirname "$0")/../.."
unset "${!OPENBLAS_@}"

attnd=${ATTND:-build/attnd}
cpus=$(nproc)
threads=${THREADS:-$((cpus > 1 ? cpus - 1 : 1))}
work=$(mktemp -d)
ulimit -n 8192

cat >"$work/config.json" <<'JSON'
{
  "port": 0,
  "max_sessions": 100000,
  "models": [
    {"name": "short", "random": {"hidden_size": 256, "num_attention_heads": 8, "is_causal": true,
                                 "seed": 1}},
    {"name": "long", "random": {"hidden_size": 1024, "num_attention_heads": 16,
                                "num_key_value_heads": 4, "is_causal": true, "rope_theta": 10000,
                                "seed": 2}}
  ]
}
JSON
"$attnd" --config "$work/config.json" --threads "$threads" --log error \
    >"$work/out" 2>"$work/err" &
pid=$!
trap 'kill -INT "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do
    grep -q ready "$work/out" && break
    sleep 0.1
done
port=$(sed -nE 's/.*ready on .*:([0-9]+)$/\1/p' "$work/out")
[ -n "$port" ] || { cat "$work/err"; exit 1; }
echo "$threads threads of $cpus CPUs"
"${MIXED:-build/mixed}" "$port" "$@"
