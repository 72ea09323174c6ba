#!/bin/bash
# fetch.sh: puts prometheus and promtool into the directory $1, for check-metrics.
#
# Debian's package would start a service on port 9090 and bring a dozen others for its web pages, so
# it is not installed: apt-get fetches it (19 MB), and the two programs are taken out of it.  Where
# both are installed already, or $PROMETHEUS_BIN names their directory, links to those stand there.
set -euo pipefail
root=$PWD
# shellcheck source=tests/tools/apt.sh
. tests/tools/apt.sh

into=$1
mkdir -p "$into"
into=$(cd "$into" && pwd)

found=${PROMETHEUS_BIN:-}
if [ -z "$found" ] && command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    found=$(dirname "$(command -v prometheus)")
fi
if [ -n "$found" ]; then
    ln -sf "$found/prometheus" "$found/promtool" "$into"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "fetch: neither prometheus and promtool nor apt-get here; PROMETHEUS_BIN may name their directory" >&2
    exit 1
fi

work=$(mktemp -d "$into/unpack.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetch: Debian's prometheus, to be unpacked below $into"
cd "$work"
# apt checks the package against the signed lists; without lists they are fetched first.
if ! apt-get -qq download prometheus >log 2>&1; then
    apt_get update
    apt-get -qq download prometheus >log 2>&1 || { cat log >&2; exit 1; }
fi
dpkg-deb -x prometheus_*.deb tree
mv tree/usr/bin/prometheus tree/usr/bin/promtool "$into"
