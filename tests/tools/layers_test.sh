#!/bin/bash
# layers_test.sh: plants each kind of breach in a copy of the sources, and sees that layers.sh finds it.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
planted=0

fresh_copy() {
    rm -rf "${copy:?}"/*
    mkdir -p "$copy/tests" "$copy/docs"
    cp docs/ARCHITECTURE.md "$copy/docs/"
    cp -r include lib server "$copy/"
    cp -r tests/tools "$copy/tests/"
}

# plant FILE LINE: appends a line to a file of the copy, which is made where it is missing.
plant() {
    mkdir -p "$copy/$(dirname "$1")"
    printf '%s\n' "$2" >>"$copy/$1"
}

# expect KIND PATTERN: layers.sh must fail on the copy, with a line that matches.
expect() {
    local kind=$1 pattern=$2 report
    if report=$("$copy/tests/tools/layers.sh"); then
        echo "layers-test: $kind: the planted breach was not found"
        exit 1
    fi
    if ! grep -qE "$pattern" <<<"$report"; then
        echo "layers-test: $kind: no line matches '$pattern' in:"
        grep -v '^\(include\|lib\|server\)[: ]' <<<"$report"
        exit 1
    fi
    planted=$((planted + 1))
}

fresh_copy
"$copy/tests/tools/layers.sh" >/dev/null

plant server/store/store.c '#include "http/http.h"'
expect 'a room includes a higher room' '^server/store/store.c:[0-9]+: is in layer "server: store" and includes server/http/http.h'

fresh_copy
plant lib/basics/mem.c '#include "engine/engine.h"'
expect 'a layer of lib/ includes a higher one' '^lib/basics/mem.c:[0-9]+: is in layer "lib: basics" and includes lib/engine/engine.h'

fresh_copy
plant lib/calls/attend.c '#include "wire/json.h"'
expect 'lib/ includes server/' '^lib/calls/attend.c:[0-9]+: lib/ has no "wire/json.h"'

fresh_copy
plant server/api/routes.c '#include "kernels/kernels.h"'
expect 'server/ includes a private header of lib/' '^server/api/routes.c:[0-9]+: server/ has no "kernels/kernels.h"'

fresh_copy
plant server/schedule/batch.c 'struct srv_app *app;'
expect 'a low room names struct srv_app' '^server/schedule/batch.c:[0-9]+: "struct srv_app" belongs to'

fresh_copy
plant server/api/routes.c '#include <microhttpd.h>'
expect "a package's header outside its home" '^server/api/routes.c:[0-9]+: "include <microhttpd.h>" belongs to server/http/'

fresh_copy
plant include/attn.h '#include <stdio.h>'
expect 'a public header includes more than standard headers' '^include/attn.h:[0-9]+: the public headers include'

fresh_copy
plant lib/novelty.c '/* novelty.c: nothing. */'
expect 'a file without a layer' '^lib/novelty.c: has no layer'

fresh_copy
plant server/attic/box.c '/* box.c: nothing. */'
expect 'a room without a layer' '^server/attic/box.c: has no layer'

fresh_copy
rm "$copy"/server/ops/*
expect 'a layer without a file' '^tests/tools/layers.txt: layer "server: ops": no file matches'

fresh_copy
rm "$copy/lib/kernels/gemm.c"
expect 'a home without a file' '^tests/tools/layers.sh: home of "include <dlfcn.h>": no file lib/kernels/gemm.c'

fresh_copy
sed -i '/^| server: ops |/d' "$copy/docs/ARCHITECTURE.md"
expect 'a document with another order' '^docs/ARCHITECTURE.md: its table of layers is not'

fresh_copy
sed -i '/^<!-- .layers -->/d' "$copy/docs/ARCHITECTURE.md"
expect 'a document whose table has no end' '^docs/ARCHITECTURE.md: has not one'

echo "layers-test: $planted kinds of breach planted, each found: ok"
