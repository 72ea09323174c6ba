#!/bin/bash
# engine.sh: builds the image and runs it, alone and by docker-compose.yml, under a container engine.
#
#   [ENGINE=docker|podman] tests/image/engine.sh [compose|cluster|architectures]
#
# With `compose` only docker-compose.yml is brought up, with its profiles; with `cluster` only its
# shards (cluster.sh); with `architectures` only the image for arm64 is built and run
# (architectures.sh, under podman alone).
#
# Needs root, for networks and for files of another owner.  Which engine it is, and what it leaves
# alone, says containers.sh.  The image is the one that `docker-compose up` makes of a fresh clone.
# Flags of the container come from docker-compose.yml (services.py --flags).  Each line `ok:` says
# what has been shown; the first thing that is not so ends the script.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=DOCKER_HOST,ENGINE "$0" "$@"

root=$PWD
work=$PWD/build/image
image=attnd
project=attndcheck$$
scratch=
steps=0
began=$SECONDS

# shellcheck source=tests/image/containers.sh
. tests/image/containers.sh

ok() {
    steps=$((steps + 1))
    echo "ok: $*"
}

fail() {
    echo "check-image: $*" >&2
    engine logs "$project" 2>&1 | tail -n 5 >&2 || true
    exit 1
}

expect() { # what, expected, got
    [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
}

clean_up() {
    trap - EXIT
    stop_engine
    unregister_arm64
    rm -rf "$scratch"
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

start_container() { # the engine's arguments before the image
    quietly engine run -d --name "$project" --network "$project" -p "127.0.0.1::8080" \
        "${flags[@]}" "$@" "$image" >/dev/null
    find_port
    await_ready
}

remove_container() {
    quietly engine stop -t 40 "$project" >/dev/null
    quietly engine rm -v "$project" >/dev/null
}

find_port() {
    url=http://$(engine port "$project" 8080/tcp | sed -n 1p)
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

# Both streams: each line is JSON, and none is of level error.
expect_clean_log() { # container, of what
    local lines good
    engine logs "$1" >"$scratch/log" 2>&1
    lines=$(wc -l <"$scratch/log")
    good=$(python3 -c 'import json, sys
print(sum(json.loads(line)["level"] != "error" for line in sys.stdin))' <"$scratch/log") ||
        fail "$2: not JSON: $(grep -v '^{' "$scratch/log" | sed -n 1,3p)"
    [ "$good" -gt 0 ] || fail "$2: no log"
    [ "$good" = "$lines" ] || fail "$2: $(grep '"level":"error"' "$scratch/log" | sed -n 1,3p)"
    ok "$2: $lines lines in the log, all of them JSON, none of level error"
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
    if readelf -S "$scratch/attnd" | grep ' \.debug_' >/dev/null; then
        fail "the daemon in the image has its debug symbols"
    fi
    ok "the daemon in the image is stripped: $(stat -c %s "$scratch/attnd") bytes"
}

limits_of() { # container
    engine inspect "$1" --format '{{.HostConfig.PidsLimit}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}'
}

check_hardening() {
    status=$(engine exec "$project" cat /proc/1/status)
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
        if engine exec "$project" touch "$place/new" 2>/dev/null; then
            fail "$place can be written"
        fi
        if engine exec -u 0 "$project" touch "$place/new" 2>/dev/null; then
            fail "$place can be written by root"
        fi
    done
    ok "the root, /etc/attnd and /models are read-only, for root too"
    expect "limits" "$limits" "$(limits_of "$project")"
    ok "limits of processes, memory and memory with swap are docker-compose.yml's: $limits"
}

check_served() {
    local names
    names=$(curl -sS --max-time 10 "$url/models" | grep -o '"name":"[^"]*"' | sort | tr -d '\n')
    expect models '"name":"demo""name":"gqa""name":"llama""name":"mha"' "$names"
    post /attend "{\"model\":\"llama\",\"hidden_states\":$(rows "$width" 3 1)}" >/dev/null
    ok "a directory mounted at /models/llama is served as llama, beside demo, mha and gqa"
    tests/tools/knows_demo.sh "$url" || fail "the page is not of the image's model demo"
    ok "the page opens on the image's model demo"
    expect_healthy "$project"
    ok "the health check is green"
}

check_restarts() {
    fill_session "$width"
    kept=$(next_of_session)
    [ "${#kept}" -gt $((width * 4)) ] || fail "decode: $kept"
    quietly engine stop "$project" >/dev/null
    expect "exit status after SIGTERM" 0 "$(engine inspect "$project" --format '{{.State.ExitCode}}')"
    ok "SIGTERM ends attnd with status 0"
    quietly engine start "$project" >/dev/null
    find_port
    await_ready
    expect_session "stop and start"
    quietly engine kill -s KILL "$project" >/dev/null
    quietly engine wait "$project" >/dev/null
    quietly engine start "$project" >/dev/null
    find_port
    await_ready
    expect_session "SIGKILL and start"
    expect_clean_log "$project" "the container"
    remove_container
    start_container -v "$project-sessions:/var/lib/attnd" -v "$scratch/llama:/models/llama:ro"
    expect_session "another container took the volume"
    remove_container
}

# As in docs/OPERATIONS.md, without anything of docker-compose.yml; the volume has no name.
check_plain_run() {
    local keep=("${flags[@]}")
    flags=(-e ATTN_ALLOW_UNAUTHENTICATED=true)
    start_container -v "$scratch/llama:/models/llama"
    fill_session "$width"
    kept=$(next_of_session)
    quietly engine restart -t 40 "$project" >/dev/null
    find_port
    await_ready
    expect_session "restart of a container without options"
    remove_container
    flags=("${keep[@]}")
}

# Flags after the image's name are the daemon's, and its health check reads them.
check_other_port() {
    quietly engine run -d --name "$project" --network none -e ATTN_ALLOW_UNAUTHENTICATED=true "$image" \
        --port 9000 >/dev/null
    expect_healthy "$project"
    engine logs "$project" 2>&1 | grep '"event":"ready","message":"http://0.0.0.0:9000, ' >/dev/null ||
        fail "the line of the port: $(engine logs "$project" 2>&1 | tail -n 3)"
    ok "the health check asks the port that --port of the container gives, and the log names it"
    remove_container
}

refused() { # what, the line that it ends with, the engine's arguments
    local what=$1 line=$2 said
    shift 2
    if said=$(quietly engine run --rm --network none "${flags[@]}" "$@" "$image" 2>&1); then
        fail "$what was taken"
    fi
    grep -q "$line" <<<"$said" || fail "$what: $said"
}

# What a user gets wrong is refused by a line with the remedy.
check_refusals() {
    local foreign="user 0 owns it and attnd runs as user 65532: chown"
    mkdir -m 755 "$scratch/foreign" "$scratch/keys" "$scratch/keys/keys.json"
    refused "a state_dir of root's" "$foreign -R 65532 /var/lib/attnd" -v "$scratch/foreign:/var/lib/attnd"
    chown 65532 "$scratch/foreign"
    start_container -v "$scratch/foreign:/var/lib/attnd"
    remove_container
    ok "a mounted state_dir of root's is refused with the remedy, and the remedy helps"
    refused "a tmpfs of root's" "$foreign -R 65532 /var/lib/attnd" --tmpfs /var/lib/attnd:mode=700
    cp -r "$scratch/llama" "$scratch/unreadable"
    chmod 600 "$scratch/unreadable/config.json"
    refused "a checkpoint of root's" "$foreign -R 65532 /models/llama" -v "$scratch/unreadable:/models/llama:ro"
    refused "a directory of keys" '/keys/keys.json: Is a directory and not a file; .* remove it, and make the file' \
        -v "$scratch/keys:/keys:ro" -e ATTN_API_KEYS=/keys/keys.json
    ok "so are a tmpfs and a checkpoint of root's, and a keys.json that is a directory"
}

# The options that the line names are those with which the least that it names is enough.
check_least_memory() {
    local said least options
    said=$(quietly engine run --rm --network none --memory 256m --memory-swap 256m \
        -e ATTN_ALLOW_UNAUTHENTICATED=true "$image" 2>&1) && fail "256 MiB were enough"
    read -r least options < <(sed -n 's/.*the least that would start is \([0-9]*\)[.0-9]* MiB, with \(.*\)/\1 \2/p' <<<"$said") ||
        fail "too little memory: $said"
    least=$((least + 1))m
    # shellcheck disable=SC2086 # words on purpose
    quietly engine run -d --name "$project" --network none --memory "$least" --memory-swap "$least" \
        -e ATTN_ALLOW_UNAUTHENTICATED=true "$image" $options >/dev/null
    expect_healthy "$project"
    remove_container
    ok "in 256 MiB a line names the least that would start and its options; with these it starts in $least"
}

# ---- The compose file ----------------------------------------------------------------------------

# A clone as a new user has it, with a checkpoint in config/models.  Only the override is the test's:
# images are built with the network of this machine, since its name server may not be reached through
# a bridge.
prepare_clone() {
    mkdir "$scratch/clone" "$scratch/prometheus"
    git ls-files -z | tar -c --null -T - | tar -x -C "$scratch/clone"
    cp -r "$scratch/llama" "$scratch/clone/config/models/llama"
    echo 'services: {image: {build: {network: host}}}' >"$scratch/clone/docker-compose.override.yml"
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
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

up() { # arguments of docker-compose, with `up` among them
    compose "$@" >/dev/null || fail "docker-compose up: $(tail -n 5 "$work/compose.log")"
    await_ready
}

build_image() { # arguments of docker-compose, `up` or `build` among them
    ATTND_REVISION=abc compose "$@" >"$work/build.log" ||
        fail "docker-compose $*: $(tail -n 5 "$work/build.log" "$work/compose.log")"
    engine tag docker.io/library/attnd "$image"
}

# One service builds the image for all others, and no registry is asked for it.
check_fresh_clone() { # arguments of docker-compose, `up` among them
    local start=$SECONDS
    : >"$work/compose.log"
    engine image rm "$image" docker.io/library/attnd >/dev/null 2>&1 || true
    build_image "$@"
    await_ready
    expect "builds and pulls" "Building image" \
        "$(cat "$work/build.log" "$work/compose.log" | grep -E '^(Building [a-z-]+$|Pulling )')"
    ok "docker-compose $* in a fresh clone: one image, built once and never pulled;" \
        "$url answers after $((SECONDS - start)) s;" \
        "$(engine image inspect "$image" --format '{{.Size}}') bytes"
}

check_compose() {
    local id
    make_stand_in "$prometheus_image" "$scratch/prometheus"
    id=$(compose ps -q attnd)
    expect_healthy "$id"
    status=$(engine exec "$id" cat /proc/1/status)
    expect "Uid under docker-compose" "65532 65532 65532 65532" "$(in_status Uid)"
    expect "CapBnd under docker-compose" 0000000000000000 "$(in_status CapBnd)"
    expect "limits under docker-compose" "$limits" "$(limits_of "$id")"
    ok "under docker-compose too: health check green, user 65532, no capabilities"
    fill_session "$width"
    kept=$(next_of_session)
    compose restart >/dev/null || fail "restart: $(tail -n 5 "$work/compose.log")"
    await_ready
    expect_session "docker-compose restart"
    expect_clean_log "$(compose ps -q attnd)" "docker-compose"
    compose down >/dev/null || fail "down: $(tail -n 5 "$work/compose.log")"
    up --profile observability up -d attnd prometheus
    expect_session "docker-compose down and up"
    check_scrape
    compose --profile observability down -v >/dev/null ||
        fail "down -v: $(tail -n 5 "$work/compose.log")"
    expect "containers left" "" "$(containers_left)"
    ok "docker-compose down leaves no container"
}

# What the log says of a directory of checkpoints that is none, as Docker makes of a misspelt name.
check_models_missing() {
    mkdir -p "$scratch/misspelt/llama"
    ATTND_MODELS=$scratch/misspelt up up -d attnd
    compose logs --no-color attnd | grep >/dev/null \
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

part=${1:-all}
if [ "$part" = architectures ] && [ "$ENGINE" = docker ]; then
    echo "check-image: the image for arm64 is built under podman alone: ENGINE=podman" >&2
    exit 1
fi
mkdir -p "$work"
scratch=$(mktemp -d "$work/scratch.XXXXXX")
trap clean_up EXIT
trap 'exit 1' INT TERM HUP
cp -r tests/golden/llama_gqa/model "$scratch/llama"
chmod -R a+rX "$scratch"
width=$(grep -o '"hidden_size": *[0-9]*' "$scratch/llama/config.json" | grep -o '[0-9]*$')
mapfile -t flags < <(tests/image/services.py --flags)
limits=$(printf '%s\n' "${flags[@]}" | awk -F= '
    /^--pids-limit/ { pids = $2 }
    /^--memory=/ { memory = $2; sub(/g$/, "", memory); memory *= 1024 * 1024 * 1024 }
    END { printf "%d %.0f %.0f", pids, memory, memory }')
prometheus_image=$(grep -oE 'prom/prometheus:[^ ]+' docker-compose.yml)
export ATTND_PORT PROMETHEUS_PORT HAPROXY_PORT
ATTND_PORT=$(free_port)
PROMETHEUS_PORT=$(free_port)
HAPROXY_PORT=$(free_port)

check_composed() {
    url=http://127.0.0.1:$ATTND_PORT
    check_fresh_clone up -d
    check_compose
    check_models_missing
    check_keys
}

check_container() {
    check_image
    start_container -v "$project-sessions:/var/lib/attnd" -v "$scratch/llama:/models/llama:ro"
    check_served
    check_hardening
    check_restarts
    check_plain_run
    check_other_port
    check_refusals
    check_least_memory
}

start_engine
engine network create "$project" >/dev/null
prepare_clone
[ "$part" != all ] || check_first_reply
cd "$scratch/clone"
case $part in
all | compose) check_composed ;;&
all) check_container ;;&
all | compose | cluster) check_cluster ;;
architectures) build_image build image ;;
esac
cd "$root"
if [ "$ENGINE-$part" = podman-all ] || [ "$part" = architectures ]; then
    check_architectures
fi
echo "check-image: $steps steps under $ENGINE $(engine version --format '{{.Server.Version}}'), runc and" \
    "$(docker-compose --version 2>/dev/null) in $((SECONDS - began)) s: all hold"
