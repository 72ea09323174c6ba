#!/bin/bash
# coverage.sh: which lines of the parsers are reached by the seeds and the corpora.
#
#   tests/fuzz/coverage.sh DIRECTORY FUZZ TARGET...
#
# DIRECTORY holds the programs replay_TARGET, built with --coverage; FUZZ holds corpora, if there are
# any.  Prints the share of each parser, writes the lines that were not reached to
# DIRECTORY/missed.txt, and ends in 1 where less than LEAST percent of all lines were reached.
set -euo pipefail

LEAST=95
parsers='wire/json base/number wire/call wire/tensor_json wire/tensor_binary wire/tensor_object
         wire/v2_request wire/document http/route_match http/guard
         config/config config/models config/options store/record store/replay
         store/restore store/manifest_read base/text_file config/keys files/safetensors files/json_members
         layers/checkpoint states/import families/config families/family families/spec
         families/rope'

out=$1
fuzz=$2
shift 2
find "$out/obj" -name '*.gcda' -delete
for target in "$@"; do
    inputs=("tests/fuzz/seeds/$target")
    if [ -d "$fuzz/corpus/$target" ]; then
        inputs+=("$fuzz/corpus/$target")
    fi
    if [ "$target" = model_config ]; then
        mkdir -p "$out/models"
        for file in tests/{golden,reference}/*/model/config.json; do
            { printf '\0'; cat "$file"; } >"$out/models/$(echo "$file" | tr / _)"
        done
        inputs+=("$out/models")
    fi
    "$out/replay_$target" "${inputs[@]}" >/dev/null
done

reached=0
all=0
: >"$out/missed.txt"
for parser in $parsers; do
    object=$(find "$out/obj/server" "$out/obj/lib" -path "*/$parser.gcno")
    if [ -z "$object" ]; then
        echo "fuzz-coverage: no source is named $parser.c"
        exit 1
    fi
    text=$(gcov --stdout "$object" 2>/dev/null |
        awk -v name="$parser.c" '/^ *-: *0:Source:/ { mine = index($0, "/" name) } mine')
    missed=$(grep -cE '^ *#####:' <<<"$text" || true)
    lines=$(grep -cE '^ *([0-9]+\*?|#####):' <<<"$text" || true)
    grep -E '^ *#####:' <<<"$text" | sed "s|^ *#####: *|$parser.c:|" >>"$out/missed.txt" || true
    printf 'fuzz-coverage: %-16s %5d of %5d lines\n' "$parser.c" $((lines - missed)) "$lines"
    reached=$((reached + lines - missed))
    all=$((all + lines))
done
echo "fuzz-coverage: $((reached * 1000 / all / 10)).$((reached * 1000 / all % 10)) % of $all lines," \
    "the others are in $out/missed.txt"
[ $((reached * 100)) -ge $((LEAST * all)) ]
