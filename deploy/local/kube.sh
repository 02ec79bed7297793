#!/usr/bin/env bash
# A real Kubernetes API on 127.0.0.1 without containers: etcd and kube-apiserver, nothing else. No
# kubelet, scheduler or controller runs: nodes, pods and their states are what a client writes. For
# tests, and for trying things.
#
#   kube.sh install              etcd from the distribution, kube-apiserver built from its Go module,
#                                once (minutes, about 100 MB in the cache)
#   kube.sh start DIR [PORT]     the API on https://127.0.0.1:PORT (default 26443), etcd on the two
#                                ports behind it; writes DIR/kubeconfig, with all rights
#   kube.sh stop DIR             SIGTERM, then wait; another start on DIR goes on with its data
#
# KUBE_BIN   where kube-apiserver is kept (default ${XDG_CACHE_HOME:-~/.cache}/kube-apiserver-VERSION)
#
# Exit: 0 done, 1 it did not start, 2 usage, 3 a program is missing.
set -euo pipefail

readonly VERSION=1.34.4
readonly BIN="${KUBE_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/kube-apiserver-$VERSION}"
readonly TRIES=600 # a tenth of a second each
readonly MODULE=k8s.io/kubernetes

fail() { # STATUS TEXT
    echo "kube.sh: $2" >&2
    exit "$1"
}

usage() { fail 2 "usage: kube.sh install | start DIR [PORT] | stop DIR"; }

install() {
    packages
    [ -x "$BIN/kube-apiserver" ] && return
    command -v go >/dev/null 2>&1 || fail 3 "go is missing; install Go 1.24 or newer, or put kube-apiserver into $BIN"
    local work
    work="$(mktemp -d "${TMPDIR:-/tmp}/kube-build.XXXXXX")"
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    cd "$work"
    build >build.log 2>&1 || fail 3 "kube-apiserver $VERSION cannot be built: $(tail -n 1 build.log)"
    # Whole or not at all, also where two runs install at once.
    mkdir -p "$BIN"
    mv kube-apiserver "$BIN/kube-apiserver.$$"
    mv "$BIN/kube-apiserver.$$" "$BIN/kube-apiserver"
}

packages() {
    command -v etcd >/dev/null 2>&1 && command -v openssl >/dev/null 2>&1 &&
        command -v curl >/dev/null 2>&1 && return
    command -v apt-get >/dev/null 2>&1 || fail 3 "etcd, openssl or curl is missing, and so is apt-get"
    [ "$(id -u)" = 0 ] || fail 3 "etcd, openssl or curl is missing; as root: apt-get install etcd-server openssl curl"
    local log
    log="$(mktemp)"
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq \
        --no-install-recommends etcd-server openssl curl ca-certificates; } >"$log" 2>&1; then
        fail 3 "apt-get cannot install etcd: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
}

# The module replaces the parts of Kubernetes (k8s.io/api, ...) by directories of its own repository;
# outside of it they are modules of the same number: v0.34.4 of v1.34.4.
build() {
    local modfile
    go mod init nodewarden.local/kube
    go mod edit -require "$MODULE@v$VERSION"
    modfile="$(go mod download -json "$MODULE@v$VERSION" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')"
    sed -n '/^replace (/,/^)/{s/^\t\(k8s.io[^ ]*\) => .*/\1/p}' "$modfile" | while read -r part; do
        go mod edit -replace "$part=$part@v0.${VERSION#1.}"
    done
    printf 'package kube\n\nimport _ "%s/cmd/kube-apiserver/app"\n' "$MODULE" >kube.go
    go mod tidy -e
    go build -ldflags '-s -w' -o kube-apiserver "$MODULE/cmd/kube-apiserver"
}

begin() { # NAME COMMAND...
    local name=$1
    shift
    setsid "$@" >>"$dir/$name.log" 2>&1 &
    echo $! >"$dir/$name.pid"
}

running() { # NAME
    [ -f "$dir/$1.pid" ] && kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null
}

end() { # NAME
    local try
    if running "$1"; then
        kill "$(cat "$dir/$1.pid")"
        for ((try = 0; try < 100; try++)); do
            running "$1" || break
            sleep 0.1
        done
        kill -KILL "$(cat "$dir/$1.pid")" 2>/dev/null || true
    fi
    rm -f "$dir/$1.pid"
}

keys() {
    [ -f "$dir/tokens.csv" ] && return
    (
        umask 077
        openssl genrsa -out "$dir/accounts.key" 2048 2>/dev/null
        echo "$(openssl rand -hex 24),admin,1,\"system:masters\"" >"$dir/tokens.csv"
    )
}

kubeconfig() { # PORT TOKEN
    (umask 077 && cat >"$dir/kubeconfig") <<CONF
apiVersion: v1
kind: Config
current-context: local
clusters: [{name: local, cluster: {server: "https://127.0.0.1:$1", certificate-authority: "$dir/certs/apiserver.crt"}}]
users: [{name: admin, user: {token: "$2"}}]
contexts: [{name: local, context: {cluster: local, user: admin}}]
CONF
}

start() { # PORT
    command -v etcd >/dev/null 2>&1 && [ -x "$BIN/kube-apiserver" ] ||
        fail 3 "etcd or kube-apiserver is missing; run: kube.sh install"
    running api && fail 1 "an API server runs in $dir already"
    keys
    local store="http://127.0.0.1:$(($1 + 1))" peer="http://127.0.0.1:$(($1 + 2))" token try
    begin etcd etcd --data-dir "$dir/etcd" --unsafe-no-fsync \
        --listen-client-urls "$store" --advertise-client-urls "$store" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer"
    begin api "$BIN/kube-apiserver" --etcd-servers="$store" --cert-dir="$dir/certs" \
        --secure-port="$1" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
        --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$dir/accounts.key" --service-account-signing-key-file="$dir/accounts.key" \
        --token-auth-file="$dir/tokens.csv" --authorization-mode=RBAC \
        --service-cluster-ip-range=10.0.0.0/24 --allow-privileged \
        --disable-admission-plugins=ServiceAccount,TaintNodesByCondition
    token="$(cut -d , -f 1 "$dir/tokens.csv" | head -n 1)"
    for ((try = 0; try < TRIES; try++)); do
        for name in etcd api; do
            running "$name" || fail 1 "$name ended: $(tail -n 1 "$dir/$name.log")"
        done
        if [ "$(curl -sk --max-time 2 -H "Authorization: Bearer $token" "https://127.0.0.1:$1/readyz")" = ok ]; then
            kubeconfig "$1" "$token"
            echo "export KUBECONFIG=$dir/kubeconfig"
            return
        fi
        sleep 0.1
    done
    stop
    fail 1 "the API does not get ready on port $1; see $dir/api.log"
}

stop() {
    end api
    end etcd
}

[ $# -ge 1 ] || usage
[ "$1" = install ] && { install; exit; }
[ $# -ge 2 ] || usage
mkdir -p "$2"
dir="$(cd "$2" && pwd)"
case $1 in
start) start "${3:-26443}" ;;
stop) stop ;;
*) usage ;;
esac
