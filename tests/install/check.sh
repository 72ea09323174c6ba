#!/bin/bash
# check.sh: what `make install` put below a directory works there, for check-install.
#
#   tests/install/check.sh ROOT VERSION OUT
#
# ROOT holds an installation with PREFIX=/usr; OUT is the build's directory.  Each line that is
# printed names a step that passed; the first that fails ends the script.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
root=$(realpath "$1") version=$2 out=$3
abi=$(sed -E 's/^(0\.[0-9]+|[0-9]+)\..*/\1/' <<<"$version")
lib=$root/usr/lib
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
steps=0

passed() {
    steps=$((steps + 1))
    echo "install: $1: ok"
}

fail() {
    echo "install: $1"
    exit 1
}

same() { # what, a list, another list
    diff <(echo "$2") <(echo "$3") >"$work/difference" || fail "$1:
$(cat "$work/difference")"
}

# ---- The library -----------------------------------------------------------------------------------

# The functions that the installed headers declare, as the compiler reads them.
declared() {
    local header
    for header in "$root"/usr/include/*.h; do
        echo "#include \"$header\""
    done >"$work/headers.c"
    gcc -std=c11 -Wall -Wextra -Werror -aux-info "$work/declared" -fsyntax-only "$work/headers.c"
    sed -nE "/ static /d; s|^/\\* $root/usr/include/.* \\*?(attn_[a-z0-9_]+) \\(.*|\\1|p" "$work/declared" | sort -u
}

check_symbols() {
    local listed exported
    listed=$(grep -v '^#' lib/libattn.symbols | sort)
    exported=$(nm -D --defined-only "$lib/libattn.so.$version" | sed -nE 's/.* [A-Z] ([^@]*)@.*/\1/p' | sort)
    same "lib/libattn.symbols and the headers" "$listed" "$(declared)"
    same "lib/libattn.symbols and libattn.so" "$listed" "$exported"
    same "exported without a version" "" "$(nm -D --defined-only "$lib/libattn.so.$version" | grep -v '@\| A ' || true)"
    readelf -d "$lib/libattn.so.$version" >"$work/dynamic"
    grep -q "SONAME.*\[libattn.so.$abi\]" "$work/dynamic" || fail "SONAME is not libattn.so.$abi"
    ! grep -q TEXTREL "$work/dynamic" || fail "libattn.so has relocations in its code"
    passed "libattn.so.$abi exports the $(wc -l <<<"$listed") functions of the headers and nothing else"
}

# Builds the program of three lines with what pkg-config says for these flags, and runs it.
build_and_run() { # flags of pkg-config, arguments of the linker before them
    local flags
    flags=$(PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root pkg-config $1 --cflags --libs attn)
    # shellcheck disable=SC2086 # words on purpose
    gcc -std=c11 -o "$work/program" tests/install/program.c ${2:-} $flags
    LD_LIBRARY_PATH=$lib "$work/program" || fail "the program does not open an engine"
    LD_LIBRARY_PATH=$lib ldd -r "$work/program" >"$work/linked" 2>&1
    ! grep -i undefined "$work/linked" || fail "a library does not name all that it needs"
}

check_program() {
    same "attn.pc's version" "$version" "$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --modversion attn)"
    build_and_run ''
    grep -q "libattn.so.$abi => $lib/" "$work/linked" || fail "the program is not linked with libattn.so"
    mv "$lib/libattn.so" "$work" # the linker then takes libattn.a
    build_and_run --static "-Wl,--whole-archive $lib/libattn.a -Wl,--no-whole-archive"
    ! grep libattn "$work/linked" || fail "the program is not linked with libattn.a"
    mv "$work/libattn.so" "$lib"
    passed "a program of three lines built with pkg-config runs, with libattn.so and with libattn.a"
}

# ---- Manual pages, completion ----------------------------------------------------------------------

# Every word of the list stands in the page.
page_names() { # page, rendered text, list
    local word
    for word in $3; do
        grep -qwF -e "$word" <<<"$2" || fail "$1 does not name $word"
    done
}

