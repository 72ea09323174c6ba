#!/bin/bash
# fetch.sh: puts the schemas of Kubernetes' API into the directory $1, for check-kubernetes.
#
# npm fetches @kubernetes/client-node, the Kubernetes project's client, whose models are generated from
# the OpenAPI document that it publishes; what came is compared with the digest of this version.  The
# package is licensed under Apache-2.0 and is no part of attnd.
set -euo pipefail

into=$1
package=@kubernetes/client-node@2.0.1
digest=evJgmEtgArEYlj6DNkMGjK41IrFK/hEwb5lWVxx0VRBWybQpnvi+2TtA19mLgVfRHfqX5yjHObX6e9W7LEZBjw==

mkdir -p "$into"
work=$(mktemp -d "$into/unpack.XXXXXX")
trap 'rm -rf "$work"' EXIT
if ! npm pack --silent --pack-destination "$work" "$package" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    echo "fetch: npm cannot fetch $package" >&2
    exit 1
fi
came=$(openssl dgst -sha512 -binary "$work"/*.tgz | base64 -w 0)
if [ "$came" != "$digest" ]; then
    echo "fetch: $package has another digest than the one it was chosen by" >&2
    exit 1
fi
tar -xzf "$work"/*.tgz -C "$work" --wildcards 'package/dist/gen/models/*'
rm -rf "$into/models"
mv "$work/package/dist/gen/models" "$into/models"
