#!/bin/sh
# check.sh ATTND: what attnd inspect says of every configuration here is what table.txt says: the
# family and each kind of layers, or the sentence that refuses it.  RENEW=1 writes the table.
set -eu
here=$(dirname "$0")
table=$here/table.txt
now=$(mktemp)
trap 'rm -f "$now"' EXIT
for file in "$here"/*.json; do
    echo "== ${file##*/}"
    # Costs follow from the sizes; the path is not part of a refusal.
    "$1" inspect "$file" 2>&1 | sed -e "s|^attnd: inspect: $file: |refused: |" \
        -e '/^  loading takes/d' -e '/^  a cached token/d' -e '/^  a session of/d'
done >"$now"
if [ -n "${RENEW:-}" ]; then
    cp "$now" "$table"
elif ! diff -u "$table" "$now"; then
    echo "check-published: table.txt differs; if what is new is right: make check-published RENEW=1"
    exit 1
fi
echo "check-published: $(grep -c '^==' "$now") configurations," \
    "$(grep -c '^refused' "$now") of them refused: ok"
