#!/bin/bash
# page_style.sh: the rules of docs/STYLE.md for the page's scripts, which a machine can check.
#
#   tests/tools/page_style.sh [--write] PRETTIER [TYPESCRIPT]
#
# These are where fetch_prettier.sh and fetch_typescript.sh have put those programs.  Every breach is one
# line; the last line is the summary.  --write formats instead.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."

mode=--check
if [ "${1:-}" = --write ]; then
    mode=--write
    shift
fi
prettier=$1/package/bin/prettier.cjs
mapfile -t scripts < <(find server/ui tests/ui -name '*.js' -o -name '*.mjs' -type f | sort)
mapfile -t sheets < <(find server/ui -name '*.css' | sort)

if [ "$mode" = --write ]; then
    exec node "$prettier" --log-level warn --write "${scripts[@]}" "${sheets[@]}"
fi

typescript=$2/package/lib/tsc.js
report=$(mktemp)
trap 'rm -f "$report"' EXIT
{
    node "$typescript" --version >/dev/null || echo "$typescript does not run"
    { node "$prettier" --list-different "${scripts[@]}" "${sheets[@]}" || true; } |
        sed 's/$/: not as Prettier has it (make format)/'
    { node "$typescript" -p server/ui/tsconfig.json --pretty false || true; } |
        sed -nE 's/^([^ (]+)\(([0-9]+),[0-9]+\): error /\1:\2: /p; /^error /p'
    { grep -nE '^(export )?(let|var) ' server/ui/*.js || true; } |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: state of a module that is not in the store (store.js)/'
    awk '
        FNR == 1 { finish(); file = FILENAME; limit = file ~ /^tests\// ? 900 : 700 }
        { lines = FNR }
        function finish() {
            if (file != "" && lines >= limit)
                print file ": " lines " lines, must stay below " limit
        }
        END { finish() }' "${scripts[@]}"
} >"$report"

cat "$report"
breaches=$(wc -l <"$report")
echo "page-style: ${#scripts[@]} scripts, ${#sheets[@]} sheets:" \
    "$([ "$breaches" -eq 0 ] && echo ok || echo "$breaches breaches")"
[ "$breaches" -eq 0 ]
