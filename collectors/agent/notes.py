"""Sentences for the operator: the same one once, then again only after a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from telemetry.ports import Clock

AGAIN_S = 600.0
KNOWN_MAX = 1_000


class Notes:
    """Says a sentence to `say`, which prints it."""

    def __init__(self, say: Callable[[str], None], clock: Clock) -> None:
        self._say, self._clock = say, clock
        self._said_s: OrderedDict[str, float] = OrderedDict()

    def say_all(self, sentences: Iterable[str]) -> None:
        """Those that were not said lately."""
        now_s = self._clock.monotonic_s()
        for sentence in sentences:
            said_s = self._said_s.get(sentence)
            if said_s is not None and now_s - said_s < AGAIN_S:
                continue
            self._said_s[sentence] = now_s
            self._said_s.move_to_end(sentence)
            if len(self._said_s) > KNOWN_MAX:
                self._said_s.popitem(last=False)
            self._say(sentence)
