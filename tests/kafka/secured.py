"""A broker with TLS and an authorizer, its users, and the rights of deploy/kafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from tests.kafka.broker import Broker, Proof
from tests.kafka.conftest import SHARDS, started
from tests.kafka.service import ROOT, nodewarden, toml

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
    """The broker for its users, who prove themselves in one of two ways."""

    def __init__(self, broker: Broker, proof: Proof) -> None:
        self.broker, self.proof = broker, proof
        self.ca_file = broker.directory / "tls" / "ca.pem"

    def security(self, user: str, **changed: str) -> dict[str, str]:
        """The table `kafka.security` of a user, `admin` or one of deploy/kafka/acls.sh."""
        file = str(self.broker.directory / "users" / self._name(user))
        shown = {"protocol": "ssl", "certificate_file": f"{file}.pem", "key_file": f"{file}.key"}
        if self.proof == "passwords":
            name = self._name(user)
            shown = {"protocol": "sasl_ssl", "username": name, "password_file": file}
        return {"ca_file": str(self.ca_file), **shown, **changed}

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

    def tables(self, user: str, **changed: str) -> dict[str, Any]:
        """What every service of a user has in its settings file."""
        shards = {"shards": list(SHARDS), "history_shards": ["history"]}
        return {**shards, "kafka": self.kafka(user, **changed)}

    def config(self, directory: Path, user: str, **changed: str) -> Path:
        """A settings file of a user."""
        file = directory / f"{user}.toml"
        file.write_text(toml(self.tables(user, **changed)))
        return file

    def give(self, wanted: list[Rule]) -> None:
        """Rights, as the admin."""
        client = KafkaAdminClient(
            bootstrap_servers=[self.broker.address], **client_options(self.settings("admin"))
        )
        try:
            client.create_acls([acl for rule in wanted for acl in self._acls(rule)])
        finally:
            client.close()

    @staticmethod
    def _name(user: str) -> str:
        return user if user == "admin" else PREFIX + user

    def _acls(self, rule: Rule) -> Iterator[ACL]:
        called = self._name(rule[0])
        return _acls(
            f"User:CN={called}" if self.proof == "certificates" else f"User:{called}", rule
        )


@contextmanager
def secured_broker(directory: Path, proof: Proof) -> Iterator[Secured]:
    """Running until the end of the block: all topics, and the rights of deploy/kafka/acls.sh."""
    broker = started(directory / "kafka", secure=proof)
    try:
        found = Secured(broker, proof)
        found.give(rules())
        nodewarden("topics", "create", "--config", found.config(directory, "operator"))
        yield found
    finally:
        broker.stop()


def _acls(principal: str, rule: Rule) -> Iterator[ACL]:
    _, operations, kind, names = rule
    for operation in operations.split(","):
        for name in names.split():
            yield ACL(
                principal=principal, host="*",
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
