"""The accounting of a log made by hand; each number is worked out in the comment beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actions.accounting.account import Accountant
from nodewarden.accounting import account_of_path
from telemetry.accounts import Account, Hour, MechanismShare, Phase, Productivity
from telemetry.settings import Configuration
from telemetry.topics import ACTIONS
from tests.accounting_log import T0, write


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Account:
    archive = write(tmp_path_factory.mktemp("archive"))
    return account_of_path(archive, Configuration(), Accountant())


def of_job(account: Account, name: str) -> Productivity:
    return next(one.time for one in account.jobs if one.id == name)


def near(value: float) -> object:
    return pytest.approx(value, abs=1e-6)


def test_ettr_is_productive_time_over_wall_clock(account: Account) -> None:
    time = of_job(account, "j1")
    # 0 to 4800, started by the scheduler at 0.
    assert time.wall_s == near(4_800)
    # First step: 10 of its 40 s. Steps 2 to 101: 100 * 10. Steps 102 to 443: 342 * 10.
    assert time.productive_s == near(10 + 1_000 + 3_420)
    assert time.ettr == near(4_430 / 4_800)


def test_the_sliding_hour_moves_in_five_minutes(account: Account) -> None:
    time = of_job(account, "j1")
    # Hours end at 3600, 3900, 4200, 4500 and 4800. In the first: 10 + 1000 + (3600 - 1380).
    assert time.hour_lowest == Hour(T0 + 3_600, near(3_230 / 3_600))  # type: ignore[arg-type]
    # In the newest, 1200 to 4800: 4800 - 1380.
    assert time.hour_last == Hour(T0 + 4_800, near(3_420 / 3_600))  # type: ignore[arg-type]


def test_what_was_not_productive_is_split(account: Account) -> None:
    time = of_job(account, "j1")
    # The last step ended at 1100, the first one after it began at 1240.
    assert time.stopped_s == near(140)
    # Of it, until otto approved at 1142.
    assert time.diagnosis_wait_s == near(42)
    # Step 91 (10 s as usual) and 92 to 101 (10 * 10).
    assert time.recomputed_s == near(110)
    # Loading before the first step, 60, and what two first steps took beyond 10 s, 30 each.
    assert time.other_s == near(120)
    assert time.wall_s == near(4_430 + 140 + 110 + 120)


def test_mtbf_is_wall_clock_over_interruptions(account: Account) -> None:
    one, other = of_job(account, "j1"), of_job(account, "j2")
    assert (one.interruptions, one.restarts, one.mtbf_s) == (1, 1, near(4_800))
    # j2 was never interrupted: its MTBF is not known, and not 0.
    assert (other.interruptions, other.restarts, other.mtbf_s) == (0, 0, None)
    # Both jobs: (4800 + 2400) / 1.
    assert account.fleet.mtbf_s == near(7_200)


def test_the_fleets_ettr_goes_by_nodes(account: Account) -> None:
    assert of_job(account, "j2").ettr == near(1.0)
    # (4 nodes * 4430 + 1 node * 2400) / (4 * 4800 + 1 * 2400)
    assert account.fleet.ettr == near(20_120 / 21_600)
    # 1200 to 4800: j1 4 * 3420 of 4 * 3600; j2 1200 of 1200, until 2400.
    assert account.fleet.hour_last is not None
    assert account.fleet.hour_last.ettr == near((4 * 3_420 + 1_200) / (4 * 3_600 + 1_200))


def test_the_times_of_an_incident_add_up_from_its_onset_to_the_first_step(account: Account) -> None:
    phases = next(one.phases for one in account.incidents if one.id == "a")
    worked: dict[Phase, float] = {
        "detect": 5,  # 1105 to 1110
        "decide": 32,  # 1110 to 1142
        "approval": 30,  # 1112 to 1142
        "act": 1,  # 1142 to 1143
        "recover": 137,  # 1143 to 1280
        "stop": 10,  # 1143 to 1153
        "clean": 5,  # 1153 to 1158
        "replace": 20,  # 1158 to 1178
        "start": 2,  # 1178 to 1180
        "load": 60,  # 1180 to 1240
        "first_step": 40,  # 1240 to 1280
        "recompute": 110,  # 1280 to 1390, the end of step 102
        "diagnosis_wait": 42,  # 1100 to 1142
    }
    assert phases == {phase: near(took_s) for phase, took_s in worked.items()}
    parts: tuple[Phase, ...] = ("stop", "clean", "replace", "start", "load", "first_step")
    assert sum(phases[part] for part in parts) == near(phases["recover"])
    # Onset to training again: 1105 to 1280.
    whole: tuple[Phase, ...] = ("detect", "decide", "act", "recover")
    assert sum(phases[part] for part in whole) == near(175)


def test_what_resolved_them(account: Account) -> None:
    # a by the eviction and the restart; b closed and nothing had been done.
    assert account.mechanisms == [
        MechanismShare("eviction_restart", 1, 0.5), MechanismShare("by_itself", 1, 0.5),
    ]  # fmt: skip


def test_every_no_is_counted(account: Account) -> None:
    said = [(one.state, one.reason, one.count) for one in account.decided]
    assert said == [
        ("refused", "budget: … would be N of N an hour", 3), ("approved", "approved by …", 1),
    ]  # fmt: skip
    assert [(one.rail, one.count, one.first) for one in account.rails] == [("budget", 3, 3)]
    refused = [one for one in account.requests if not one.accepted]
    assert [(one.verb, one.reason, one.count) for one in refused] == [
        ("approve", "approve needs the role operator", 1)
    ]
    assert {(one.step, one.status, one.dry_run, one.count) for one in account.outcomes} == {
        (step, "done", False, 1) for step in ("stop", "clean", "replace", "restart")
    }


def test_without_actions_what_only_they_say_is_unknown(tmp_path: Path) -> None:
    archive = write(tmp_path, without=(ACTIONS,))
    account = account_of_path(archive, Configuration(), Accountant())
    phases = next(one.phases for one in account.incidents if one.id == "a")
    # The restart was nobody's that we know of: from the stop, 1100, to 1280.
    worked: dict[Phase, float] = {
        "detect": 5,
        "decide": 0,  # the verdict stood at 1110, with the incident
        "recover": 180,
        "down": 81,  # 1100 to 1181, the scheduler's word
        "load": 59,  # 1181 to 1240
        "first_step": 40,
        "recompute": 110,
        "diagnosis_wait": 10,  # 1100 to 1110
    }
    assert phases == {phase: near(took_s) for phase, took_s in worked.items()}
    assert account.mechanisms == []
    assert not account.has_actions
    assert account.fleet.ettr == near(20_120 / 21_600)


def test_one_job_alone(tmp_path: Path) -> None:
    account = account_of_path(write(tmp_path), Configuration(), Accountant(job="j2"))
    assert [one.id for one in account.jobs] == ["j2"]
    assert [one.id for one in account.incidents] == ["b"]
    assert account.fleet.ettr == near(1.0)
    assert account.decided == []


def test_a_period_is_cut_where_it_was_asked_for(tmp_path: Path) -> None:
    accountant = Accountant((T0 + 1_200, T0 + 2_400))
    account = account_of_path(write(tmp_path), Configuration(), accountant)
    time = of_job(account, "j1")
    # 1380 to 2400 of 1200 to 2400; it stood still until 1240; the stop itself was before.
    assert (time.wall_s, time.productive_s) == (near(1_200), near(1_020))
    assert (time.stopped_s, time.interruptions) == (near(40), 0)
    assert [one.id for one in account.incidents] == []
