#!/usr/bin/env bash
# nodewarden live on one machine, without Docker and without root: a real Kafka broker, two workers,
# an archiver, the inventory, act, which decides and does nothing, and a simulated cluster with faults
# as it goes by.
#
#   cluster.sh up       start everything that does not run yet; returns when an incident was told
#   cluster.sh status   what runs
#   cluster.sh down     stop everything that `up` started; the data stays in DIR
#
# DIR           where data, logs and process ids are (default .local)
# PORT          of the broker (default 19092; its controller takes PORT + 1; metrics PORT + 10 on)
# NODEWARDEN    the command (default .venv/bin/nodewarden)
# NODES, FAULTS of the simulated cluster
#
# DIR/token is an operator's, DIR/admin-token an admin's: readable by you alone, and act listens on
# the loopback.
#
# Exit: 0 done, 1 something does not run, 2 usage, 3 Java or Maven is missing.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly here DIR="${DIR:-.local}" PORT="${PORT:-19092}"
readonly NODEWARDEN="${NODEWARDEN:-$(cd "$here/../.." && pwd)/.venv/bin/nodewarden}"
readonly NODES="${NODES:-12}" MINUTES="${MINUTES:-60}"
readonly FAULTS="${FAULTS:-xid79@n003+60}"
readonly BROKER="127.0.0.1:$PORT"
readonly SERVICES=(inventory worker-0 worker-1 archive act simulate)
readonly TOLD_MAX_S=240 STOP_MAX_S=15

fail() { # STATUS TEXT
    echo "cluster.sh: $2" >&2
    exit "$1"
}

settings() {
    cat <<TOML
# Written by deploy/local/cluster.sh.
[kafka]
brokers = ["$BROKER"]

[engine]
cluster = "local"

[engine.ticks.interval_s]
gpu = 5.0
nic = 10.0

[stream] # of worker-0, and where \`status\` asks; the others' are in their environment
metrics_address = "127.0.0.1:$((PORT + 10))"

[act]
address = "127.0.0.1:$((PORT + 15))"
url = "http://127.0.0.1:$((PORT + 15))"
workers = ["http://127.0.0.1:$((PORT + 10))/metrics", "http://127.0.0.1:$((PORT + 11))/metrics"]
inventory = "http://127.0.0.1:$((PORT + 13))/metrics"

[act.tokens]
you = "operator:$(hashed "$DIR/token")"
you-as-admin = "admin:$(hashed "$DIR/admin-token")"
TOML
}

hashed() { # FILE
    tr -d '\n' <"$1" | sha256sum | cut -d' ' -f1
}

