"""Builds the node agent out of the settings: the only place where its ports meet adapters."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from prometheus_client import CollectorRegistry

from collectors.agent.agent import Agent, Sources
from collectors.agent.counts import Counts
from collectors.agent.fetch import Endpoint
from collectors.agent.hardware import HardwarePaths, HardwareSource, boot_id
from collectors.agent.host_source import HOST, HostSource
from collectors.agent.jobs_here import JobsHere
from collectors.agent.kernel_source import KernelPaths, KernelSource
from collectors.agent.nic_source import NicPaths, NicSource
from collectors.agent.notes import Notes
from collectors.agent.positions import PositionFile, Settling, usable_directory
from collectors.agent.rounds import GPU, NIC, Phase, Rounds
from collectors.agent.scrape import Exporters
from collectors.agent.sink import Sink
from collectors.agent.step_socket import StepSocket
from collectors.agent.tail import TailPosition
from collectors.broker.link import KafkaLink
from collectors.outbox import STREAMS_MAX, Outbox, Shard
from collectors.outbox_metrics import OutboxMetrics
from collectors.spool import Spool
from nodewarden.shards import live_target
from telemetry.codec import name_fault
from telemetry.errors import SettingsError
from telemetry.ports import Clock
from telemetry.settings import CollectSettings, Configuration
from telemetry.tools import Tools
from telemetry.topics import REJECTED, TELEMETRY

if TYPE_CHECKING:
    from collectors.agent.found_files import FoundFiles, FoundPosition
    from collectors.agent.training_source import TrainingSource

EXPORTERS_MAX = 16
NO_POSITION = TailPosition({})
TEMPLATES_MAX = 32

_log = logging.getLogger("nodewarden.collect")


def node_name(settings: CollectSettings) -> str:
    """As the settings have it, else the host's. Raises SettingsError where it is no name."""
    name = settings.node or socket.gethostname()
    fault = name_fault("collect.node", name)
    if fault is not None:
        raise SettingsError(fault)
    return name


def build_agent(
    configuration: Configuration, sink: Sink, counts: Counts, say: Callable[[str], None],
    clock: Clock, *, once: bool = False,
) -> Agent:  # fmt: skip
    """The agent as the settings want it; with `once` it keeps no positions and takes no socket.

    Raises SettingsError.
    """
    settings = configuration.collect
    node = node_name(settings)
    state = None if once else usable_directory(Path(settings.state_dir))
    boot = boot_id(Path(settings.proc_path))
    kernel = KernelPaths(settings.kmsg, settings.journalctl, state)
    ticks = configuration.engine.ticks
    phases = {
        source: Phase(node, source, ticks.interval_s.get(source, ticks.interval_default_s))
        for source in (GPU, NIC, HOST)
    }
    settling = None
    if state is not None:
        settling = Settling(PositionFile(state / "training.json", TailPosition))
    found, found_settling = _found(settings, node, boot, state, counts, clock)
    sources = Sources(
        rounds=_rounds(settings, node, boot, counts, clock, phases),
        gpu=phases[GPU], nic=phases[NIC], host=phases[HOST], boot_id=boot,
        kernel=KernelSource(kernel, node, boot, counts, clock),
        training=_training(configuration, node, boot, settling, clock),
        logs_settling=settling,
        socket=StepSocket(Path(settings.step_socket), clock)
        if settings.step_socket and not once else None,
        found=found, found_settling=found_settling,
        jobs=JobsHere(Path(settings.jobs_dir), node, Path(settings.proc_path), clock)
        if settings.jobs_dir else None,
    )  # fmt: skip
    return Agent(node, sources, sink, counts, Notes(say, clock), clock)


def open_outbox(
    configuration: Configuration, clock: Clock, registry: CollectorRegistry,
    streams_max: int = STREAMS_MAX,
) -> Outbox:  # fmt: skip
    """The way to Kafka, by way of the disk where it is away. Raises SettingsError."""
    settings, target = configuration.collect, live_target(configuration, "an agent sends to one")
    state = usable_directory(Path(settings.state_dir))
    notes = Notes(_log.warning, clock)
    return Outbox(
        KafkaLink(
            configuration.kafka, clock, (TELEMETRY, REJECTED),
            say=lambda fault: notes.say_all([f"{fault}; records wait on disk"]),
        ),
        Spool(state / "spool", settings.spool_max_bytes),
        clock, Shard(target.shard, target.partition), OutboxMetrics(registry),
        streams_max=streams_max,
    )  # fmt: skip


def _rounds(
    settings: CollectSettings, node: str, boot: str, counts: Counts, clock: Clock,
    phases: Mapping[str, Phase],
) -> Rounds:  # fmt: skip
    if len(settings.exporters) > EXPORTERS_MAX:
        raise SettingsError(f"collect.exporters: {len(settings.exporters)}, at most 16")
    endpoints = [
        Endpoint(url, settings.exporter_timeout_s, settings.exporter_max_bytes, clock)
        for url in settings.exporters
    ]
    sys, proc = Path(settings.sys_path), Path(settings.proc_path)
    nics = NicPaths(sys, proc, settings.ethtool, settings.rdma)
    return Rounds(
        node, boot, Exporters(endpoints, node, clock),
        NicSource(nics, Tools(clock), clock) if settings.nic else None,
        HardwareSource(
            HardwarePaths(sys, proc, settings.nvidia_smi), node, boot, settings.ports_up,
            settings.ports_down, Tools(clock), clock, settings.hardware_s,
        ),
        counts, clock, phases[NIC].interval_s,
        HostSource(sys, proc) if settings.host else None, phases[HOST].interval_s,
    )  # fmt: skip


def _found(
    settings: CollectSettings, node: str, boot: str, state: Path | None, counts: Counts,
    clock: Clock,
) -> tuple[FoundFiles | None, Settling[FoundPosition] | None]:  # fmt: skip
    """Files that are read once, and where it is kept which were."""
    if not settings.nccl_files and not settings.stack_files:
        return None, None
    from collectors.agent import dumps, found_files  # noqa: PLC0415 - see collectors.agent.agent
    from collectors.agent.log_names import LogNames  # noqa: PLC0415

    watched = []
    for setting, templates, read in (
        ("nccl_files", settings.nccl_files, dumps.of_collectives),
        ("stack_files", settings.stack_files, dumps.of_stacks),
    ):
        if len(templates) > TEMPLATES_MAX:
            raise SettingsError(f"collect.{setting}: {len(templates)}, at most {TEMPLATES_MAX}")
        for template in templates:
            names = LogNames(template + "*" if template.endswith("/") else template, node, setting)
            watched.append(found_files.Watched(names, "{job}" in template, read))
    settling: Settling[FoundPosition] | None = None
    saved: FoundPosition | None = found_files.FoundPosition({})
    if state is not None:
        settling = Settling(PositionFile(state / "files.json", found_files.FoundPosition))
        saved = settling.file.load()
    return found_files.FoundFiles(watched, node, boot, saved, counts, clock), settling


def _training(
    configuration: Configuration, node: str, boot: str,
    settling: Settling[TailPosition] | None, clock: Clock,
) -> TrainingSource | None:  # fmt: skip
    templates = configuration.collect.training_logs
    if not templates:
        return None
    from collectors.agent.log_names import LogNames  # noqa: PLC0415 - see collectors.agent.agent
    from collectors.agent.training_source import TrainingSource  # noqa: PLC0415

    names = [LogNames(template, node) for template in templates]
    saved = settling.file.load() if settling is not None else NO_POSITION
    zone = ZoneInfo(configuration.timezone)
    return TrainingSource(names, node, boot, zone, saved, clock)