check_pages() {
    local page text flags keys
    for page in man1/attnd.1 man5/attnd.conf.5 man3/libattn.3; do
        mandoc -T lint -W warning "$root/usr/share/man/$page" || fail "$page"
    done
    flags=$("$root/usr/bin/attnd" --help | sed -nE 's/^  (--[a-z-]+) .*/\1/p')
    keys=$("$root/usr/bin/attnd" --help | sed -nE 's/^  --([a-z-]+) (TEXT|FILE|DIR|N|WORD).*/\1/p' | grep -v '^config$' | tr - _)
    [ "$(wc -w <<<"$flags")" -gt 30 ] || fail "--help lists no options"
    text=$(mandoc -T ascii -O width=200 "$root/usr/share/man/man1/attnd.1" | sed 's/.\x08//g')
    page_names 'attnd(1)' "$text" "$flags"
    text=$(mandoc -T ascii -O width=200 "$root/usr/share/man/man5/attnd.conf.5" | sed 's/.\x08//g')
    page_names 'attnd.conf(5)' "$text" "$keys"
    text=$(mandoc -T ascii -O width=200 "$root/usr/share/man/man3/libattn.3" | sed 's/.\x08//g')
    page_names 'libattn(3)' "$text" "$(grep -v '^#' lib/libattn.symbols)"
    ! grep -rlE '@[A-Z]+@' "$root/usr/share" "$lib/pkgconfig" "$lib/systemd" "$root/etc" || fail "a template was not filled"
    passed "attnd(1), attnd.conf(5), libattn(3) are clean and name all $(wc -w <<<"$flags") options and all functions"
}

# What bash offers after these words, the last of which is being typed.
offers() {
    PATH=$root/usr/bin:$PATH bash -uc 'source "$1"; shift
        COMP_WORDS=(attnd "$@") COMP_CWORD=$#
        _attnd
        echo "${COMPREPLY[*]}"' - "$root/usr/share/bash-completion/completions/attnd" "$@"
}

check_completion() {
    same "attnd --jour" "--journal-fsync --journal-bytes" "$(offers --jour)"
    same "attnd --durability " "none snapshot journal" "$(offers --durability '')"
    same "attnd jo" "journal" "$(offers jo)"
    same "attnd journal " "check salvage" "$(offers journal '')"
    same "attnd --config incl" "include" "$(offers --config incl)"
    same "attnd --port " "" "$(offers --port '')"
    same "attnd inspect config --k" "--kv-dtype" "$(offers inspect config --k)"
    same "attnd inspect --family gpt_" "gpt_oss gpt_neox gpt_neo gpt_bigcode" "$(offers inspect --family gpt_)"
    if command -v zsh >/dev/null; then
        zsh -n "$root/usr/share/zsh/site-functions/_attnd" || fail "_attnd"
    fi
    if command -v fish >/dev/null; then
        fish -n "$root/usr/share/fish/vendor_completions.d/attnd.fish" || fail "attnd.fish"
    fi
    passed "bash completes flags, words, files and commands"
}

# ---- The daemon and its unit -----------------------------------------------------------------------

check_daemon() {
    local config=$work/attnd.json
    sed "s|/usr/share|$root/usr/share|" "$root/etc/attnd/attnd.json" >"$config"
    same "attnd --version" "attnd $version" "$("$root/usr/bin/attnd" --version | sed -n 1p)"
    env -i "$root/usr/bin/attnd" --config "$config" --memory-limit 64GiB --check >"$work/checked" || fail "attnd --check $config"
    grep -qE 'durability += journal \(file\)' "$work/checked" || fail "the installed file is not read"
    grep -q '"instance"\|"api_keys"' "$config" && fail "$config holds what is of one machine"
    passed "attnd --check accepts the installed configuration"
    check_page "$config"
}

