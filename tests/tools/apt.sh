#!/bin/bash
# apt.sh: apt-get for scripts that read this one, in the project's root or with $root naming it.
#
# Checks that install something may run side by side, and another apt may be running (unattended
# upgrades, a machine's first boot).  apt-get waits for the lock of dpkg alone, and not for that of
# its lists: so one of ours runs at a time, and is tried again while another apt has a lock.

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# apt-get with these arguments; at most five minutes of waiting for another apt.
apt_get() {
    local tries why lock=${root:-.}/build/apt.lock
    mkdir -p "${lock%/*}"
    for ((tries = 0; tries < 150; tries++)); do
        why=$(exec 9>"$lock" && flock 9 &&
            as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" \
                2>&1 >/dev/null 9>&-) && return
        [[ $why == *"Could not get lock"* ]] || break
        sleep 2
    done
    echo "$why" >&2
    return 1
}
