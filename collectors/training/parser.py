"""A training log in pieces of bytes into steps, failures and notes. No clock, no files.

Lines that can say nothing are never made: the prefilter finds the few that can, and times are
looked for only where a step or a failure prints none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, tzinfo

from collectors.training import bars, forms, mlperf, rows, scan, speakers, stamps
from collectors.training.dates import Dates
from collectors.training.failures import read_failure
from collectors.training.incidents import Elastic, Incident, Tracebacks, placed
from collectors.training.model import Failure, Note, Said, Step
from collectors.training.progress import Progress, merged
from collectors.training.readers import Readers
from collectors.training.speakers import Speaker
from collectors.training.wraps import Piece, Wrap
from telemetry.codec import AT_MAX_S, AT_MIN_S, rejected
from telemetry.records import Rejected

LINE_BYTES_MAX = 65_536
RUN = 256  # objects before they are handed on: more would leave the processor's cache
HEAD_BYTES = 262_144  # are waited for, so that pieces of any size give the same

_RESTARTS = ("successfully loaded checkpoint", "[before the start of training step]")
_LOADED = re.compile(r"at iteration {1,12}(\d{1,12})")
_WAITING = frozenset({"bar", "deepspeed", "mlperf-stats"})
_SHARED = frozenset({"torchtitan", "nemo", "lightly"})
_CARRIAGE_RETURN = ord("\r")


class TrainingParser:
    """One log.

    name      of the file, for the places of rejected lines
    tz        of times that name no zone
    rank      the file's rank, None where one file speaks for the job
    clock_s   when the log starts, where it prints no time: printed durations add up from there
    year_s    a time near the log's, for stamps that name no year in a log that tells none
    """

    def __init__(
        self, name: str, tz: tzinfo = UTC, rank: int | None = None, clock_s: float | None = None,
        year_s: float | None = None,
    ) -> None:  # fmt: skip
        self._name, self._tz, self._rank, self._clock_s = name, tz, rank, clock_s
        self._year_s = year_s
        self._tail, self._long = b"", False
        self._head = True  # nothing was read yet
        self._live = False
        self._hint_s: float | None = None  # a time in the log's head, for years nobody names
        self._lines = 0  # before the block
        self._out: list[Said] = []  # what the lines said that are being read
        self._block = b""
        self._at = 0  # where in the block the line begins that is read
        self._next = 0  # where to go on
        self._counted = self._counted_to = 0  # lines of the block, up to where
        self._tasks_are_ranks = True
        self._pending: tuple[Step, str, float | None] | None = None
        self._readers = Readers(tz, clock_s)
        self._progress = Progress(clock_s)
        self._dates = Dates(tz, self._progress.began)
        self._incident, self._tracebacks, self._elastic = Incident(), Tracebacks(), Elastic()
        self._wrap = Wrap()

    @property
    def counted_up(self) -> int:
        """Steps whose time was reckoned."""
        return self._progress.counted_up

    @property
    def undated(self) -> int:
        """Steps and failures that could not be placed in time."""
        return self._progress.undated

    def heard_at(self, now_s: float) -> None:
        """The log is read as it is written: what comes next and prints no time was said now."""
        self._live, self._dates.near_s = True, now_s

    def feed(self, piece: bytes) -> Iterator[Said]:
        """What whole lines so far say."""
        data = self._tail + piece if self._tail else piece
        if self._head and len(data) < HEAD_BYTES and not self._live:
            self._tail = data
            return iter(())
        return self._whole_lines(data)

    def _whole_lines(self, data: bytes) -> Iterator[Said]:
        if self._head:
            self._head = False
            self._hint_s, _ = stamps.oldest(data[:HEAD_BYTES], self._tz)
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        block, self._tail = data[:cut], data[cut:]
        if self._long:  # the rest of a line that is too long already
            end = block.find(b"\n") + 1
            if end == 0 and not block.endswith(b"\r"):
                self._tail = b""
                return
            block, self._long = block[end:], False
        if len(self._tail) > LINE_BYTES_MAX:
            block, self._tail, self._long = block + self._tail, b"", True
        yield from self._read(block)

    def finish(self) -> Iterator[Said]:
        """What the last line and the end of the log say."""
        if self._head:
            yield from self._whole_lines(self._tail)
        if self._tail and not self._long:
            block, self._tail = self._tail, b""
            yield from self._read(block)
        for piece in self._wrap.flush():
            self._say(piece)
        self._flush()
        for key, failure in self._tracebacks.finish():
            speaker = Speaker(key, rank=int(key[1:])) if key[:1] == "#" else Speaker(key)
            self._fails(failure, speaker, None, "")
        yield from self._said()

    def _said(self) -> list[Said]:
        out, self._out = self._out, []
        return out

    def _read(self, block: bytes) -> Iterator[Said]:
        """One block of whole lines: only those that hold a marker, or that something waits for."""
        self._block = block
        self._dates.begin(block)
        starts, position = scan.Starts(block), 0
        while position < len(block):
            inside = position > 0 and block[position - 1] == _CARRIAGE_RETURN
            waiting = self._tracebacks or self._elastic or self._wrap
            if not inside:
                start = position if waiting else starts.after(position)
                if start is None:
                    break
                self._at = position = start
            if not waiting:
                self._next = position
                self._known(position)
                while len(self._out) >= RUN:
                    yield from self._said()
                    self._known(self._next)
                if self._next > position:
                    position = self._next
                    yield from self._said()
                    continue
            position = self._one(position, inside, bool(waiting))
            if self._out:
                yield from self._said()
        self._lines += block.count(b"\n")
        self._dates.end()
        self._block = b""
        self._counted = self._counted_to = 0

    def _one(self, position: int, inside: bool, waiting: bool) -> int:
        """What one line says, or its next piece where bars stood before it; where to go on."""
        block = self._block
        end = block.find(b"\n", position)
        end = end if end >= 0 else len(block)
        if inside and not waiting:
            cut = block.find(b"\r", position, end)
            end = cut if cut >= 0 else end
        line = block[position:end]
        if inside or waiting or scan.worth_reading(line):
            self._line(line)
        return end + 1

    def _known(self, position: int) -> None:
        """What lines of the most frequent forms say, one after the other as they lie there.

        Moves `_next` behind them: to a line, or a bar in one, of another form or that is not plain.
        """
        if self._drawn(position):
            return
        if position != self._at:  # within a line
            return
        if self._block.startswith(mlperf.START, position):
            self._mllog(position)
        else:
            self._steps(position)

    def _drawn(self, position: int) -> bool:
        """What bars and the rows between them say; whether one stands there."""
        block, match, step_of = self._block, bars.PLAIN.match, self._readers.bars.plain
        began = position
        while len(self._out) < RUN:
            found = match(block, position)
            if found is None:
                if not block.startswith(rows.START, position):
                    break
                step, end = self._readers.bars.row(block, position)
                if step is None:
                    break
                self._begins(position)
                self._take(step, speakers.NOBODY, None)
                self._next = position = end
                continue
            self._begins(position)
            label = found[1]
            speaker = speakers.NOBODY if label is None else self._of_prefix(label)
            step = step_of(speaker.key, found)
            if step is not None:
                self._take(step, speaker, None)
            elif found[6] is not None:  # other words may stand where numbers do
                return True
            self._next = position = found.end()
        return position > began

    def _begins(self, position: int) -> None:
        """A line, or what stands behind a carriage return of one, begins there."""
        if position == 0 or self._block[position - 1] != _CARRIAGE_RETURN:
            self._at = position

    def _steps(self, position: int) -> None:
        block = self._block
        layout = self._readers.layout(block, position)
        if layout is None:
            return
        match, tz, recent = layout.match, self._tz, self._progress.of_number
        while (found := match(block, position)) is not None:
            prefix, label, minute, second, fraction, digits, *said = found.groups()
            speaker = speakers.NOBODY
            if prefix is not None or label is not None:
                speaker = self._of_prefix((prefix or b"") + (label or b""))
            at_s = None if minute is None else stamps.of_minute(minute, second, fraction, tz)
            number = int(digits.replace(b",", b""))
            known = number in recent and self._is_known(
                number, layout.loss(said), at_s, speaker.key
            )
            values = None if known else layout.values(said)
            if values is None and not known:
                return
            if at_s is not None:
                near_s: float | None = at_s
                self._dates.told(at_s, position)
            else:
                near_s = self._dates.before(position)
            if values is not None:
                step = layout.step(number, values)
                step.at_s = at_s
                if self._pending is not None:
                    self._take(step, speaker, None)
                else:
                    self._end(step, speaker, near_s)
            self._at = self._next = position = found.end()
            if len(self._out) >= RUN:
                return
        layout.learn(block, position)

    def _is_known(self, number: int, loss: float | None, at_s: float | None, key: str) -> bool:
        """Whether a step says nothing, as another rank has printed it: most lines of many ranks."""
        if loss is None or self._pending is not None or key.startswith("#"):
            return False
        return self._progress.said(number, loss, at_s, key)

    def _of_prefix(self, words: bytes) -> Speaker:
        speaker = speakers.of_prefix(words)
        self._compare(speaker)
        return speaker

    def _compare(self, speaker: Speaker) -> None:
        """Tasks of a job that starts one a node are no ranks."""
        if speaker.task is not None and speaker.rank not in (None, speaker.task):
            self._tasks_are_ranks = False

    def _mllog(self, position: int) -> None:
        block, size, skip = self._block, len(self._block), len(mlperf.START)
        while block.startswith(mlperf.START, position):
            end = block.find(b"\n", position)
            end = end if end >= 0 else size
            found = self._readers.mlperf.plain(block[position + skip : end])
            if found is None:
                return
            for one in found:
                if isinstance(one, Note):
                    self._flush()
                self._take(one, speakers.NOBODY, None)
            self._at = self._next = position = min(end + 1, size)

    def _line(self, line: bytes) -> None:
        for part in line.split(b"\r") if b"\r" in line else (line,):
            if len(part) > LINE_BYTES_MAX:
                head = part[:512].decode("utf-8", "replace")
                if forms.is_step(head):
                    self._out.append(self._broken("line too long", part, self._number()))
                continue
            text = speakers.without_colours(part.decode("utf-8", "replace")).rstrip("\x00")
            speaker, rest = speakers.split(text)
            self._compare(speaker)
            for piece in self._wrap.join(Piece(speaker, rest, part), self._number):
                self._say(piece)

    def _number(self) -> int:
        """Of the line that is read."""
        self._counted += self._block.count(b"\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._lines + self._counted + 1

    def _broken(self, reason: str, line: bytes, number: int) -> Rejected:
        return rejected(reason, line, f"{self._name}:{number}", self._dates.near_s)

    def _say(self, piece: Piece) -> None:
        speaker, text, told = piece.speaker, piece.text, False
        for found, words in self._readers.found(speaker.key, text):
            told = True
            if isinstance(found, str):
                number = piece.number if piece.number is not None else self._number()
                self._out.append(self._broken(found, piece.line, number))
            else:
                if isinstance(found, Note):  # before its time is taken for the bar's
                    self._flush()
                self._take(found, speaker, self._printed(words))
        if not told:
            self._context(text)
            self._failure(speaker, text, self._printed(text))

    def _printed(self, text: str) -> float | None:
        if "20" not in text[:512]:
            return None
        at_s = stamps.printed(text, self._tz)
        if at_s is not None:
            self._dates.told(at_s, self._at)
        return at_s

    def _take(self, found: Step | Note, speaker: Speaker, at_s: float | None) -> None:
        if isinstance(found, Note):
            self._note(found, speaker, at_s)
            return
        if found.at_s is not None:
            found.at_s = _sane(found.at_s)
        if found.at_s is None and at_s is not None and found.form not in ("bar", "hugging-face"):
            found.at_s = at_s
        near_s = found.at_s if found.at_s is not None else self._dates.before(self._at)
        waits = found.form in _WAITING
        if self._pending is not None:
            older, key, older_s = self._pending
            self._pending = None
            if (key == speaker.key and found.step in (None, older.step)) or (
                found.step == older.step and older.form in _WAITING
            ):
                found = merged(older, found)
                near_s = older_s if near_s is None else near_s
            else:
                self._end(older, Speaker(key) if key else speakers.NOBODY, older_s)
        if waits:
            found.rank = self._rank if speaker is speakers.NOBODY else self._rank_of(speaker)
            self._pending = found, speaker.key, near_s
        else:
            self._end(found, speaker, near_s)

    def _flush(self) -> None:
        if self._pending is not None:
            older, key, near_s = self._pending
            self._pending = None
            self._end(older, Speaker(key), near_s)

    def _end(self, found: Step, speaker: Speaker, near_s: float | None) -> None:
        step = self._progress.take(found, speaker.key, near_s, found.form in _SHARED)
        if step is None:
            return
        if speaker is speakers.NOBODY:
            step.rank = self._rank if step.rank is None else step.rank
        else:
            if step.rank is None:
                step.rank = self._rank_of(speaker)
            step.local_rank, step.host = speaker.local_rank, speaker.host
        self._incident.progressed()
        self._out.append(step)

    def _note(self, note: Note, speaker: Speaker, at_s: float | None) -> None:
        note.at_s = note.at_s if note.at_s is not None else at_s
        if note.at_s is None:
            note.at_s = self._dates.before(self._at)
        if note.type == "overflow":
            note.step = self._progress.next_step
            self._progress.overflowed(note.step)
        elif note.type != "check" and not note.apart:
            self._progress.carries(note.type)
        self._out.append(note)

    def _context(self, text: str) -> None:
        """What is no object but changes how the next step is read."""
        words = text.lstrip()
        if words.startswith(_RESTARTS):
            base = _LOADED.search(words[:1_024])
            self._progress.restart(int(base[1]) if base is not None else None)
        elif words.startswith("saving checkpoint at iteration"):
            self._progress.carries("checkpoint")
        elif "ChildFailedError" in words:
            self._elastic.begin()

    def _failure(self, speaker: Speaker, text: str, at_s: float | None) -> None:
        if self._elastic and (block := self._elastic.read(text)) is not None:
            failure, time = block
            self._fails(failure, speaker, stamps.printed(time, self._tz), text)
            return
        labelled = speaker.rank is not None
        found = self._tracebacks.read(speaker.key, labelled, text)
        if found is None and not self._tracebacks.repeats(speaker.key, text):
            found = read_failure(text)
            if found is not None:
                self._tracebacks.remember(speaker.key, text)
        if found is not None:
            self._fails(found, speaker, at_s, text)
            if found.detail == "launcher":
                self._elastic.begin()

    def _fails(self, failure: Failure, speaker: Speaker, at_s: float | None, text: str) -> None:
        self._flush()
        if at_s is None:
            at_s, failure.yearless_s = stamps.glog(text, self._tz, self._hint())
        if at_s is None and failure.yearless_s is None:
            known_s = (self._dates.before(self._at), self._progress.ended_s)
            at_s = max((one for one in known_s if one is not None), default=self._clock_s)
        failure.at_s = at_s
        rank = self._rank_of(speaker) if failure.class_ != "cancelled" else None
        failure.rank = failure.rank if rank is None else rank
        if failure.local_rank is None:
            failure.local_rank = speaker.local_rank
        failure.host = failure.host or speaker.host
        judged = self._incident.judge(placed(failure))
        if judged is not None:
            self._progress.undated += judged.at_s is None
            self._out.append(judged)

    def _hint(self) -> float | None:
        """A time of this log, for stamps that name no year."""
        for known_s in (self._dates.near_s, self._clock_s, self._hint_s, self._year_s):
            if known_s is not None:
                return known_s
        return None

    def _rank_of(self, speaker: Speaker) -> int | None:
        if speaker.rank is not None:
            return speaker.rank
        if speaker.task is not None:
            return speaker.task if self._tasks_are_ranks else None
        return self._rank


def _sane(at_s: float | None) -> float | None:
    return at_s if at_s is not None and AT_MIN_S <= at_s < AT_MAX_S else None
