#!/bin/bash
# package.sh: the Debian packages from lintian to purging, for check-install.
#
#   tests/install/package.sh DEB_DIRECTORY VERSION OUT
#
# Makes a clean root of Debian 12, installs the packages there with apt, boots it with systemd in a
# container whose network is its own, asks the unit, and removes all.  README's first commands run in
# another one, which has only what README asks for.  Needs root, for the container.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
deb=$1 version=$2 out=$3
abi=$(sed -E 's/^(0\.[0-9]+|[0-9]+)\..*/\1/' <<<"$version")
base=$PWD/build/debian-root # the clean root, kept for the next time
work=$(mktemp -d "$PWD/build/package.XXXXXX")
container=
init=
steps=0

# Sent to systemd-nspawn, SIGTERM shuts the container down in order, once its systemd has begun.
power_off() {
    local tenths
    [ -n "$container" ] || return 0
    kill -TERM "$container" 2>/dev/null || true
    for ((tenths = 0; tenths < 200; tenths++)); do
        kill -0 "$container" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL $init "$container" 2>/dev/null || true
    wait "$container" 2>/dev/null || true
    container=
}
trap 'power_off; rm -rf "$work"' EXIT

passed() {
    steps=$((steps + 1))
    echo "package: $1: ok"
}

fail() {
    echo "package: $1"
    exit 1
}

# Runs a command in a root that is not booted; its output is shown where it fails.
in_root() { # root, command...
    local root=$1
    shift
    systemd-nspawn --quiet --machine="check-install-$$" --register=no --keep-unit --pipe --directory="$root" \
        env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$work/said" 2>&1 ||
        fail "$*: $(tail -n 20 "$work/said")"
}

# Installs packages of ours from the directory /packages of a root.
install_in() { # root, package...
    local root=$1 names=() name
    shift
    mkdir -p "$root/packages"
    for name; do
        cp "$deb/${name}_$version"-*.deb "$root/packages"
        names+=("/packages/$(basename "$deb/${name}_$version"-*.deb)")
    done
    in_root "$root" apt-get -q -y install --no-install-recommends "${names[@]}"
}

