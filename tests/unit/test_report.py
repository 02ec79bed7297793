"""The HTML report: self-contained, escaped, bounded, honest about what is missing."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.axes import time_axis, value_axis
from console.model import IncidentView, KernelLine, MetricPlot, Report, StepPlot, TimelineEntry
from console.plots import POINTS_MAX, metric_plot, segments, shared_time, step_plot
from console.report import CARDS_MAX, EVIDENCE_MAX, KERNEL_MAX, render
from telemetry.findings import Suspect
from tests.unit.report_demo import ONSET, START, evidence, finding, incident, report, verdict

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT}\"'><img src=x onerror=y>\x1b[31m\u202egnp.exe\u200b\x00\ud800{{{{ 7*7 }}}}"
# Elements that HTML never closes, and those of SVG that we write closed.
VOID = {"meta", "br", "wbr", "img", "path", "line"}


class Page(HTMLParser):
    """Collects elements and their attributes, and checks that they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]


def one(view: IncidentView) -> Report:
    return Report("t", "c", "test", (START, START + 60), [view])


def plot(**changes: object) -> MetricPlot:
    times = [START + 15.0 * k for k in range(6)]
    columns: dict[str, object] = dict.fromkeys(
        ("peers_low", "peers_high", "peers_median", "band_mean", "band_upper", "band_lower"),
        [1.0] * 6,
    )
    values = {
        "metric": "m", "unit": "u", "node": "n1", "entity": "", "times": times,
        "suspect": [2.0] * 6, "peers": 5, **columns, **changes,
    }  # fmt: skip
    return MetricPlot(**values)  # type: ignore[arg-type]


def suspect_path(shown: MetricPlot) -> str:
    axis = shared_time(shown, None)
    assert axis is not None
    drawn = metric_plot(shown, axis, "")
    assert drawn is not None
    return next((curve.path for curve in drawn.curves if curve.style == "suspect"), "")


def test_the_page_is_well_formed_and_its_ids_are_unique() -> None:
    ids = Page(render(report())).values("id")

    assert len(ids) == len(set(ids))


def test_the_page_needs_no_network_and_runs_no_script() -> None:
    text = render(report())
    page = Page(text)

    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert {"script", "link", "img", "iframe", "object", "form", "base"}.isdisjoint(page.tags)
    assert all(not name.startswith("on") and name != "src" for _, name, _ in page.attributes)
    assert all(target.startswith("#") for target in page.values("href"))
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page.values("content")


def test_the_same_report_gives_the_same_bytes() -> None:
    assert render(report()) == render(report())


def test_links_inside_the_page_lead_somewhere() -> None:
    many = replace(report(), incidents=[IncidentView(incident(id=str(k))) for k in range(30)])
    page = Page(render(many))

    assert {target[1:] for target in page.values("href")} <= set(page.values("id"))


def test_every_plot_is_named_and_described_for_who_cannot_see_it() -> None:
    page = Page(render(report()))
    labels = [label for value in page.values("aria-labelledby") for label in value.split()]

    assert page.values("role").count("img") == 2
    assert set(labels) <= set(page.values("id"))


def test_hostile_text_anywhere_is_shown_and_does_nothing() -> None:
    bad = incident(
        id=HOSTILE, scope=f"node:{HOSTILE}", job=HOSTILE, merged_into=HOSTILE,
        suspects=[Suspect(HOSTILE, HOSTILE, 0.5), Suspect(HOSTILE + "2", HOSTILE, 0.4)],
        evidence=[*evidence(), type(evidence()[0])(
            HOSTILE, HOSTILE, math.nan, math.inf, HOSTILE, math.nan, HOSTILE, HOSTILE, HOSTILE)],
        verdict=verdict(reason=HOSTILE, targets=[HOSTILE], rung=HOSTILE),
        verdicts=[verdict(reason=HOSTILE + "2", targets=[HOSTILE])],
    )  # fmt: skip
    view = IncidentView(
        bad, plot(metric=HOSTILE, unit=HOSTILE, node=HOSTILE, entity=HOSTILE), None,
        [KernelLine(None, HOSTILE, HOSTILE)], [TimelineEntry(math.inf, HOSTILE)],
    )  # fmt: skip
    text = render(
        Report(
            HOSTILE,
            HOSTILE,
            HOSTILE,
            (math.nan, math.inf),
            [view],
            [finding(text=HOSTILE, node=HOSTILE, entity=HOSTILE, metric=HOSTILE, unit=HOSTILE)],
            {HOSTILE: HOSTILE, "coverage": {"expected": 1, "reporting": 0, "blind": [HOSTILE]}},
            [HOSTILE],
            {HOSTILE: HOSTILE, "faults": [{HOSTILE: [HOSTILE]}]},
        )
    )
    page = Page(text)

    assert {"script", "img"}.isdisjoint(page.tags)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\ud800]", text)
    assert "&lt;script&gt;" in text
    assert r"\x1b[31m\u202egnp.exe\u200b\x00\ud800{{ 7*7 }}" in text
    assert text.encode()


