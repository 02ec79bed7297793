"""What the site says of itself, for the rails: the inventory topic and the services' own metrics.

Read in a thread of its own, so that a service that does not answer delays no decision: what it
would have said is then unknown, and unknown lets nothing pass.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from actions.site import Site, sizes_of
from collectors.agent.fetch import Endpoint
from collectors.watch.workers import Seen, read_metrics
from telemetry.actions import Where
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock, LogReader
from telemetry.records import Job, NodeInfo
from telemetry.settings import Configuration
from telemetry.topics import INVENTORY

EVERY_S = 10.0
TIMEOUT_S, ANSWER_MAX_BYTES = 5.0, 4_000_000
KEYS_MAX = 200_000
POLL_S = 0.2
_LISTED = "nodewarden_inventory_source_timestamp_seconds"
_OUT = ("drain", "down", "fail", "unschedulable", "cordoned", "maint")

_log = logging.getLogger("nodewarden.act")


class SiteReader:
    """Keeps `site` as it is now. Nothing is raised: what cannot be read is not known.

    reader  makes the inventory topic's reader
    """

    def __init__(
        self, configuration: Configuration, clock: Clock, reader: Callable[[], LogReader]
    ) -> None:
        act = configuration.act
        self._clock, self._make = clock, reader
        self._shards = set(configuration.shards) - set(configuration.history_shards)
        self._workers = [self._endpoint(url) for url in act.workers]
        self._inventory = [self._endpoint(act.inventory)] if act.inventory else []
        self._reader: LogReader | None = None
        self._nodes: dict[str, NodeInfo] = {}
        self._jobs: dict[str, Job] = {}
        self._said: dict[str, str] = {}
        self.site = Site()

    def run(self, stop: threading.Event) -> None:
        """Until `stop`."""
        while True:
            self.refresh()
            if stop.wait(EVERY_S):
                break
        self._leave()

    def refresh(self) -> None:
        """Read everything once."""
        try:
            self._read_inventory()
        except SourceUnavailable as error:
            _log.warning("inventory_unread error=%s", error)
            self._leave()
        expected, blind, newest_s = self._measured()
        now_s = self._clock.time_s()
        known = expected is not None
        places = self._places()
        self.site = Site(
            places=places, sizes=sizes_of(places),
            drained_by={
                name: info.owner or "somebody" for name, info in self._nodes.items()
                if any(word in info.state.lower() for word in _OUT)
            },
            protected=sorted(name for name, info in self._nodes.items() if info.protected),
            nodes=expected, blind_nodes=blind, telemetry_at=newest_s,
            measured_at=now_s if known else None, listing_at=self._listed(),
        )  # fmt: skip

    def place(self, node: str) -> Where | None:
        """Where a node stands; None where nobody said."""
        return self.site.places.get(node)

    def _read_inventory(self) -> None:
        if self._reader is None:
            self._nodes, self._jobs = {}, {}
            self._reader = self._make()
            places = [(INVENTORY, number) for number in self._reader.partitions(INVENTORY)]
            bounds = self._reader.bounds(places)
            self._reader.assign({place: bounds[place][0] for place in places})
        while lines := self._reader.poll(POLL_S):
            for line in lines:
                self._take(line.key_text or "", line.value)

    def _take(self, key: str, value: bytes | None) -> None:
        kind, _, name = key.partition("/")
        known: dict[str, NodeInfo] | dict[str, Job]
        if kind not in ("sched", "job"):
            return
        known = self._nodes if kind == "sched" else self._jobs
        known.pop(name, None)
        if value is None or len(known) >= KEYS_MAX:
            return
        try:
            if kind == "sched":
                self._nodes[name] = msgspec.json.decode(value, type=NodeInfo)
            else:
                self._jobs[name] = msgspec.json.decode(value, type=Job)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            _log.warning("inventory_unreadable key=%s", key)

    def _places(self) -> dict[str, Where]:
        jobs = {
            node.name: job.id
            for job in self._jobs.values() if job.end is None
            for node in job.nodes if node.until is None
        }  # fmt: skip
        return {
            name: Where(info.rack, info.leaf, info.pod, jobs.get(name, ""))
            for name, info in self._nodes.items()
        }

    def _measured(self) -> tuple[int | None, int | None, float | None]:
        """Nodes expected and blind, and when the newest record was taken: of all live shards."""
        seen: dict[str, Seen] = {}
        for endpoint in self._workers:
            try:
                text = b"".join(endpoint.pieces()).decode("utf-8", "replace")
                seen |= {k: v for k, v in read_metrics(text).items() if k in self._shards}
            except (SourceUnavailable, ValueError, KeyError, IndexError) as error:
                self._say(endpoint.url, str(error))
            else:
                self._say(endpoint.url, "")
        usable = [one for one in seen.values() if not math.isnan(one.blind + one.delay_s)]
        if not usable or len(usable) < len(self._shards):
            return None, None, None
        oldest_s = max(one.delay_s for one in usable)
        expected, blind = sum(one.expected for one in usable), sum(one.blind for one in usable)
        return int(expected), int(blind), self._clock.time_s() - oldest_s

    def _listed(self) -> float | None:
        for endpoint in self._inventory:
            try:
                text = b"".join(endpoint.pieces()).decode("utf-8", "replace")
                found = _value(text, _LISTED)
            except (SourceUnavailable, ValueError, KeyError, IndexError) as error:
                self._say(endpoint.url, str(error))
            else:
                self._say(endpoint.url, "")
                return found
        return None

    def _say(self, url: str, why: str) -> None:
        """Once, until it is another story."""
        if self._said.get(url, "") != why:
            self._said[url] = why
            _log.warning("metrics_%s url=%s error=%s", "unread" if why else "read", url, why)

    def _endpoint(self, url: str) -> Endpoint:
        return Endpoint(url, TIMEOUT_S, ANSWER_MAX_BYTES, self._clock)

    def _leave(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _value(text: str, name: str) -> float | None:
    values: Iterable[float] = (
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )
    return next((value for value in values if value > 0.0), None)
