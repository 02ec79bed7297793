"""Commands of the action service, for tests of those who carry them out."""

from __future__ import annotations

from telemetry.actions import Command, CommandStep, Preconditions, RestartMode
from telemetry.findings import Action

AT_S = 1_700_000_000.0


def command(
    action: Action = "isolate", *nodes: str, step: CommandStep | None = None,
    mode: RestartMode | None = None, job: str = "", attempt: int | None = None, name: str = "c1",
    exclude: tuple[str, ...] = (), versions: dict[str, str] | None = None, dry_run: bool = False,
) -> Command:  # fmt: skip
    """One command; `release` is the step "undrain"."""
    return Command(
        id=name, decision="d1", action=action, targets=list(nodes),
        preconditions=Preconditions(job=job, attempt=attempt), intent_at=AT_S,
        expires_at=AT_S + 600.0, incident="incident1", job=job, dry_run=dry_run, step=step or "",
        mode=mode, exclude=list(exclude), versions=versions or {},
    )  # fmt: skip
