#!/bin/bash
# suites.sh: the suites of an arm64 build, under qemu-user.
#
#   tests/arm64/suites.sh [--quick]
#
# Run from the top directory after `make ARCH=arm64`.  --quick takes the golden cases at one level,
# with packed products or OpenBLAS', another one from run to run, on an older CPU where that has it;
# GOLDEN_RUN names it.
#
# What the emulator has not, other places show: system calls are filtered under a kernel of arm64
# (boot.sh), and instructions are counted by single steps on the machine that builds.
set -euo pipefail
out=build/arm64
arm64=(qemu-aarch64 -L build/deps/arm64)
export CK_DEFAULT_TIMEOUT=1200 ATTND=tests/arm64/attnd.sh
NOT_EMULATED=' sandbox promises '
# Tests that turn the sandbox on, and those whose requests take longer under the emulator than the
# daemon waits, or whose daemon asks for TCP_INFO, of which qemu 7.2 answers four bytes.
export CK_EXCLUDE_TAGS='sandboxed timed'
# These suites time the daemon, start it without its page, or preload a library of this machine.
NOT_OVER_HTTP=' fairness heavy interrupts lifecycle memory observed page pauses replies slow_disk '
NOT_OVER_HTTP+=' stalls '

names_in() { # suites.h
    sed -nE 's/^    X\(([a-z_0-9]+)\).*/\1/p' "$1"
}

unit() { # suite
    CK_RUN_SUITE=$1 "${arm64[@]}" "$out/unit"
}

# The client is of this machine where it need not know the daemon's levels.
http() { # suite
    CK_RUN_SUITE=$1 build/http_suite
}

# An older CPU has the first level alone.
check_other_cpus() {
    QEMU_CPU=cortex-a53 "$ATTND" --version | grep ', neon kernels$' >/dev/null
    QEMU_CPU=cortex-a76 "$ATTND" --version | grep ', dotprod kernels$' >/dev/null
    echo "arm64: cortex-a53 has level neon, cortex-a76 dotprod"
}

check_page_sizes() {
    local size
    for size in 16384 65536; do
        QEMU_PAGESIZE=$size unit blockpool
        QEMU_PAGESIZE=$size unit weights_cache
        QEMU_PAGESIZE=$size GOLDEN_RUN=8 unit golden
        QEMU_PAGESIZE=$size http sessions
    done
}

tests/arm64/loops.py "$out/obj/lib/kernels"
if [ "${1:-}" = --quick ]; then
    export GOLDEN_RUN=${GOLDEN_RUN:-$((2 + RANDOM % 8))}
    QEMU_CPU=$([ "$GOLDEN_RUN" -gt 5 ] && echo max || echo cortex-a53) unit golden
    for suite in blockpool kvcache json openapi; do
        unit "$suite"
    done
    http core
    check_other_cpus
    exit
fi

unset GOLDEN_RUN
for suite in $(names_in tests/unit/suites.h); do
    [[ $NOT_EMULATED == *" $suite "* ]] || unit "$suite"
done
"${arm64[@]}" "$out/kernelcheck" --every 4 --seconds 10
CK_RUN_SUITE=golden "${arm64[@]}" "$out/http_suite"
for suite in $(names_in tests/http/suites.h); do
    [[ " golden$NOT_OVER_HTTP" == *" $suite "* ]] || http "$suite"
done
check_other_cpus
# On a CPU that attnd knows nothing of, the plain C remains.
QEMU_CPU=cortex-a53 GOLDEN_RUN=2 unit golden
check_page_sizes
