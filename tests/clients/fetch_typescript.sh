#!/bin/bash
# fetch_typescript.sh: puts the TypeScript compiler into the directory $1, for check-clients.
#
# TypeScript is licensed under Apache-2.0; it reads sources of the tests and is no part of attnd.
exec "$(dirname "$0")/../tools/fetch_npm.sh" "$1" typescript@5.9.3 \
    jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw==
