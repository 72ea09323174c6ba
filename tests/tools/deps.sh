#!/bin/bash
# deps.sh: makes sure that what a target needs is installed.
#
#   tests/tools/deps.sh GROUP
#
# A line of the first table names a Debian package and what shows that it is installed: a command, a
# pkg-config module or a file; the second has the group that a group includes.  Where nothing is
# missing, the script prints nothing.  Otherwise Debian's apt-get installs exactly the missing
# packages, through sudo where the caller is not root; on any other system the script names them and
# ends in 1.
set -euo pipefail

machine=$(uname -m)

needs() {
    cat <<TABLE
build  gcc                  command gcc
build  make                 command make
build  pkg-config           command pkg-config
build  libc6-dev            file /usr/include/stdio.h
build  libmicrohttpd-dev    module libmicrohttpd
build  libgnutls28-dev      module gnutls
build  libjansson-dev       module jansson
build  nettle-dev           module nettle
build  libseccomp-dev       module libseccomp
build  zlib1g-dev           module zlib
build  libunistring-dev     file /usr/include/unistr.h
build  libxxhash-dev        module libxxhash
run    curl                 command curl
run    libopenblas0-pthread file /usr/lib/$machine-linux-gnu/libopenblas.so.0
check  check                module check
check  libcurl4-openssl-dev module libcurl
check  openssl              command openssl
check  clang-format         command clang-format
check  yamllint             command yamllint
check  python3-yaml         file /usr/lib/python3/dist-packages/yaml/__init__.py
check  mandoc               command mandoc
fuzz   clang                command clang
fuzz   libclang-rt-14-dev   file /usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.fuzzer-$machine.a
check  haproxy              file /usr/sbin/haproxy
check  nginx-light          file /usr/sbin/nginx
check  iproute2             command ip
check  nftables             command nft
check  btrfs-progs          file /usr/sbin/mkfs.btrfs
check  xfsprogs             file /usr/sbin/mkfs.xfs
check  e2fsprogs            file /usr/sbin/mkfs.ext4
load   wrk                  command wrk
check  python3-jsonschema   file /usr/lib/python3/dist-packages/jsonschema/__init__.py
lint   nodejs               command node
lint   npm                  command npx
load   python3-requests     file /usr/lib/python3/dist-packages/requests/__init__.py
load   libdeflate0          file /usr/lib/$machine-linux-gnu/libdeflate.so.0
clients python3-numpy       file /usr/lib/python3/dist-packages/numpy
clients mypy                command mypy
clients nodejs              command node
clients wrk                 command wrk
clients hey                 command hey
arm64-tools gcc-aarch64-linux-gnu command aarch64-linux-gnu-gcc
arm64-tools libc6-dev-arm64-cross file /usr/aarch64-linux-gnu/include/stdio.h
arm64-tools qemu-user command qemu-aarch64
arm64-tools mmdebstrap command mmdebstrap
arm64-kernel qemu-system-arm command qemu-system-aarch64
arm64-kernel cpio            command cpio
deb    debhelper            command dh
deb    build-essential      file /usr/share/build-essential/list
package lintian             command lintian
package mmdebstrap          command mmdebstrap
package systemd-container   command systemd-nspawn
ui     chromium-headless-shell command chromium-headless-shell
ui     python3-numpy        file /usr/lib/python3/dist-packages/numpy
ui     nodejs               command node
screenshots pngquant         command pngquant
firefox firefox-esr          command firefox-esr
kubernetes kubernetes-client command kubectl
image  podman               command podman
image  runc                 file /usr/sbin/runc
image  netavark             file /usr/lib/podman/netavark
image  aardvark-dns         file /usr/lib/podman/aardvark-dns
image  iptables             file /usr/sbin/iptables
image  mmdebstrap           command mmdebstrap
image  qemu-user-static     command qemu-aarch64-static
image  arch-test            command arch-test
image  docker-compose       command docker-compose
image  prometheus           command prometheus
TABLE
}

includes() {
    cat <<'TABLE'
run     build
check   run
load    run
fuzz    check
clients check
deb     build
package check
lint    check
arm64-tools check
arm64-kernel arm64-tools
image   check
kubernetes lint
ui      check
screenshots ui
firefox ui
TABLE
}

# The groups that group $1 stands for; none where there is no such group.
groups_of() {
    local group included
    needs | grep "^$1 " >/dev/null || return 0
    echo "$1"
    while read -r group included; do
        if [ "$group" = "$1" ]; then
            groups_of "$included"
        fi
    done < <(includes)
}

present() { # kind, name
    case $1 in
    command) command -v "$2" ;;
    module) command -v pkg-config && pkg-config --exists "$2" ;;
    file) test -e "$2" ;;
    esac >/dev/null 2>&1
}

missing_packages() { # groups
    local group package kind name
    while read -r group package kind name; do
        if [[ " $* " == *" $group "* ]] && ! present "$kind" "$name"; then
            echo "$package"
        fi
    done < <(needs)
}

groups=$(groups_of "${1:-none}")
if [ -z "$groups" ]; then
    echo "usage: deps.sh $(needs | cut -d ' ' -f 1 | sort -u | paste -s -d '|')" >&2
    exit 2
fi
# shellcheck disable=SC2086 # words on purpose
mapfile -t missing < <(missing_packages $groups)
if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi

echo "deps: missing for '$1': ${missing[*]}"
if ! command -v apt-get >/dev/null; then
    echo "deps: no apt-get here; install what corresponds to these Debian packages" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    echo "deps: neither root nor sudo; have someone run: apt-get install ${missing[*]}" >&2
    exit 1
fi

# shellcheck source=tests/tools/apt.sh
. tests/tools/apt.sh
apt_get update
apt_get install -y --no-install-recommends "${missing[@]}"

# shellcheck disable=SC2086
mapfile -t missing < <(missing_packages $groups)
if [ "${#missing[@]}" -ne 0 ]; then
    echo "deps: still not found after installing: ${missing[*]}" >&2
    exit 1
fi
echo "deps: installed"