check_lintian() {
    lintian --allow-root --fail-on error,warning --suppress-tags bad-distribution-in-changes-file \
        "$deb"/*.changes >"$work/lintian" || fail "lintian: $(cat "$work/lintian")"
    passed "lintian has no error and no warning"
}

# The bill of materials is JSON, its identifiers are distinct, and its relations lead from one to
# another.
check_sbom() {
    perl -MJSON::PP -e 'local $/; my $bill = decode_json(<>); my %known = ("SPDXRef-DOCUMENT" => 1);
        $bill->{spdxVersion} eq "SPDX-2.3" or die "spdxVersion";
        for (@{$bill->{packages}}) {
            $_->{SPDXID} =~ /^SPDXRef-[a-zA-Z0-9.-]+$/ && !$known{$_->{SPDXID}}++ or die "SPDXID $_->{SPDXID}";
            $_->{name} && $_->{versionInfo} && $_->{downloadLocation} or die "fields of $_->{SPDXID}";
        }
        for (@{$bill->{relationships}}) {
            $known{$_->{spdxElementId}} && $known{$_->{relatedSpdxElement}} or die "relationship";
        }
        for ("attnd", "libc6", "libmicrohttpd12", "libnettle8", "libjansson4", "libseccomp2", "libgnutls30", "libunistring2", "zlib1g") {
            $known{"SPDXRef-$_"} or die "no $_";
        }' "$out/attnd.spdx.json" || fail "the bill of materials"
    passed "the bill of materials is SPDX 2.3 and names what attnd is linked with"
}

make_base() {
    if [ ! -e "$base/made" ]; then
        rm -rf "$base"
        mmdebstrap --quiet --variant=minbase --include=systemd-sysv,dbus bookworm "$base"
        touch "$base/made"
    fi
    passed "a clean root of Debian 12"
}

# ---- Installing, removing, purging -----------------------------------------------------------------

# What a package may change without being asked: caches and logs of dpkg and apt, and users.
files_of() { # root
    (cd "$1" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./tmp \
        -o -path ./packages -o -path ./var/cache -o -path ./var/log -o -path ./var/lib/apt \
        -o -path ./var/lib/dpkg -o -path ./var/lib/systemd \) -prune -o -print | sort)
}

check_purge() {
    local root=$work/purged
    cp -a "$base" "$root"
    files_of "$root" >"$work/before"
    in_root "$root" apt-get -q update
    install_in "$root" attnd "libattn$abi" libattn-dev
    [ "$(stat -c %U:%a "$root/etc/attnd/attnd.json")" = root:644 ] || fail "attnd.json's owner and mode"
    in_root "$root" sh -c 'test "$(stat -c %U:%a /var/lib/attnd)" = attnd:700'
    in_root "$root" sh -c 'mkdir /var/lib/attnd/sessions && touch /var/lib/attnd/sessions/file'
    in_root "$root" systemd-analyze verify --man=no attnd.service
    ! grep -F attnd.service "$work/said" || fail "systemd-analyze verify"
    passed "three packages install; the unit verifies where it stands"
    echo >>"$root/etc/attnd/attnd.json"
    in_root "$root" apt-get -q -y remove attnd "libattn$abi"
    [ -e "$root/etc/attnd/attnd.json" ] && [ -e "$root/var/lib/attnd/sessions/file" ] || fail "removing takes configuration or sessions"
    [ ! -e "$root/usr/bin/attnd" ] && [ ! -e "$root/lib/systemd/system/attnd.service" ] || fail "removing leaves the program"
    in_root "$root" apt-get -q -y purge attnd
    in_root "$root" apt-get -q -y autoremove --purge
    files_of "$root" >"$work/after"
    # sysusers leaves the user, and with it the backup files of passwd and group.
    diff "$work/before" "$work/after" | grep -vE '^[0-9]|^> \./etc/(passwd|group|shadow|gshadow)-$' >"$work/left" || true
    [ ! -s "$work/left" ] || fail "purging leaves or takes: $(cat "$work/left")"
    ! find "$root/etc/systemd" "$root/var/lib/systemd" -name '*attnd*' | grep . || fail "purging leaves links of the unit"
    passed "removing keeps configuration and sessions, purging leaves nothing but the user"
}

# ---- The unit in a booted system -------------------------------------------------------------------

inside() { nsenter --target "$init" --all "$@"; }

boot() {
    local tenths
    cp -a "$base" "$work/booted"
    in_root "$work/booted" apt-get -q update
    install_in "$work/booted" attnd
    systemd-nspawn --quiet --boot --machine="check-install-$$" --register=no --keep-unit --private-network --console=read-only \
        --directory="$work/booted" </dev/null >"$work/console" 2>&1 &
    container=$!
    for ((tenths = 0; tenths < 600; tenths++)); do
        init=$(ps -o pid= --ppid "$container" | tr -d ' ' || true)
        if [ -n "$init" ] && inside systemctl is-active --quiet attnd.service 2>/dev/null; then
            return
        fi
        kill -0 "$container" 2>/dev/null || fail "the container ended: $(tail -n 20 "$work/console")"
        sleep 0.1
    done
    inside journalctl --no-pager -u attnd.service | tail -n 20
    fail "the unit is not active after 60 s"
}

# A request from within the container's network; prints the reply.
port=8080
ask() { # method, path, body
    nsenter --target "$init" --net curl -sS --max-time 20 --fail-with-body -X "$1" \
        -H 'Content-Type: application/json' ${3:+--data-binary "$3"} "http://127.0.0.1:$port$2" ||
        fail "$1 $2 is refused"
}

property() { inside systemctl show --property "$1" --value attnd.service; }

status_of_daemon() { # field
    inside sed -nE "s/^$1:[[:space:]]*([^[:space:]]*).*/\1/p" "/proc/$(property MainPID)/status"
}

