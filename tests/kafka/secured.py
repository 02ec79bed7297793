"""A broker with TLS, SASL/SCRAM and an authorizer, its users, and the rights of deploy/kafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from telemetry.broker_security import client_options
from telemetry.settings import KafkaSettings, SecuritySettings
from tests.kafka.broker import Broker
from tests.kafka.conftest import SHARDS
from tests.kafka.service import ROOT, toml

SCRIPT = ROOT / "deploy" / "kafka" / "acls.sh"
PREFIX = "nodewarden-"
Rule = tuple[str, str, str, str]  # user, operations, resource type, names


def rules() -> list[Rule]:
    """The table of deploy/kafka/acls.sh."""
    text = subprocess.run([SCRIPT, "list"], check=True, capture_output=True, text=True).stdout
    found = []
    for line in text.splitlines():
        user, operations, kind, names = line.split("\t")
        found.append((user, operations, kind, names))
    return found


class Secured:
    """The broker for its users."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.ca_file = broker.directory / "tls" / "ca.pem"

    def security(self, user: str, **changed: str) -> dict[str, str]:
        """The table `kafka.security` of a user, `admin` or one of deploy/kafka/acls.sh."""
        name = user if user == "admin" else PREFIX + user
        return {
            "protocol": "sasl_ssl", "ca_file": str(self.ca_file), "username": name,
            "password_file": str(self.broker.directory / "users" / name), **changed,
        }  # fmt: skip

    def kafka(self, user: str, **changed: str) -> dict[str, Any]:
        """The table `kafka`."""
        security = {key: value for key, value in self.security(user, **changed).items() if value}
        return {"brokers": [self.broker.address], "request_timeout_s": 20.0, "security": security}

    def settings(self, user: str) -> KafkaSettings:
        """The same for a client of the test's own."""
        security: Mapping[str, Any] = self.security(user)
        return KafkaSettings(
            brokers=(self.broker.address,), security=SecuritySettings(**security)
        )  # fmt: skip

    def config(self, directory: Path, user: str, **changed: str) -> Path:
        """A settings file of a user."""
        file = directory / f"{user}.toml"
        tables = {"shards": SHARDS, "history_shards": ["history"]}
        file.write_text(toml({**tables, "kafka": self.kafka(user, **changed)}))
        return file

    def give(self, wanted: list[Rule]) -> None:
        """Rights, as the admin."""
        client = KafkaAdminClient(
            bootstrap_servers=[self.broker.address], **client_options(self.settings("admin"))
        )
        try:
            client.create_acls([acl for rule in wanted for acl in _acls(rule)])
        finally:
            client.close()


def _acls(rule: Rule) -> Iterator[ACL]:
    user, operations, kind, names = rule
    for operation in operations.split(","):
        for name in names.split():
            yield ACL(
                principal=f"User:{PREFIX}{user}", host="*",
                operation=_OPERATIONS[operation], permission_type=ACLPermissionType.ALLOW,
                resource_pattern=ResourcePattern(
                    _KINDS.get(kind, ResourceType.TOPIC),
                    f"nodewarden.{name}" if kind == "topic" else name,
                    ACLResourcePatternType.PREFIXED if kind == "prefix"
                    else ACLResourcePatternType.LITERAL,
                ),
            )  # fmt: skip


_KINDS = {
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    "Read": ACLOperation.READ,
    "Write": ACLOperation.WRITE,
    "Create": ACLOperation.CREATE,
    "Alter": ACLOperation.ALTER,
    "AlterConfigs": ACLOperation.ALTER_CONFIGS,
    "Describe": ACLOperation.DESCRIBE,
    "DescribeConfigs": ACLOperation.DESCRIBE_CONFIGS,
}
