"""Every reader of steps and notes, tried on one line in their order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo

from collectors.training import bars, dlrover, forms, megatron, mlperf, titan
from collectors.training.model import Note, Step

Layout = megatron.Layout | titan.Layout


class Readers:
    """One log's: those that keep something in mind, and the forms that do not."""

    def __init__(self, tz: tzinfo, clock_s: float | None) -> None:
        self.mlperf, self.bars = mlperf.MlPerf(), bars.Bars(clock_s)
        self._dlrover = dlrover.DlRover(tz)
        self._layout: Layout = megatron.Layout()  # of the newest line that had one
        self._other: Layout = titan.Layout()

    def layout(self, block: bytes, position: int) -> Layout | None:
        """The layout of the line that starts there; what has none yet is learned."""
        if self._layout.match(block, position) is None:
            if self._other.match(block, position) is None:
                self._layout.learn(block, position)
                self._other.learn(block, position)
                return None
            self._layout, self._other = self._other, self._layout
        return self._layout

    def found(self, key: str, text: str) -> Iterator[tuple[Step | Note | str, str]]:
        """What step forms read in a speaker's line, and the words that may hold its time."""
        if mlperf.MARKER in text:
            yield from ((found, "") for found in self.mlperf.read(text))
        elif dlrover.MARKER in text:
            yield from ((found, "") for found in self._dlrover.read(text))
        elif "%|" in text or "{'" in text:
            rest = text
            for drawn, rest in self.bars.read(key, text):  # noqa: B007 - the last rest counts
                if drawn is not None:
                    yield drawn, ""
            yield from _of_forms(rest)
        else:
            yield from _of_forms(text)


def _of_forms(text: str) -> Iterator[tuple[Step | Note | str, str]]:
    for form in forms.FORMS:
        if form.marker in text:
            found = form.read(text)
            if found is not None:
                yield found, text
                return
    if "Esimated iteration" in text:
        yield from ((step, text) for step in forms.rank_times(text))
