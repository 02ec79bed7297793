"""What the engine's workers say of themselves in their metrics: which shards, who is blind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from telemetry.errors import SourceUnavailable
from telemetry.http_get import HttpGet
from telemetry.settings import DeadmanSettings

ANSWER_MAX_BYTES = 4_000_000
DELAY = "nodewarden_stream_delay_seconds"
DELAY_MAX_S = 120.0  # a live log has a beat every few seconds
EXPECTED = "nodewarden_stream_nodes_expected"
BLIND = "nodewarden_stream_nodes_blind"
SENDING = "nodewarden_stream_source_nodes"
MISSING = "nodewarden_stream_source_nodes_blind"


class Fault(NamedTuple):
    """Why the ping is withheld; `reason` is the label under which it is counted."""

    reason: str
    text: str


@dataclass
class Seen:
    """What one shard's worker sees, in nodes, and how old the newest record is that it took.

    sending, missing  source -> nodes that ever sent it; of these, those that do not now
    """

    delay_s: float = math.nan
    expected: float = 0.0
    blind: float = math.nan
    sending: dict[str, float] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)


def read_metrics(text: str) -> dict[str, Seen]:
    """Shard -> what its worker sees. Raises ValueError where this is no page of metrics."""
    shards: dict[str, Seen] = {}
    for family in text_string_to_metric_families(text):
        if family.name not in (DELAY, EXPECTED, BLIND, SENDING, MISSING):
            continue
        for sample in family.samples:
            seen = shards.setdefault(sample.labels.get("shard", ""), Seen())
            if family.name == DELAY:
                seen.delay_s = sample.value
            elif family.name == EXPECTED:
                seen.expected = sample.value
            elif family.name == BLIND:
                seen.blind = sample.value
            else:
                by_source = seen.sending if family.name == SENDING else seen.missing
                by_source[sample.labels.get("source", "")] = sample.value
    return shards


class Workers:
    """The workers of the settings, asked one after the other."""

    def __init__(
        self, endpoints: Sequence[tuple[HttpGet, str]], shards: Sequence[str],
        settings: DeadmanSettings,
    ) -> None:  # fmt: skip
        """`endpoints`: server and path of each worker's metrics."""
        self._endpoints = list(endpoints)
        self._shards = list(shards)
        self._settings = settings

    def faults(self) -> list[Fault]:
        """What is not well; empty where every live shard is held and sees its nodes.

        A worker that is away is a fault where no other holds its shard.
        """
        shards, silent = self._ask()
        found: list[Fault] = []
        for shard in self._shards:
            if shard in shards:
                found += self._blind(shard, shards[shard])
            else:
                why = silent[0] if silent else "none of those that answer holds it"
                found.append(Fault("worker", f"shard {shard}: no worker: {why}"))
        return found

    def _ask(self) -> tuple[dict[str, Seen], list[str]]:
        shards: dict[str, Seen] = {}
        silent: list[str] = []
        for endpoint, path in self._endpoints:
            try:
                answer = endpoint.get(path, {"Accept": "text/plain"})
                if answer.status != 200:
                    raise SourceUnavailable(f"{endpoint.url}{path}: answers {answer.status}")
                shards |= read_metrics(answer.body.decode("utf-8", "replace"))
            except SourceUnavailable as error:
                silent.append(str(error))
            except (ValueError, KeyError, IndexError):  # the parser's, of what is no such page
                silent.append(f"{endpoint.url}{path}: answers no metrics")
        return shards, silent

    def _blind(self, shard: str, seen: Seen) -> Iterator[Fault]:
        """A source that is missing altogether is blind, and so is a shard without nodes."""
        if not seen.delay_s <= DELAY_MAX_S:
            newest = f"the newest record that its worker took is {seen.delay_s:.0f} s old"
            yield Fault("worker", f"shard {shard}: {newest}")
        if not seen.expected > 0.0:
            yield Fault("nodes", f"shard {shard}: no node is expected: nothing is seen")
            return
        share = self._settings.blind_share_max
        if not seen.blind <= share * seen.expected:
            silent = f"{seen.blind:.0f} of {seen.expected:.0f} nodes are silent"
            yield Fault("nodes", f"shard {shard}: {silent}")
        for source in self._settings.sources:
            sending, missing = seen.sending.get(source, 0.0), seen.missing.get(source, math.nan)
            if not sending > 0.0:
                yield Fault("source", f"shard {shard}: no node sends {source}")
            elif not missing <= share * sending:
                nodes = f"{source} is missing of {missing:.0f} of {sending:.0f} nodes"
                yield Fault("source", f"shard {shard}: {nodes}")
