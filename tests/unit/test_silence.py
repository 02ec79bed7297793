"""Silent nodes, and silence that is ours."""

from __future__ import annotations

from collections.abc import Iterable

from detectors.base import Sighting
from detectors.silence import ENDED_S, JOBS_MAX, Silence
from telemetry.settings import EngineSettings, TickSettings
from tests.fakes import FakeView, cluster, job_step


def heard(view: FakeView, at_s: float, nodes: Iterable[str] | None = None) -> None:
    for node in view.jobs["j1"] if nodes is None else nodes:
        view.heard[node] = at_s


def brief(seen: Iterable[Sighting]) -> list[tuple[str, str, bool]]:
    return [(s.kind, s.node, s.active) for s in seen]


def run(view: FakeView, silent: Iterable[str], until_s: float, detector: Silence) -> list[Sighting]:
    """Beat every 5 s while all but `silent` are heard; what was said."""
    return run_from(view, silent, 0.0, until_s, detector)


def run_from(
    view: FakeView, silent: Iterable[str], from_s: float, until_s: float, detector: Silence
) -> list[Sighting]:
    """The same from a later time on."""
    out: list[Sighting] = []
    awake = [node for node in view.jobs["j1"] if node not in set(silent)]
    for beat in range(int(from_s // 5) + 1, int(until_s // 5) + 1):
        heard(view, 5.0 * beat, awake)
        out += detector.advance(5.0 * beat, view)
    return out


def test_silence_is_reported_once_and_not_before_patience_is_over() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)

    assert [] == run(view, ["n03"], 60.0, detector)
    (seen,) = run(view, ["n03"], 200.0, detector)

    assert [("node_silent", "n03", True)] == brief([seen])
    assert (0.0, "j1", "unknown", "warning") == (seen.onset_s, seen.job, seen.cause, seen.severity)


def test_a_node_with_slower_sources_gets_the_patience_that_they_need() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    view.patience = {"n03": 180.0}
    heard(view, 0.0)

    assert [] == run(view, ["n03"], 180.0, detector)


def test_a_node_of_which_only_events_are_known_is_not_missed() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    view.patience_default_s = 0.0
    heard(view, 0.0)
    assert [] == run(view, list(view.jobs["j1"]), 300.0, detector)


def test_a_node_that_sent_at_intervals_once_is_missed_also_where_these_are_forgotten() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)
    assert [] == run(view, ["n03"], 30.0, detector)
    view.patience_default_s = 0.0
    assert [("node_silent", "n03", True)] == brief(run_from(view, ["n03"], 30.0, 200.0, detector))


def test_it_clears_when_the_node_speaks_again() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)
    run(view, ["n03"], 100.0, detector)

    heard(view, 103.0)
    assert [("node_silent", "n03", False)] == brief(detector.advance(105.0, view))


def test_a_drained_node_may_be_quiet_and_one_never_heard_proves_nothing() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)
    view.states = {"n03": "IDLE+DRAIN", "n04": "DOWN*"}

    assert [("node_silent", "n04", True)] == brief(run(view, ["n03", "n04"], 100.0, detector))
    view.states["n04"] = "drained"
    assert [("node_silent", "n04", False)] == brief(detector.advance(105.0, view))


def test_a_node_that_is_no_longer_expected_but_was_heard_is_still_missed() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)
    detector.advance(0.0, view)

    class Forgetful(FakeView):
        def reporting(self) -> list[str]:
            return [node for node in sorted(self.heard) if node != "n03"]

    other = Forgetful(jobs=view.jobs, heard=view.heard)
    assert [("node_silent", "n03", True)] == brief(run(other, ["n03"], 100.0, detector))


def test_when_most_go_quiet_together_the_blind_spot_is_ours_and_no_node_is_named() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    for place, node in enumerate(view.jobs["j1"]):  # never all at the same instant
        heard(view, 0.5 * place, [node])

    said = [seen for beat in range(1, 40) for seen in detector.advance(5.0 * beat, view)]

    assert [("telemetry_gap", "", True)] == brief(said)


