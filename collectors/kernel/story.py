"""Joins the lines that tell of one thing: a GPU lost in three lines, a kill, a crash. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from collectors.kernel.events import TEXT_MAX, KernelEvent, Line, Part, Said

NEAR_LINES = 200  # lines of one story lie closer; an OOM dump has about a hundred
NAME_LINES = 6  # so far below the line that names it may "fallen off the bus" stand
SEEN_MAX = 64

# Told first, and by which process in a line that follows.
_WAITS_FOR_TASK = frozenset({"oops", "panic", "hard_lockup"})


@dataclass(slots=True)
class Story:
    """What earlier lines left open, of one log."""

    _held: tuple[KernelEvent, Line] | None = None
    _gpu: Part | None = None
    _victim: int | None = None
    _limit: bool = False
    _oom_at: int = 0
    _last_at: int = -NEAR_LINES
    _last_pci: str | None = None
    _seen: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=SEEN_MAX))

    def hear(self, said: Said, line: Line) -> Iterator[KernelEvent]:
        """The events that are whole now."""
        if isinstance(said, Part):
            yield from self._part(said)
            return
        if self._is_repeated(said, line):
            return
        if self._held is not None and _is_bare(self._held[0], said):
            self._held = None
        yield from self.finish()
        event = self._joined(said, line)
        if event is None:
            return
        self._last_at, self._last_pci = line.number, event.pci or self._last_pci
        if _waits(event, line):
            self._held = (event, line)
        else:
            yield event

    def finish(self) -> Iterator[KernelEvent]:
        """What waits for lines that do not come; at the end, or when nobody speaks."""
        if self._held is not None:
            yield self._held[0]
            self._held = None

    def _is_repeated(self, event: KernelEvent, line: Line) -> bool:
        """/dev/kmsg numbers its records: one number with one text is one record."""
        if event.kmsg_seq is None:
            return False
        key = (event.kmsg_seq, line.message)
        if key in self._seen:
            return True
        self._seen.append(key)
        return False

    def _part(self, part: Part) -> Iterator[KernelEvent]:
        match part.kind:
            case "gpu_named":
                self._gpu = part
            case "oom_begins":
                self._victim, self._limit, self._oom_at = None, False, part.line.number
                self._last_at = part.line.number
            case "oom_limit":
                self._limit = True
            case "device":
                yield from self._with_device(part)
            case "task":
                yield from self._with_task(part)
            case "oops":
                if self._held is None or self._held[0].class_ != "oops":
                    yield from self.finish()
                    self._held = (_of_part(part, "critical", "oops"), part.line)
                    self._last_at = part.line.number

    def _with_task(self, part: Part) -> Iterator[KernelEvent]:
        number = part.line.number
        if self._held is not None and number - self._held[1].number <= NEAR_LINES:
            event = replace(self._held[0], pid=part.pid, process=part.process)
            self._held = None
            self._last_at = number
            yield event
            return
        yield from self.finish()
        # After an Xid the driver prints who called it: not news, and not the culprit.
        if number - self._last_at > NEAR_LINES:
            yield _of_part(part, "info", "detail")

    def _with_device(self, part: Part) -> Iterator[KernelEvent]:
        if self._held is None or self._held[0].pci is not None:
            return
        # " SUBSYSTEM=" and " DEVICE=" stand right below their record.
        if part.line.number - self._held[1].number <= 2:
            self._held = (replace(self._held[0], pci=part.pci), self._held[1])
            if self._held[0].class_ not in _WAITS_FOR_TASK:
                yield from self.finish()

    def _joined(self, event: KernelEvent, line: Line) -> KernelEvent | None:
        if event.type == "gpu_lost" and event.pci is None:
            return self._with_gpu(event, line)
        if event.class_ == "init_failed" and event.pci == self._last_pci:
            near = line.number - self._last_at <= NAME_LINES
            return None if near else event  # the Xid above said it, and why
        return self._of_oom(event, line) if event.type == "oom" else event

    def _with_gpu(self, event: KernelEvent, line: Line) -> KernelEvent:
        named, self._gpu = self._gpu, None
        if named is None or line.number - named.line.number > NAME_LINES:
            return event
        at_s = event.at_s if event.at_s is not None else named.line.at_s
        text = f"{named.line.text}\n{event.text}"[:TEXT_MAX]
        return replace(event, pci=named.pci, at_s=at_s, text=text)

    def _of_oom(self, event: KernelEvent, line: Line) -> KernelEvent | None:
        near = line.number - self._oom_at <= NEAR_LINES * 10
        if near and event.pid is not None and event.pid == self._victim:
            return None
        limited = near and self._limit
        self._victim, self._oom_at = event.pid, line.number
        return replace(event, class_="cgroup") if limited else event


def _is_bare(first: KernelEvent, second: KernelEvent) -> bool:
    """Some drivers print an Xid's number alone, then the same line whole."""
    return first.type == "xid" and (first.code, first.pci) == (second.code, second.pci)


def _waits(event: KernelEvent, line: Line) -> bool:
    if event.type == "xid":
        return line.message.rstrip().endswith(f": {event.code}")
    if event.class_ in _WAITS_FOR_TASK and event.pid is None:
        return True
    return event.kmsg_seq is not None and event.pci is None and event.type in ("nic", "pcie", "gpu")


def _of_part(part: Part, severity: str, class_: str) -> KernelEvent:
    line = part.line
    return KernelEvent(
        type="os", severity="critical" if severity == "critical" else "info", class_=class_,
        text=line.text[:TEXT_MAX], at_s=line.at_s, pid=part.pid, process=part.process,
        kmsg_seq=line.kmsg_seq, line=line.number,
    )  # fmt: skip
