#!/usr/bin/env bash
# The whole loop on this one machine: a real Slurm with a job, a real Kafka, nodewarden's services; then
# a GPU falls off the bus. Shows how its node is drained and the job runs elsewhere, and how the node
# comes back after a check. Takes everything down at the end.
#
#   demo-slurm.sh       runs it, some two minutes
#
# PORT              of the broker (default 19392; its controller takes PORT + 1, the services PORT + 10 on)
# SLURM_BASE_PORT   of Slurm's nodes; the controller takes 90 above (default 17400)
# NODEWARDEN        the command (default .venv/bin/nodewarden)
# KEEP=1            leaves logs and settings, and says where
#
# Exit: 0 done, 1 something does not run, 2 usage, 3 Slurm, Java or Maven is missing, 130 Ctrl-C.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly here PORT="${PORT:-19392}" KEEP="${KEEP:-}"
readonly NODEWARDEN="${NODEWARDEN:-$(cd "$here/../.." && pwd)/.venv/bin/nodewarden}"
readonly BROKER="127.0.0.1:$PORT" API="127.0.0.1:$((PORT + 20))"
readonly WAIT_MAX_S=120 STOP_MAX_S=15 NODES=4
# So long the services learn how the site stands; before that nothing may be done.
readonly LEARN_S=15
export PATH="$PATH:/usr/sbin:/sbin"
started=()

fail() { # STATUS TEXT
    echo "demo-slurm.sh: $2" >&2
    exit "$1"
}

say() { printf '\n== %s\n' "$*"; }

settings() { # TOKEN'S HASH
    cat <<TOML
# Written by deploy/local/demo-slurm.sh.
[kafka]
brokers = ["$BROKER"]

[engine]
cluster = "demo"

[stream]
metrics_address = "127.0.0.1:$((PORT + 10))"

[inventory]
source = "slurm"
poll_s = 1.0
metrics_address = "127.0.0.1:$((PORT + 11))"

[inventory.slurm]
conf = "$SLURM_CONF"

[act]
executor = "slurm"
dry_run = false
address = "$API"
url = "http://$API"
metrics_address = "127.0.0.1:$((PORT + 12))"
workers = ["http://127.0.0.1:$((PORT + 10))/metrics"]
inventory = "http://127.0.0.1:$((PORT + 11))/metrics"
first_observe_s = 0.0 # at a site it looks on for an hour first

[act.slurm]
conf = "$SLURM_CONF"

[act.rails]
mode_default = "auto" # at a site a person is asked first
settle_s = 0.0        # this machine may have booted a moment ago
blind_share_max = 1.0 # only the job's nodes have agents here

[act.tokens]
demo = "operator:$1"

[collect]
exporters = []
nic = false
journalctl = ""
nvidia_smi = ""
ethtool = ""
step_socket = ""
TOML
}

run() { # NAME ARGUMENTS...: a service in the background
    local name=$1
    shift
    setsid "$NODEWARDEN" "$@" --config "$dir/nodewarden.toml" </dev/null >>"$dir/$name.log" 2>&1 &
    echo $! >"$dir/$name.pid"
    started+=("$name")
}

running() { # NAME
    [ -f "$dir/$1.pid" ] && kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null
}

until_so() { # WHAT COMMAND...: until the command succeeds
    local what=$1 since=$SECONDS name
    shift
    until "$@" >/dev/null 2>&1; do
        for name in "${started[@]}"; do
            running "$name" || fail 1 "$name ended: $(tail -n 1 "$dir/$name.log")"
        done
        ((SECONDS - since < WAIT_MAX_S)) || fail 1 "not $what within $WAIT_MAX_S s; see $dir/*.log"
        sleep 0.1
    done
}

job_state() { squeue --noheader --jobs="$job" --format=%T; }
job_nodes() { scontrol show hostnames "$(squeue --noheader --jobs="$job" --format=%N)"; }
runs() { [ "$(job_state)" = RUNNING ]; }
restarted() { scontrol show job "$job" | grep -q 'Restarts=[1-9]'; }
runs_elsewhere() { restarted && runs && ! job_nodes | grep -qx "$lost"; }
drained() { [ -n "$(sinfo --noheader --nodes="$lost" --states=drain --format=%N)" ]; }
# Idle, and Slurm has heard of it since: until then it shows `idle*`.
given_back() { [ "$(sinfo --noheader --Node --nodes="$lost" --format=%T)" = idle ]; }

agent() { # NODE: its agent, whose kernel log is a pipe of ours
    local node=$1
    mkfifo "$dir/$node.kmsg"
    NODEWARDEN_COLLECT__NODE="$node" NODEWARDEN_COLLECT__KMSG="$dir/$node.kmsg" \
        NODEWARDEN_COLLECT__STATE_DIR="$dir/$node" \
        NODEWARDEN_COLLECT__METRICS_ADDRESS="127.0.0.1:$((PORT + 30 + ${node#node}))" \
        run "agent-$node" collect
}

