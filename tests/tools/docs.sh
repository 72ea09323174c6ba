#!/bin/bash
# docs.sh: checks that the documentation agrees with the code and with the running daemon.
#
#   tests/tools/docs.sh ATTND LIBATTN TABLE_TEXT OPENAPI            check
#   tests/tools/docs.sh ATTND LIBATTN TABLE_TEXT OPENAPI --write    print the tables into the documents
#
# Tables   A line `<!-- printed: NAME -->` and a header stand before the rows that are printed from
#          what the daemon has, `<!-- end -->` after them.  The rows of a document must be these.
# Clients  The fields that the clients send as tensors are those of the table, in its datatypes.
# Examples Every block marked `sh` is run, in order, in a directory that looks like the top of the
#          tree.  The unmarked block after it is the expected output: numbers within 1e-6, `...` for
#          any text, a first line of three digits for the HTTP status (without one: any 2xx).
#          Epochs, revisions, request ids and idle times may differ.
#          `build/attnd --config FILE &` starts the daemon, on a free port in place of 8080.
# Names    What stands in `code` as one of our names, or as a file of source, is in the tree, but for
#          CHANGELOG.md; of a file the end of its path suffices, and NAME stands for any name.
# Links    Links to files and headings, in any document of the tree, must lead to one that exists.
# Speed    README's times are those of its table: of 512 tokens in f32, of one over 1,024 in bf16.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."

usage='usage: docs.sh ATTND LIBATTN TABLE_TEXT OPENAPI [--write]'
attnd=$(realpath "${1:?$usage}")
libattn=$(realpath "${2:?$usage}")
table_text=$(realpath "${3:?$usage}")
openapi=$(realpath "${4:?$usage}")
write=${5:-}
top=$PWD
documents=(*.md docs/*.md)
work=$(mktemp -d)
daemon=
wrong=0

stop() {
    if [ -n "$daemon" ]; then
        kill -INT "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
        daemon=
    fi
}
trap 'stop; rm -rf "$work"' EXIT

complain() { # what is wrong
    echo "docs: $1"
    wrong=$((wrong + 1))
}

# ---- The daemon ------------------------------------------------------------------------------------

# Makes the directory that examples run in: the tree's directories, the binaries under test, and a
# curl that knows the port and prints the status on a last line of its own.
make_top() {
    mkdir "$work/top" "$work/top/build" "$work/bin" "$work/blocks"
    ln -s "$top/include" "$top/config" "$top/examples" "$top/tests" "$work/top"
    ln -s "$attnd" "$work/top/build/attnd"
    ln -s "$libattn" "$work/top/build/libattn.a"
    cat >"$work/bin/curl" <<END
#!/bin/bash
exec $(command -v curl) -sS --max-time 5 -w '\n%{http_code}\n' "\${@/localhost:8080/\$(cat "$work/address")}"
END
    chmod +x "$work/bin/curl"
}

start() { # configuration, as the example names it
    local tenths
    stop
    : >"$work/ready" # removes the line of the daemon before
    (cd "$work/top" && exec env -i "$attnd" --config "$1" --port 0 --log error --instance docs \
        --cpu-level portable --threads 2 --memory-limit 64GiB) >"$work/ready" 2>"$work/log" &
    daemon=$!
    for ((tenths = 0; tenths < 100; tenths++)); do
        sed -nE 's/^attnd: ready on http:\/\/(.*)$/\1/p' "$work/ready" >"$work/address"
        if [ -s "$work/address" ]; then
            return
        fi
        sleep 0.1
    done
    echo "docs: attnd was not ready on $1 within 10 s: $(cat "$work/log")"
    exit 1
}

# ---- Tables ----------------------------------------------------------------------------------------

# The rows of each table, in a file of its name.
print_tables() {
    local name
    mkdir "$work/tables"
    for name in options bounds errors; do
        "$table_text" $name >"$work/tables/$name"
    done
    for name in routes fields create outputs; do
        /usr/bin/python3 tests/tools/openapi_tables.py "$openapi" $name >"$work/tables/$name"
    done
    curl -sf "http://$(cat "$work/address")/metrics" |
        awk '/^# HELP/ { name = $3; sub(/^# HELP [^ ]* /, ""); sub(/\.$/, ""); help = $0 }
             /^# TYPE/ { printf "| `%s` | %s | %s |\n", name, $4, help }' >"$work/tables/metrics"
}

# Prints a document with its tables as they should be.
with_tables() { # file
    awk -v tables="$work/tables/" '
        /^<!-- end -->$/ { name = "" }
        name == "" || lines > 0 { print; lines-- }
        /^<!-- printed: [a-z]+ -->$/ {
            name = $3
            lines = 2 # the header
        }
        name != "" && lines == 0 {
            while ((getline row <(tables name)) > 0)
                print row
            lines = -1
        }' "$1"
}

# Every table has rows and stands in one place, where it ends.
check_markers() {
    local name document
    for name in "$work"/tables/*; do
        [ -s "$name" ] || complain "nothing prints the table ${name##*/}"
    done
    if ! diff <(sed -nE 's/^<!-- printed: (.*) -->$/\1/p' "${documents[@]}" | sort) \
        <(printf '%s\n' "$work"/tables/* | sed 's#.*/##' | sort) >"$work/difference"; then
        complain "the tables of documents (<) are not those that are printed (>): $(grep '^[<>]' "$work/difference")"
    fi
    for document in "${documents[@]}"; do
        awk '/^<!-- printed: / { wrong = wrong || inside; inside = 1 }
             /^<!-- end -->$/ { wrong = wrong || !inside; inside = 0 }
             END { exit wrong || inside }' "$document" || complain "$document: a printed table has no end"
    done
}

