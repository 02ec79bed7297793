"""An account as people read it: terminal, HTML, CSV; unknown is shown, hostile names do nothing."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from rich.console import Console

from actions.accounting.account import Accountant
from console.account_csv import csv_files
from console.account_report import render_account
from console.account_tables import headline, percent, tables
from console.account_terminal import print_account
from nodewarden.accounting import account_of_path
from telemetry.accounts import (
    Account,
    Decided,
    DecisionCount,
    Hour,
    IncidentAccount,
    JobAccount,
    Lemon,
    OutcomeCount,
    Productivity,
    RailCount,
    RequestCount,
)
from telemetry.settings import Configuration
from tests.accounting_log import T0, write

HOSTILE = "=cmd|'/c calc'!A1<script>alert(1)</script>[bold red]x[/]\x1b]0;t\x07\x1b[2J\u202e"
NOTHING = Account(
    period=None, job="", fleet=Productivity(), jobs=[], silent_jobs=0, hours=[], times=[],
    mechanisms=[], incidents=[], has_actions=False, decided=[], rails=[], requests=[],
    outcomes=[], recoveries=[], updates=[], lemons=[], decisions=[], notes=[],
)  # fmt: skip


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Account:
    archive = write(tmp_path_factory.mktemp("archive"))
    return account_of_path(archive, Configuration(), Accountant())


def hostile() -> Account:
    time = Productivity(wall_s=10.0, productive_s=5.0, ettr=0.5)
    return msgspec.structs.replace(
        NOTHING, job=HOSTILE, period=(T0, 1e300), fleet=time, notes=[HOSTILE], silent_jobs=3,
        jobs=[JobAccount(id=HOSTILE, nodes=None, begun_at=T0, ended_at=-1e300, step=1, time=time)],
        hours=[Hour(1e300, 0.5)],
        incidents=[IncidentAccount(id=HOSTILE, job=HOSTILE, scope=HOSTILE, kind="host",
                                   cause="hardware", onset=T0, opened_at=T0, closed_at=None)],
        decided=[DecisionCount("refused", HOSTILE, 1)], rails=[RailCount(HOSTILE, 1, 1)],
        requests=[RequestCount("approve", False, HOSTILE, 1)],
        outcomes=[OutcomeCount(HOSTILE, "open", False, 1)],
        lemons=[Lemon(node=HOSTILE, incidents=2, jobs=2, failures=0, kinds=["host"],
                      isolated=None, xids=None, last_at=T0, is_lemon=False)],
        decisions=[Decided(at=T0, id=HOSTILE, incident=HOSTILE, job=HOSTILE, action=HOSTILE,
                           targets=[HOSTILE], mode=HOSTILE, state="refused", reason=HOSTILE,
                           by=HOSTILE, refused_by=[HOSTILE])],
    )  # fmt: skip


def printed(shown: Account, *, terminal: bool = False, width: int = 110) -> str:
    out = StringIO()
    colors: Literal["standard"] | None = "standard" if terminal else None
    console = Console(file=out, force_terminal=terminal, width=width, color_system=colors)
    print_account(shown, HOSTILE if shown.job == HOSTILE else "main", "here", console)
    return out.getvalue()


def test_what_is_not_known_is_a_dash_and_no_zero() -> None:
    text = printed(NOTHING)
    assert "ETTR is not known" in text
    assert re.search(r"MTBF: –", text)
    assert re.search(r"interruptions: –", text)
    assert "no dated telemetry" in text


def test_phases_without_a_case_are_left_out_and_unknown_ones_say_of_how_many(
    account: Account,
) -> None:
    text = printed(account)
    assert re.search(r"detect +onset to incident +2 of 2 +12 s", text)
    assert re.search(r"decide +incident to decision +1 of 2", text)
    assert "down" not in text.split("How long it took")[1].split("Resolved by")[0]


@pytest.mark.parametrize("terminal", [False, True])
def test_names_inject_neither_markup_nor_control_sequences(terminal: bool) -> None:
    text = re.sub("\x1b\\[[0-9;]*m", "", printed(hostile(), terminal=terminal))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    if not terminal:
        assert "[bold red]x[/]" in text


def test_on_a_pipe_nothing_is_wrapped_and_no_line_ends_with_blanks(account: Account) -> None:
    lines = printed(account, width=40).splitlines()
    assert not [line for line in lines if line != line.rstrip()]
    assert any("first command, or stop, to end of first step" in line for line in lines)


class Tags(HTMLParser):
    """Every tag of the page, and its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_the_page_runs_nothing_and_loads_nothing(account: Account) -> None:
    for shown in (account, hostile(), NOTHING):
        page, tags = render_account(shown, "main", "here"), Tags()
        tags.feed(page)
        assert not {"script", "link", "iframe", "img", "object"} & set(tags.tags)
        assert not [name for name, _ in tags.attributes if name.startswith("on") or name == "src"]
        assert "\x1b" not in page
        assert "\u202e" not in page


def test_the_page_says_what_the_terminal_says(account: Account) -> None:
    page = render_account(account, "main", "here")
    for table in tables(account):
        assert table.title in page
    assert headline(account) in page
    assert page.count('<rect class="ettr"') == len(account.hours)


def test_the_same_account_gives_the_same_page(account: Account) -> None:
    assert render_account(account, "main", "x") == render_account(account, "main", "x")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_csv_files_have_plain_numbers_and_nothing_where_nothing_is_known(account: Account) -> None:
    files = csv_files(account)
    jobs = {row["id"]: row for row in rows(files["jobs.csv"])}
    assert float(jobs["j1"]["ettr"]) == pytest.approx(4_430 / 4_800, abs=1e-5)
    assert jobs["j2"]["mtbf_s"] == ""
    (one,) = [row for row in rows(files["incidents.csv"]) if row["id"] == "a"]
    assert (one["recover_s"], one["down_s"]) == ("137.0", "")
    assert [row["state"] for row in rows(files["decisions.csv"])] == ["approved", *["refused"] * 3]


def test_every_csv_file_has_its_head_whatever_there_is(account: Account) -> None:
    full, empty = csv_files(account), csv_files(NOTHING)
    assert full.keys() == empty.keys()
    for name, text in empty.items():
        assert text.splitlines()[0] == full[name].splitlines()[0], name


def test_no_cell_of_a_csv_file_is_a_formula() -> None:
    for name, text in csv_files(hostile()).items():
        for row in csv.reader(StringIO(text)):
            for cell in row:
                harmless = not cell.startswith(("=", "+", "-", "@")) or _is_number(cell)
                assert harmless, (name, cell)
                assert "\x1b" not in cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (None, "–"), (0.0, "0.0 %"), (1e-6, "under 0.1 %"), (0.973, "97.3 %"),
        (0.99999, "99.9 %"), (1.0, "100.0 %"),
    ],
)  # fmt: skip
def test_shares_are_not_rounded_to_all_or_nothing(share: float | None, shown: str) -> None:
    assert percent(share) == shown


def test_the_terminal_report_of_the_log_made_by_hand(account: Account) -> None:
    """The whole report; where words or columns change on purpose, write it again and read it."""
    golden = Path(__file__).parents[1] / "golden" / "account" / "report.txt"
    assert printed(account) == golden.read_text(encoding="utf-8")