check_confinement() {
    [ "$(property User)" = attnd ] && [ "$(status_of_daemon Uid)" = "$(inside id -u attnd)" ] || fail "it does not run as attnd"
    [ "$(status_of_daemon CapBnd)" = 0000000000000000 ] || fail "it has capabilities"
    [ "$(status_of_daemon NoNewPrivs)" = 1 ] || fail "it may gain privileges"
    [ "$(status_of_daemon Seccomp)" = 2 ] || fail "its calls are not filtered"
    inside journalctl --no-pager -o cat -u attnd.service >"$work/journal"
    ! grep -F '"level":"error"' "$work/journal" || fail "it logged errors"
    passed "it runs as attnd without capabilities, and logs no error"
    nsenter --target "$init" --net tests/tools/knows_demo.sh "http://127.0.0.1:$port" || fail "the page of the package"
    passed "its page opens on the package's model demo"
}

model='{"name":"tiny","random":{"hidden_size":16,"num_attention_heads":2,"seed":1}}'
row='[0.5,-0.5,0.25,0,1,-1,0.125,0,0.5,-0.5,0.25,0,1,-1,0.125,0]'

step() { # position
    ask POST /decode '{"model":"tiny","session_id":"kept","position":'"$1"',"hidden_states":['"$row"']}' |
        sed -E 's/,"timing.*//'
}

check_session() {
    local before
    sed -i "s|\"models\": \[|&$model,|" "$work/booted/etc/attnd/attnd.json"
    inside systemctl restart attnd.service
    ask POST /sessions '{"session_id":"kept","model":"tiny"}' >/dev/null
    step 0 >/dev/null
    before=$(step 1)
    inside systemctl kill --signal=KILL attnd.service
    for ((tenths = 0; tenths < 300; tenths++)); do
        [ "$(property NRestarts)" = 1 ] && inside systemctl is-active --quiet attnd.service && break
        sleep 0.1
    done
    [ "$(property NRestarts)" = 1 ] || fail "SIGKILL was not followed by a restart"
    # The same step again is answered from the session, if that has it.
    [ "$(step 1 | grep -o '"output":[^}]*')" = "$(grep -o '"output":[^}]*' <<<"$before")" ] || fail "the session is another one after the restart"
    passed "a session outlives SIGKILL: systemd restarts the daemon, the journal has the step"
}

# Two shards beside each other: names, ports and directories of their own, one configuration.
check_shards() {
    local shard id kept models before=()
    ! inside systemctl start attnd@a.service 2>/dev/null || fail "a shard without its file is started"
    for shard in a b; do
        port=$((port + 1))
        echo "ATTN_PORT=$port" >"$work/booted/etc/attnd/$shard.env"
        inside systemctl reset-failed 2>/dev/null || true
        inside systemctl start "attnd@$shard.service" || fail "attnd@$shard: $(inside journalctl --no-pager -o cat -u "attnd@$shard" | tail -n 5)"
        id=$(ask POST /sessions '{"model":"tiny"}' | grep -oE '"session_id":"[^"]*"' | cut -d'"' -f4)
        [ "${id%%.*}" = "$shard" ] || fail "shard $shard makes the id $id"
        ask POST /decode '{"session_id":"'"$id"'","position":0,"hidden_states":['"$row"']}' >/dev/null
        before+=("$id")
        [ "$(inside stat -c %U:%a "/var/lib/attnd/$shard")" = attnd:700 ] || fail "owner and mode of /var/lib/attnd/$shard"
    done
    inside systemctl restart attnd@a.service attnd@b.service
    port=8080
    for id in "${before[@]}"; do
        port=$((port + 1))
        ask GET "/sessions/$id" | grep '"length":1' >/dev/null || fail "the session $id after a restart"
    done
    models=$(ask GET /models | grep -o '"fingerprint"' | wc -l)
    port=8080
    kept=$(inside sh -c 'stat -c %U:%a /var/cache/attnd && ls /var/cache/attnd/*.weights | wc -l' | paste -sd ' ')
    [ "$kept" = "attnd:700 $models" ] || fail "the weights of $models models: owner, mode and files are $kept"
    inside systemctl stop attnd@a.service attnd@b.service
    passed "attnd@a and attnd@b: a port, a directory and sessions of their own, also after a restart, and one file of weights of each model"
}

