"""The settings that decisions follow, as they stand in the log.

A setting takes part in a decision only as the log has it: so the same decision can be made again
from the log alone, whatever the settings file says by then.
"""

from __future__ import annotations

import msgspec

from telemetry.actions import ActRules
from telemetry.settings import ActSettings

# What else `act` has (addresses, tokens, time-outs) changes no decision, and is nobody's business.
DECIDING = (
    "rails", "dry_run", "first_observe_s", "approval_s", "command_s", "keep_s", "entries_max",
)  # fmt: skip


def rules_of(settings: ActSettings, version: str, at: float) -> ActRules:
    """The record of them."""
    plain = {name: msgspec.to_builtins(getattr(settings, name)) for name in DECIDING}
    # As it comes out of the log again: a tuple is a list there.
    return ActRules(
        at=at, version=version, settings=msgspec.json.decode(msgspec.json.encode(plain))
    )


def settings_of(rules: ActRules) -> ActSettings | str:
    """The settings of a record, or why this version of nodewarden has no such settings."""
    try:
        return msgspec.convert(rules.settings, ActSettings)
    except msgspec.ValidationError as error:
        return f"the settings of nodewarden {rules.version} are none of this version: {error}"
