#!/bin/bash
# bench.sh: what a container's network and its log take of the rate of /decode, by turns; make bench-image.
#
#   [ENGINE=docker|podman] [ROUNDS=25] [QUICK=1] tests/image/bench.sh
#
# The daemon of build/attnd and those in containers of docker-compose.yml's flags have the same model,
# variables and disk, and run all the time; wrk asks one after the other on 32 connections, a session
# each.  A ratio is that to the bare daemon in the same round, of which the median counts.  The least and
# the largest say what the machine's other work has done; where that is much, the best second of each
# way beside the bare daemon's best says more: all containers of Docker together then have the share
# of one thread, and each thread of the bare daemon has its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=DOCKER_HOST,ENGINE,QUICK "$0" "$@"
unset "${!OPENBLAS_@}"

root=$PWD
work=$PWD/build/image
project=attndbench$$
rounds=${ROUNDS:-25} seconds=1
[ -z "${QUICK:-}" ] || rounds=1
bare=
containers=()

fail() {
    echo "bench-image: $*" >&2
    exit 1
}

# shellcheck source=tests/image/containers.sh
. tests/image/containers.sh

clean_up() {
    trap - EXIT
    [ -z "$bare" ] || kill "$bare" 2>/dev/null || true
    [ -z "$bare" ] || wait "$bare" 2>/dev/null || true
    engine rm -f -v ${containers[@]+"${containers[@]}"} >/dev/null 2>&1 || true
    stop_engine
    rm -rf "$scratch"
}

mkdir -p "$work"
scratch=$(mktemp -d "$work/scratch.XXXXXX")
trap clean_up EXIT
trap 'exit 1' INT TERM HUP
mapfile -t flags < <(tests/image/services.py --flags)
config=$root/config/presets/small.json
start_engine
engine build --network host -t attnd . >>"$work/build.log" 2>&1 || fail "build: $(tail -n 5 "$work/build.log")"
engine network create "$project" >/dev/null

start() { # name, the engine's arguments, `--`, those of the daemon
    local name=$project-$1 given=()
    shift
    while [ "$1" != -- ]; do
        given+=("$1")
        shift
    done
    shift
    containers+=("$name")
    quietly engine run -d --name "$name" "${flags[@]}" --no-healthcheck "${given[@]}" \
        -v "$config:/etc/attnd/attnd.json:ro" attnd "$@" >/dev/null
}

address_of() { # container
    engine inspect "$project-$1" --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}'
}

log_of() { # daemon
    if [ "$1" = bare ]; then
        cat "$scratch/bare"
    else
        engine logs "$project-$1" 2>&1
    fi
}

# Of a daemon that takes a free port its log says which, once it is ready.
port_of() { # daemon
    local tenths port
    for ((tenths = 0; tenths < 300; tenths++)); do
        port=$(log_of "$1" | sed -n 's/.*"event":"ready","message":"http:[^ ]*:\([0-9]*\),.*/\1/p')
        [ -z "$port" ] || break
        sleep 0.1
    done
    [ -n "$port" ] || fail "$1: $(log_of "$1" | tail -n 2)"
    echo "$port"
}

env ATTN_LOG=info ATTN_SANDBOX=on ATTN_DURABILITY=journal ATTN_STATE_DIR="$scratch/state" ATTN_MEMORY_LIMIT=4GiB \
    build/attnd --config "$config" --port 0 >"$scratch/bare" 2>&1 &
bare=$!
start info --network "$project" -p 127.0.0.1::8080 --
start access --network "$project" -p 127.0.0.1::8080 -- --log access
start host --network host -- --port 0 --host 127.0.0.1
start host-access --network host -- --port 0 --host 127.0.0.1 --log access
for daemon in info access; do
    port_of "$daemon" >/dev/null
done
url=([1]=http://127.0.0.1:$(port_of bare)
    [2]=http://127.0.0.1:$(port_of host)
    [3]=http://$(address_of info):8080
    [4]=http://$(engine port "$project-info" 8080/tcp | sed -n 1p)
    [5]=http://127.0.0.1:$(port_of host-access)
    [6]=http://$(engine port "$project-access" 8080/tcp | sed -n 1p))
what=([1]='the daemon without a container' [2]='network_mode: host' [3]="the container's address"
    [4]='the published port' [5]='network_mode: host, log access' [6]='the published port, log access')

rate() { # url, what makes ids new
    wrk -t1 -c32 "-d${seconds}s" --timeout 10s -s tests/load/decode.lua "$1" -- 256 32 "$2" |
        awk '/^RESULT/ && $5 + $6 == 0 { print $2; n++ } END { exit !n }' || fail "$1: requests failed"
}

for ((round = 1; round <= rounds; round++)); do
    for way in "${!url[@]}"; do
        way=$(((way + round) % ${#url[@]} + 1))
        rate=$(rate "${url[$way]}" "round$round-$way")
        echo "$round $way $rate"
    done
done >"$scratch/rates"

echo "bench-image: $(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo), $(nproc) CPUs, load $(cut -d ' ' -f 1 /proc/loadavg);" \
    "$ENGINE $(engine version --format '{{.Server.Version}}'); /decode of $(basename "$config" .json)," \
    "32 connections, $rounds rounds of $seconds s"
printf '%-32s %9s %9s %6s %-16s %s\n' way rate/s best/s ratio '  least, largest' 'of the best'
median='{ v[NR] = $1 } END { print v[int((NR + 1) / 2)], v[1], v[NR] }'
for way in "${!url[@]}"; do
    rates=$(awk -v w="$way" '$2 == w { print $3 }' "$scratch/rates" | sort -g | awk "$median")
    ratios=$(awk -v w="$way" '$2 == 1 { bare[$1] = $3 } $2 == w { of[$1] = $3 }
        END { for (round in of) print of[round] / bare[round] }' "$scratch/rates" | sort -g | awk "$median")
    best=${best:-${rates##* }} # the bare daemon's, which is the first
    awk -v way="${what[$way]}" -v best="$best" '{
        printf "%-32s %9d %9d %6.2f   %.2f, %.2f       %.2f\n", way, $1, $3, $4, $5, $6, $3 / best }' <<<"$rates $ratios"
done
