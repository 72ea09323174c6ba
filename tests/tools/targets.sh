#!/bin/bash
# targets.sh: every target that `make help` names is run by `make check` or `make check-all`, or
# stands in the table of docs/TESTING.md, with when it is run.
#
# What a target runs is read from the Makefile: its prerequisites, and the words of the lines of its
# recipe that call make, with variables that name targets replaced.
set -euo pipefail
cd "$(dirname "$0")/../.."

reached() { # roots
    sed -e ':join' -e '/\\$/{N;s/\\\n/ /;b join' -e '}' Makefile config/install.mk | awk -v roots="$*" '
        /^[A-Z_a-z]+ *=/ { name = $1; sub(/=.*/, "", name); sub(/^[^=]*=/, ""); value[name] = $0; next }
        /^[a-z][a-z -]*:[^=]*$/ || /^[a-z][a-z -]*:.*##/ {
            line = $0
            sub(/ ## .*/, "", line)
            at = index(line, ":")
            count = split(substr(line, 1, at - 1), now, " ")
            for (i = 1; i <= count; i++) runs[now[i]] = runs[now[i]] " " substr(line, at + 1)
            next
        }
        /^\t/ && /\$\(MAKE\)/ { for (i = 1; i <= count; i++) runs[now[i]] = runs[now[i]] " " $0; next }
        /^(ifeq|else|endif)/ { next }
        /^[^\t#]/ { count = 0 }
        END {
            left = split(roots, queue, " ")
            for (at = 1; at <= left; at++) {
                name = queue[at]
                if (name in done) continue
                done[name] = 1
                print name
                text = runs[name]
                for (depth = 0; depth < 4; depth++)
                    for (v in value) if (index(text, "$(" v ")")) text = text " " value[v]
                gsub(/[^A-Za-z0-9_.\/-]+/, " ", text)
                words = split(text, word, " ")
                for (i = 1; i <= words; i++) if (word[i] in runs) queue[++left] = word[i]
            }
        }' | sort -u
}

named=$(make -s help | awk '$1 == "make" { print $2 }' | sort -u)
run=$(reached check check-all)
listed=$(sed -n '/^## Targets that no check runs/,/^## /p' docs/TESTING.md |
    grep '^| `' | cut -d'|' -f2 | grep -o '[a-z][a-z-]*' | sort -u)
unlisted=$(comm -23 <(comm -23 <(echo "$named") <(echo "$run")) <(echo "$listed"))
stale=$(comm -23 <(echo "$listed") <(comm -23 <(echo "$named") <(echo "$run")))
if [ -n "$unlisted$stale" ]; then
    echo "targets: no check runs and docs/TESTING.md does not list:" ${unlisted:-none}
    echo "targets: listed there though run, or no target:" ${stale:-none}
    exit 1
fi
echo "targets: $(echo "$named" | wc -l) named by make help, $(comm -12 <(echo "$named") <(echo "$run") | wc -l)" \
    "run by check or check-all, $(echo "$listed" | wc -l) listed with when: ok"
