#!/bin/bash
# root.sh: Debian's libraries and headers for arm64, in a directory of their own.
#
#   tests/arm64/root.sh DIRECTORY
#
# The packages are unpacked and not configured, so that nothing of this system changes and nothing
# of another architecture runs.  ARCH=arm64 compiles against the directory, and qemu-user finds the
# program's libraries there.
set -euo pipefail
root=$1
packages=libc6-dev,libmicrohttpd-dev,libgnutls28-dev,libjansson-dev,nettle-dev,libseccomp-dev
packages+=,libunistring-dev,libxxhash-dev,zlib1g-dev,check,libcurl4-openssl-dev,libopenblas0-pthread

rm -rf "$root" "$root.new"
mmdebstrap --quiet --arch=arm64 --variant=extract --include="$packages" bookworm "$root.new" \
    2>"$root.log" || { tail -n 5 "$root.log" >&2; exit 1; }
# What the package's alternatives would do.
ln -s openblas-pthread/libopenblas.so.0 "$root.new/usr/lib/aarch64-linux-gnu/libopenblas.so.0"
mv "$root.new" "$root"
