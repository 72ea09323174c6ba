#!/bin/bash
# style.sh: the rules of docs/STYLE.md that a machine can check, over all C of this project.
# Every breach is one line `file:line: what`; the last line is the summary.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."

mapfile -t sources < <(find include lib server tests -name '*.[ch]' | sort)
mapfile -t product < <(find include lib server -name '*.[ch]' | sort)
mapfile -t library < <(find lib -name '*.c' | sort)
mapfile -t tables < <(find include lib server -name '*.def' | sort)
mapfile -t documents < <(find . -path ./build -prune -o \( -name '*.yml' -o -name '*.yaml' \) -print)
mapfile -t pages < <(find . -path ./build -prune -o -name '*.md' -print | sort)
mapfile -t scripts < <(find tests .ci -name '*.sh' -o -path '.ci/run' | sort)

# A list that has become empty, because what it names has moved, would pass all that it is for.
for list in sources product library tables documents pages scripts; do
    declare -n files=$list
    if [ "${#files[@]}" -eq 0 ]; then
        echo "style: no file is left in the list '$list'"
        exit 1
    fi
done

report=$(mktemp)
trap 'rm -f "$report"' EXIT

# Lines of the given files that match an extended regular expression: lines_with REGEX WHAT FILE...
lines_with() {
    local regex=$1 what=$2
    shift 2
    { grep -nHE "$regex" "$@" || true; } | sed -E "s/^([^:]*:[0-9]+):.*/\\1: $what/"
}

# Formatting is defined by Debian 12's clang-format; other versions disagree with it in details.
check_format() {
    local version
    version=$(clang-format --version | sed -E 's/.*version ([0-9]+).*/\1/')
    if [ "$version" != 14 ]; then
        echo "style: clang-format $version is not 14: formatting is not checked" >&2
        return
    fi
    { clang-format --dry-run "$@" 2>&1 || true; } |
        sed -nE 's/^([^:]*:[0-9]+):[0-9]+: warning: .*/\1: not as clang-format has it (make format)/p' |
        sort -u -t: -k1,1
}

check_text() {
    lines_with $'\t' 'tab' "$@"
    lines_with '[[:space:]]$' 'trailing blank' "$@"
    lines_with '\b(TO''DO|FIX''ME)\b' 'unfinished' "$@"
}

check_calls() {
    lines_with '\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok|alloca)[[:space:]]*\(' \
        'banned function' "$@"
}

# The library never prints, exits or aborts.
check_library() {
    lines_with '\b(printf|fprintf|vfprintf|puts|fputs|perror|_?exit|abort|assert)[[:space:]]*\(' \
        'the library does not print or exit' "${library[@]}"
}

# Sentences of comments name their subject.
check_comments() {
    lines_with '(/\*|^ *\*|//) *(They|Those|These|It|Whoever|What) |(/\*|^ *\*|//).*[.:] +(They|Those|These|It|Whoever) ' \
        'a sentence opens without its subject' "$@"
}

# Under pipefail a reader that ends early fails its pipe: its writer may meet a closed pipe.
check_pipes() {
    lines_with '\| (grep -[a-zA-Z]*q|grep .*-[a-zA-Z]*m ?1|head )' 'a reader of a pipe ends early' "$@"
}

