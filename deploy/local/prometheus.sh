#!/usr/bin/env bash
# A real Prometheus on 127.0.0.1, without Docker and without root: for tests, and for trying things.
#
#   prometheus.sh install                    Debian's package, where it is missing and we are root
#   prometheus.sh start DIR PORT TARGET...   scrapes the TARGETs, each host:port or
#                                            host:port=INSTANCE, its label; the data stays in DIR:
#                                            another start on the same DIR goes on with it
#   prometheus.sh stop DIR                   SIGTERM, then wait
#   prometheus.sh kill DIR                   SIGKILL: what a power cut is
#
# PROMETHEUS_SCRAPE   scrape interval (default 5s)
# PROMETHEUS_RULES    a file of rules to load
#
# Exit: 0 done, 1 it did not start or does not run, 2 usage, 3 the program is missing.
set -euo pipefail

readonly START_TRIES=200 STOP_TRIES=150 # a tenth of a second each

fail() { # STATUS TEXT
    echo "prometheus.sh: $2" >&2
    exit "$1"
}

usage() { fail 2 "usage: prometheus.sh install | start DIR PORT TARGET... | stop DIR | kill DIR"; }

running() { # DIR
    [ -f "$1/pid" ] && kill -0 "$(cat "$1/pid")" 2>/dev/null
}

install() {
    command -v prometheus >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 ||
        fail 3 "prometheus is missing; install it (Debian: apt-get install prometheus)"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends prometheus >/dev/null ||
        fail 3 "prometheus is missing and could not be installed"
}

settings() { # RULES TARGET...
    local every=${PROMETHEUS_SCRAPE:-5s} target
    echo "global: {scrape_interval: $every, scrape_timeout: $every, evaluation_interval: $every}"
    [ -z "$1" ] || echo "rule_files: ['$(realpath "$1")']"
    echo "scrape_configs:"
    echo "  - job_name: fleet"
    echo "    static_configs:"
    for target in "${@:2}"; do
        echo "      - targets: ['${target%%=*}']"
        [ "$target" = "${target%%=*}" ] || echo "        labels: {instance: '${target#*=}'}"
    done
}

start() { # DIR PORT TARGET...
    command -v prometheus >/dev/null 2>&1 || fail 3 "prometheus is missing; install it (Debian: prometheus)"
    mkdir -p "$1"
    local dir port=$2 try
    dir="$(cd "$1" && pwd)"
    running "$dir" && fail 1 "one runs in $dir already"
    settings "${PROMETHEUS_RULES:-}" "${@:3}" >"$dir/prometheus.yml"
    setsid prometheus "--config.file=$dir/prometheus.yml" "--storage.tsdb.path=$dir/data" \
        "--web.listen-address=127.0.0.1:$port" --storage.tsdb.min-block-duration=2h >>"$dir/log" 2>&1 &
    echo $! >"$dir/pid"
    for ((try = 0; try < START_TRIES; try++)); do
        running "$dir" || fail 1 "it ended: $(tail -n 1 "$dir/log")"
        if curl --silent --fail --output /dev/null "http://127.0.0.1:$port/-/ready"; then
            echo "127.0.0.1:$port"
            return
        fi
        sleep 0.1
    done
    end "$dir" KILL
    fail 1 "it does not answer on port $port; see $dir/log"
}

end() { # DIR SIGNAL
    running "$1" || { rm -f "$1/pid"; return; }
    local pid try
    pid="$(cat "$1/pid")"
    kill "-$2" "$pid"
    for ((try = 0; try < STOP_TRIES; try++)); do
        running "$1" || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    rm -f "$1/pid"
}

[ $# -ge 2 ] || [ "${1:-}" = install ] || usage
case $1 in
install) install ;;
start) [ $# -ge 4 ] || usage; start "$2" "$3" "${@:4}" ;;
stop) end "$2" TERM ;;
kill) end "$2" KILL ;;
*) usage ;;
esac
