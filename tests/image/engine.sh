#!/bin/bash
# engine.sh: builds the image and runs it, alone and by docker-compose.yml, under podman and runc.
#
#   tests/image/engine.sh [compose|cluster|architectures]
#
# With `compose` only docker-compose.yml is brought up, with its profiles; with `cluster` only its
# shards (cluster.sh); with `architectures` only the image for arm64 is built and run
# (architectures.sh).
#
# Needs root, for podman's cgroups and networks.  The base image is a tree that mmdebstrap makes of
# the packages this machine gets from, so no registry is asked.  Images, containers, networks and
# volumes are kept below build/image, apart from the user's own, and are removed at the end; the base
# stays there.  Flags of the container come from docker-compose.yml (services.py --flags).  Each line
# `ok:` says what has been shown; the first thing that is not so ends the script.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || exec sudo "$0" "$@"

root=$PWD
work=$PWD/build/image
base=$work/base.tar
image=attnd
network=attnd-check-$$
project=attndcheck$$
scratch=
service=
steps=0
began=$SECONDS

export CONTAINERS_CONF=$work/containers.conf
export DOCKER_HOST=unix://$work/podman.sock
export DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0 COMPOSE_PROJECT_NAME=$project

podman=(podman --root "$work/storage" --runroot "$work/run" --storage-driver vfs)

engine() {
    "${podman[@]}" "$@"
}

ok() {
    steps=$((steps + 1))
    echo "ok: $*"
}

fail() {
    echo "check-image: $*" >&2
    engine logs attnd 2>&1 | tail -n 5 >&2 || true
    exit 1
}