def test_a_kernel_line_stands_as_it_was_written() -> None:
    line = "NVRM: Xid (PCI:0000:c3:00): 79, pid='<unknown>', name=<unknown>"
    text = render(one(IncidentView(incident(), kernel_lines=[KernelLine(START, "n1", line)])))

    assert "pid=&#39;&lt;unknown&gt;&#39;, name=&lt;unknown&gt;" in text


def test_a_very_long_line_is_cut_and_says_so() -> None:
    view = IncidentView(incident(), kernel_lines=[KernelLine(START, "n1", "x" * 50_000)])
    text = render(one(view))

    assert "[cut, 50,000 characters in all]" in text
    assert "x" * 1_001 not in text


def test_no_incident_is_said_plainly_with_what_was_watched() -> None:
    summary = {"records": 5, "coverage": {"expected": 3, "reporting": 2, "blind": ["n9"]}}
    text = render(Report("t", "c", "capture x", (START, START + 60), summary=summary))

    assert "No incident, as far as we could see." in text
    assert "reporting 2 of 3; blind n9" in text
    assert "<article" not in text


def test_a_calm_page_needs_everybody_to_report() -> None:
    summary = {"records": 5, "coverage": {"expected": 3, "reporting": 3, "blind": []}}
    text = render(Report("t", "c", "capture x", (START, START + 60), summary=summary))

    assert "No incident." in text
    assert "Read with care" not in text


def test_no_incident_and_no_summary_is_unknown_not_healthy() -> None:
    assert "take this as unknown" in render(Report("t", "c", "x", None))


def test_a_summary_field_that_is_missing_is_not_shown_as_zero() -> None:
    assert "rejected" not in render(Report("t", "c", "x", None, summary={"records": 5}))


def test_losses_are_marked() -> None:
    text = render(Report("t", "c", "x", None, summary={"lost": 3, "late": 0, "cold_start": True}))

    assert re.findall(r"<div class=warns><dt>([a-z ]+)</dt>", text) == ["lost", "cold start"]


def test_two_hundred_incidents_stay_bounded_and_the_rest_is_a_table() -> None:
    whole = IncidentView(incident(), plot())
    views = [replace(whole, incident=incident(id=f"{k:016x}", rev=k)) for k in range(200)]
    text = render(Report("t", "c", "x", None, views))

    assert text.count("<article") == CARDS_MAX
    assert text.count('class="frame"') == CARDS_MAX
    assert "20 of 200 incidents are shown whole" in text
    assert len(re.findall(r'<td class="text">gpu-a017', text)) == 180
    assert len(text) < 1_000_000


def test_an_incident_that_acts_comes_before_older_ones_that_do_not() -> None:
    quiet = incident(id="q", severity="info", verdict=verdict(action="none", targets=[]))
    acts = incident(id="a", opened_at=ONSET + 9_000, scope="node:n2", suspects=[])
    text = render(Report("t", "c", "x", None, [IncidentView(quiet), IncidentView(acts)]))

    assert text.index('href="#incident-1">n2') < text.index('href="#incident-2">gpu-a017')


def test_what_is_left_out_of_a_list_is_counted() -> None:
    view = IncidentView(
        incident(evidence=evidence() * EVIDENCE_MAX),
        kernel_lines=[KernelLine(START, "n", "l")] * (KERNEL_MAX + 7),
    )
    text = render(one(view))

    assert f"{EVIDENCE_MAX} more pieces of evidence" in text
    assert "7 more lines" in text


def test_a_missing_number_is_a_dash_not_zero() -> None:
    gone = type(evidence()[0])("critical", "", None, None, "", ONSET, "Xid 79")
    text = render(one(IncidentView(incident(evidence=[gone]))))

    assert '<td class="number" data-head="observed">–</td>' in text


