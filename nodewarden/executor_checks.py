"""Settings of who carries commands out that make no sense together."""

from __future__ import annotations

from collections.abc import Iterator

from actions.executors.mpirun_run import KILLED_WITHIN_S
from actions.executors.slurm_reason import PREFIX
from telemetry.settings import (
    ActCommandSettings,
    ActLaunchSettings,
    ActMpirunSettings,
    ActSettings,
    ActSlurmSettings,
    ActWebhookSettings,
    Section,
)

Wrong = tuple[str, str]
_UNSET: dict[str, Section] = {
    "slurm": ActSlurmSettings(), "launch": ActLaunchSettings(), "mpirun": ActMpirunSettings(),
    "webhook": ActWebhookSettings(), "command": ActCommandSettings(),
}  # fmt: skip
_OF_REST = "url", "user", "token", "token_file", "ca_file", "version"


def wrong_together(settings: ActSettings) -> Iterator[Wrong]:
    """Key and what is wrong with it; of what no executor uses too, for nobody would notice."""
    if not settings.dry_run and not settings.executor:
        yield "act.dry_run", "false, and act.executor says nobody who could act"
    if settings.executor == "slurm":
        yield from _slurm(settings.slurm, settings.call_timeout_s)
    used = {"slurm", "launch"} if settings.executor == "slurm" else {settings.executor}
    for name, unset in _UNSET.items():
        if name not in used and getattr(settings, name) != unset:
            yield f"act.{name}", f"is set, and act.executor = {settings.executor!r} does not use it"
    yield from _calls(settings)


def _calls(settings: ActSettings) -> Iterator[Wrong]:
    """Calls that would still be under way when a standby takes over."""
    lasts_s = {
        "mpirun.grace_s": settings.mpirun.grace_s + 2.0 * KILLED_WITHIN_S,
        "mpirun.clean_timeout_s": settings.mpirun.clean_timeout_s,
        "webhook.timeout_s": settings.webhook.timeout_s,
        "command.timeout_s": settings.command.timeout_s,
    }  # fmt: skip
    for key, call_s in lasts_s.items():
        if key.partition(".")[0] == settings.executor and call_s > settings.call_timeout_s:
            why = f"with it a call lasts {call_s:g} s, and act.call_timeout_s is less"
            yield f"act.{key}", f"{why}: {settings.call_timeout_s:g} s"


def _slurm(slurm: ActSlurmSettings, call_timeout_s: float) -> Iterator[Wrong]:
    if slurm.api == "rest" and not slurm.url:
        yield "act.slurm.url", "is not set, and act.slurm.api = 'rest' needs it"
    if slurm.api == "commands":
        for name in _OF_REST:
            if getattr(slurm, name):
                yield f"act.slurm.{name}", "is set, and act.slurm.api = 'commands' does not use it"
        if slurm.rest_lacks == "commands":
            yield "act.slurm.rest_lacks", "is set, and act.slurm.api = 'commands' does not use it"
    if slurm.token and slurm.token_file:
        yield "act.slurm.token", "set one of token_file and token"
    if slurm.timeout_s > call_timeout_s:
        why = f"{slurm.timeout_s:g} s is more than act.call_timeout_s, {call_timeout_s:g} s"
        yield "act.slurm.timeout_s", why
    for name in slurm.reason_prefixes_before:
        if PREFIX.fullmatch(name) is None:
            why = f"{name!r} is no prefix: letters, digits, _ and -"
            yield "act.slurm.reason_prefixes_before", why
