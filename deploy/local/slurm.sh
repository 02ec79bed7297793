#!/usr/bin/env bash
# A real Slurm of a few nodes on this one machine, from the distribution's packages: for tests, and
# for trying things. Every node is a slurmd of its own; munge, keys, state and logs stay in DIR, so
# that several clusters can run side by side.
#
#   slurm.sh install              the packages, with apt-get: needs root
#   slurm.sh start DIR [NODES]    controller and NODES slurmd (default 4): node1, node2, ... behind two
#                                 leaf switches, leaf1 and leaf2; prints what to export
#   slurm.sh resize DIR NODES     the same cluster with fewer nodes, as an administrator does it: the
#                                 configuration is rewritten and the controller started again
#   slurm.sh rest DIR PORT        slurmrestd on 127.0.0.1:PORT and on DIR/rest.sock; prints a token
#                                 that both want to see
#   slurm.sh stop DIR             ends what start and rest began
#
# SLURM_BASE_PORT   slurmd listen from here on, the controller 90 above (default 17000)
#
# Exit: 0 done, 1 it did not start, 2 usage, 3 Slurm is missing.
set -euo pipefail

readonly BASE="${SLURM_BASE_PORT:-17000}"
readonly TRIES=300 # a tenth of a second each
readonly DIR_MAX=66 # characters of DIR
readonly PROGRAMS=(slurmctld slurmd slurmrestd munged sinfo)
export PATH="$PATH:/usr/sbin:/sbin"

fail() { # STATUS TEXT
    echo "slurm.sh: $2" >&2
    exit "$1"
}

usage() { fail 2 "usage: slurm.sh install | start DIR [NODES] | resize DIR NODES | rest DIR PORT | stop DIR"; }

missing() { # the first program that is not there
    local program
    for program in "${PROGRAMS[@]}"; do
        command -v "$program" >/dev/null 2>&1 || { echo "$program"; return; }
    done
}

install() {
    [ -z "$(missing)" ] && return
    command -v apt-get >/dev/null 2>&1 || fail 3 "$(missing) is missing, and so is apt-get: install Slurm, slurmrestd and munge"
    [ "$(id -u)" = 0 ] || fail 3 "$(missing) is missing; as root: apt-get install slurm-wlm slurmrestd munge"
    local log
    log="$(mktemp)"
    echo "slurm.sh: $(missing) is missing; apt-get installs slurm-wlm, slurmrestd and munge" >&2
    # The packages must not start services of their own: what runs here is ours. The plugin for
    # tokens is among what they recommend.
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq \
        slurm-wlm slurmrestd munge; } >"$log" 2>&1; then
        fail 3 "apt-get cannot install Slurm: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
}

wait_for() { # NAME COMMAND...: until the command succeeds
    local try what=$1
    shift
    for ((try = 0; try < TRIES; try++)); do
        "$@" >/dev/null 2>&1 && return
        [ ! -f "$dir/$what.pid" ] || running "$what" ||
            fail 1 "$what ended: $(tail -n 1 "$dir/log/$what.log")"
        sleep 0.1
    done
    fail 1 "$what does not answer; see $dir/log"
}

begin() { # NAME COMMAND...: in the background, its pid in DIR
    local name=$1
    shift
    setsid "$@" >>"$dir/log/$name.log" 2>&1 &
    echo $! >"$dir/$name.pid"
}

end() { # NAMES...: all are told first, then waited for
    local name try
    for name in "$@"; do
        [ ! -f "$dir/$name.pid" ] || kill "$(cat "$dir/$name.pid")" 2>/dev/null || true
    done
    for name in "$@"; do
        [ -f "$dir/$name.pid" ] || continue
        for ((try = 0; try < 100; try++)); do
            running "$name" || break
            sleep 0.1
        done
        ! running "$name" || kill -KILL "$(cat "$dir/$name.pid")" 2>/dev/null || true
        rm -f "$dir/$name.pid"
    done
}

running() { # NAME
    [ -f "$dir/$1.pid" ] && kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null
}

key() { # FILE BYTES
    [ -f "$1" ] || (umask 077 && head -c "$2" /dev/urandom >"$1")
}

settings() { # NODES
    local me half=$((($1 + 1) / 2)) rest=""
    me="$(id -un)"
    cat >"$dir/slurm.conf" <<CONF
ClusterName=local
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$((base + 90))
# What is left of a job is known by its id: two clusters of one machine share none.
FirstJobId=$base
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=$dir/jwt.key
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run-slurmctld
SlurmdPidFile=$dir/run-%n
SlurmctldLogFile=$dir/log/controller.log
SlurmdLogFile=$dir/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
TopologyPlugin=topology/tree
ReturnToService=2
JobRequeue=1
KillWait=1
SchedulerParameters=sched_interval=1,bf_interval=1
MessageTimeout=5
SlurmctldTimeout=10
SlurmdTimeout=30
NodeName=node[1-$1] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + $1))] CPUs=1 RealMemory=500
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    # From this version on nodes want control groups, which a container may not have.
    if [ "$(printf '%s\n' 23.11 "$(slurmd -V | tr -dc '0-9.')" | sort -V | head -n 1)" = 23.11 ]; then
        echo "CgroupPlugin=disabled" >"$dir/cgroup.conf"
    fi
    echo "SwitchName=leaf1 Nodes=node[1-$half]" >"$dir/topology.conf"
    if [ "$1" -gt "$half" ]; then
        echo "SwitchName=leaf2 Nodes=node[$((half + 1))-$1]" >>"$dir/topology.conf"
        rest=",leaf2"
    fi
    echo "SwitchName=spine1 Switches=leaf1$rest" >>"$dir/topology.conf"
}