expect() { # what, expected, got
    [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
}

clean_up() {
    trap - EXIT
    if [ -n "$service" ]; then
        (cd "$scratch/clone" && compose --profile cluster --profile observability down -v) >/dev/null 2>&1 || true
        kill "$service" 2>/dev/null || true
        wait "$service" 2>/dev/null || true
    fi
    engine rm -f -t 2 --all >/dev/null 2>&1 || true
    unregister_arm64
    engine network prune -f >/dev/null 2>&1 || true
    rm -rf "$work/storage" "$work/run" "$work/networks" "$work/podman.sock" "$scratch"
}

# What this machine needs and a user's need not: limits on files and processes below podman's
# defaults, no systemd for cgroups and events, Debian's runc.
write_settings() {
    cat >"$work/containers.conf" <<END
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "$work/networks"
END
}

# Without what podman says where there is no systemd for its timers of health checks, and no syslog,
# and of an image for another architecture; the health checks themselves are asked for below.
quietly() {
    "$@" 2> >(grep -vE 'systemd connection|connect to syslog|image platform' >&2)
}

make_base() {
    if [ ! -s "$base" ]; then
        mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates bookworm \
            "$base.new" >"$work/mmdebstrap.log" 2>&1 || fail "mmdebstrap: $(tail -n 3 "$work/mmdebstrap.log")"
        mv "$base.new" "$base"
    fi
    engine import -q "$base" debian:bookworm-slim >/dev/null
}

# With the network of this machine, since its name server is not reached through a bridge; in one
# layer for each stage, since each is a copy of the whole tree.
build=(build --format docker --network host --layers=false)

build_image() {
    local start=$SECONDS
    engine "${build[@]}" --build-arg REVISION=abc -t "$image" "$PWD" \
        >"$work/build.log" 2>&1 ||
        fail "build: $(tail -n 5 "$work/build.log")"
    ok "the Dockerfile is built in $((SECONDS - start)) s," \
        "$(engine image inspect "$image" --format '{{.Size}}') bytes"
}

# What README.md says first, with nothing installed but the base.
check_first_reply() {
    local start=$SECONDS
    git ls-files -z | tar -c --null -T - | quietly engine run --rm -i --network host \
        debian:bookworm-slim bash -c 'set -e
            mkdir /src && cd /src && tar -x
            apt-get -qq update
            apt-get -qq install -y --no-install-recommends make gcc
            ATTND_RUN_ONCE=1 ATTN_PORT=0 make run' >"$work/run.log" 2>&1 ||
        fail "make run: $(tail -n 5 "$work/run.log")"
    expect "replies of make run" 6 "$(grep -c '^Reply: HTTP 20' "$work/run.log")"
    ok "in a Debian with nothing added, from the clone to the replies of make run:" \
        "$((SECONDS - start)) s"
}

# ---- One container -------------------------------------------------------------------------------

start_container() { # podman's arguments before the image
    quietly engine run -d --name attnd --network "$network" -p "127.0.0.1::8080" \
        "${flags[@]}" "$@" "$image" >/dev/null
    find_port
    await_ready
}

find_port() {
    url=http://$(engine port attnd 8080/tcp | head -n 1)
}

await_ready() {
    local tenths
    for ((tenths = 0; tenths < 600; tenths++)); do
        if curl -sf --max-time 2 "$url/readyz" >/dev/null 2>&1; then
            return
        fi
        sleep 0.1
    done
    fail "not ready after 60 s at $url"
}

post() { # path, body
    curl -sS --fail-with-body --max-time 20 -H 'Content-Type: application/json' \
        --data-binary @- "$url$1" <<<"$2" || fail "POST $1"
}

# Rows of so many numbers, [[..],[..]], the same for the same seed.
rows() { # width, count, seed
    awk -v width="$1" -v rows="$2" -v seed="$3" -f "$root/tests/tools/rows.awk"
}

fill_session() { # width of the model llama
    post /sessions '{"session_id":"kept","model":"llama"}' >/dev/null
    post /attend "{\"model\":\"llama\",\"session_id\":\"kept\",\"hidden_states\":$(rows "$1" 70 1)}" \
        >/dev/null
    post /decode "{\"model\":\"llama\",\"session_id\":\"kept\",\"position\":70,\
\"hidden_states\":$(rows "$1" 1 2)}" >/dev/null
}

# What the next token would get: equal text is equal bits, since numbers are written to the last.
next_of_session() {
    post /decode "{\"model\":\"llama\",\"session_id\":\"kept\",\"position\":71,\"commit\":false,\
\"hidden_states\":$(rows "$width" 1 3)}"
}

expect_session() { # what has happened to it
    expect "session after $1" "$kept" "$(next_of_session)"
    ok "a session of 71 tokens has its bits after $1"
}

expect_no_error() { # log's text, of what
    [ -n "$1" ] || fail "$2: no log"
    if grep -q '"level":"error"' <<<"$1"; then
        fail "$2: $(grep '"level":"error"' <<<"$1" | head -n 3)"
    fi
    ok "$2: $(grep -c '"level"' <<<"$1") lines in the log, none of level error"
}

in_status() { # field of /proc/1/status
    awk -v field="$1:" '$1 == field { $1 = ""; print substr($0, 2) }' <<<"$status"
}

check_image() {
    local label='{{index .Config.Labels "org.opencontainers.image.version"}}'
    local version
    expect "label revision" abc "$(engine image inspect "$image" --format "${label/version/revision}")"
    version=$(quietly engine run --rm --network none "$image" --version | awk 'NR == 1 { print $2 }')
    expect "label version" "$version" "$(engine image inspect "$image" --format "$label")"
    ok "the image's label and attnd --version say $version"
    quietly engine run --rm --network none --entrypoint cat "$image" /usr/local/bin/attnd >"$scratch/attnd"
    if readelf -S "$scratch/attnd" | grep -q ' \.debug_'; then
        fail "the daemon in the image has its debug symbols"
    fi
    ok "the daemon in the image is stripped: $(stat -c %s "$scratch/attnd") bytes"
}

check_hardening() {
    status=$(engine exec attnd cat /proc/1/status)
    expect Uid "65532 65532 65532 65532" "$(in_status Uid)"
    expect Gid "65532 65532 65532 65532" "$(in_status Gid)"
    local set
    for set in CapInh CapPrm CapEff CapBnd CapAmb; do
        expect "$set" 0000000000000000 "$(in_status "$set")"
    done
    expect NoNewPrivs 1 "$(in_status NoNewPrivs)"
    [ "$(in_status Seccomp_filters)" -ge 2 ] || fail "sandbox: no filter of attnd's own"
    ok "user 65532, no capability in any set, no new privileges, $(in_status Seccomp_filters)" \
        "seccomp filters: the engine's and the sandbox's"
    local place
    for place in / /usr/local/bin /etc/attnd /models /models/llama; do
        if engine exec attnd touch "$place/new" 2>/dev/null; then
            fail "$place can be written"
        fi
        if engine exec -u 0 attnd touch "$place/new" 2>/dev/null; then
            fail "$place can be written by root"
        fi
    done
    ok "the root, /etc/attnd and /models are read-only, for root too"
    expect "limits" "$limits" \
        "$(engine inspect attnd --format '{{.HostConfig.PidsLimit}} {{.HostConfig.Memory}}')"
    ok "limits of processes and memory are docker-compose.yml's: $limits"
}

check_served() {
    local names
    names=$(curl -sS --max-time 10 "$url/models" | grep -o '"name":"[^"]*"' | sort | tr -d '\n')
    expect models '"name":"gqa""name":"llama""name":"mha"' "$names"
    post /attend "{\"model\":\"llama\",\"hidden_states\":$(rows "$width" 3 1)}" >/dev/null
    ok "a directory mounted at /models/llama is served as llama, beside mha and gqa:" \
        "from the clone to its reply $((SECONDS - built)) s"
    quietly engine healthcheck run attnd >/dev/null || fail "health check"
    ok "the health check is green"
}

check_restarts() {
    fill_session "$width"
    kept=$(next_of_session)
    [ "${#kept}" -gt $((width * 4)) ] || fail "decode: $kept"
    quietly engine stop attnd >/dev/null
    expect "exit status after SIGTERM" 0 "$(engine inspect attnd --format '{{.State.ExitCode}}')"
    ok "SIGTERM ends attnd with status 0"
    quietly engine start attnd >/dev/null
    find_port
    await_ready
    expect_session "stop and start"
    quietly engine kill -s KILL attnd >/dev/null
    quietly engine wait attnd >/dev/null
    quietly engine start attnd >/dev/null
    find_port
    await_ready
    expect_session "SIGKILL and start"
    expect_no_error "$(engine logs attnd 2>&1 | grep '^{')" "the container"
    quietly engine rm -f -t 40 attnd >/dev/null
    start_container -v "$project-sessions:/var/lib/attnd" -v "$scratch/llama:/models/llama:ro"
    expect_session "another container took the volume"
    quietly engine rm -f -t 40 attnd >/dev/null
}

# As in docs/OPERATIONS.md, without anything of docker-compose.yml; the volume has no name.
check_plain_run() {
    local keep=("${flags[@]}")
    flags=(-e ATTN_ALLOW_UNAUTHENTICATED=true)
    start_container -v "$scratch/llama:/models/llama"
    fill_session "$width"
    kept=$(next_of_session)
    quietly engine restart -t 40 attnd >/dev/null
    find_port
    await_ready
    expect_session "restart of a container without options"
    quietly engine rm -f -v -t 40 attnd >/dev/null
    flags=("${keep[@]}")
}

check_foreign_directory() {
    local said
    mkdir "$scratch/foreign"
    if said=$(quietly engine run --rm --network none "${flags[@]}" \
        -v "$scratch/foreign:/var/lib/attnd" "$image" 2>&1); then
        fail "a state_dir of root's was taken"
    fi
    grep -q 'user 0 owns it and attnd runs as user 65532: chown -R 65532' <<<"$said" ||
        fail "a state_dir of root's: $said"
    chown 65532 "$scratch/foreign"
    start_container -v "$scratch/foreign:/var/lib/attnd"
    quietly engine rm -f -t 40 attnd >/dev/null
    ok "a mounted state_dir of root's is refused with the remedy, and the remedy helps"
}

# ---- The compose file ----------------------------------------------------------------------------

compose() {
    docker-compose --no-ansi "$@" 2>>"$work/compose.log"
}

# A clone as a new user has it, with a checkpoint in config/models.  Prometheus' image cannot be pulled
# where no registry is reached; Debian's prometheus stands in under the name.
prepare_clone() {
    mkdir "$scratch/clone"
    cp -r docker-compose.yml Dockerfile config "$scratch/clone"
    cp -r "$scratch/llama" "$scratch/clone/config/models/llama"
    mkdir "$scratch/prometheus"
    cp "$(command -v prometheus)" "$scratch/prometheus/prometheus"
    cat >"$scratch/prometheus/Dockerfile" <<END
FROM debian:bookworm-slim
COPY prometheus /bin/prometheus
RUN install -d -o 65534 -g 65534 /prometheus
USER 65534
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
END
    engine build -q --format docker -t "$prometheus_image" "$scratch/prometheus" \
        >/dev/null 2>>"$work/build.log"
    # docker-compose asks for names without a registry at Docker's.
    engine tag "$image" docker.io/library/attnd
    engine tag "$prometheus_image" "docker.io/$prometheus_image"
}

start_podman_service() {
    "${podman[@]}" system service --time 0 "$DOCKER_HOST" >"$work/service.log" 2>&1 &
    service=$!
    local tenths
    for ((tenths = 0; tenths < 100; tenths++)); do
        if curl -sf --max-time 2 --unix-socket "$work/podman.sock" http://d/_ping >/dev/null; then
            return
        fi
        sleep 0.1
    done
    fail "podman's service does not answer"
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

up() { # arguments of docker-compose, with `up` among them
    compose "$@" >/dev/null || fail "docker-compose up: $(tail -n 5 "$work/compose.log")"
    await_ready
}

check_compose() {
    : >"$work/compose.log"
    compose config -q || fail "docker-compose config: $(tail -n 5 "$work/compose.log")"
    up up -d
    ok "docker-compose up: attnd answers at $url"
    local id
    id=$(compose ps -q attnd)
    quietly engine healthcheck run "$id" >/dev/null || fail "health check under docker-compose"
    status=$(engine exec "$id" cat /proc/1/status)
    expect "Uid under docker-compose" "65532 65532 65532 65532" "$(in_status Uid)"
    expect "CapBnd under docker-compose" 0000000000000000 "$(in_status CapBnd)"
    ok "under docker-compose too: health check green, user 65532, no capabilities"
    fill_session "$width"
    kept=$(next_of_session)
    compose restart >/dev/null || fail "restart: $(tail -n 5 "$work/compose.log")"
    await_ready
    expect_session "docker-compose restart"
    expect_no_error "$(compose logs --no-color attnd | sed 's/^[^|]*| //' | grep '^{')" \
        "docker-compose"
    compose down >/dev/null || fail "down: $(tail -n 5 "$work/compose.log")"
    up --profile observability up -d attnd prometheus
    expect_session "docker-compose down and up"
    check_scrape
    compose --profile observability down -v >/dev/null ||
        fail "down -v: $(tail -n 5 "$work/compose.log")"
    expect "containers left" "" "$(engine ps -aq)"
    ok "docker-compose down leaves no container"
}

# What the log says of a directory of checkpoints that is none, as Docker makes of a misspelt name.
check_models_missing() {
    mkdir -p "$scratch/misspelt/llama"
    ATTND_MODELS=$scratch/misspelt up up -d attnd
    compose logs --no-color attnd | grep -q \
        'model_dir /models: no checkpoint in it: passed over: llama (no config.json)' ||
        fail "the log of an empty mount: $(compose logs --no-color attnd | grep -v ready | tail -n 5)"
    ok "an empty directory mounted at /models/llama is a line of the log that names it"
    compose down -v >/dev/null || fail "down: $(tail -n 5 "$work/compose.log")"
}

answers_with() { # key
    curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $1" "$url/models"
}

write_key() { # key
    printf '{"keys": [{"name": "anna", "key": "%s", "scopes": ["infer"]}]}' "$1" >"$scratch/keys.new"
    chmod 400 "$scratch/keys.new"
    chown 65532 "$scratch/keys.new"
    mv "$scratch/keys.new" config/keys/keys.json
}

# With the edits that the comments of docker-compose.yml ask for.
check_keys() {
    local old=0123456789abcdef0123456789abcdef new=fedcba9876543210fedcba9876543210 tenths
    cp docker-compose.yml "$scratch/without-keys.yml"
    sed -i -E -e '/ATTN_ALLOW_UNAUTHENTICATED/d' -e 's/# (ATTN_API_KEYS|- \.\/config\/keys)/\1/' docker-compose.yml
    write_key "$old"
    up up -d attnd
    expect "keys before" "200 401" "$(answers_with "$old") $(answers_with "$new")"
    write_key "$new"
    compose kill -s HUP attnd >/dev/null || fail "kill: $(tail -n 5 "$work/compose.log")"
    for ((tenths = 0; tenths < 300; tenths++)); do
        if [ "$(answers_with "$new")" = 200 ]; then
            break
        fi
        sleep 0.1
    done
    expect "keys after a rename and HUP" "401 200" "$(answers_with "$old") $(answers_with "$new")"
    ok "keys.json was replaced by a rename; HUP took the old key back and let the new one in"
    compose down -v >/dev/null || fail "down: $(tail -n 5 "$work/compose.log")"
    mv "$scratch/without-keys.yml" docker-compose.yml
}

check_scrape() {
    local tenths up rules
    local api=http://127.0.0.1:$PROMETHEUS_PORT/api/v1
    for ((tenths = 0; tenths < 300; tenths++)); do
        up=$(curl -s --max-time 2 "$api/query?query=up" |
            grep -o '"job":"attnd"},"value":\[[^]]*"1"\]' || true)
        if [ -n "$up" ]; then
            rules=$(curl -s --max-time 2 "$api/rules" | grep -o '"type":"alerting"' | wc -l)
            expect "alert rules" "$(grep -c -- '- alert:' config/prometheus/alerts.yml)" "$rules"
            ok "the profile's prometheus.yml reads attnd's metrics: up is 1; $rules alert rules"
            return
        fi
        sleep 0.1
    done
    fail "prometheus: up is not 1"
}

# shellcheck source=tests/image/cluster.sh
. tests/image/cluster.sh
# shellcheck source=tests/image/architectures.sh
. tests/image/architectures.sh

# ---- All of it -----------------------------------------------------------------------------------

mkdir -p "$work"
scratch=$(mktemp -d "$work/scratch.XXXXXX")
trap clean_up EXIT
trap 'exit 1' INT TERM HUP
write_settings
cp -r tests/golden/llama_gqa/model "$scratch/llama"
chmod -R a+rX "$scratch"
width=$(grep -o '"hidden_size": *[0-9]*' "$scratch/llama/config.json" | grep -o '[0-9]*$')
mapfile -t flags < <(tests/image/services.py --flags)
limits=$(printf '%s\n' "${flags[@]}" | awk -F= '
    /^--pids-limit/ { pids = $2 }
    /^--memory/ { memory = $2; sub(/g$/, "", memory); memory *= 1024 * 1024 * 1024 }
    END { printf "%d %.0f", pids, memory }')
prometheus_image=$(grep -oE 'prom/prometheus:[^ ]+' docker-compose.yml)

# Each part with the steps that it counts.
check_container() {
    check_first_reply
    built=$SECONDS
    build_image
    check_image
    start_container -v "$project-sessions:/var/lib/attnd" -v "$scratch/llama:/models/llama:ro"
    check_served
    check_hardening
    check_restarts
    check_plain_run
    check_foreign_directory
}

# A subshell of its own statements, in which any failure ends it, and this script with it.
check_composed() {
    prepare_clone
    start_podman_service
    export ATTND_PORT PROMETHEUS_PORT HAPROXY_PORT
    ATTND_PORT=$(free_port)
    PROMETHEUS_PORT=$(free_port)
    HAPROXY_PORT=$(free_port)
    url=http://127.0.0.1:$ATTND_PORT
    (
        cd "$scratch/clone"
        if [ "$part" != cluster ]; then
            check_compose
            check_models_missing
            check_keys
        fi
        check_cluster
        echo "$steps" >"$work/steps"
    )
    steps=$(<"$work/steps")
}

part=${1:-all}
make_base
engine network create "$network" >/dev/null
if [ "$part" = all ]; then
    check_container
else
    build_image
fi
if [ "$part" != architectures ]; then
    check_composed
fi
if [ "$part" = all ] || [ "$part" = architectures ]; then
    check_architectures
fi
echo "check-image: $steps steps under $(podman --version), $(runc --version | head -n 1) and" \
    "$(docker-compose --version 2>/dev/null) in $((SECONDS - began)) s: all hold"