check_tables() {
    local document
    check_markers
    if [ "$wrong" -ne 0 ]; then
        exit 1
    fi
    for document in "${documents[@]}"; do
        with_tables "$document" >"$work/document"
        if [ "$write" = --write ]; then
            cmp -s "$work/document" "$document" || cp "$work/document" "$document"
        elif ! diff -u "$document" "$work/document" >"$work/difference"; then
            complain "$document: a table is out of date (make docs): $(head -n 12 "$work/difference")"
        fi
    done
}

# ---- Examples --------------------------------------------------------------------------------------

# Writes blocks/FILE.LINE.sh for each `sh` block and .reply for the unmarked block after it.
extract_blocks() { # file
    awk -v into="$work/blocks/$(basename "$1" .md)" '
        /^```/ && open   { close(open); open = ""; next }
        open             { print > open; next }
        /^```sh$/        { last = sprintf("%s.%04d", into, FNR); open = last ".sh"; printf "" > open; next }
        /^```$/ && last  { open = last ".reply"; printf "" > open; last = ""; next }
        /^```/           { open = "/dev/null"; last = ""; next }
        /[^[:space:]]/   { last = "" }' "$1"
}

# Compares the printed text with the one that the document shows, token by token; prints the first
# difference.
compare() { # reply, printed
    awk '
        function split_tokens(text, into,    n, old) {
            n = 0
            while (match(text, /"([^"\\]|\\.)*"|\.\.\.|-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|[A-Za-z_]+|[^ \t\n]/)) {
                into[++n] = substr(text, RSTART, RLENGTH)
                text = substr(text, RSTART + RLENGTH)
            }
            return n
        }
        function is_number(token) { return token ~ /^-?[0-9]/ }
        function same(e, a,    at, gap) {
            if (is_number(e) && is_number(a)) {
                gap = e - a
                return (gap < 0 ? -gap : gap) <= 1e-6 * (e > 1 ? e : e < -1 ? -e : 1)
            }
            at = e ~ /^"/ ? index(e, "...") : 0
            if (at)
                return substr(a, 1, at - 1) == substr(e, 1, at - 1) && length(a) >= length(e) - 3 &&
                       substr(a, length(a) - length(e) + at + 3) == substr(e, at + 3)
            return e == a
        }
        function varies(token) { return token ~ /^"(epoch|revision|request_id|idle_s)"$/ }
        FILENAME == ARGV[1] { want = want $0 "\n"; next }
        { got = got $0 "\n" }
        END {
            wants = split_tokens(want, w)
            gots = split_tokens(got, g)
            for (i = j = 1; i <= wants; i++) {
                if (w[i] == "...") {
                    if (i == wants)
                        exit 0
                    while (j <= gots && !same(w[i + 1], g[j]))
                        j++
                    continue
                }
                free = i > 2 && varies(w[i - 2]) && w[i - 1] == ":"
                if (j > gots || !(free || same(w[i], g[j]))) {
                    print "shows " w[i] ", got " (j > gots ? "the end" : g[j])
                    exit 0
                }
                j++
            }
            if (j <= gots)
                print "ends, got " g[j]
        }' "$1" "$2"
}