# A suite that suites.h does not list would never run.
check_suites() {
    { grep -nHE '^(Suite \*suite_[a-z0-9_]+\(void|SUITE\([a-z0-9_]+)\)$' tests/{unit,http}/*.c || true; } |
        while IFS=: read -r file line text; do
            name=${text#*[_(]}
            name=${name%%[()]*}
            if ! grep -q "X($name)" "${file%/*}/suites.h"; then
                echo "$file:$line: suite $name is not listed in ${file%/*}/suites.h"
            fi
        done
}

# Columns of Markdown, except in tables and code, where lines are what they are.
check_markdown() {
    awk '
        FNR == 1 { code = 0 }
        /^```/ { code = !code }
        length($0) > 120 && !code && !/^\|/ && !/^    / {
            print FILENAME ":" FNR ": longer than 120 columns" }' "$@"
}

# Columns, length and opening comment of each file.
check_files() {
    awk '
        FNR == 1 {
            finish()
            file = FILENAME
            limit = file ~ /^tests\// ? 900 : 700
            name = file
            sub(/.*\//, "", name)
            if (index($0, "/* " name ":") != 1)
                print file ":1: does not open with \"/* " name ": what it answers for\""
        }
        length($0) > 100 { print FILENAME ":" FNR ": longer than 100 columns" }
        { lines = FNR }
        function finish() {
            if (file != "" && lines >= limit)
                print file ":" lines ": " lines " lines, must stay below " limit
        }
        END { finish() }' "$@"
}

# One line per function: file:line, length, name, parameters.  The house layout makes this simple: a
# function opens with a brace in column 1 and closes with the next one, or stands on one line.
functions_of() {
    awk '
        FNR == 1                { start = 0; head = "" }
        /^[A-Za-z].*\) \{.*\}$/ { print FILENAME ":" FNR, 1, name_of($0), parameters_of($0); next }
        /^[A-Za-z].*\(/         { head = "" }
        !start                  { head = head == "" ? $0 : head " " $0 }
        /^\{/                   { start = FNR }
        /^\}/ && start          {
            print FILENAME ":" start, FNR - start + 1, name_of(head), parameters_of(head)
            start = 0
            head = ""
        }
        function parameters_of(line,    i, c, depth, commas) {
            if (line ~ /enum MHD_Result /) # a callback as libmicrohttpd defines it
                return 0
            for (i = 1; i <= length(line) && !(c == ")" && depth == 0); i++) {
                c = substr(line, i, 1)
                depth += (c == "(") - (c == ")")
                commas += c == "," && depth == 1
            }
            return commas + 1
        }
        function name_of(line) {
            sub(/^(START_)?TEST[A-Z_]*\(/, "", line)
            sub(/[()].*/, "", line)
            sub(/.*[ *]/, "", line)
            return line
        }' "$@"
}

check_functions() { # reads functions_of; kernels are free of limits
    awk '
        $1 ~ /^lib\/kernels\// || $1 ~ /^tests\/kernels\// { next }
        {
            limit = $1 ~ /^tests\// ? 80 : 60
            if ($2 > limit)
                print $1 ": function " $3 " has " $2 " lines, at most " limit
            if ($4 > 7 && $1 !~ /^tests\//)
                print $1 ": function " $3 " has " $4 " parameters, at most 7"
        }'
}

summary_of() { # reads functions_of
    awk '$1 !~ /^lib\/kernels\// && $1 !~ /^tests\/kernels\// { print $2 }' | sort -n | awk '
        { length_of[NR] = $1 }
        END { printf "%d functions, median %d lines, longest %d", NR,
                     length_of[int((NR + 1) / 2)], length_of[NR] }'
}

{
    check_format "${sources[@]}"
    check_text "${sources[@]}" "${tables[@]}" "${scripts[@]}"
    check_pipes "${scripts[@]}" examples/*.sh
    check_calls "${sources[@]}"
    check_library
    check_comments "${product[@]}"
    check_suites
    check_files "${sources[@]}" "${tables[@]}"
    check_markdown "${pages[@]}"
    functions_of "${sources[@]}" | check_functions
    yamllint --strict -f parsable "${documents[@]}" || true
    if command -v shellcheck >/dev/null; then
        shellcheck -S warning -f gcc "${scripts[@]}" || true
    fi
} | sort -u -t: -k1,1 -k2,2n -k3 >"$report"

cat "$report"
breaches=$(wc -l <"$report")
counts="${#sources[@]} C files, ${#documents[@]} YAML files, $(functions_of "${sources[@]}" | summary_of)"
if [ "$breaches" -ne 0 ]; then
    echo "style: $counts: $breaches breaches"
    exit 1
fi
echo "style: $counts: ok"
