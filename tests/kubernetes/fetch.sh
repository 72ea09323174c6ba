#!/bin/bash
# fetch.sh: puts the schemas of Kubernetes' API into the directory $1, for check-kubernetes.
#
# @kubernetes/client-node is the Kubernetes project's client, whose models are generated from the
# OpenAPI document that it publishes.  The package is licensed under Apache-2.0 and is no part of attnd.
set -euo pipefail

rm -rf "$1/models"
"$(dirname "$0")/../tools/fetch_npm.sh" "$1" @kubernetes/client-node@2.0.1 \
    evJgmEtgArEYlj6DNkMGjK41IrFK/hEwb5lWVxx0VRBWybQpnvi+2TtA19mLgVfRHfqX5yjHObX6e9W7LEZBjw== \
    dist/gen/models