check_status() { # wanted, got
    if [ -n "$1" ] && [ "$1" != "$2" ]; then
        echo "status $2, not $1"
    elif [ -z "$1" ] && [ "${2:0:1}" != 2 ]; then
        echo "status $2"
    fi
}

# Runs a block and prints its breaches.  Where its last command was curl, the last line of `printed`
# is the status.
run_block() { # block, without extension
    local printed=$work/printed status wanted='' reply=$1.reply why
    if ! (cd "$work/top" && timeout 10 env -i PATH="$work/bin:$PATH" LC_ALL=C bash -euo pipefail "$1.sh") \
        >"$printed" 2>"$work/errors"; then
        echo "failed: $(head -c 300 "$work/errors")"
        return
    fi
    status=$(tail -n 1 "$printed")
    if [[ $status =~ ^[0-9]{3}$ ]] && grep -q curl "$1.sh"; then
        sed -i '$d' "$printed"
        if [ -e "$reply" ] && [[ $(head -n 1 "$reply") =~ ^[0-9]{3}$ ]]; then
            wanted=$(head -n 1 "$reply")
            sed -i 1d "$reply"
        fi
        why=$(check_status "$wanted" "$status")
        if [ -n "$why" ]; then
            echo "$why: $(head -c 300 "$printed")"
            return
        fi
    fi
    if [ -e "$reply" ]; then
        compare "$reply" "$printed"
    fi
}