lose_a_gpu() { # NODE
    printf '4,1,%s,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=%s, name=%s, GPU has fallen off the bus.\n' \
        "$(($(cut -d. -f1 /proc/uptime) * 1000000))" "'<unknown>'" "<unknown>" >"$dir/$1.kmsg"
}

end() { # NAMES...: all are told first, then waited for
    local name try
    for name in "$@"; do
        ! running "$name" || kill -TERM "$(cat "$dir/$name.pid")" 2>/dev/null || true
    done
    for name in "$@"; do
        for ((try = 0; try < STOP_MAX_S * 10; try++)); do
            running "$name" || continue 2
            sleep 0.1
        done
        kill -KILL "$(cat "$dir/$name.pid")" 2>/dev/null || true
    done
}

down() {
    local status=$?
    trap - EXIT
    # Whoever presses Ctrl-C again must not cut this short, nor what it calls: all would run on. The
    # terminal may be gone by now.
    trap '' HUP INT PIPE TERM
    [ "$status" = 0 ] || echo "demo-slurm.sh: everything is taken down, some ten seconds" >&2 || true
    end ${started[@]+"${started[@]}"}
    [ ! -d "$dir/kafka" ] || "$here/kafka.sh" stop "$dir/kafka" >/dev/null 2>&1 || true
    [ ! -d "$dir/slurm" ] || "$here/slurm.sh" stop "$dir/slurm" >/dev/null 2>&1 || true
    if [ -n "$KEEP" ] || [ "$status" != 0 ]; then
        echo "logs and settings are in $dir" || true
    else
        rm -rf "$dir"
    fi
    exit "$status"
}

[ $# = 0 ] || fail 2 "usage: demo-slurm.sh"
[ -x "$NODEWARDEN" ] || fail 2 "$NODEWARDEN is not there; run make setup"
"$here/slurm.sh" install || exit $?
dir="$(mktemp -d "${TMPDIR:-/tmp}/demo-slurm.XXXXXX")"
trap down EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

say "a Slurm cluster of $NODES nodes, and a Kafka broker"
export SLURM_BASE_PORT="${SLURM_BASE_PORT:-17400}"
"$here/slurm.sh" start "$dir/slurm" "$NODES" >/dev/null || exit $?
export SLURM_CONF="$dir/slurm/slurm.conf"
"$here/kafka.sh" start "$dir/kafka" "$PORT" >/dev/null || exit $?
token="$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')"
settings "$(printf %s "$token" | sha256sum | cut -d' ' -f1)" >"$dir/nodewarden.toml"
"$NODEWARDEN" topics create --config "$dir/nodewarden.toml" >"$dir/topics.log" 2>&1 ||
    fail 1 "topics: $(tail -n 1 "$dir/topics.log")"

say "a training job on two nodes"
job="$(sbatch --parsable --nodes=2 --requeue --chdir=/ --output=/dev/null --job-name=train --wrap='sleep 3600')"
until_so "running" runs
squeue --format='%.6i %.8j %.8T %N'

say "nodewarden: worker, inventory, action service, and an agent on each node of the job"
run worker stream
run inventory inventory
run act act
for node in $(job_nodes); do agent "$node"; done
until_so "acting" grep -q "active instance" "$dir/act.log"
until_so "following Slurm" grep -q listing "$dir/inventory.log"
until_so "detecting" grep -q "shard main" "$dir/worker.log"
sleep "$LEARN_S"

lost="$(job_nodes | head -n 1)"
say "the kernel of $lost says: NVRM: Xid 79, GPU has fallen off the bus"
since_ms="$(date +%s%3N)"
lose_a_gpu "$lost"
until_so "drained" drained
took_ms=$(($(date +%s%3N) - since_ms))
say "$lost is drained, $((took_ms / 1000)).$(printf %03d $((took_ms % 1000))) s after the line"
sinfo --list-reasons --format='%.12N %E'
until_so "running elsewhere" runs_elsewhere
say "the job runs elsewhere"
squeue --format='%.6i %.8j %.8T %N'
"$NODEWARDEN" incidents --config "$dir/nodewarden.toml" --shard main

say "a check of $lost passes, and a person gives it back"
NODEWARDEN_ACT__TOKEN="$token" "$NODEWARDEN" release "$lost" --note "it passed its check" \
    --config "$dir/nodewarden.toml"
until_so "given back" given_back
sinfo --Node --format='%.8N %T'
say "everything is taken down"
