#!/bin/bash
# cluster.sh: profile `cluster` of docker-compose.yml, brought up and taken apart; a part of engine.sh.
#
# A session is made on each shard through HAProxy.  One shard's container is removed and made again on
# its volume; the sessions of all go on with their bits.  HAProxy's image cannot be pulled where no
# registry is reached; Debian's haproxy, of the same series, stands in under the name.
# shellcheck disable=SC2154 # variables of engine.sh

make_haproxy() {
    mkdir "$scratch/haproxy"
    cat >"$scratch/haproxy/Dockerfile" <<END
FROM debian:bookworm-slim
RUN apt-get -qq update && apt-get -qq install -y --no-install-recommends haproxy \\
 && groupmod -g 99 haproxy && usermod -u 99 haproxy
USER haproxy
ENTRYPOINT ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
END
    make_stand_in "$(grep -oE 'haproxy:2[^ ]+' docker-compose.yml)" "$scratch/haproxy"
}

# A request of the session $1 goes where its id says.
ask() { # id, path, body
    curl -sS --fail-with-body --max-time 60 -H 'Content-Type: application/json' \
        -H "X-Session-Id: $1" --data-binary @- "$url$2" <<<"$3"
}

# What the next token of a session of $tokens would get; equal text is equal bits.
tokens=70
next_of() { # id
    ask "$1" /decode "{\"model\":\"llama\",\"session_id\":\"$1\",\"position\":$tokens,\"commit\":false,\
\"hidden_states\":$(rows "$width" 1 3)}"
}

# One step more for each, of which the journal has the record.
step_all() {
    local shard id
    for shard in a b c; do
        id=${session_of[$shard]}
        ask "$id" /decode "{\"model\":\"llama\",\"session_id\":\"$id\",\"position\":$tokens,\
\"hidden_states\":$(rows "$width" 1 2)}" >/dev/null || fail "a step of $shard's session"
    done
    tokens=$((tokens + 1))
    for shard in a b c; do
        text_of[$shard]=$(next_of "${session_of[$shard]}")
        [ "${#text_of[$shard]}" -gt $((width * 4)) ] || fail "decode: ${text_of[$shard]}"
    done
}

