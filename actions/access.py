"""Who may ask the action service for what: tokens, of which only hashes are kept, and roles."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import msgspec

from telemetry.actions import Role, Verb

TOKEN_MAX = 512  # characters; a longer one is nobody's
SCHEME = "Bearer "
_RANK: dict[Role, int] = {"viewer": 0, "operator": 1, "admin": 2}
# Everybody who operates may stop it; to let it go on is another's decision.
NEEDS: dict[Verb, Role] = {
    "read": "viewer", "approve": "operator", "deny": "operator", "ack": "operator",
    "snooze": "operator", "pause": "operator", "isolate": "operator", "release": "operator",
    "false_alarm": "operator", "tried": "operator", "update": "operator",
    "rollback": "operator", "resume": "admin",
}  # fmt: skip


class Person(msgspec.Struct, frozen=True):
    """Whose token it is, and what they may."""

    name: str
    role: Role


class Access:
    """The tokens of the settings: name -> "role:SHA-256 in hex"."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._known = [(Person(name, _role(line)), _hash(line)) for name, line in tokens.items()]

    def who(self, authorization: str | None) -> Person | None:
        """Of an Authorization header; None where it is nobody's.

        Every known hash is compared, each in constant time: how long it takes tells nothing.
        """
        header = authorization or ""
        token = header.removeprefix(SCHEME) if header.startswith(SCHEME) else ""
        usable = 0 < len(token) <= TOKEN_MAX
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found: Person | None = None
        for person, known in self._known:
            if hmac.compare_digest(digest, known) and usable:
                found = person
        return found


def may(person: Person, verb: Verb) -> bool:
    """Whether the person's role is enough."""
    return _RANK[person.role] >= _RANK[NEEDS[verb]]


def hashed(token: str, role: Role) -> str:
    """The line of the settings for a token."""
    return f"{role}:{hashlib.sha256(token.encode()).hexdigest()}"


def _role(line: str) -> Role:
    role = line.partition(":")[0]
    assert role in _RANK, line
    return role


def _hash(line: str) -> bytes:
    return bytes.fromhex(line.partition(":")[2])
