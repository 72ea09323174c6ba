#!/bin/bash
# boot.sh: the sandbox under Debian's kernel of arm64, in an emulated machine.
#
#   tests/arm64/boot.sh
#
# qemu-user has no system calls of its own to filter.  So qemu-system boots Debian's kernel, with a
# file system in memory that holds the arm64 unit suite, the daemon and their libraries; nothing
# else runs there.  Run from the top directory after `make ARCH=arm64`.
set -euo pipefail
root=build/deps/arm64
kernel=build/deps/arm64-linux
memory=$(mktemp -d)
trap 'rm -rf "$memory"' EXIT

if [ ! -d "$kernel" ]; then
    rm -rf "$kernel.new"
    mmdebstrap --quiet --arch=arm64 --variant=extract \
        --include=linux-image-cloud-arm64,busybox-static bookworm "$kernel.new"
    mv "$kernel.new" "$kernel"
fi

needed() { # by programs and libraries
    aarch64-linux-gnu-readelf -d "$@" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort -u
}

copy_libraries() { # of programs
    local name file
    for name in $(needed "$@"); do
        if [ ! -e "$memory/lib/$name" ]; then
            file=$(find "$root/lib" "$root/usr/lib" -name "$name" | sed -n 1p)
            cp -L "$file" "$memory/lib/$name"
            copy_libraries "$memory/lib/$name"
        fi
    done
}

mkdir "$memory"/{bin,dev,etc,lib,proc,sys,tmp}
echo root:x:0:0::/:/bin/sh >"$memory/etc/passwd" # a test reads it
cp "$kernel/bin/busybox" "$memory/bin"
cp build/arm64/unit build/arm64/attnd "$memory/bin"
copy_libraries "$memory/bin/unit" "$memory/bin/attnd"
cat >"$memory/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /tmp
mount -t devtmpfs none /dev
uname -srm
attnd --version
attnd --check | grep '^sandbox:'
CK_RUN_SUITE=sandbox unit && CK_RUN_CASE=sandbox CK_RUN_SUITE=promises unit &&
    CK_RUN_SUITE=blockpool unit && echo 'boot: all passed'
poweroff -f
END
chmod 755 "$memory/init"
(cd "$memory" && find . | cpio -o -H newc --quiet) >"$memory.cpio"
trap 'rm -rf "$memory" "$memory.cpio"' EXIT

said=$(timeout 600 qemu-system-aarch64 -M virt -cpu max -m 1024 -smp 2 -nographic -nic none \
    -no-reboot -kernel "$kernel"/boot/vmlinuz-* -initrd "$memory.cpio" \
    -append 'console=ttyAMA0 quiet panic=-1' </dev/null | tr -d '\r')
echo "$said"
grep -q '^sandbox: this kernel has seccomp, landlock' <<<"$said"
grep -q '^boot: all passed' <<<"$said"