run_blocks() { # document
    local name block why line count=0
    name=$(basename "$1" .md)
    start config/attnd.json
    for block in "$work/blocks/$name".*.sh; do
        [ -e "$block" ] || continue
        count=$((count + 1))
        line=$((10#$(sed -E 's/.*\.([0-9]+)\.sh$/\1/' <<<"$block")))
        if [[ $(cat "$block") =~ ^build/attnd\ --config\ ([a-z-]+\.json)(\ --log\ error)?\ \&$ ]]; then
            start "${BASH_REMATCH[1]}"
            continue
        fi
        why=$(run_block "${block%.sh}")
        if [ -n "$why" ]; then
            complain "$1:$line: $why"
        fi
    done
    examples=$((examples + count))
}

# ---- Links -----------------------------------------------------------------------------------------

# The anchors of a document's headings, as the usual hosts of repositories make them.
anchors_of() { # file
    sed -nE '/^```/,/^```/d; s/^#+ +//p' "$1" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'
}

check_links() { # document
    local target file anchor
    while read -r target; do
        file=${target%%#*}
        anchor=${target#"$file"}
        file=${file:+$(dirname "$1")/$file}
        file=${file:-$1}
        if [ ! -e "$file" ]; then
            complain "$1: the link $target leads nowhere"
        elif [ -n "$anchor" ] && ! anchors_of "$file" | grep -x -- "${anchor#\#}" >/dev/null; then
            complain "$1: the link $target leads to no heading"
        fi
    done < <(grep -oE '\]\([^)]+\)' "$1" | sed -E 's/^\]\(//; s/\)$//' | grep -v '^https\?:' || true)
}

# ---- Names -----------------------------------------------------------------------------------------

# What stands between single backquotes outside of blocks, one a line.
code_of() { # document
    sed '/^```/,/^```/d' "$1" | grep -oE '`[^`]+`' | tr -d '`'
}

# The files of the tree, and the names in them that have our prefixes.
list_names() {
    find . ! -type d ! -path './build/*' ! -path './.git/*' ! -name '*.md' >"$work/files"
    { tr '\n' '\0' <"$work/files" | xargs -0 grep -oshIwE '(attn|srv|SRV)_[A-Za-z0-9_]+' || true; } |
        sort -u >"$work/names"
}

check_names() { # document
    local name path
    while read -r name; do
        complain "$1: \`$name\` is nowhere in the tree"
    done < <(code_of "$1" | grep -oE '\b((attn|srv)_[a-z0-9_]*[a-z0-9]|SRV_[A-Z0-9_]*[A-Z0-9])\b' | sort -u |
        comm -23 - "$work/names")
    while read -r name; do
        path=${name//NAME/[a-z0-9_]+}
        grep -qE "/${path/./\\.}\$" "$work/files" || complain "$1: there is no file \`$name\`"
    done < <(code_of "$1" | grep -xE '[A-Za-z0-9_/-]+\.(c|h|\[ch\]|def|sh|py|js|mjs)' | sort -u)
}

# ---- Clients ---------------------------------------------------------------------------------------

# The fields that are tensors, with the datatype that clients send them in: NAME FP32.
tensor_fields() {
    awk '/^FIELD/ { split($0, row, /[(,]/) }
        match($0, /\.tensor = SRV_[A-Z]+/) {
            kind = substr($0, RSTART + 14, RLENGTH - 14)
            print row[2], kind == "FLOATS" ? "FP32" : kind == "BOOLS" ? "BOOL" : "INT64"
        }' server/wire/call_fields.def | sort
}

# The lists of tensors in the two clients are those of the table of fields.
check_clients() {
    local python=clients/python/attn_client.py js=clients/js/attn-client.mjs
    [ -n "$(tensor_fields)" ] || complain "server/wire/call_fields.def: no row of a tensor is found"
    diff <(tensor_fields) <(sed -n '/^_TENSORS = {/,/}/p' $python | grep -oE '"[a-z_]+": "[A-Z0-9]+"' |
        tr -d '":' | sort) >"$work/difference" ||
        complain "$python: _TENSORS is not as server/wire/call_fields.def: $(tr '\n' ' ' <"$work/difference")"
    diff <(tensor_fields) <(sed -n '/^const TENSORS = {/,/}/p' $js | sed -nE 's/^ *([a-z_]+): ([A-Z0-9]+),$/\1 \2/p' |
        sed 's/F32/FP32/; s/I64/INT64/; s/MASK/BOOL/' | sort) >"$work/difference" ||
        complain "$js: TENSORS is not as server/wire/call_fields.def: $(tr '\n' ' ' <"$work/difference")"
}

# ---- Speed -----------------------------------------------------------------------------------------

check_speed() {
    local row time table=docs/benchmarks/amd-26-2-1-avx512bf16.md text
    text=$(tr '\n' ' ' <README.md)
    while read -r row; do
        time=$(awk -F' *[|] *' -v row="$row" '$2 " " $3 == row { printf $4 < 10 ? "%.1f" : "%.0f", $4 }' "$table")
        [[ -n $time && $text == *" takes $time ms "* || $text == *", and $time ms "* ]] ||
            complain "README.md: $table has ${time:-no} ms for $row"
    done <<<$'C512 f32\nD1k_b1 bf16'
}

# ---- All -------------------------------------------------------------------------------------------

examples=0
make_top
start config/attnd.json
print_tables
check_tables
if [ "$write" = --write ]; then
    exit
fi
check_clients
check_speed
while read -r document; do
    check_links "${document#./}"
done < <(find . -name '*.md' ! -path './build/*')
list_names
for document in "${documents[@]}"; do
    [ "$document" = CHANGELOG.md ] || check_names "$document"
    extract_blocks "$document"
    if compgen -G "$work/blocks/$(basename "$document" .md).*.sh" >/dev/null; then
        run_blocks "$document"
    fi
done
if [ "$wrong" -ne 0 ]; then
    echo "docs: $wrong breaches"
    exit 1
fi
echo "docs: ${#documents[@]} documents, $examples examples: ok"
