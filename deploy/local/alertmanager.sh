#!/usr/bin/env bash
# A real Alertmanager on 127.0.0.1, without Docker and without root: for tests, and for trying things.
#
#   alertmanager.sh install                  Debian's package, where it is missing and we are root
#   alertmanager.sh start DIR PORT SETTINGS  runs with the YAML file SETTINGS; its data stay in DIR
#   alertmanager.sh stop DIR                 SIGTERM, then wait
#
# Exit: 0 done, 1 it did not start or does not run, 2 usage, 3 the program is missing.
set -euo pipefail

readonly TRIES=150 # a tenth of a second each

fail() { # STATUS TEXT
    echo "alertmanager.sh: $2" >&2
    exit "$1"
}

usage() { fail 2 "usage: alertmanager.sh install | start DIR PORT SETTINGS | stop DIR"; }

running() { # DIR
    [ -f "$1/pid" ] && kill -0 "$(cat "$1/pid")" 2>/dev/null
}

program() { command -v prometheus-alertmanager || command -v alertmanager; }

install() {
    program >/dev/null && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 ||
        fail 3 "alertmanager is missing; install it (Debian: apt-get install prometheus-alertmanager)"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends \
        prometheus-alertmanager >/dev/null || fail 3 "alertmanager is missing and could not be installed"
}

start() { # DIR PORT SETTINGS
    local found dir port=$2 try
    found=$(program) || fail 3 "alertmanager is missing; install it (Debian: prometheus-alertmanager)"
    mkdir -p "$1"
    dir="$(cd "$1" && pwd)"
    running "$dir" && fail 1 "one runs in $dir already"
    setsid "$found" "--config.file=$(realpath "$3")" "--storage.path=$dir/data" \
        "--web.listen-address=127.0.0.1:$port" --cluster.listen-address= >>"$dir/log" 2>&1 &
    echo $! >"$dir/pid"
    for ((try = 0; try < TRIES; try++)); do
        running "$dir" || fail 1 "it ended: $(tail -n 1 "$dir/log")"
        if curl --silent --fail --output /dev/null "http://127.0.0.1:$port/-/ready"; then
            echo "127.0.0.1:$port"
            return
        fi
        sleep 0.1
    done
    stop "$dir"
    fail 1 "it does not answer on port $port; see $dir/log"
}

stop() { # DIR
    running "$1" || { rm -f "$1/pid"; return; }
    local pid try
    pid="$(cat "$1/pid")"
    kill "$pid"
    for ((try = 0; try < TRIES; try++)); do
        running "$1" || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    rm -f "$1/pid"
}

[ $# -ge 2 ] || [ "${1:-}" = install ] || usage
case $1 in
install) install ;;
start) [ $# -ge 4 ] || usage; start "$2" "$3" "$4" ;;
stop) stop "$2" ;;
*) usage ;;
esac
