#!/usr/bin/env bash
# A real Apache Kafka of one node on 127.0.0.1, without Docker and without root: for tests, and for
# trying things. Broker and controller run in one JVM (KRaft); Maven fetches the jars.
#
#   kafka.sh install              the jars, once, into a cache (about 50 MB)
#   kafka.sh start DIR [PORT]     broker on PORT (default 9092), its controller on PORT + 1; the data
#                                 stays in DIR: another start on the same DIR goes on with it
#   kafka.sh status DIR           says whether it runs: exit 0 or 1
#   kafka.sh kill DIR             SIGKILL: what a power cut is
#   kafka.sh stop DIR             SIGTERM, then wait
#   kafka.sh topics DIR ARGS...   Kafka's own kafka-topics, e.g. --describe
#   kafka.sh groups DIR ARGS...   Kafka's own kafka-consumer-groups, e.g. --list
#
# KAFKA_JARS   where the jars are kept (default ${XDG_CACHE_HOME:-~/.cache}/apache-kafka-VERSION)
# KAFKA_HEAP   the JVM's heap (default 256m)
# KAFKA_EXTRA  more broker settings, one a line or blank-separated: "message.max.bytes=8000000"
#
# Exit: 0 done, 1 the broker did not start or does not run, 2 usage, 3 Java or Maven is missing.
set -euo pipefail

readonly VERSION=4.1.1
readonly JARS="${KAFKA_JARS:-${XDG_CACHE_HOME:-$HOME/.cache}/apache-kafka-$VERSION}"
readonly START_TRIES=600 STOP_TRIES=150 # a tenth of a second each

fail() { # STATUS TEXT
    echo "kafka.sh: $2" >&2
    exit "$1"
}

need() { # PROGRAM WHAT
    command -v "$1" >/dev/null 2>&1 || fail 3 "$1 is missing; install $2"
}

usage() { fail 2 "usage: kafka.sh install | start DIR [PORT] | status|kill|stop DIR | topics|groups DIR ARGS"; }

installed() { [ -f "$JARS/.complete" ]; }

install() {
    installed && return
    need java "a Java runtime, 17 or newer"
    need mvn "Apache Maven"
    local work
    work="$(mktemp -d "${TMPDIR:-/tmp}/kafka-jars.XXXXXX")"
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    pom >"$work/pom.xml"
    mvn --batch-mode --quiet --file "$work/pom.xml" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$work/jars" >"$work/maven.log" 2>&1 ||
        fail 3 "Maven could not fetch Kafka $VERSION: $(grep -m 1 ERROR "$work/maven.log" || tail -n 1 "$work/maven.log")"
    # Whole or not at all, also where two runs install at once.
    mkdir -p "$JARS"
    cp "$work"/jars/*.jar "$JARS/"
    touch "$JARS/.complete"
}

pom() {
    cat <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>nodewarden.local</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.1</version>
    </dependency>
  </dependencies>
</project>
XML
}

tool() { java -Xmx128m -XX:TieredStopAtLevel=1 -cp "$JARS/*" "$@"; }

settings() { # DIR PORT
    cat <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$(($2 + 1))
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$2,CONTROLLER://127.0.0.1:$(($2 + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$2
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$1/data
auto.create.topics.enable=false
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
log.segment.delete.delay.ms=1000
CONF
    local extra
    for extra in ${KAFKA_EXTRA:-}; do echo "$extra"; done
}

running() { # DIR
    [ -f "$1/pid" ] && kill -0 "$(cat "$1/pid")" 2>/dev/null
}

answers() { # PORT
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

start() { # DIR PORT
    need java "a Java runtime, 17 or newer"
    install
    mkdir -p "$1"
    local dir port=$2
    dir="$(cd "$1" && pwd)"
    running "$dir" && fail 1 "a broker runs in $dir already, on port $(cat "$dir/port")"
    answers "$port" && fail 1 "port $port is taken"
    settings "$dir" "$port" >"$dir/server.properties"
    echo "$port" >"$dir/port"
    [ -f "$dir/data/meta.properties" ] || format "$dir"
    setsid java -Xms64m "-Xmx${KAFKA_HEAP:-256m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -cp "$JARS/*" kafka.Kafka "$dir/server.properties" >>"$dir/broker.log" 2>&1 &
    echo $! >"$dir/pid"
    local try
    for ((try = 0; try < START_TRIES; try++)); do
        running "$dir" || fail 1 "the broker ended: $(tail -n 3 "$dir/broker.log" | tr '\n' ' ')"
        if answers "$port"; then
            echo "127.0.0.1:$port"
            return
        fi
        sleep 0.1
    done
    end "$dir" KILL
    fail 1 "the broker does not answer on port $port; see $dir/broker.log"
}

format() { # DIR
    local id
    id="$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=')"
    tool kafka.tools.StorageTool format --cluster-id "${id/#-/k}" --config "$1/server.properties" \
        >"$1/format.log" 2>&1 || fail 1 "cannot format $1: $(tail -n 1 "$1/format.log")"
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

status() { # DIR
    running "$1" || fail 1 "no broker runs in $1"
    echo "127.0.0.1:$(cat "$1/port"), process $(cat "$1/pid")"
}

[ $# -ge 1 ] || usage
verb=$1
dir=${2:-}
[ "$verb" = install ] || [ -n "$dir" ] || usage
case $verb in
install) install ;;
start) start "$dir" "${3:-9092}" ;;
status) status "$dir" ;;
kill) end "$dir" KILL ;;
stop) end "$dir" TERM ;;
topics | groups)
    status "$dir" >/dev/null
    declare -A class=([topics]=TopicCommand [groups]=consumer.group.ConsumerGroupCommand)
    tool "org.apache.kafka.tools.${class[$verb]}" --bootstrap-server "127.0.0.1:$(cat "$dir/port")" "${@:3}"
    ;;
*) usage ;;
esac
