#!/bin/bash
# run.sh: what attnd says of its interface is what it does, for `make check-openapi`.
#
#   tests/openapi/run.sh [--quick]
#
# OUT names the directory with attnd, http_suite and catalogue.  The HTTP suite and the catalogue
# are run with EXCHANGES set, so that they record each exchange; check.py validates them.  --quick
# takes the exchanges that `make suites` has recorded, or, where these are older than the programs
# or not there, those of some suites.  Otherwise @redocly/cli also judges the document.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."

out=${OUT:-build}
exchanges=$PWD/$out/exchanges
quick_suites='core replies binary fields sessions batch forks select pooled datatypes tree v2 origins page'
redocly=@redocly/cli@1.34.15
export ATTND=$out/attnd

# A test that fails here is for `make suites` to report; what was exchanged is judged all the same.
record() { # program, arguments
    if ! EXCHANGES=$exchanges "$@" >"$out/openapi.log" 2>&1; then
        echo "check-openapi: $1 did not pass:"
        grep -E ':[FE]:' "$out/openapi.log" | sed -n 1,10p || tail -n 5 "$out/openapi.log"
    fi
}

if [ "${1:-}" != --quick ]; then
    rm -f "$exchanges"
    record "$out/http_suite"
    record "$out/catalogue"
elif ! [ "$exchanges" -nt "$out/http_suite" ] || ! [ "$exchanges" -nt "$out/attnd" ]; then
    rm -f "$exchanges"
    for suite in $quick_suites; do
        CK_RUN_SUITE=$suite record "$out/http_suite"
    done
fi

/usr/bin/python3 tests/openapi/check.py "$out/attnd" "$exchanges" "$out/openapi.json" >"$out/openapi.report" || {
    cat "$out/openapi.report"
    exit 1
}

if [ "${1:-}" != --quick ]; then
    npx --yes "$redocly" lint --config tests/openapi/redocly.yaml "$out/openapi.json" >"$out/openapi.log" 2>&1 || {
        cat "$out/openapi.log"
        echo "check-openapi: $redocly does not accept $out/openapi.json, or is not to be had"
        exit 1
    }
    echo "check-openapi: $redocly accepts the document"
    /usr/bin/python3 tests/openapi/clients.py "$out/attnd" "$out/openapi-clients"
fi
cat "$out/openapi.report"
