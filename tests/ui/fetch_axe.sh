#!/bin/bash
# fetch_axe.sh: puts axe.min.js of axe-core into the directory $1, for check-ui.
#
# npm fetches the package; what came is compared with the digest of this version.  axe-core is
# licensed under MPL-2.0; it is read into the pages under test and is no part of attnd.
set -euo pipefail

into=$1
package=axe-core@4.14.1
digest=FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==

mkdir -p "$into"
work=$(mktemp -d "$into/unpack.XXXXXX")
trap 'rm -rf "$work"' EXIT
if ! npm pack --silent --pack-destination "$work" "$package" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    echo "fetch_axe: npm cannot fetch $package" >&2
    exit 1
fi
came=$(openssl dgst -sha512 -binary "$work"/axe-core-*.tgz | base64 -w 0)
if [ "$came" != "$digest" ]; then
    echo "fetch_axe: $package has another digest than the one it was chosen by" >&2
    exit 1
fi
tar -xzf "$work"/axe-core-*.tgz -C "$work" package/axe.min.js
mv "$work/package/axe.min.js" "$into"
