#!/bin/bash
# architectures.sh: the image for arm64, and one name for the images of both; a part of engine.sh.
#
# The Dockerfile cross-compiles attnd; what it runs in the other stages, and the image itself, runs
# by qemu-user, which the kernel starts for programs of arm64 where binfmt_misc says so.
# shellcheck disable=SC2154,SC2034 # variables of engine.sh

binfmt=/proc/sys/fs/binfmt_misc
binfmt_mounted=
binfmt_registered=

# Debian's own line of that package, unless the system has read it.
register_arm64() {
    if [ ! -e "$binfmt/register" ]; then
        mount -t binfmt_misc binfmt_misc "$binfmt"
        binfmt_mounted=1
    fi
    if [ ! -e "$binfmt/qemu-aarch64" ]; then
        cat /usr/lib/binfmt.d/qemu-aarch64.conf >"$binfmt/register"
        binfmt_registered=1
    fi
}

unregister_arm64() {
    if [ -n "$binfmt_registered" ]; then
        echo -1 >"$binfmt/qemu-aarch64"
    fi
    if [ -n "$binfmt_mounted" ]; then
        umount "$binfmt"
    fi
}

# As at a registry, one name of the base stands for the images of both architectures.
make_bases() {
    local arm64=$work/base-arm64.tar
    if [ ! -s "$arm64" ]; then
        mmdebstrap --quiet --arch=arm64 --format=tar --variant=apt bookworm "$arm64.new" \
            >"$work/mmdebstrap.log" 2>&1 || fail "mmdebstrap: $(tail -n 3 "$work/mmdebstrap.log")"
        mv "$arm64.new" "$arm64"
    fi
    engine tag debian:bookworm-slim localhost/base:amd64
    engine untag debian:bookworm-slim debian:bookworm-slim
    engine import -q --arch arm64 "$arm64" localhost/base:arm64 >/dev/null
    engine manifest create debian:bookworm-slim containers-storage:localhost/base:amd64 \
        containers-storage:localhost/base:arm64 >/dev/null
}

build_arm64() {
    local start=$SECONDS
    engine build --format docker --network host --layers=false --platform linux/arm64 \
        -t "$image:arm64" "$root" \
        >"$work/build-arm64.log" 2>&1 || fail "arm64: $(tail -n 5 "$work/build-arm64.log")"
    grep -q '^Setting up gcc-aarch64-linux-gnu ' "$work/build-arm64.log" ||
        fail "arm64: no cross compiler was taken"
    ok "the Dockerfile is built for arm64 by a cross compiler in $((SECONDS - start)) s," \
        "$(engine image inspect "$image:arm64" --format '{{.Size}}') bytes"
}

make_manifest() {
    engine manifest create "$image:both" "containers-storage:localhost/$image:latest" \
        "containers-storage:localhost/$image:arm64" >/dev/null
    expect "architectures" '"amd64" "arm64"' "$(engine manifest inspect "$image:both" |
        sed -n 's/.*"architecture": \("[a-z0-9]*"\).*/\1/p' | sort | paste -s -d ' ')"
    ok "one manifest lists the images of amd64 and arm64"
}

# Of the manifest's images the one of arm64, without the sandbox: qemu-user filters no system calls.
run_arm64() {
    local version said
    local image=$image:both
    version=$(quietly engine run --rm --network none --arch arm64 "$image" --version)
    grep -q ', bf16 kernels$' <<<"$version" || fail "arm64: $version"
    flags=(--arch arm64 -e ATTN_ALLOW_UNAUTHENTICATED=true)
    start_container -v "$scratch/llama:/models/llama:ro"
    expect "machine" aarch64 "$(engine exec "$project" uname -m)"
    expect_healthy "$project"
    said=$(python3 "$root/tests/image/golden.py" "$url") || fail "arm64: $said"
    ok "the manifest's image of arm64 serves under qemu-user: $said"
    quietly engine stop "$project" >/dev/null
    expect "exit status of arm64" 0 "$(engine inspect "$project" --format '{{.State.ExitCode}}')"
    remove_container
}

check_architectures() {
    expect "architecture of a plain build" amd64 \
        "$(engine image inspect "$image" --format '{{.Architecture}}')"
    register_arm64
    make_bases
    build_arm64
    make_manifest
    run_arm64
}
