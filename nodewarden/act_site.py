"""What the site says of itself, for the rails: inventory topic, Alertmanager's silences, metrics.

Read in a thread of its own, so that a service that does not answer delays no decision: what it
would have said is then unknown, and unknown lets nothing pass.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable

from prometheus_client.parser import text_string_to_metric_families

from actions.ports import JobFacts
from actions.site import Site, sizes_of
from collectors.agent.fetch import Endpoint
from collectors.inventory.silences import AlertmanagerSilences, Silence, windows_of
from collectors.watch.workers import Seen, read_metrics
from nodewarden.act_inventory import InventoryTopic
from telemetry.actions import Where, Window
from telemetry.errors import InputError, SourceUnavailable
from telemetry.ports import Clock, LogReader
from telemetry.records import NodeInfo
from telemetry.settings import Configuration
from telemetry.standby import free_nodes

EVERY_S = 10.0
SETTLES_S = 120.0  # so long after its window a node's state may still tell of it
TIMEOUT_S, ANSWER_MAX_BYTES = 5.0, 4_000_000
_LISTED = "nodewarden_inventory_source_timestamp_seconds"
_OUT = ("drain", "down", "fail", "unschedulable", "cordoned")
_MAINTAINED = "maint"

_log = logging.getLogger("nodewarden.act")


class SiteReader:
    """Keeps `site` as it is now. Nothing is raised: what cannot be read is not known.

    reader  makes the inventory topic's reader
    """

    def __init__(
        self, configuration: Configuration, clock: Clock, reader: Callable[[], LogReader]
    ) -> None:
        act = configuration.act
        self._clock = clock
        self._shards = set(configuration.shards) - set(configuration.history_shards)
        self._workers = [self._endpoint(url) for url in act.workers]
        self._inventory = [self._endpoint(act.inventory)] if act.inventory else []
        self._topic = InventoryTopic(reader)
        self._cluster = configuration.engine.cluster
        self._asked = act.silences
        self._silencer = AlertmanagerSilences(act.silences, clock) if act.silences.url else None
        self._listed_nodes: tuple[dict[str, NodeInfo], dict[str, int]] = ({}, {})
        self._maintained: dict[str, float] = {}  # node -> when last in an open window
        self._silences: list[Silence] = []
        self._silences_at: float | None = None
        self._said: dict[str, str] = {}
        self.site = Site()

    def run(self, stop: threading.Event) -> None:
        """Until `stop`."""
        while True:
            self.refresh()
            if stop.wait(EVERY_S):
                break
        self._topic.close()

    def refresh(self) -> None:
        """Read everything once."""
        try:
            self._topic.read()
        except SourceUnavailable as error:
            _log.warning("inventory_unread error=%s", error)
        self._read_silences()
        expected, blind, newest_s = self._measured()
        now_s = self._clock.time_s()
        known = expected is not None
        places = self._places()
        # Copies: another thread asks, while this one reads on.
        self._listed_nodes = dict(self._topic.nodes), dict(self._topic.gpus)
        self.site = Site(
            places=places, sizes=sizes_of(places), windows=self._windows(),
            drained_by=self._drained_by(now_s),
            protected=sorted(name for name, info in self._topic.nodes.items() if info.protected),
            booted_at=self._topic.booted_at,
            nodes=expected, blind_nodes=blind, telemetry_at=newest_s,
            measured_at=now_s if known else None, listing_at=self._as_of(self._listed()),
        )  # fmt: skip

    def place(self, node: str) -> Where | None:
        """Where a node stands; None where nobody said."""
        return self.site.places.get(node)

    def _drained_by(self, now_s: float) -> dict[str, str]:
        """Who took nodes out. That a node is in maintenance says its window, which passes: it is no
        drain of somebody's, not even while listing and window are not yet of the same moment.
        """
        for window in self._topic.maintenance:
            if window.since <= now_s < window.until:
                self._maintained |= dict.fromkeys(window.nodes, now_s)
        self._maintained = {
            node: at_s for node, at_s in self._maintained.items() if now_s - at_s < SETTLES_S
        }
        return {
            name: info.owner or "somebody"
            for name, info in self._topic.nodes.items()
            if any(word in info.state.lower() for word in _OUT)
            or (_MAINTAINED in info.state.lower() and name not in self._maintained)
        }

    def _places(self) -> dict[str, Where]:
        jobs = {
            node.name: job.id
            for job in self._topic.jobs.values() if job.end is None
            for node in job.nodes if node.until is None
        }  # fmt: skip
        return {
            name: Where(info.rack, info.leaf, info.pod, jobs.get(name, ""))
            for name, info in self._topic.nodes.items()
        }

    def job(self, job: str) -> JobFacts:
        """What is known of a job: how many nodes are free for it."""
        held = {name: place.job for name, place in self.site.places.items() if place.job}
        of_job = [name for name, holder in held.items() if holder == job]
        nodes, gpus = self._listed_nodes
        free = free_nodes(nodes, lambda node: gpus.get(node, 0), of_job, held.__contains__)
        return JobFacts(replacements=None if free is None else len(free))

    def _read_silences(self) -> None:
        """Where they cannot be read, those that were read last count, and age."""
        if self._silencer is None:
            return
        try:
            self._silences = self._silencer.read()
        except (SourceUnavailable, InputError) as error:
            self._say(self._asked.url, str(error))
        else:
            self._silences_at = self._clock.time_s()
            self._say(self._asked.url, "")

    def _windows(self) -> list[Window]:
        """Of the scheduler and of the pager, those that are over left out."""
        now_s = self._clock.time_s()
        silenced = windows_of(self._silences, self._topic.names, self._cluster, self._asked)
        return [
            Window(one.name, one.since, one.until, one.nodes)
            for one in (*self._topic.maintenance, *silenced)
            if one.until > now_s
        ]

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

    def _as_of(self, listed_at: float | None) -> float | None:
        """A listing is as old as the older of what says who is out: the silences say it too."""
        if self._silencer is None or listed_at is None:
            return listed_at
        return None if self._silences_at is None else min(listed_at, self._silences_at)

    def _say(self, url: str, why: str) -> None:
        """Once, until it is another story."""
        if self._said.get(url, "") != why:
            self._said[url] = why
            _log.warning("metrics_%s url=%s error=%s", "unread" if why else "read", url, why)

    def _endpoint(self, url: str) -> Endpoint:
        return Endpoint(url, TIMEOUT_S, ANSWER_MAX_BYTES, self._clock)


def _value(text: str, name: str) -> float | None:
    values: Iterable[float] = (
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )
    return next((value for value in values if value > 0.0), None)
