"""Settings of who carries commands out that make no sense together."""

from __future__ import annotations

from collections.abc import Iterator

from actions.executors.slurm_reason import PREFIX
from telemetry.settings import ActSettings, ActSlurmSettings

Wrong = tuple[str, str]
_OF_REST = "url", "user", "token", "token_file", "ca_file", "version"


def wrong_together(settings: ActSettings) -> Iterator[Wrong]:
    """Key and what is wrong with it; of what no executor uses too, for nobody would notice."""
    if not settings.dry_run and not settings.executor:
        yield "act.dry_run", "false, and act.executor says nobody who could act"
    if settings.executor == "slurm":
        yield from _slurm(settings.slurm, settings.call_timeout_s)
    elif settings.slurm != ActSlurmSettings():
        yield "act.slurm", f"is set, and act.executor = {settings.executor!r} does not use it"


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
    for name in (slurm.reason_prefix, *slurm.reason_prefixes_before):
        if PREFIX.fullmatch(name) is None:
            yield "act.slurm.reason_prefix", f"{name!r} is no prefix: letters, digits, _ and -"