idle() { # NODES
    [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null | head -n 1)" = "$1" ]
}

start() { # NODES
    [ -f "$dir/slurmctld.pid" ] && fail 1 "a cluster runs in $dir already"
    # Each step's socket is $dir/spool/NODE/NODE_JOB.STEP, and a socket's name has 107 characters;
    # with a longer one nodes look idle and no job starts.
    [ "${#dir}" -le "$DIR_MAX" ] || fail 2 "$dir: ${#dir} characters, at most $DIR_MAX"
    ! (exec 3<>"/dev/tcp/127.0.0.1/$((base + 90))") 2>/dev/null ||
        fail 1 "port $((base + 90)) is taken: another cluster runs, or set SLURM_BASE_PORT"
    mkdir -p "$dir"/{state,spool,log,munge}
    chmod 0711 "$dir/munge"
    key "$dir/munge.key" 128
    key "$dir/jwt.key" 32
    echo "$base" >"$dir/port"
    settings "$1"
    begin munged munged --foreground --force --socket="$dir/munge/socket" --key-file="$dir/munge.key" \
        --log-file="$dir/log/munged-own.log" --pid-file="$dir/munge/pid" --seed-file="$dir/munge/seed"
    wait_for munged munge --socket="$dir/munge/socket" --no-input
    controller
    local number
    for ((number = 1; number <= $1; number++)); do
        mkdir -p "$dir/spool/node$number"
        begin "slurmd$number" slurmd -D -f "$SLURM_CONF" -N "node$number"
    done
    wait_for "one of the nodes" idle "$1"
    echo "export SLURM_CONF=$SLURM_CONF"
}

controller() {
    begin slurmctld slurmctld -D -f "$SLURM_CONF"
    wait_for slurmctld sinfo
}

resize() { # NODES
    settings "$1"
    local number=$(($1 + 1)) names=(slurmctld)
    while [ -f "$dir/slurmd$number.pid" ]; do
        names+=("slurmd$number")
        number=$((number + 1))
    done
    end "${names[@]}"
    controller
}

plugin() { # the newest API that needs no accounting database
    local offered
    offered="$(SLURMRESTD_SECURITY=disable_user_check slurmrestd -s list 2>&1 | tr -s ' \t' '\n')"
    grep -x -m 1 'openapi/slurmctld' <<<"$offered" || grep -x 'openapi/v0\.0\.[0-9]*' <<<"$offered" | sort -V | tail -n 1
}

rest() { # PORT
    local api
    api="$(plugin)"
    # It refuses to run as root, or as Slurm's own user, unless told so.
    begin slurmrestd env SLURMRESTD_SECURITY=disable_user_check SLURM_JWT=daemon \
        slurmrestd -s "${api#openapi/}" -a rest_auth/jwt "127.0.0.1:$1" "unix:$dir/rest.sock"
    wait_for slurmrestd bash -c "exec 3<>/dev/tcp/127.0.0.1/$1"
    scontrol token "username=$(id -un)" lifespan=86400
}

stop() {
    # Without a controller nobody ends the jobs: they are processes too.
    local file try names=()
    if running slurmctld && timeout 10 scancel --user="$(id -un)" >/dev/null 2>&1; then
        for ((try = 0; try < 50; try++)); do
            [ -n "$(timeout 10 squeue --noheader 2>/dev/null)" ] || break
            sleep 0.1
        done
    fi
    for file in "$dir"/slurm*.pid; do
        [ ! -f "$file" ] || names+=("$(basename "$file" .pid)")
    done
    end "${names[@]}"
    end munged
}

[ $# -ge 1 ] || usage
[ "$1" = install ] && { install; exit; }
[ $# -ge 2 ] || usage
mkdir -p "$2"
dir="$(cd "$2" && pwd)"
base="$(cat "$dir/port" 2>/dev/null || echo "$BASE")"
export SLURM_CONF="$dir/slurm.conf"
case $1 in
start | resize | rest) [ -z "$(missing)" ] || fail 3 "$(missing) is missing; run: slurm.sh install" ;;
esac
case $1 in
start) start "${3:-4}" ;;
resize) resize "${3:?NODES}" ;;
rest) rest "${3:?PORT}" ;;
stop) stop ;;
*) usage ;;
esac
