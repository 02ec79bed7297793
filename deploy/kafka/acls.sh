#!/usr/bin/env bash
# The least rights that each service of nodewarden needs in a Kafka with an authorizer.
#
#   acls.sh list               user, operations, resource type, names: one line a rule
#   acls.sh users              the users
#   acls.sh apply COMMAND...   gives the rights through Kafka's kafka-acls, for example
#                              acls.sh apply kafka-acls.sh --bootstrap-server kafka:9093 \
#                                  --command-config admin.properties
#   acls.sh remove COMMAND...  takes them back
#
# USERS_PREFIX  before each user's name (default nodewarden-): User:nodewarden-agent
# Rights for users that do not exist yet are kept until they do. Exit: 0 done, 1 kafka-acls failed, 2 usage.
set -euo pipefail

readonly USERS_PREFIX="${USERS_PREFIX-nodewarden-}"

# Read and Write include Describe: to see that the topic exists, and where it ends.
rules() {
    cat <<'TSV'
operator	Create,Describe,DescribeConfigs,Alter,AlterConfigs	prefix	nodewarden.
agent	Write	topic	telemetry inventory rejected
central	Write	topic	telemetry inventory rejected
central	Read	topic	inventory
stream	Read	topic	telemetry inventory findings incidents state
stream	Write	topic	telemetry findings incidents state rejected
stream	Read	group	nodewarden-stream
archive	Read	topic	telemetry inventory findings incidents actions state rejected
inventory	Read	topic	inventory findings
inventory	Write	topic	telemetry inventory
history	Write	topic	telemetry rejected
act	Read	topic	telemetry inventory incidents actions
act	Write	topic	actions telemetry
act	Read	group	nodewarden-act
act	Write	transactional-id	nodewarden-act
reader	Read	topic	telemetry inventory findings incidents actions
TSV
}

usage() {
    echo "acls.sh: usage: acls.sh list | users | apply|remove KAFKA-ACLS [ARGUMENTS]" >&2
    exit 2
}

each() { # HOW COMMAND...
    local user operations type names name operation
    local -a arguments
    while IFS=$'\t' read -r user operations type names; do
        arguments=(--"$1" --force --allow-principal "User:$USERS_PREFIX$user")
        for operation in ${operations//,/ }; do arguments+=(--operation "$operation"); done
        case $type in
        prefix) arguments+=(--resource-pattern-type prefixed --topic "$names") ;;
        topic) for name in $names; do arguments+=(--topic "nodewarden.$name"); done ;;
        group | transactional-id) arguments+=("--$type" "$names") ;;
        esac
        "${@:2}" "${arguments[@]}" </dev/null || {
            echo "acls.sh: the rights of $USERS_PREFIX$user could not be changed" >&2
            exit 1
        }
    done < <(rules)
}

[ $# -ge 1 ] || usage
case $1 in
list) rules ;;
users) rules | cut -f 1 | uniq | sed "s/^/$USERS_PREFIX/" ;;
apply | remove)
    [ $# -ge 2 ] || usage
    how=add
    [ "$1" = apply ] || how=remove
    each "$how" "${@:2}"
    ;;
*) usage ;;
esac
