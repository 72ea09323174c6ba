#!/bin/bash
# layers.sh: who may include what, held against the order in layers.txt.
#
#   tests/tools/layers.sh           the layers with files, lines and arrows; every breach; the sum
#   tests/tools/layers.sh --table   the layers as docs/ARCHITECTURE.md prints them
#   tests/tools/layers.sh --write   writes that table into docs/ARCHITECTURE.md
#
# An arrow is an #include that crosses layers.  What is a breach:
#
#   order    an #include of a header from a higher layer, or of one that does not exist
#   place    a file without a layer; a layer, or a pattern of one, without a file
#   public   include/ includes more than standard headers and itself
#   table    docs/ARCHITECTURE.md prints another table than --table (layers.sh --write mends it)
#   home     a package's header, or a word such as `struct srv_app`, outside its home (homes below);
#            a home without a file
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."

# What may stand in which files only: an extended regular expression for the text of a line, and
# patterns of files.
homes() {
    cat <<'TABLE'
include <dlfcn.h>|lib/kernels/gemm.c
include <nettle/|lib/files/checksum.[ch] server/config/keys.c
include <gnutls/|server/http/tls.c server/command_health.c
include <microhttpd.h>|server/http/*
include <[a-z0-9]*intrin.h>|lib/kernels/avx*
include <arm_neon.h>|lib/kernels/neon*
include <seccomp.h>|server/ops/sandbox.c
include <linux/landlock.h>|server/ops/sandbox.c
include <cpuid.h>|lib/machine/cpu.c
include <zlib.h>|lib/files/zip.c server/wire/coding.c
include <jansson.h>|lib/files/json_members.[ch] lib/files/json_memory.c lib/families/* server/*
struct srv_app|server/app.[ch] server/api/* server/main.[ch] server/serve.c server/self_check.c server/upkeep.c server/command_journal.c server/wire/request.h
include <curl/|tests/*
include <check.h>|tests/*
TABLE
}

page=docs/ARCHITECTURE.md

# The page has one pair of markers, between which the table stands.
check_markers() {
    if [ "$(grep -cE '^<!-- /?layers -->$' "$page")" -ne 2 ] ||
        [ "$(grep -E '^<!-- /?layers -->$' "$page" | tr '\n' ' ')" != '<!-- layers --> <!-- /layers --> ' ]; then
        echo "$page: has not one <!-- layers --> and one <!-- /layers --> after it"
        exit 1
    fi
}
printed_table() { sed -n '/^<!-- layers -->$/,/^<!-- \/layers -->$/p' "$page" | grep '^|'; }
write_table() {
    local table=$1
    awk -v table="$table" '
        /^<!-- \/layers -->$/ { inside = 0 }
        !inside { print }
        /^<!-- layers -->$/ { inside = 1; print table }' "$page" >"$page.new" && mv "$page.new" "$page"
}

if [ "${1:-}" = --write ]; then
    check_markers
    write_table "$("$0" --table)"
    exit
fi

# Lines `file:line:#include ...` of all sources, then the tables, in one pass.
{
    sed -E '/^ *(#|$)/d; s/^/L|/; s/ *\| */|/g' tests/tools/layers.txt
    homes | sed 's/^/H|/'
    find include lib server -name '*.[ch]' -print0 -o -name '*.def' -print0 | sort -z | xargs -0 wc -l |
        awk '$2 != "total" { print "F|" $2 "|" $1 }'
    grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include|struct srv_app' include lib server |
        sed 's/^/I|/'
} | awk -F'|' -v table="${1:+1}" '
    function breach(where, what) {
        breaches++
        if (!table)
            print where ": " what
    }

    # A pattern with * and [..] as an anchored regular expression.
    function regex(pattern) {
        gsub(/\./, "[.]", pattern)
        gsub(/\*/, ".*", pattern)
        return "^" pattern "$"
    }
    function layer_of(file,    l, p) {
        for (l = 1; l <= num_layers; l++)
            for (p = 1; p <= num_patterns[l]; p++)
                if (file ~ pattern[l, p]) {
                    used[l, p] = 1
                    return l
                }
        return 0
    }

    $1 == "L" {
        name[++num_layers] = $2
        answers[num_layers] = $4
        area = $2
        sub(/:.*/, "", area)
        num_patterns[num_layers] = split($3, words, " ")
        for (p in words) {
            whole = words[p]
            if (area != "include")
                whole = area "/" whole
            pattern[num_layers, p] = regex(whole ~ /\/\*$/ ? whole : whole ".[ch]")
        }
    }
    $1 == "H" { home_text[++num_homes] = $2; home_files[num_homes] = $3 }
    $1 == "F" {
        l = layer[$2] = layer_of($2)
        if (!l)
            breach($2, "has no layer; give it one in tests/tools/layers.txt")
        files[l]++
        lines[l] += $3
        sum += $3
    }
    $1 == "I" {
        rest = substr($0, 3)
        file = rest; sub(/:.*/, "", file)
        place = rest; match(rest, /^[^:]*:[0-9]+/); place = substr(rest, 1, RLENGTH)
        text = substr(rest, RLENGTH + 2)
        check_homes()
        if (text ~ /^[ \t]*#[ \t]*include/)
            check_include()
    }
    function check_homes(    h, n, i, words, inside) {
        for (h = 1; h <= num_homes; h++) {
            if (text !~ home_text[h])
                continue
            n = split(home_files[h], words, " ")
            inside = 0
            for (i = 1; i <= n; i++)
                if (file ~ regex(words[i])) {
                    inside = 1
                    home_used[h, i] = 1
                }
            if (!inside)
                breach(place, "\"" home_text[h] "\" belongs to " home_files[h] " only")
        }
    }
    function check_include(    header, area, target, own, other) {
        includes++
        header = text
        sub(/^[^<"]*[<"]/, "", header)
        sub(/[>"].*/, "", header)
        area = file
        sub(/\/.*/, "", area)
        if (text ~ /</) {
            if (area == "include" && header !~ /^std(bool|def|int)[.]h$/)
                breach(place, "the public headers include standard headers only, not <" header ">")
            return
        }
        target = area "/" header
        if (!(target in layer))
            target = "include/" header
        if (!(target in layer) && area == "server" &&
            (header ~ /^basics\// || (file ~ /^server\/family_text\// && header ~ /^families\//)))
            target = "lib/" header
        if (!(target in layer)) {
            breach(place, area "/ has no \"" header "\", nor has include/")
            return
        }
        own = layer[file]
        other = layer[target]
        if (other > own)
            breach(place, "is in layer \"" name[own] "\" and includes " target " from \"" name[other] "\" above it")
        if (other != own && !((own, other) in arrows))
            reaches[own] = reaches[own] (reaches[own] == "" ? "" : " ") other
        if (other != own)
            arrows[own, other]++
    }

    END {
        for (l = 1; l <= num_layers; l++)
            for (p = 1; p <= num_patterns[l]; p++)
                if (!((l, p) in used))
                    breach("tests/tools/layers.txt", "layer \"" name[l] "\": no file matches " pattern[l, p])
        for (h = 1; h <= num_homes; h++) {
            n = split(home_files[h], words, " ")
            for (i = 1; i <= n; i++)
                if (words[i] !~ /^(tests|server)\/\*$/ && !((h, i) in home_used))
                    breach("tests/tools/layers.sh", "home of \"" home_text[h] "\": no file " words[i] " has it")
        }
        if (table) {
            print_table()
            exit
        }
        print_layers()
        if (breaches) {
            printf "layers: %d includes, %d breaches\n", includes, breaches
            exit 1
        }
        printf "layers: %d layers, %d files, %d lines, %d includes in order, 0 against it: ok\n",
                   num_layers, length(layer), sum, includes
    }
    function arrows_of(l,    o, text) {
        for (o = l - 1; o >= 1; o--)
            if ((l, o) in arrows) {
                own_area = name[l]; sub(/:.*/, "", own_area)
                short = name[o]; sub("^" own_area ": ", "", short)
                text = text (text == "" ? "" : ", ") short " " arrows[l, o]
            }
        return text
    }
    function print_layers(    l) {
        printf "%-18s %5s %6s  %s\n", "layer", "files", "lines", "includes from"
        for (l = 1; l <= num_layers; l++)
            printf "%-18s %5d %6d  %s\n", name[l], files[l], lines[l], arrows_of(l)
    }
    function print_table(    l) {
        print "| room | answers for | includes from |"
        print "|---|---|---|"
        for (l = 1; l <= num_layers; l++) {
            seen = ""
            for (o = l - 1; o >= 1; o--)
                if ((l, o) in arrows) {
                    own_area = name[l]; sub(/:.*/, "", own_area)
                    short = name[o]; sub("^" own_area ": ", "", short)
                    seen = seen (seen == "" ? "" : ", ") short
                }
            printf "| %s | %s | %s |\n", name[l], answers[l], seen == "" ? "nothing" : seen
        }
    }'

check_markers
if [ -z "${1:-}" ] && [ "$(printed_table)" != "$("$0" --table)" ]; then
    echo "$page: its table of layers is not the one of the sources; mend it: tests/tools/layers.sh --write"
    exit 1
fi
