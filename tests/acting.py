"""The active instance over a log in memory, for tests: it can be replaced, and can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from actions.access import Person
from actions.active import Active
from actions.context import rail_context
from actions.desk import Desk, Reply
from actions.ledger import Ledger
from actions.ledger_log import decode, encode, rebuild
from actions.metrics import ActMetrics
from actions.outside import Outside, nobody_knows, not_compared
from actions.ports import JobFacts, Looks, Teller
from actions.service import ActionService, Asked, Decide, Recheck, observing, outcome
from actions.site import Site as Facts
from actions.site import SiteView
from telemetry.actions import (
    ActionRecord,
    Command,
    Compared,
    Decision,
    Outcome,
    Preconditions,
    RailContext,
    Role,
    Update,
    Verb,
)
from telemetry.errors import Fenced, SourceUnavailable
from telemetry.findings import Action, Incident, Verdict
from telemetry.records import Control
from telemetry.settings import ActSettings, RailSettings
from telemetry.testing import ManualClock, MemoryLog
from telemetry.topics import ACTIONS, INCIDENTS

SETTINGS = ActSettings(approval_s=600.0, command_s=60.0, first_observe_s=0.0)


def incident(name: str = "a", *, action: Action = "isolate", **changes: object) -> Incident:
    """An incident with one verdict."""
    verdict = Verdict(action, "it is broken", [f"node-{name}"], "now", 1_700_000_000.0)
    one = Incident(
        id=name, rev=0, scope=f"node:{name}", opened_at=1_700_000_000.0, closed_at=None, job="",
        cause="hardware", kind="gpu_lost", severity="critical", confidence=1.0, suspects=[],
        evidence=[], verdict=verdict, verdicts=[verdict],
    )  # fmt: skip
    return msgspec.structs.replace(one, **changes)


def allowing(
    verdict: Verdict, incident: Incident, context: RailContext, settings: RailSettings, now_s: float
) -> Decision:
    """What acts is approved; of the job "ask" it waits for a person."""
    made = observing(verdict, incident, context, settings, now_s)
    if verdict.action == "none":
        return made
    return msgspec.structs.replace(made, state="waiting" if incident.job == "ask" else "approved")


def asked(verb: Verb, target: str = "", *, name: str = "otto", role: Role = "operator",
          until: float | None = None, problem: str = "") -> Asked:  # fmt: skip
    """A request of somebody who may."""
    return Asked(verb=verb, target=target, person=Person(name, role), until=until, problem=problem)


class World:
    """An Executor in memory. `states` is what it observes; `away` fails both calls."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.states: dict[str, str] = {}
        self.done: list[str] = []
        self.readable = True
        self.away = self.call_fails = False

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """How they stand."""
        if self.away:
            raise SourceUnavailable("the scheduler was taken away by the test")
        return Preconditions({name: self.states.get(name, "idle") for name in targets})

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """Whether it was done."""
        return command.id in self.done if self.readable else None

    def execute(self, command: Command) -> Outcome:
        """Do it."""
        if self.call_fails:
            raise SourceUnavailable("no answer")
        self.done.append(command.id)
        return outcome(command, "done", "done by the test", self._clock.time_s())


class Site:
    """One log of incidents and actions, one world; instances come and go.

    facts  what the rails are told of the site; None: they read only of a pause
    """

    def __init__(self, settings: ActSettings = SETTINGS, decide: Decide = allowing) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog({INCIDENTS: 1, ACTIONS: 1})
        self.world = World(self.clock)
        self.settings, self.decide = settings, decide
        self.recheck: Recheck | None = None
        self.facts: Facts | None = None
        self.compared: Callable[[Update], list[Compared] | None] = not_compared
        self.controls: list[Control] = []
        self.teller: Teller | None = None
        self.tells: Callable[[Decision], bool] = lambda _decision: True
        self.job: Callable[[str], JobFacts] = nobody_knows
        self.looks: Looks | None = None
        self.instance: Instance | None = None
        self.commits = 0

    def tell(self, *incidents: Incident) -> None:
        """What the engine says."""
        for one in incidents:
            self.log.append(INCIDENTS, msgspec.json.encode(one))

    def start(self) -> Instance:
        """A new instance takes over."""
        if self.instance is not None:
            self.instance.fenced = True
        self.instance = Instance(self)
        return self.instance

    def records(self) -> list[ActionRecord]:
        """What stands in the log of actions."""
        lines = self.log.records((ACTIONS, 0), 0)
        return [one for line in lines if (one := decode(line.value)) is not None]

    def of(self, kind: type[ActionRecord]) -> list[ActionRecord]:
        """Those of one kind."""
        return [one for one in self.records() if isinstance(one, kind)]


class Instance:
    """One active instance; `points` maps a point to what happens there the first time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.fenced = False
        self.points: dict[str, BaseException | float | Callable[[], None]] = {}
        self.desk, self.metrics = Desk(), ActMetrics()
        self.ledger: Ledger = rebuild(site.log.reader(), 20_000, 100_000).ledger
        view = SiteView(lambda: site.facts or Facts())

        def context(now_s: float) -> RailContext:
            if site.facts is None:
                return RailContext(paused=self.ledger.paused)
            return rail_context(self.ledger, view.site, site.settings, now_s)

        service = ActionService(self.ledger, site.settings, site.decide, context, site.recheck)
        outside = Outside(
            self, site.log.reader(), site.world, self._control, site.teller, site.tells,
            point=self._point, view=view, job=site.job, compared=site.compared,
            looks=site.looks,
        )  # fmt: skip
        self.active = Active(
            service, outside, self.desk, site.settings, site.clock, self.metrics, "test"
        )
        self.active.start([0])

    def commit(self, records: Sequence[ActionRecord]) -> None:
        """All of them, unless another instance has started."""
        if self.fenced:
            raise Fenced("another instance")
        self._site.commits += 1
        for one in records:
            self._site.log.append(ACTIONS, encode(one))

    def step(self, times: int = 1) -> None:
        """Some rounds; the first reads the incidents."""
        for _ in range(times):
            self.active.step(0.0)

    def ask(self, question: Asked, status: int = 0) -> Reply:
        """The reply to a request."""
        waiting = self.desk.ask(question, status)
        self.step()
        return waiting.result(0)

    def _control(self, record: Control) -> None:
        self._site.controls.append(record)

    def _point(self, name: str) -> None:
        what = self.points.pop(name, None)
        if isinstance(what, BaseException):
            raise what
        if callable(what):
            what()
        elif what is not None:
            self._site.clock.advance(what)
