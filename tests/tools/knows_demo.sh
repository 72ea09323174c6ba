#!/bin/bash
# knows_demo.sh: the page at URL is of the model `demo` that is served there, so that it opens on it.
#
#   tests/tools/knows_demo.sh URL
#
# Compares the fingerprint of /models with those of /ui/demo.js, and asks for the page's own files of
# the model.  Prints what is wrong, and ends in 1.
set -euo pipefail
url=$1

get() { # path
    curl -sS --compressed --fail --max-time 20 "$url/$1"
}

own=$(get models | grep -o '"name":"demo".*' | grep -o '"fingerprint":"[0-9a-f]*"' | sed -n 1p | cut -d '"' -f 4)
if ! get ui/demo.js | grep -w "${own:-none}" >/dev/null; then
    echo "the page does not know the model demo of $url, of fingerprint ${own:-none}"
    exit 1
fi
for file in demo.json demo_tokenizer.json demo.safetensors; do
    get "ui/$file" >/dev/null || { echo "$url/ui/$file is not served"; exit 1; }
done
