#!/bin/bash
# fill.sh: prints a template of config/ with what it leaves open.
#
#   tests/tools/fill.sh TEMPLATE TABLE_TEXT NAME=VALUE...
#
# In place of a line @flags@, @keys@, @bash@, @zsh@ or @fish@ stands what the program TABLE_TEXT
# prints for that word, in place of @interface@ the public headers as a manual page, in place of
# @include FILE@ that file.  @NAME@ within a line becomes VALUE, @DATE@ the date of the sources, or
# SOURCE_DATE_EPOCH.
set -euo pipefail
export LC_ALL=C
template=$1 program=$2
shift 2

# The newest of the sources of a page.
date_of_sources() {
    local seconds=${SOURCE_DATE_EPOCH:-}
    if [ -z "$seconds" ]; then
        seconds=$(stat -c %Y "$template" include/*.h server/config/options.c | sort -n | tail -n 1)
    fi
    date -u -d "@$seconds" '+%B %-d, %Y'
}
set -- "$@" "DATE=$(date_of_sources)"

while IFS= read -r line; do
    case $line in
    @interface@)
        awk -f tests/tools/header_roff.awk include/attn.h include/attn_model.h include/attn_status.h \
            include/attn_state.h include/attn_limits.h include/attn_self_check.h
        ;;
    @include\ *@)
        word=${line#@include }
        cat "${word%@}"
        ;;
    @[a-z]*@)
        word=${line//@/}
        "$program" "$word"
        ;;
    *)
        for pair; do
            line=${line//@${pair%%=*}@/${pair#*=}}
        done
        printf '%s\n' "$line"
        ;;
    esac
done <"$template"
