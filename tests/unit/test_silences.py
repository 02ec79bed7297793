"""Which of Alertmanager's silences are maintenance of nodes, and which say nothing of any."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.inventory.silences import AlertmanagerSilences, read_silences, windows_of
from telemetry.errors import InputError, ListingIncomplete, SettingsError
from telemetry.records import Maintenance
from telemetry.settings import SilencesSettings
from telemetry.testing import ManualClock

SETTINGS = SilencesSettings()
NODES = ["n1", "n2", "n10", "gpu-a.site.example"]
SINCE_S, UNTIL_S = 1_796_004_000.0, 1_796_007_600.0


def matcher(text: str) -> dict[str, Any]:
    """`name="value"` with =, =~, != or !~."""
    name, _, value = text.partition('"')
    op = next(one for one in ("!~", "=~", "!=", "=") if name.endswith(one))
    return {
        "name": name.removesuffix(op), "value": value.rstrip('"'),
        "isRegex": op.endswith("~"), "isEqual": op.startswith("="),
    }  # fmt: skip


def silence(*matchers: str, state: str = "active", **more: Any) -> dict[str, Any]:
    return {
        "id": "s1", "status": {"state": state}, "createdBy": "ops", "comment": "new fans",
        "startsAt": "2026-11-30T02:00:00.000Z", "endsAt": "2026-11-30T03:00:00.000Z",
        "updatedAt": "2026-11-30T01:59:58.123Z", "matchers": [matcher(one) for one in matchers],
        **more,
    }  # fmt: skip


def windows(*silences: dict[str, Any], cluster: str = "main") -> list[Maintenance]:
    found = read_silences(json.dumps(silences).encode(), "asked")
    return windows_of(found, dict.fromkeys(NODES, ()), cluster, SETTINGS)


@pytest.mark.parametrize(
    ("matchers", "nodes"),
    [
        (['node="n1"'], ["n1"]),
        (['instance="n1:9100"'], ["n1"]),
        (['instance="n1:9400"'], ["n1"]),
        (['instance=~"n1:.*"'], ["n1"]),
        (['instance=~"n1.*"'], ["n1", "n10"]),
        (['Hostname=~"n1|n2"'], ["n1", "n2"]),
        (['nodename="gpu-a"'], ["gpu-a.site.example"]),
        (['instance="gpu-a.site.example:9400"'], ["gpu-a.site.example"]),
        (['node=~"n.*"', 'node!="n2"'], ["n1", "n10"]),
        (['node=~"n.*"', 'instance!~"n1(0)?:.*"'], ["n2"]),
        (['cluster="main"', 'node="n2"'], ["n2"]),
        (['cluster=~"ma.*"'], []),  # everything of ours: a window that names no node is of all
    ],
)
def test_a_silence_of_whole_nodes_is_a_window_of_them(
    matchers: list[str], nodes: list[str]
) -> None:
    assert [Maintenance("silence s1 by ops", SINCE_S, UNTIL_S, nodes)] == windows(
        silence(*matchers)
    )


@pytest.mark.parametrize(
    "matchers",
    [
        ['alertname="DCGMXid"', 'node="n1"'],
        ['node="n1"', 'severity=~"warning|info"'],
        ['job="dcgm"'],
        ['node="n7"'],
        ['cluster="other"', 'node="n1"'],
        ['cluster!="main"'],
    ],
)
def test_a_silence_of_an_alert_of_others_or_of_nobody_is_none(matchers: list[str]) -> None:
    """A window that names no node would be one of all: it is never made of what matches nobody."""
    assert [] == windows(silence(*matchers))


def test_one_to_come_counts_and_one_that_is_over_does_not() -> None:
    assert 1 == len(windows(silence('node="n1"', state="pending")))
    assert [] == windows(silence('node="n1"', state="expired", matchers="whatever"))


def test_an_old_alertmanager_says_nothing_of_equality() -> None:
    one = matcher('node="n1"')
    del one["isEqual"]
    assert ["n1"] == windows(silence(matchers=[one]))[0].nodes


def test_the_oldest_comes_first_and_nobody_is_somebody() -> None:
    later = silence('node="n1"', id="a", startsAt="2026-11-30T02:30:00+00:00", createdBy="")
    names = [one.name for one in windows(later, silence('node="n2"'))]

    assert ["silence s1 by ops", "silence a by somebody"] == names


@pytest.mark.parametrize(
    "more",
    [
        {"id": ""},
        {"status": {}},
        {"status": {"state": "new"}},
        {"startsAt": "2026-11-30T02:00:00"},
        {"endsAt": None},
        {"endsAt": "soon"},
        {"matchers": []},
        {"matchers": [{"name": "node", "value": 7, "isRegex": False}]},
        {"matchers": [{"name": "node", "value": "n1"}]},
        {"matchers": [{**matcher('node="n1"'), "isEqual": "yes"}]},
        {"matchers": [matcher('node="n1"')] * 33},
    ],
)
def test_a_silence_that_cannot_be_read_refuses_the_answer(more: dict[str, Any]) -> None:
    """What is not understood is not "no maintenance"."""
    with pytest.raises(ListingIncomplete, match="asked"):
        windows(silence('node="n1"') | more)


@pytest.mark.parametrize(
    "text", ["(a+)+", "(a|b)*c", "(?=a)b", r"(a)\1", ".*.*.*.*x", "n[", "(" * 3_000, "x" * 3_000]
)
def test_a_pattern_that_would_take_long_refuses_the_answer(text: str) -> None:
    with pytest.raises(ListingIncomplete, match="asked: s1"):
        windows(silence(f'node=~"{text}"'))


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b'[{"id": "s1"', b"\xff", b"[" * 100_000])
def test_an_answer_that_breaks_off_is_none(body: bytes) -> None:
    with pytest.raises(ListingIncomplete):
        read_silences(body, "asked")


anything = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner,
                                                                  max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(key=st.sampled_from(sorted(silence('node="n1"'))), value=anything)
def test_no_answer_is_a_traceback(key: str, value: Any) -> None:
    try:
        found = windows(silence('node="n1"') | {key: value})
    except ListingIncomplete:
        return
    assert all(window.nodes == ["n1"] for window in found)


def test_settings_that_reach_no_server_stop_the_start_and_a_token_that_is_none_is_said() -> None:
    for url in ("alertmanager:9093", "http://[", "http://", "ftp://a"):
        with pytest.raises(SettingsError, match=r"act\.silences\.url"):
            AlertmanagerSilences(SilencesSettings(url=url), ManualClock())
    with pytest.raises(SettingsError, match=r"act\.silences\.ca_file"):
        AlertmanagerSilences(SilencesSettings(url="https://a", ca_file="/none"), ManualClock())
    with pytest.raises(InputError, match="/none"):
        AlertmanagerSilences(
            SilencesSettings(url="http://127.0.0.1:1", token_file="/none"), ManualClock()
        ).read()
