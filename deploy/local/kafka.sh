#!/usr/bin/env bash
# A real Apache Kafka of one node on 127.0.0.1, without Docker and without root: for tests, and for
# trying things. Broker and controller run in one JVM (KRaft); Maven fetches the jars.
#
#   kafka.sh install              the jars, once, into a cache (about 50 MB)
#   kafka.sh start DIR [PORT] [--secure | --certificates]
#                                 broker on PORT (default 9092), its controller on PORT + 1; the data
#                                 stays in DIR: another start on the same DIR goes on with it.
#                                 --secure, at the first start: TLS, SASL/SCRAM and ACLs. Then
#                                 DIR/tls/ca.pem is the authority, DIR/users/NAME holds the password
#                                 of each user (admin may do everything), DIR/admin.properties is for
#                                 Kafka's own tools.
#                                 --certificates is the same where clients prove themselves by
#                                 certificates in place of passwords: DIR/users/NAME.pem and NAME.key;
#                                 the broker knows them as User:CN=NAME
#   kafka.sh status DIR           says whether it runs: exit 0 or 1
#   kafka.sh kill DIR             SIGKILL: what a power cut is
#   kafka.sh stop DIR             SIGTERM, then wait
#   kafka.sh topics DIR ARGS...   Kafka's own kafka-topics, e.g. --describe
#   kafka.sh groups DIR ARGS...   Kafka's own kafka-consumer-groups, e.g. --list
#   kafka.sh acls DIR ARGS...     Kafka's own kafka-acls, e.g. --list
#
# KAFKA_JARS   where the jars are kept (default ${XDG_CACHE_HOME:-~/.cache}/apache-kafka-VERSION)
# KAFKA_HEAP   the JVM's heap (default 256m)
# KAFKA_HOSTS  names and addresses in the certificate beside 127.0.0.1 and localhost, blank-separated
# KAFKA_ACLS   "none": a secure broker gives nobody rights (deploy/kafka/acls.sh, half a minute)
# KAFKA_EXTRA  more broker settings, one a line or blank-separated: "message.max.bytes=8000000"
#
# Exit: 0 done, 1 the broker did not start or does not run, 2 usage, 3 Java or Maven is missing.
set -euo pipefail

