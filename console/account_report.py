"""An account as one HTML file that needs no network and runs no script.

Data reaches the page only through the template's autoescaping, after `visible`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Template

from console import text
from console.account_tables import RIGHT, facts, headline, percent, silent, tables
from console.pages import pages
from telemetry.accounts import Account, Hour

BARS_MAX = 768  # hours
NOTES_MAX = 50
BAR_WIDTH = 10
BARS_APART = 100
HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One hour of the plot, in a box of 100 in height; `y` counts from the top."""

    x: int
    y: float
    width: int
    height: float
    text: str
    from_s: float
    to_s: float


def render_account(account: Account, cluster: str, read: str) -> str:
    """The account as one HTML document; the same account gives the same bytes."""
    hours = account.hours[-BARS_MAX:]
    notes = [silent(account)] if account.silent_jobs else []
    return _template().render(
        account=account, cluster=cluster, read=read, headline=headline(account),
        facts=facts(account), tables=tables(account), right=RIGHT,
        bars=_bars(hours), width=BAR_WIDTH * len(hours),
        hours_left_out=len(account.hours) - len(hours),
        notes=[*notes, *account.notes][:NOTES_MAX],
    )  # fmt: skip


def _bars(hours: Sequence[Hour]) -> list[Bar]:
    gap = 0 if len(hours) > BARS_APART else 1  # narrower than a pixel it only shimmers
    return [
        Bar(
            x=place * BAR_WIDTH, y=round(100.0 * (1.0 - hour.ettr), 2), width=BAR_WIDTH - gap,
            height=round(100.0 * hour.ettr, 2),
            text=f"{text.utc(hour.at - HOUR_S, '%Y-%m-%d %H:%M')}: {percent(hour.ettr)}",
            from_s=hour.at - HOUR_S, to_s=hour.at,
        )
        for place, hour in enumerate(hours)
    ]  # fmt: skip


@cache
def _template() -> Template:
    return pages().get_template("account.html.j2")
