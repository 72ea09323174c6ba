#!/bin/bash
# presets.sh: checks that config/presets/README.md has the figures that attnd prints.
#
#   tests/tools/presets.sh ATTND           each preset has its row in the table, with these figures
#   tests/tools/presets.sh ATTND --print   the rows, for the table
set -euo pipefail
export LC_ALL=C

attnd=$(realpath "${1:?usage: presets.sh ATTND [--print]}")
cd "$(dirname "$0")/../../config/presets"

# The row of a preset with the figures of attnd --check; the description after them is written by hand.
row_of() { # file
    env -i "$attnd" --config "$1" --check --memory-limit 64GiB |
        sed -nE 's/^  ([a-z0-9-]+): random, [0-9]+ of ([0-9]+) layers, parameters ([0-9]+), weights ([0-9]+) bytes, cache ([0-9]+) bytes\/token, hidden_size ([0-9]+), heads ([0-9]+)\/([0-9]+) x ([0-9]+), .*/| `\1` | \6 | \7 | \8 | \9 | \2 | \3 | \4 | \5 |/p'
}

wrong=0
for file in *.json; do
    row=$(row_of "$file")
    if [ "${2:-}" = --print ]; then
        echo "$row"
    elif [ "${row#"| \`${file%.json}\` |"}" = "$row" ]; then
        echo "presets: $file: its one model must have the file's name, got: $row"
        wrong=1
    elif ! awk -v row="$row" 'index($0, row) == 1 { found = 1 } END { exit !found }' README.md; then
        echo "presets: README.md lacks: $row"
        wrong=1
    fi
done
exit $wrong