token() { # FILE: whoever may read it may give act commands, on this machine alone
    [ -s "$1" ] || (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$1")
    chmod 600 "$1"
}

ends() { # the command that ends this one, wherever it is given
    if [ "$DIR" = .local ] && [ "$PWD" -ef "$here/../.." ]; then
        echo "make down-local"
    else
        printf 'DIR=%q %q down\n' "$(cd "$DIR" && pwd)" "$here/cluster.sh"
    fi
}

running() { # SERVICE
    local pid stat
    [ -f "$DIR/$1.pid" ] || return
    pid="$(cat "$DIR/$1.pid")"
    kill -0 "$pid" 2>/dev/null || return
    # Ended, and whoever has to has not taken note of it yet: in a container that may take seconds.
    { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return 0
    [[ "${stat##*) }" != Z* ]]
}

run() { # SERVICE METRICS_PORT SECTION ARGUMENTS...
    local service=$1 address="127.0.0.1:$2" section=$3
    shift 3
    running "$service" && return
    local -a environment=()
    [ "$section" = none ] || environment+=("NODEWARDEN_${section}__METRICS_ADDRESS=$address")
    [ "$section" = STREAM ] && environment+=("NODEWARDEN_STREAM__INSTANCE=$service")
    env "${environment[@]}" setsid "$NODEWARDEN" "$@" --config "$DIR/nodewarden.toml" \
        </dev/null >>"$DIR/$service.log" 2>&1 &
    echo $! >"$DIR/$service.pid"
}

broker() {
    "$here/kafka.sh" status "$DIR/kafka" >/dev/null 2>&1 && return
    "$here/kafka.sh" start "$DIR/kafka" "$PORT" >/dev/null || exit $?
}

told() {
    "$NODEWARDEN" incidents --config "$DIR/nodewarden.toml" --shard main 2>/dev/null
}

up() {
    [ -x "$NODEWARDEN" ] || fail 2 "$NODEWARDEN is not there; run make setup"
    mkdir -p "$DIR"
    token "$DIR/token"
    token "$DIR/admin-token"
    settings >"$DIR/nodewarden.toml"
    broker
    "$NODEWARDEN" topics create --config "$DIR/nodewarden.toml" >"$DIR/topics.log" 2>&1 ||
        fail 1 "topics: $(tail -n 1 "$DIR/topics.log")"
    run worker-0 $((PORT + 10)) STREAM stream
    run worker-1 $((PORT + 11)) STREAM stream
    run archive $((PORT + 12)) ARCHIVE archive --out "$DIR/archive"
    simulate
    for ((try = 0; try < 50; try++)); do [ -s "$DIR/jobs.json" ] && break; sleep 0.2; done
    run inventory $((PORT + 13)) INVENTORY inventory --from "$DIR/jobs.json"
    run act $((PORT + 14)) ACT act
    echo "started; the simulated cluster of $NODES nodes fails by: $FAULTS"
    wait_for_an_incident
    cat <<TEXT

look:  $NODEWARDEN incidents --config $DIR/nodewarden.toml
       $NODEWARDEN status --config $DIR/nodewarden.toml
       NODEWARDEN_ACT__TOKEN=\$(cat $DIR/token) $NODEWARDEN show ID --config $DIR/nodewarden.toml
       curl -s http://127.0.0.1:$((PORT + 10))/metrics
       ls $DIR/*.log $DIR/archive
resume after a pause, which an operator may not:
       NODEWARDEN_ACT__TOKEN=\$(cat $DIR/admin-token) $NODEWARDEN resume --config $DIR/nodewarden.toml
end:   $(ends)
TEXT
}

simulate() {
    local -a faults=()
    local fault
    for fault in $FAULTS; do faults+=(--fault "$fault"); done
    rm -f "$DIR/jobs.json"
    run simulate 0 none simulate --nodes "$NODES" --gpus 4 --minutes "$MINUTES" \
        --gpu-interval 5 --nic-interval 10 "${faults[@]}" --kafka --live --jobs "$DIR/jobs.json"
}

wait_for_an_incident() {
    local since=$SECONDS said
    while ((SECONDS - since < TOLD_MAX_S)); do
        said="$(told)" || said=""
        if [ -n "$said" ] && [ "$said" != "no incidents" ]; then
            echo "$said"
            return
        fi
        local service
        for service in "${SERVICES[@]}"; do
            running "$service" || fail 1 "$service ended: $(tail -n 1 "$DIR/$service.log")"
        done
        sleep 2
    done
    fail 1 "no incident within $TOLD_MAX_S s; see $DIR/*.log"
}

status() {
    local service ok=0
    "$here/kafka.sh" status "$DIR/kafka" || ok=1
    for service in "${SERVICES[@]}"; do
        if running "$service"; then
            echo "$service: process $(cat "$DIR/$service.pid")"
        else
            echo "$service: does not run"
            ok=1
        fi
    done
    return $ok
}

down() {
    local service
    for service in simulate act inventory worker-0 worker-1 archive; do end "$service"; done
    [ -d "$DIR/kafka" ] && "$here/kafka.sh" stop "$DIR/kafka"
    echo "stopped; the data is in $DIR"
}

end() { # SERVICE
    running "$1" || { rm -f "$DIR/$1.pid"; return; }
    local pid try
    pid="$(cat "$DIR/$1.pid")"
    kill -TERM "$pid"
    for ((try = 0; try < STOP_MAX_S * 10; try++)); do
        running "$1" || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    rm -f "$DIR/$1.pid"
}

case "${1:-}" in
up) up ;;
down) down ;;
status) status ;;
*) fail 2 "usage: cluster.sh up | status | down" ;;
esac
