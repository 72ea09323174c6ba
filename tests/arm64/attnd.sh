#!/bin/sh
# attnd.sh: the daemon of arm64 under qemu-user, for suites that start what ATTND names.
top=$(dirname "$0")/../..
exec qemu-aarch64 -L "$top/build/deps/arm64" "$top/build/arm64/attnd" "$@"
