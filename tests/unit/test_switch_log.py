"""Syslog of switches: what each vendor's lines say, and what they do not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kernel.times import Clock
from collectors.kinds import KINDS
from collectors.switch.forms import FORMS, SwitchForm, port_name
from collectors.switch.log import SwitchLine, SwitchLog, records
from telemetry.records import Event, Rejected

DATA = Path(__file__).parents[1] / "data" / "switch"
NOTHING = ("", "")


def said(name: str) -> list[tuple[str, str]]:
    """(class, port or part) of a whole file."""
    lines = (DATA / name).read_bytes().splitlines()
    found = list(SwitchLog(name, Clock(year=2018)).read(lines))
    assert all(isinstance(one, SwitchLine) and one.at_s is not None for one in found)
    return [(o.class_, o.port or o.part) for o in found if isinstance(o, SwitchLine)]


def one(text: str, clock: Clock | None = None) -> SwitchLine:
    (found,) = SwitchLog("x", clock or Clock()).read([text.encode()])
    assert isinstance(found, SwitchLine)
    return found


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_the_example_of_a_row_is_read_by_it(form: SwitchForm) -> None:
    found = one(form.example, Clock(year=2026))

    assert found.class_ in (form.class_, form.ended)
    assert found.at_s is not None
    assert (found.port, found.part) != NOTHING


def test_arista_tells_ports_and_neither_vlans_nor_channels() -> None:
    assert [("link_down", "Ethernet28"), ("link_up", "Ethernet28"), ("link_down", "Ethernet47"),
            ("errdisabled", "Ethernet28")] == said("arista_eos.log")  # fmt: skip


def test_cisco_tells_failures_and_not_what_an_administrator_shut_down() -> None:
    assert [("link_down", "Ethernet1/4"), ("link_up", "Ethernet1/4"),
            ("errdisabled", "Ethernet1/1"), ("optics", "Ethernet4/3"),
            ("optics_normal", "Ethernet4/3"), ("psu", "Power supply 2"),
            ("fan", "Fan Failure")] == said("cisco_nxos.log")  # fmt: skip


def test_sonic_tells_a_drop_once_although_two_programs_do() -> None:
    assert [("link_down", "Ethernet12"), ("link_up", "Ethernet12"), ("fan", "FanDrawer 0 fan 1"),
            ("psu", "PSU 1"), ("psu_normal", "PSU 1"), ("psu", "PSU 2")
            ] == said("sonic.log")  # fmt: skip


def test_cumulus_tells_carriers_and_parts_that_went_bad() -> None:
    assert [("link_down", "swp17"), ("link_up", "swp17"), ("link_down", "swp1s2"),
            ("psu_normal", "PSU1Fan1"), ("psu", "PSU2Fan1")] == said("cumulus.log")  # fmt: skip


def test_the_year_may_stand_before_the_month_after_the_day_or_nowhere() -> None:
    line = "sw %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/4 is down (Link failure)"
    wanted_s = datetime(2015, 5, 18, 12, 43, 15, tzinfo=UTC).timestamp()

    assert wanted_s == one(f"2015 May 18 12:43:15 {line}").at_s
    assert wanted_s == one(f"May 18 2015 12:43:15 {line}").at_s
    assert wanted_s == one(f"May 18 12:43:15 {line}", Clock(near_s=wanted_s + 1e6)).at_s
    assert wanted_s == one(f"2015-05-18T14:43:15+02:00 {line}").at_s
    assert one(line).at_s is None


def test_the_copy_of_a_relay_is_left_out_and_a_second_drop_within_the_second_is_not() -> None:
    says = b"switchd[1]: nic_set_carrier: swp1: setting kernel carrier: "
    stamps = [(1, b"down"), (1, b"down"), (2, b"up"), (3, b"down")]
    lines = [b"2017-03-08T06:26:43.%d+00:00 l %s%s" % (at, says, word) for at, word in stamps]
    found = list(SwitchLog("x").read(lines))

    assert ["link_down", "link_up", "link_down"] == [
        one.class_ for one in found if isinstance(one, SwitchLine)
    ]


def test_an_event_is_the_node_s_where_its_port_is_mapped_and_the_switch_s_elsewhere() -> None:
    lines = (DATA / "sonic.log").read_bytes().splitlines()
    ports = {"Ethernet12": ("n7", "mlx5_0/1")}
    events = [
        event
        for event in records(SwitchLog("x", Clock(year=2024)), lines, "leaf1", ports)
        if isinstance(event, Event)
    ]

    assert {("n7", "nic:mlx5_0/1"), ("", "switch:leaf1/PSU 1"), ("", "switch:leaf1/PSU 2"),
            ("", "switch:leaf1/FanDrawer 0 fan 1")} == {
        (e.node, e.entity) for e in events
    }  # fmt: skip
    (other, *_) = records(SwitchLog("x", Clock(year=2024)), lines, "leaf1", {})
    assert isinstance(other, Event)
    assert ("", "switch:leaf1/Ethernet12") == (other.node, other.entity)


def test_a_line_without_a_date_is_rejected_and_kept() -> None:
    line = b"%ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/4 is down (Link failure)"
    (found,) = records(SwitchLog("switch/a.log"), [line], "a", {})

    assert isinstance(found, Rejected)
    assert ("no date", "switch/a.log:1") == (found.reason, found.place)


def test_short_names_of_ports_are_the_long_ones() -> None:
    assert ["Ethernet12", "Ethernet1/4", "swp3", "Ethernet5"] == [
        port_name(name) for name in ("Et12", "Eth1/4", "swp3", " Ethernet5")
    ]


def test_parse_nic_shows_a_switch_s_lines_beside_counters() -> None:
    data = (DATA / "arista_eos.log").read_bytes() + b"link mlx5_0/1 np_cnp_sent 3\n"
    found = list(KINDS["nic"]("mixed.txt", [data]))

    assert ["event"] * 4 + ["counter"] == [one["type"] for one in found]
    assert ("errdisabled", "link-flap") == (found[3]["class"], found[3]["why"])


LINES = [line for file in sorted(DATA.iterdir()) for line in file.read_bytes().splitlines()]


@given(
    picked=st.lists(st.sampled_from(LINES), max_size=6),
    cut=st.integers(0, 200),
    junk=st.binary(max_size=20),
)
def test_damage_costs_the_damaged_line_and_nothing_after_it(
    picked: list[bytes], cut: int, junk: bytes
) -> None:
    clean = junk.replace(b"\n", b" ").replace(b"\r", b" ")
    broken = [line[:cut] + clean + line[cut:] for line in picked]
    last = LINES[0].replace(b"Ethernet28", b"Ethernet99")
    found = list(SwitchLog("x", Clock(year=2018)).read([*broken, b"x" * 70_000, last]))

    assert "Ethernet99" == found[-1].port if isinstance(found[-1], SwitchLine) else False