# The daemon, started as it is installed, and its page.
check_page() { # configuration
    local daemon tenths url='' said=''
    mkdir "$work/state"
    env -i "$root/usr/bin/attnd" --config "$1" --memory-limit 64GiB --port 0 --state-dir "$work/state" \
        >"$work/log" 2>&1 &
    daemon=$!
    for ((tenths = 0; tenths < 300; tenths++)); do
        url=$(sed -nE 's|.*attention viewer: (http://[^/]*)/.*|\1|p' "$work/log")
        if [ -n "$url" ] || ! kill -0 "$daemon" 2>/dev/null; then
            break
        fi
        sleep 0.1
    done
    [ -z "$url" ] || said=$(tests/tools/knows_demo.sh "$url" 2>&1) || true
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
    [ -n "$url" ] || fail "the installed daemon did not start: $(tail -n 3 "$work/log")"
    [ -z "$said" ] || fail "$said"
    passed "the page of the installed daemon opens on the installed model demo"
}

# A unit as it is installed, but for the place of the program.
verify_unit() { # unit, instance, lines that it has
    local name=${1/@/@$2} line verdict exposure
    local installed=$lib/systemd/system/$1 unit=$work/$name
    for line in "${@:3}"; do
        grep -qxF "$line" "$installed" || fail "$1: no line $line"
    done
    if ! command -v systemd-analyze >/dev/null; then
        echo "install: $1 is not verified: no systemd here"
        return
    fi
    sed "s|^ExecStart=/usr|ExecStart=$root/usr|" "$installed" >"$unit"
    verdict=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep -F attnd || true)
    same "systemd-analyze verify $1" "" "$verdict"
    exposure=$(systemd-analyze security --offline=yes "$unit" 2>/dev/null | sed -nE 's/.*exposure level for [^:]*: ([0-9.]+) .*/\1/p')
    awk -v level="$exposure" 'BEGIN { exit !(level != "" && level <= 2) }' || fail "systemd-analyze security $1: $exposure"
    passed "$1 verifies, exposure $exposure of 10"
}

# What the command of a shard's unit gives to attnd, with the file of its own, is taken as it is meant.
check_shard() {
    local command
    command=$(sed -nE 's|^ExecStart=||p' "$lib/systemd/system/attnd@.service" | sed "s|%i|a|g; s|%C|$work|; s|/etc/attnd|$work|")
    # shellcheck disable=SC2086 # words on purpose
    env -i ATTN_PORT=8081 $root$command --memory-limit 64GiB --check >"$work/shard" || fail "attnd@.service: attnd --check"
    grep -qE '^  instance += a +\(flag\)' "$work/shard" || fail "attnd@.service: instance"
    grep -qE '^  state_dir += /var/lib/attnd/a +\(flag\)' "$work/shard" || fail "attnd@.service: state_dir"
    grep -qE "^  weights_cache += $work/attnd +\(flag\)" "$work/shard" || fail "attnd@.service: weights_cache"
    grep -qE '^  port += 8081 +\(variable\)' "$work/shard" || fail "attnd@.service: port"
    passed "attnd --check takes the shard's command: its name, its directory, a port of its own"
}

check_units() {
    verify_unit attnd.service '' "ExecStart=/usr/bin/attnd --config /etc/attnd/attnd.json" Type=notify StateDirectory=attnd
    verify_unit attnd@.service a Type=notify EnvironmentFile=/etc/attnd/%i.env StateDirectory=attnd/%i CacheDirectory=attnd
    check_shard
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers --dry-run "$lib/sysusers.d/attnd.conf" >/dev/null 2>&1 || fail "sysusers.d"
    fi
}

check_data() {
    local file
    for file in clients/python/attn_client.py clients/js/attn-client.mjs prometheus/alerts.yml \
        grafana/attnd.json haproxy/haproxy.cfg haproxy/haproxy.lua demo/config.json demo/model.safetensors \
        demo/tokenizer.json demo/demo.json demo/README.md; do
        [ -s "$root/usr/share/attnd/$file" ] || fail "no /usr/share/attnd/$file"
    done
    passed "/usr/share/attnd has clients, alert rules, dashboard, HAProxy's files and the demonstration model"
}

check_symbols
check_program
check_pages
check_completion
check_daemon
check_units
check_data
echo "$steps" >"$out/install.steps"
