#!/bin/bash
# layers.sh: who may include what.  The layers of docs/ARCHITECTURE.md, kept by looking at every
# #include of include/, lib/ and server/.
#
#   1. Some system headers have one home each (home_of).
#   2. include/attn.h stands alone; lib/ sees itself and include/; server/ sees itself and include/.
#   3. Inside lib/ no file includes from a layer above its own (rank_of).
set -euo pipefail
cd "$(dirname "$0")/../.."

# The files that may include a system header; files without an entry may include it anywhere.
home_of() { # header
    case $1 in
    cblas.h) echo 'lib/gemm.c' ;;
    nettle/*) echo 'lib/checksum.[ch] server/keys.c' ;;
    gnutls/*) echo 'server/tls.c server/health.c' ;;
    microhttpd.h) echo 'server/http*.c' ;;
    *intrin.h) echo 'lib/kernels_avx*.[ch]' ;;
    seccomp.h | linux/landlock.h) echo 'server/sandbox.c' ;;
    cpuid.h) echo 'lib/cpu.c' ;;
    zlib.h) echo 'server/coding.c' ;;
    jansson.h) echo 'lib/members.[ch] lib/json_memory.c lib/safetensors.c lib/checkpoint.c lib/family*.c lib/model.c server/*' ;;
    curl/*.h | check.h) echo 'tests/*' ;;
    esac
}

# The layer of a file of lib/, by its name without extension; a file includes from its own layer and
# those below.  A new file of lib/ needs a place here.
rank_of() { # name
    case $1 in
    attn | attn_json | attn_state | attn_limits | attn_self_check) echo 0 ;;
    status | mem | dtype | half_float | tile | widen | random) echo 1 ;;
    cgroup | cpu | checksum | json_memory | gemm | kernels | kernels_* | pool | file | members | workspace | stats | largest) echo 2 ;;
    engine | maps | mask | rope | position_bias | safetensors) echo 3 ;;
    checkpoint | layer | linear) echo 4 ;;
    family | family_* | model) echo 5 ;;
    blockpool | kvcache) echo 6 ;;
    attention | attention_keys | attention_unit | attention_sums | qkv | state | alike | export | import) echo 7 ;;
    attend | decode | footprint) echo 8 ;;
    self_check) echo 9 ;;
    esac
}

breaches=0
breach() { # place, what is wrong
    echo "$1: $2"
    breaches=$((breaches + 1))
}

check_system() { # place, file, header
    local homes home
    homes=$(home_of "$3")
    if [ -z "$homes" ]; then
        return
    fi
    for home in $homes; do
        # shellcheck disable=SC2254,SC2053 # a pattern on purpose
        if [[ $2 == $home ]]; then
            return
        fi
    done
    breach "$1" "<$3> belongs to $homes only"
}

check_local() { # place, file, header
    local directory=${2%%/*} name own other
    if [ "$directory" = include ] && [ "$3" != attn.h ]; then
        breach "$1" "include/ includes standard headers and attn.h only, not \"$3\""
    elif [ -e "include/$3" ]; then
        return
    elif [ ! -e "$directory/$3" ]; then
        breach "$1" "$directory/ includes its own headers and include/, not \"$3\""
    elif [ "$directory" = lib ]; then
        name=$(basename "${2%.*}")
        own=$(rank_of "$name")
        other=$(rank_of "${3%.*}")
        if [ "${own:-0}" -lt "${other:-99}" ]; then
            breach "$1" "$name (layer ${own:-none}) includes $3 (layer ${other:-none}) from above"
        fi
    fi
}

for file in lib/*.[ch]; do
    if [ -z "$(rank_of "$(basename "${file%.*}")")" ]; then
        breach "$file" "has no layer; give it one in tests/tools/layers.sh"
    fi
done

includes=0
while IFS=: read -r file line text; do
    includes=$((includes + 1))
    header=${text#*[<\"]}
    header=${header%%[>\"]*}
    case $file:$text in
    include/*'<'*)
        case $header in
        stdbool.h | stddef.h | stdint.h) ;;
        *) breach "$file:$line" "attn.h includes standard headers only, not <$header>" ;;
        esac
        ;;
    *'<'*) check_system "$file:$line" "$file" "$header" ;;
    *) check_local "$file:$line" "$file" "$header" ;;
    esac
done < <(grep -nHE '^[[:space:]]*#[[:space:]]*include' -r --include='*.[ch]' include lib server)

if [ "$breaches" -ne 0 ]; then
    echo "layers: $includes includes, $breaches breaches"
    exit 1
fi
echo "layers: $includes includes of include/, lib/, server/ in order: ok"
