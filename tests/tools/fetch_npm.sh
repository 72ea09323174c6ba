#!/bin/bash
# fetch_npm.sh: puts a package of npm's registry, or some of its files, into a directory.
#
#   tests/tools/fetch_npm.sh INTO PACKAGE@VERSION DIGEST [FILE...]
#
# npm fetches the package; what came is compared with the digest (SHA-512 in base64) that this version
# was chosen by.  Nothing of it is run here.  Without a FILE the whole package lies in INTO/package.
set -euo pipefail

into=$1
package=$2
digest=$3
shift 3

mkdir -p "$into"
work=$(mktemp -d "$into/unpack.XXXXXX")
trap 'rm -rf "$work"' EXIT
if ! npm pack --silent --pack-destination "$work" "$package" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    echo "fetch_npm: npm cannot fetch $package" >&2
    exit 1
fi
came=$(openssl dgst -sha512 -binary "$work"/*.tgz | base64 -w 0)
if [ "$came" != "$digest" ]; then
    echo "fetch_npm: $package has another digest than the one it was chosen by" >&2
    exit 1
fi
tar -xzf "$work"/*.tgz -C "$work" "${@/#/package/}"
if [ $# -eq 0 ]; then
    rm -rf "$into/package"
    mv "$work/package" "$into"
else
    mv "${@/#/$work/package/}" "$into"
fi
