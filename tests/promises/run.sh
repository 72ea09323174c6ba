#!/bin/bash
# run.sh: plants each defect of tests/promises/*.txt in a copy of the tree, one at a time, and sees
# that the test which its entry names fails.
#
#   tests/promises/run.sh [--match] [WORD]...
#
# With words, only the entries of which a file name or a line contains one of them; --match only
# looks whether each snippet is in its file exactly once, which takes a second.  Fails where a snippet is not in its file exactly once, where the named
# test fails without a defect or passes with it, and where a defect does not build.  README.md
# describes the entries.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."

test_seconds=240 # after which a suite counts as failed
work=$(mktemp -d)
copy=$work/tree
trap 'rm -rf "$work"' EXIT
bad=0
found=0

# Writes each entry that matches a word into files of its own, and prints the number of entries.
split_entries() { # word...
    awk -v work="$work" '
        function finish(   i, wanted) {
            if (promise == "")
                return
            wanted = words == 0
            for (i = 1; i <= words; i++)
                wanted = wanted || index(all, word[i])
            if (file == "" || old == "" || test == "") {
                print where ": an entry needs file, - and test" >"/dev/stderr"
                exit failed = 1
            }
            if (wanted) {
                count++
                printf "%s\n%s\n%s\n%s\n", where, promise, file, test >(work "/entry" count)
                printf "%s", substr(old, 2) >(work "/old" count)
                printf "%s", substr(new, 2) >(work "/new" count)
                close(work "/entry" count); close(work "/old" count); close(work "/new" count)
            }
            promise = file = old = new = test = ""
        }
        BEGIN {
            for (i = 1; i < ARGC && ARGV[i] != "--"; i++) {
                word[++words] = ARGV[i]
                ARGV[i] = ""
            }
            ARGV[i] = ""
        }
        /^promise / { finish(); promise = substr($0, 9); where = FILENAME ":" FNR; all = FILENAME }
        { all = all "\n" $0 }
        /^file / { file = $2 }
        /^test / { test = substr($0, 6) }
        /^-/ { old = old "\n" substr($0, 3) }
        /^\+/ { new = new "\n" substr($0, 3) }
        !/^(promise |file |test |[-+]( |$)|#|$)/ { print FILENAME ":" FNR ": not a line of an entry" >"/dev/stderr"; exit failed = 1 }
        END { if (!failed) { finish(); print count + 0 } exit failed }
    ' "$@" -- tests/promises/*.txt
}

complain() { # where, what
    printf '%s: %s\n' "$1" "$2"
    bad=$((bad + 1))
}

# Replaces the one place where the text of `old` stands; 1 where it stands nowhere or twice.
replace_once() { # file, old, new
    awk '
        function slurp(name,   text, line, first) {
            first = 1
            while ((getline line <name) > 0) {
                text = text (first ? "" : "\n") line
                first = 0
            }
            return text
        }
        BEGIN {
            text = slurp(ARGV[1]); old = slurp(ARGV[2]); new = slurp(ARGV[3])
            at = index(text, old)
            if (at == 0 || index(substr(text, at + 1), old) > 0)
                exit 1
            printf "%s%s%s\n", substr(text, 1, at - 1), new, substr(text, at + length(old))
        }' "$@"
}

build_copy() { # what a test needs
    make --no-print-directory -C "$copy" WERROR= -j2 "$@" >"$work/build" 2>&1
}

# Runs "KIND SUITE" in the copy; prints the names of the tests that failed, of the catalogue those of
# the cases.
failed_tests() { # kind, suite
    local program=build/$1
    [ "$1" != http ] || program=build/http_suite
    (cd "$copy" && CK_RUN_SUITE=$2 CK_DEFAULT_TIMEOUT=40 ATTND=build/attnd CK_VERBOSITY=normal \
        timeout -k 5 "$test_seconds" "$program") >"$work/output" 2>&1 && return
    {
        sed -nE 's/^[^:]*:[0-9]+:[FE]:[^:]*:test_([a-z0-9_]+):.*/\1/p' "$work/output"
        sed -nE 's/^tests\/catalogue\/[a-z]+\.txt:[0-9]+: ([^:(]*[^:( ]) *[:(].*/\1/p' "$work/output"
        grep -qE '^[0-9]+%: ' "$work/output" || echo "$1 $2 did not end"
    } | sort -u
}

# The suites that the entries name pass before anything is planted.
check_baseline() {
    local kind suite failed
    build_copy build/attnd build/attnd_no_ui build/unit build/http_suite build/catalogue || { cat "$work/build"; exit 1; }
    while read -r kind suite; do
        failed=$(failed_tests "$kind" "$suite" | tee "$work/known-$kind-$suite")
        [ -z "$failed" ] || complain "$kind $suite" "fails without a defect: $failed"
    done < <(for i in $(seq "$count"); do sed -n 4p "$work/entry$i"; done | cut -d' ' -f1,2 | sort -u)
}

try_entry() { # number
    local where promise file kind suite name failed target=build/attnd
    { read -r where; read -r promise; read -r file; read -r kind suite name; } <"$work/entry$1"
    [ "$kind" != unit ] || target=build/unit
    cp "$copy/$file" "$work/sound"
    if ! replace_once "$work/sound" "$work/old$1" "$work/new$1" >"$work/changed"; then
        complain "$where" "the snippet is not in $file exactly once"
        return
    fi
    cp "$work/changed" "$copy/$file"
    if ! build_copy "$target"; then
        complain "$where" "does not build: $(grep -m1 error "$work/build")"
    else
        failed=$(failed_tests "$kind" "$suite" | comm -13 "$work/known-$kind-$suite" -)
        if [ -z "$failed" ]; then
            complain "$where" "NOT FOUND by $kind $suite: $promise"
        elif [ -n "$name" ] && ! grep -qx "$name" <<<"$failed"; then
            complain "$where" "NOT FOUND by $name, but by ${failed//$'\n'/, }: $promise"
        else
            found=$((found + 1))
            printf '%s: found by %s: %s\n' "$where" "${name:-${failed//$'\n'/, }}" "$promise"
        fi
    fi
    cp "$work/sound" "$copy/$file"
}

match=
if [ "${1:-}" = --match ]; then
    match=1
    shift
fi
count=$(split_entries "$@")
[ "$count" -gt 0 ] || { echo "promises: no entry matches"; exit 1; }

if [ -n "$match" ]; then
    for i in $(seq "$count"); do
        { read -r where; read -r _; read -r file; } <"$work/entry$i"
        replace_once "$file" "$work/old$i" "$work/new$i" >/dev/null ||
            complain "$where" "the snippet is not in $file exactly once"
    done
    echo "promises: $count snippets, $((count - bad)) in their files"
    [ "$bad" -eq 0 ]
    exit
fi

mkdir -p "$copy/build"
cp -a clients config docs examples include lib server tests Makefile "$copy/"
for part in obj host deps attnd libattn.a unit http_suite slow_sync.so held_disk.so catalogue; do
    [ ! -e "build/$part" ] || cp -a "build/$part" "$copy/build/"
done
check_baseline
for i in $(seq "$count"); do
    try_entry "$i"
done
echo "promises: $count defects planted, $found found by the test that holds the promise"
[ "$bad" -eq 0 ]