@pytest.mark.parametrize("hole", [None, math.nan, math.inf])
def test_a_missing_value_breaks_the_line(hole: float | None) -> None:
    path = suspect_path(plot(suspect=[1.0, 2.0, hole, 3.0, 4.0, 5.0]))

    assert path.count("M") == 2
    assert "nan" not in path
    assert "inf" not in path


def test_a_lone_sample_between_holes_is_a_dot() -> None:
    path = suspect_path(plot(suspect=[None, 2.0, None, None, None, None]))

    start, end = path.removeprefix("M").split("L")
    assert start == end


def test_a_stretch_without_ticks_breaks_the_line() -> None:
    times = [START, START + 15, START + 30, START + 600, START + 615, START + 630]

    assert suspect_path(plot(times=times)).count("M") == 2


def test_the_band_breaks_where_one_edge_is_missing() -> None:
    shown = plot(peers_low=[0.0, 0.0, None, 0.0, 0.0, 0.0])
    axis = shared_time(shown, None)
    assert axis is not None
    drawn = metric_plot(shown, axis, "")

    assert drawn is not None
    assert next(c.path for c in drawn.curves if c.style == "peers").count("Z") == 2


def test_a_low_sided_metric_shows_the_lower_bound() -> None:
    text = render(one(IncidentView(incident(), plot(direction="low"))))

    assert "λ-2δ, below it is abnormal" in text
    assert "λ+2δ, above" not in text


def test_a_metric_without_any_value_draws_nothing() -> None:
    nothing = [None] * 6
    shown = plot(
        suspect=nothing, peers_low=nothing, peers_high=nothing, band_upper=nothing
    )  # fmt: skip

    assert 'class="frame"' not in render(one(IncidentView(incident(), shown)))


def test_both_plots_share_one_time_axis() -> None:
    steps = StepPlot([START - 300, START + 300], [5.0, 6.0])
    axis = shared_time(plot(), steps)

    assert axis is not None
    assert (axis.low, axis.high) == (START - 300, START + 300)


def test_a_pause_does_not_flatten_the_step_times() -> None:
    times = [START + 5.0 * k for k in range(100)]
    steps = StepPlot(times, [5.0] * 50 + [300.0] + [6.0] * 49, 5.0)
    axis = shared_time(None, steps)
    assert axis is not None
    drawn = step_plot(steps, axis, "")

    assert drawn is not None
    assert [tick.label for tick in drawn.y_ticks][-1] == "6"
    assert drawn.note == "1 longer, up to 300 s: drawn at the top edge"


def test_a_long_series_is_thinned_and_keeps_its_peak() -> None:
    times = [float(k) for k in range(100_000)]
    values = [1.0] * 100_000
    values[54_321] = 99.0

    (run,) = segments(times, values, 3.0)

    assert len(run) <= 2 * POINTS_MAX
    assert max(run, key=lambda point: point[1]) == (54_321.0, 99.0)


FINITE = st.floats(-1e300, 1e300)


@given(FINITE, FINITE)
def test_a_value_axis_holds_its_range_with_few_ticks(first: float, second: float) -> None:
    low, high = sorted((first, second))
    axis = value_axis(low, high)
    slack = 1e-6 * (axis.high - axis.low)

    assert axis.low - slack <= low <= high <= axis.high + slack
    assert 2 <= len(axis.ticks) <= 8
    assert all(0.0 <= tick.share <= 1.0 for tick in axis.ticks)


@given(st.floats(-1e11, 1e11), st.floats(0, 1e10))
def test_a_time_axis_has_at_most_eleven_ticks_inside(start: float, span: float) -> None:
    ticks = time_axis(start, start + span).ticks

    assert len(ticks) <= 11
    assert all(-1e-9 <= tick.share <= 1 + 1e-9 for tick in ticks)


@given(
    st.lists(st.none() | st.floats(), min_size=6, max_size=6),
    st.lists(st.none() | st.floats(), min_size=6, max_size=6),
    st.floats(),
)
def test_any_values_can_be_drawn(
    suspect: list[float | None], bound: list[float | None], onset: float
) -> None:
    shown = plot(suspect=suspect, band_upper=bound, peers_low=bound, onset=onset)
    steps = StepPlot(shown.times, suspect, onset, onset)
    Page(render(one(IncidentView(incident(), shown, steps))))