readonly VERSION=4.1.1
readonly JARS="${KAFKA_JARS:-${XDG_CACHE_HOME:-$HOME/.cache}/apache-kafka-$VERSION}"
here=.
[[ "${BASH_SOURCE[0]}" != */* ]] || here="${BASH_SOURCE[0]%/*}"
here="$(cd "$here" && pwd)"
readonly here
readonly ACLS="$here/../kafka/acls.sh"
readonly START_TRIES=600 STOP_TRIES=150 # a tenth of a second each

fail() { # STATUS TEXT
    echo "kafka.sh: $2" >&2
    exit "$1"
}

need() { # PROGRAM WHAT
    command -v "$1" >/dev/null 2>&1 || fail 3 "$1 is missing; install $2"
}

usage() { fail 2 "usage: kafka.sh install | start DIR [PORT] [--secure | --certificates] | status|kill|stop DIR | topics|groups|acls DIR ARGS"; }

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

secure() { [ -f "$1/admin.properties" ]; }       # DIR
by_certificate() { [ -f "$1/users/admin.pem" ]; } # DIR

listener() { # DIR
    if by_certificate "$1"; then echo SSL; elif secure "$1"; then echo SASL_SSL; else echo PLAINTEXT; fi
}

settings() { # DIR PORT
    local listener
    listener="$(listener "$1")"
    cat <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$(($2 + 1))
controller.listener.names=CONTROLLER
listeners=$listener://127.0.0.1:$2,CONTROLLER://127.0.0.1:$(($2 + 1))
advertised.listeners=$listener://127.0.0.1:$2
listener.security.protocol.map=CONTROLLER:PLAINTEXT,$listener:$listener
inter.broker.listener.name=$listener
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
    ! secure "$1" || security "$1"
    local extra
    for extra in ${KAFKA_EXTRA:-}; do echo "$extra"; done
}

security() { # DIR
    # The controller listens on 127.0.0.1 only, and knows nobody by name.
    if by_certificate "$1"; then
        cat <<CONF
ssl.client.auth=required
super.users=User:CN=admin;User:CN=broker;User:ANONYMOUS
CONF
    else
        cat <<CONF
sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=$(login "$1")
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=$(login "$1")
super.users=User:admin;User:ANONYMOUS
CONF
    fi
    cat <<CONF
ssl.keystore.type=PEM
ssl.keystore.location=$1/tls/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location=$1/tls/ca.pem
ssl.enabled.protocols=TLSv1.3,TLSv1.2
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
CONF
}

login() { # DIR
    echo "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"admin\"" \
        "password=\"$(cat "$1/users/admin")\";"
}

# Certificates of an authority of our own, a password or certificate for each user, and how an admin
# logs in.
secrets() { # DIR HOW
    need openssl "OpenSSL"
    (
        umask 077
        mkdir -p "$1/tls" "$1/users"
        certificates "$1/tls" >"$1/tls/openssl.log" 2>&1 ||
            fail 1 "no certificates: $(tail -n 1 "$1/tls/openssl.log")"
        "$2" "$1"
        cat >>"$1/admin.properties.new" <<CONF
ssl.truststore.type=PEM
ssl.truststore.location=$1/tls/ca.pem
CONF
        mv "$1/admin.properties.new" "$1/admin.properties" # last: now all of it is there
    )
}

passwords() { # DIR
    local user
    for user in admin $("$ACLS" users); do openssl rand -hex 24 >"$1/users/$user"; done
    cat >"$1/admin.properties.new" <<CONF
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=$(login "$1")
CONF
}

client_certificates() { # DIR
    local user
    for user in $("$ACLS" users) admin; do
        signed "$1/tls" "$1/users/$user" "$user" >>"$1/tls/openssl.log" 2>&1 ||
            fail 1 "no certificate of $user: $(tail -n 1 "$1/tls/openssl.log")"
    done
    cat "$1/users/admin.key" "$1/users/admin.pem" >"$1/tls/admin.pem"
    cat >"$1/admin.properties.new" <<CONF
security.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location=$1/tls/admin.pem
CONF
}

signed() { # DIR-OF-THE-AUTHORITY FILE NAME: FILE.key and FILE.pem
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$3" \
        -keyout "$2.key" -out "$2.csr"
    openssl x509 -req -in "$2.csr" -CA "$1/ca.pem" -CAkey "$1/ca.key" -CAcreateserial -days 3650 -out "$2.pem"
    rm "$2.csr"
}

certificates() { # DIR
    local host names="IP:127.0.0.1,DNS:localhost"
    for host in ${KAFKA_HOSTS:-}; do
        case $host in *[!0-9.]*) names+=",DNS:$host" ;; *) names+=",IP:$host" ;; esac
    done
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=kafka.sh" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
        -keyout "$1/ca.key" -out "$1/ca.pem"
    openssl req -newkey rsa:2048 -nodes -subj "/CN=broker" -keyout "$1/broker.key" -out "$1/broker.csr"
    openssl x509 -req -in "$1/broker.csr" -CA "$1/ca.pem" -CAkey "$1/ca.key" -CAcreateserial -days 3650 \
        -extfile <(echo "subjectAltName=$names") -out "$1/broker.crt"
    cat "$1/broker.key" "$1/broker.crt" "$1/ca.pem" >"$1/broker.pem"
    chmod 644 "$1/ca.pem"
}

running() { # DIR
    [ -f "$1/pid" ] && kill -0 "$(cat "$1/pid")" 2>/dev/null
}

answers() { # PORT
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

start() { # DIR PORT HOW: "", passwords or client_certificates
    need java "a Java runtime, 17 or newer"
    install
    mkdir -p "$1"
    local dir port=$2
    dir="$(cd "$1" && pwd)"
    running "$dir" && fail 1 "a broker runs in $dir already, on port $(cat "$dir/port")"
    answers "$port" && fail 1 "port $port is taken"
    local fresh=""
    [ -f "$dir/data/meta.properties" ] || fresh=yes
    if [ -n "$3" ] && ! secure "$dir"; then
        [ -n "$fresh" ] || fail 1 "$dir holds the data of a broker without security; take another"
        secrets "$dir" "$3"
    fi
    (umask 077 && settings "$dir" "$port" >"$dir/server.properties")
    echo "$port" >"$dir/port"
    [ -z "$fresh" ] || format "$dir"
    setsid java -Xms64m "-Xmx${KAFKA_HEAP:-256m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -cp "$JARS/*" kafka.Kafka "$dir/server.properties" >>"$dir/broker.log" 2>&1 &
    echo $! >"$dir/pid"
    local try
    for ((try = 0; try < START_TRIES; try++)); do
        running "$dir" || fail 1 "the broker ended: $(tail -n 3 "$dir/broker.log" | tr '\n' ' ')"
        if answers "$port"; then
            ! secure "$dir" || [ -f "$dir/acls.log" ] || rights "$dir"
            echo "127.0.0.1:$port"
            return
        fi
        sleep 0.1
    done
    end "$dir" KILL
    fail 1 "the broker does not answer on port $port; see $dir/broker.log"
}

rights() { # DIR
    [ "${KAFKA_ACLS:-}" != none ] || return 0
    local prefix="${USERS_PREFIX-nodewarden-}"
    ! by_certificate "$1" || prefix="CN=$prefix" # Kafka's name for who shows a certificate
    USERS_PREFIX="$prefix" "$ACLS" apply "$here/kafka.sh" acls "$1" >"$1/acls.new" 2>&1 && mv "$1/acls.new" "$1/acls.log" && return
    end "$1" KILL
    fail 1 "no rights could be given: $(tail -n 1 "$1/acls.new")"
}

format() { # DIR
    local id user
    local -a users=()
    if [ "$(listener "$1")" = SASL_SSL ]; then
        for user in admin $("$ACLS" users); do
            users+=(--add-scram "SCRAM-SHA-512=[name=$user,password=$(cat "$1/users/$user")]")
        done
    fi
    id="$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=')"
    tool kafka.tools.StorageTool format --cluster-id "${id/#-/k}" --config "$1/server.properties" \
        ${users[@]+"${users[@]}"} >"$1/format.log" 2>&1 || fail 1 "cannot format $1: $(tail -n 1 "$1/format.log")"
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
start)
    port="" how=""
    for argument in "${@:3}"; do
        case $argument in
        --secure) how=passwords ;;
        --certificates) how=client_certificates ;;
        [0-9]*) port=$argument ;;
        *) usage ;;
        esac
    done
    start "$dir" "${port:-9092}" "$how"
    ;;
status) status "$dir" ;;
kill) end "$dir" KILL ;;
stop) end "$dir" TERM ;;
topics | groups | acls)
    status "$dir" >/dev/null
    declare -A class=([topics]=TopicCommand [groups]=consumer.group.ConsumerGroupCommand
        [acls]=AclCommand)
    login=()
    ! secure "$dir" || login=(--command-config "$dir/admin.properties")
    tool "org.apache.kafka.tools.${class[$verb]}" --bootstrap-server "127.0.0.1:$(cat "$dir/port")" ${login[@]+"${login[@]}"} "${@:3}"
    ;;
*) usage ;;
esac