def test_after_the_blind_spot_late_nodes_get_their_patience_and_lost_ones_are_named() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)
    said = [seen for beat in range(1, 62) for seen in detector.advance(5.0 * beat, view)]
    assert [("telemetry_gap", "", True)] == brief(said)

    awake = [node for node in view.jobs["j1"] if node != "n03"]
    heard(view, 306.0, awake)
    assert [("telemetry_gap", "", False)] == brief(detector.advance(310.0, view))
    heard(view, 365.0, awake)
    assert [] == list(detector.advance(365.0, view))
    assert [("node_silent", "n03", True)] == brief(detector.advance(370.0, view))


def test_when_the_log_itself_stood_still_nobody_was_silent() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)
    detector.advance(5.0, view)

    assert [] == list(detector.advance(700.0, view))  # the last record of a piece of history
    assert [] == run_from(view, ["n03"], 700.0, 755.0, detector)
    assert [("node_silent", "n03", True)] == brief(run_from(view, ["n03"], 755.0, 800.0, detector))


def test_no_more_nodes_are_remembered_than_there_may_be() -> None:
    view = cluster()
    detector = Silence(EngineSettings(ticks=TickSettings(nodes_max=3)))
    heard(view, 0.0)

    detector.advance(0.0, view)

    assert ["n00", "n01", "n02"] == detector.snapshot()["heard"]


def test_half_of_the_nodes_is_not_most() -> None:
    view, detector = cluster(4, 4), Silence(EngineSettings())
    heard(view, 0.0)

    assert ["n00", "n01"] == [s.node for s in run(view, ["n00", "n01"], 100.0, detector)]


def test_nodes_are_only_looked_at_when_something_can_have_expired() -> None:
    class Counting(FakeView):
        looks = 0

        def reporting(self) -> list[str]:
            self.looks += 1
            return sorted(self.heard)

    view, detector = Counting(jobs=cluster().jobs), Silence(EngineSettings())
    heard(view, 0.0)

    run(view, [], 600.0, detector)

    assert view.looks <= 14  # of 120 beats


def test_a_restart_changes_nothing() -> None:
    view, straight, resumed = cluster(), Silence(EngineSettings()), Silence(EngineSettings())
    heard(view, 0.0)
    run(view, ["n03"], 100.0, straight)
    resumed.restore(straight.snapshot())

    heard(view, 200.0, ["n03"])
    assert list(straight.advance(201.0, view)) == list(resumed.advance(201.0, view)) != []
    assert straight.snapshot() == resumed.snapshot()


def ended(detector: Silence, view: FakeView, at_s: float, job: str = "j1") -> None:
    assert [] == list(detector.on_steps(job_step(int(at_s), at_s, 5.0, job), view, at_s))


def test_a_job_that_goes_on_proves_that_its_silent_node_works() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)
    assert [] == run(view, ["n03"], 50.0, detector)
    ended(detector, view, 45.0)
    (seen,) = run_from(view, ["n03"], 50.0, 200.0, detector)
    assert ("telemetry_gap", "telemetry", "n03") == (seen.kind, seen.cause, seen.node)
    assert "the node worked" in seen.text


def test_steps_that_ended_about_when_it_fell_silent_or_of_another_job_prove_nothing() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    heard(view, 0.0)
    ended(detector, view, 20.0)
    ended(detector, view, 55.0, "j2")
    assert [("node_silent", "n03", True)] == brief(run(view, ["n03"], 200.0, detector))


def test_the_jobs_remembered_are_bounded_and_survive_a_restart() -> None:
    view, detector = cluster(), Silence(EngineSettings())
    for number in range(JOBS_MAX + 10):
        ended(detector, view, number / 10.0, f"job{number}")
    copy = Silence(EngineSettings())
    copy.restore(detector.snapshot())
    assert copy.snapshot() == detector.snapshot()
    assert JOBS_MAX == len(detector.snapshot()["ended"])
    ended(detector, view, ENDED_S + JOBS_MAX, "later")
    assert ["later"] == list(detector.snapshot()["ended"])
