#!/bin/bash
# containers.sh: the container engine of engine.sh and bench.sh: ENGINE, else Docker's where `docker info`
# finds one that runs, else podman.
#
# podman keeps all below build/image, apart from the user's own.  Docker's engine is the user's: what is
# made there has the project's name or label, and goes at the end; an image `attnd` of before comes back.
# An image that the engine has not, and that no registry gives here, is made of Debian's packages under
# the same name.
# shellcheck disable=SC2154,SC2034 # variables of the script that reads this one

export COMPOSE_PROJECT_NAME=$project COMPOSE_HTTP_TIMEOUT=600
label=attnd.check=$project
service=

if [ -z "${ENGINE:-}" ]; then
    ENGINE=podman
    if docker info >/dev/null 2>&1; then
        ENGINE=docker
    fi
fi
if [ "$ENGINE" = podman ]; then
    export CONTAINERS_CONF=$work/containers.conf
    export DOCKER_HOST=unix://$work/podman.sock
    export DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0
fi
podman=(podman --root "$work/storage" --runroot "$work/run" --storage-driver vfs)

engine() {
    if [ "$ENGINE" = podman ]; then
        "${podman[@]}" "$@"
    else
        docker "$@"
    fi
}

compose() {
    docker-compose --ansi never "$@" 2>>"$work/compose.log"
}

# Without what podman says where there is no systemd for its timers of health checks, and no syslog,
# and of an image for another architecture; the health checks themselves are asked for below.
quietly() {
    "$@" 2> >(grep -vE 'systemd connection|connect to syslog|image platform' >&2)
}

# What this machine needs and a user's need not: limits on files and processes below podman's
# defaults, no systemd for cgroups and events, Debian's runc.
start_podman() {
    cat >"$work/containers.conf" <<END_OF_SETTINGS
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
END_OF_SETTINGS
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

start_engine() {
    : >"$work/build.log"
    : >"$work/compose.log"
    if [ "$ENGINE" = podman ]; then
        start_podman
    elif engine image inspect attnd >/dev/null 2>&1; then
        engine tag attnd "$project:before"
        engine image rm attnd >/dev/null
    fi
    engine image inspect debian:bookworm-slim >/dev/null 2>&1 || make_base
}

make_base() {
    local base=$work/base.tar
    if [ ! -s "$base" ]; then
        mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates bookworm \
            "$base.new" >"$work/mmdebstrap.log" 2>&1 || fail "mmdebstrap: $(tail -n 3 "$work/mmdebstrap.log")"
        mv "$base.new" "$base"
    fi
    engine import --change "LABEL $label" - debian:bookworm-slim <"$base" >/dev/null 2>>"$work/build.log" ||
        fail "import: $(tail -n 5 "$work/build.log")"
}

# The Dockerfile is the last argument's.  docker-compose asks for names without a registry at Docker's.
make_stand_in() { # name, directory
    engine image inspect "$1" >/dev/null 2>&1 && return
    engine build -q --network host --label "$label" -t "$1" "$2" >/dev/null 2>>"$work/build.log" ||
        fail "$1: $(tail -n 5 "$work/build.log")"
    engine tag "$1" "docker.io/$1"
}

# A container's health check passes at its first try.  podman's timers are systemd's: it is asked for here.
expect_healthy() { # container
    local tenths health
    if [ "$ENGINE" = podman ]; then
        quietly engine healthcheck run "$1" >/dev/null || fail "health check of $1"
        return
    fi
    for ((tenths = 0; tenths < 300; tenths++)); do
        health=$(engine inspect "$1" --format '{{.State.Health.Status}} {{range .State.Health.Log}}{{.ExitCode}} {{end}}')
        case $health in
        "starting ") sleep 0.1 ;;
        *) break ;;
        esac
    done
    expect "health of $1, and its first probe's status" "healthy 0" "$(cut -d ' ' -f 1,2 <<<"$health")"
}

containers_left() {
    engine ps -aq --filter "label=com.docker.compose.project=$project"
}

stop_engine() {
    (cd "$scratch/clone" && compose --profile cluster --profile observability down -v) >/dev/null 2>&1 || true
    engine rm -f -v "$project" >/dev/null 2>&1 || true
    engine network rm "$project" >/dev/null 2>&1 || true
    if [ "$ENGINE" = podman ]; then
        kill "$service" 2>/dev/null || true
        wait "$service" 2>/dev/null || true
        rm -rf "$work/storage" "$work/run" "$work/networks" "$work/podman.sock"
        return
    fi
    engine volume rm "$project-sessions" >/dev/null 2>&1 || true
    engine image rm attnd >/dev/null 2>&1 || true
    engine image prune -f --filter "label=$label" >/dev/null # stages of builds, before what they are from
    engine images -q --filter "label=$label" | sort -u | xargs -r docker image rm -f >/dev/null
    if engine tag "$project:before" attnd 2>/dev/null; then
        engine image rm "$project:before" >/dev/null
    fi
}