check_unit() {
    boot
    inside attnd --health-check || fail "active, but /readyz is not 200"
    ask POST /attend '{"query":[[[1,0],[0,1]]],"key":[[[1,0],[0,1]]],"value":[[[1,2],[3,4]]]}' >"$work/reply"
    grep -q '"output":' "$work/reply" || fail "/attend: $(cat "$work/reply")"
    passed "the unit is started by installing and booting, and answers"
    check_confinement
    inside systemctl reload attnd.service
    inside attnd --health-check && inside systemctl is-active --quiet attnd.service || fail "reloading ends it"
    passed "systemctl reload"
    check_session
    inside systemctl stop attnd.service
    [ "$(property Result)" = success ] || fail "stopping: $(property Result)"
    [ "$(inside stat -c %U:%a /var/lib/attnd/sessions)" = attnd:700 ] || fail "owner and mode of sessions"
    check_shards
    echo '{"prot": 1}' >"$work/booted/etc/attnd/attnd.json"
    ! inside systemctl start attnd.service 2>/dev/null || fail "a wrong configuration is started"
    sleep 2 # RestartSec is 1
    [ "$(property NRestarts)" = 0 ] && [ "$(property ExecMainStatus)" = 2 ] || fail "a wrong configuration is tried again"
    passed "it stops with success, and a wrong configuration is not tried again"
    power_off
}

# ---- Building against the package ------------------------------------------------------------------

check_development() {
    local root=$work/purged # the base and what it has become
    rm -rf "$root"
    cp -a "$base" "$root"
    in_root "$root" apt-get -q update
    install_in "$root" "libattn$abi" libattn-dev
    in_root "$root" apt-get -q -y install --no-install-recommends gcc libc6-dev pkg-config
    cp tests/install/program.c "$root/packages"
    in_root "$root" sh -euc 'cd /packages; gcc -o program program.c $(pkg-config --cflags --libs attn); ./program; ldd program'
    grep -q "libattn.so.$abi => /" "$work/said" || fail "the program is not linked with the package's library"
    in_root "$root" sh -euc 'cd /packages; gcc -o static program.c $(pkg-config --cflags attn) -Wl,-Bstatic -lattn -Wl,-Bdynamic $(pkg-config --libs jansson nettle zlib) -lm; ./static'
    passed "a program of three lines builds with libattn-dev and runs"
}

# ---- README's first commands -----------------------------------------------------------------------

# The commands of README's first block, each in a root that has make and gcc alone beside Debian's
# minimum.  Docker's is for check-image.
check_first_commands() {
    local root=$work/first command count=0
    while read -r command; do
        rm -rf "$root"
        cp -a "$base" "$root"
        echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/answers" # in place of a person
        in_root "$root" apt-get -q update
        in_root "$root" apt-get -q install --no-install-recommends make gcc sudo
        mkdir "$root/attnd"
        tar -cf - --exclude=./build --exclude=./.git . | tar -xf - -C "$root/attnd"
        in_root "$root" sh -euc "cd /attnd; ATTND_RUN_ONCE=1; DEBIAN_FRONTEND=noninteractive; export ATTND_RUN_ONCE; $command"
        count=$((count + 1))
        passed "with make and gcc alone: $command"
    done < <(awk '/^```console$/ { inside = 1; next } inside && /^```/ { exit }
        inside && sub(/^\$ /, "") && !/docker/ { sub(/ *#.*/, ""); print }' README.md)
    [ "$count" -ge 2 ] || fail "README's first block has $count commands"
}

[ "$(id -u)" -eq 0 ] || fail "booting a container needs root"
check_sbom
check_lintian
make_base
check_purge
check_unit
check_development
check_first_commands
echo "$steps" >"$out/package.steps"
