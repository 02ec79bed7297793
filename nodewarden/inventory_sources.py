"""Which scheduler the inventory asks: the options, else the settings, into a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from collectors.inventory.background import Background
from collectors.inventory.kubernetes import KubernetesInventory
from collectors.inventory.metrics import InventoryMetrics
from collectors.inventory.refined import Refined
from collectors.inventory.slurm_commands import SlurmCommands
from collectors.inventory.slurm_rest import SlurmRest
from collectors.inventory.source import InventorySource, JobsFile
from telemetry.errors import SettingsError
from telemetry.ports import Clock
from telemetry.settings import Configuration, InventorySettings

CHOICES = "--from FILE, --slurm, --slurmrestd URL or --kubernetes"
LISTINGS = 4  # a command each, one after the other: nodes, jobs, topology, reservations


def chosen(
    configuration: Configuration, file: Path | None, slurm: bool, slurmrestd: str | None,
    kubernetes: bool, kubeconfig: Path | None,
) -> Configuration:  # fmt: skip
    """The configuration with what the options say of the source. Raises SettingsError."""
    settings = configuration.inventory
    given = [file is not None, slurm, slurmrestd is not None, kubernetes]
    if sum(given) > 1:
        raise SettingsError(f"inventory asks one source: {CHOICES}")
    if kubeconfig is not None:
        kube = replace(settings.kubernetes, kubeconfig=str(kubeconfig))
        settings = replace(settings, kubernetes=kube)
        if not kubernetes and (any(given) or settings.source != "kubernetes"):
            raise SettingsError("--kubeconfig belongs to --kubernetes")
    if file is not None:
        settings = replace(settings, source="file", file=str(file))
    elif slurm:
        settings = replace(settings, source="slurm")
    elif slurmrestd is not None:
        rest = replace(settings.slurmrestd, url=slurmrestd)
        settings = replace(settings, source="slurmrestd", slurmrestd=rest)
    elif kubernetes:
        settings = replace(settings, source="kubernetes")
    _check(settings)
    return replace(configuration, inventory=settings)


def _check(settings: InventorySettings) -> None:
    if not settings.source:
        raise SettingsError(f"no source: give {CHOICES}, or set inventory.source")
    if settings.source == "file" and not settings.file:
        raise SettingsError("inventory.file: empty, and inventory.source is file")
    if settings.source == "slurmrestd" and not settings.slurmrestd.url:
        raise SettingsError("inventory.slurmrestd.url: empty, and inventory.source is slurmrestd")


@contextmanager
def opened(
    settings: InventorySettings, clock: Clock, metrics: InventoryMetrics
) -> Iterator[InventorySource]:
    """The source that `chosen` left in the settings, ended behind the block.

    Raises SettingsError where it cannot be asked.
    """
    if settings.source == "file":
        # A file says itself which jobs have ended.
        plain = replace(settings, keep_ended_s=0.0)
        yield Refined(JobsFile(Path(settings.file), clock), plain, clock)
    elif settings.source == "kubernetes":
        # It takes the client a second to be imported.
        from collectors.inventory.kube_api import collections  # noqa: PLC0415

        nodes, pods = collections(settings.kubernetes)
        watched = KubernetesInventory(nodes, pods, settings.kubernetes, clock, metrics)
        try:
            yield Refined(watched, settings, clock)
        finally:
            watched.close()
    else:
        scheduler, timeout_s = _slurm(settings, clock)
        refined = Refined(scheduler, settings, clock)
        late_s = LISTINGS * (timeout_s + settings.poll_s)
        asked = Background(refined, settings.poll_s, late_s, clock)
        try:
            yield asked
        finally:
            asked.close()


def _slurm(settings: InventorySettings, clock: Clock) -> tuple[InventorySource, float]:
    """The source, and its time-out."""
    if settings.source == "slurm":
        return SlurmCommands(settings.slurm, clock), settings.slurm.timeout_s
    rest = SlurmRest(
        settings.slurmrestd, settings.slurm.partitions, clock, settings.slurm.reservations
    )
    return rest, settings.slurmrestd.timeout_s