# HAProxy chooses the shard of a new session: new ones until each shard has one.
declare -A session_of=() text_of=()
sessions_everywhere() {
    local tries id shard
    for ((tries = 0; tries < 100 && ${#session_of[@]} < 3; tries++)); do
        id=$(post /sessions '{"model":"llama"}' | grep -oE '"session_id":"[^"]+"' | cut -d'"' -f4)
        shard=${id%%.*}
        [[ $shard = [abc] ]] || fail "a session has the id $id"
        if [ -z "${session_of[$shard]:-}" ]; then
            session_of[$shard]=$id
            ask "$id" /attend "{\"model\":\"llama\",\"session_id\":\"$id\",\
\"hidden_states\":$(rows "$width" 70 "$tries")}" >/dev/null || fail "a prefill of $shard's session"
        fi
    done
    step_all
    expect "shards that got a session" 3 "${#session_of[@]}"
    ok "each of three shards has a session of 71 tokens; HAProxy made $tries in all to get there"
}

expect_all() { # what has happened
    local shard
    for shard in a b c; do
        expect "session of $shard after $1" "${text_of[$shard]}" "$(next_of "${session_of[$shard]}")"
    done
    ok "the sessions of a, b and c have their bits after $1"
}

# A step that arrives while its shard is away is held, and answered by the shard that comes back.
check_new_container() {
    local before after away shard
    before=$(compose ps -q attnd-b)
    compose rm -s -f attnd-b >/dev/null || fail "rm: $(tail -n 5 "$work/compose.log")"
    for shard in a c; do
        expect "session of $shard without b" "${text_of[$shard]}" "$(next_of "${session_of[$shard]}")"
    done
    next_of "${session_of[b]}" >"$scratch/held" &
    away=$!
    sleep 2
    kill -0 "$away" 2>/dev/null || fail "a request to a shard that is away got: $(<"$scratch/held")"
    compose --profile cluster up -d attnd-b >/dev/null || fail "up: $(tail -n 5 "$work/compose.log")"
    wait "$away" || fail "the request that was held: $(<"$scratch/held")"
    expect "the reply that was held" "${text_of[b]}" "$(<"$scratch/held")"
    after=$(compose ps -q attnd-b)
    [ "$before" != "$after" ] || fail "attnd-b is the container that it was"
    ok "a container was removed and made again on its volume; the step sent between was held and answered"
}

address_of() { # service
    engine inspect "$(compose ps -q "$1")" --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}'
}

# Which shard answers for a session of the name d; none where HAProxy itself does.
who_answers() {
    curl -s -o /dev/null -D - --max-time 5 "$url/sessions/d.1" | tr -d '\r' | sed -n 's/^[Xx]-[Aa]ttn-[Ii]nstance: //p'
}

# A shard more is a line more, put in place by a rename, and a signal.  It is c's container by another
# name, which says whose the session is.
check_proxy_reload() {
    local tenths
    sed "s/^    server c attnd-c:8080.*/&\n    server d $(address_of attnd-c):8080/" \
        config/haproxy/haproxy.cfg >"$scratch/haproxy.new"
    chmod 644 "$scratch/haproxy.new"
    mv "$scratch/haproxy.new" config/haproxy/haproxy.cfg
    expect "who answers for a shard that is not listed" "" "$(who_answers)"
    compose kill -s HUP haproxy >/dev/null || fail "kill: $(tail -n 5 "$work/compose.log")"
    for ((tenths = 0; tenths < 300; tenths++)); do
        if [ "$(who_answers)" = c ]; then
            ok "haproxy.cfg was replaced by a rename, and HUP had HAProxy read the new one"
            return
        fi
        sleep 0.1
    done
    fail "HAProxy still has the haproxy.cfg of before"
}

check_shards_scraped() {
    local tenths asked
    asked='count(up{job="attnd",instance=~"attnd-[abc]:8080"}==1)'
    for ((tenths = 0; tenths < 300; tenths++)); do
        if curl -s --max-time 2 -G --data-urlencode "query=$asked" \
            "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/query" | grep '"3"\]' >/dev/null; then
            ok "the profile's Prometheus finds the three shards by name"
            return
        fi
        sleep 0.1
    done
    fail "prometheus: the shards are not up"
}

check_cluster() {
    local shard
    make_haproxy
    url=http://127.0.0.1:$HAPROXY_PORT
    check_fresh_clone --profile cluster up -d haproxy
    expect "services of the profile" "attnd-a attnd-b attnd-c haproxy" \
        "$(compose ps --services --filter status=running | sort | paste -sd ' ')"
    ok "docker-compose --profile cluster up haproxy: three shards behind HAProxy at $url"
    sessions_everywhere
    check_new_container
    expect_all "one shard's new container"
    check_proxy_reload
    step_all
    compose --profile cluster down >/dev/null || fail "down: $(tail -n 5 "$work/compose.log")"
    up --profile cluster --profile observability up -d haproxy prometheus
    expect_all "down and up of all"
    expect "shards that map the weights of llama" 3 \
        "$(compose logs --no-color attnd-a attnd-b attnd-c | grep -c 'model llama: mapped, ')"
    ok "the three shards map one file of llama's weights"
    check_shards_scraped
    for shard in attnd-a attnd-b attnd-c; do
        expect_clean_log "$(compose ps -q $shard)" $shard
    done
    compose --profile cluster --profile observability down -v >/dev/null || fail "down -v: $(tail -n 5 "$work/compose.log")"
    expect "containers left" "" "$(engine ps -aq)"
    ok "docker-compose down leaves no container of the cluster"
}
