"""Loss and gradient norm of each step, as a healthy job has them and as faults change them."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.faults import Fault

_WARMS_UP_STEPS = 40.0


class Losses:
    """Rational curves: they fall from about 11 to 1.8 as real losses do, without exp or log."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = [
            f
            for f in faults
            if f.what.loss != 1.0 or f.what.norm != 1.0 or f.what.drift > 0.0 or f.what.nonfinite
        ]
        self._struck: dict[int, int] = {}  # position of the fault -> steps that it struck so far
        self._warms_up = False

    def restart(self, number: int) -> None:
        """The learning rate warms up anew from this step on."""
        self._warms_up = number > 0

    def at(
        self, number: int, since_launch: int, end_s: float, noise: float, norm_noise: float
    ) -> tuple[float | None, float | None]:
        """(loss, gradient norm) of a step, None where they are not finite."""
        loss = 1.8 + 9.2 / (1.0 + number / 60.0) + 0.02 * noise
        norm = 0.4 + 3.0 / (1.0 + number / 40.0) * (1.0 + 0.1 * norm_noise)
        if self._warms_up:
            again = 1.0 / (1.0 + since_launch / _WARMS_UP_STEPS)
            loss *= 1.0 + 1.5 * again
            norm *= 1.0 + 7.0 * again
        for place, fault in enumerate(self._faults):
            what, steps = fault.what, self._struck.get(place, 0)
            if not fault.active(end_s) or 0 < what.bad_steps <= steps:
                continue
            if what.nonfinite:
                return None, None
            self._struck[place] = steps + 1
            loss *= 1.0 + (what.loss - 1.0) * fault.size + what.drift * fault.size * steps
            norm *= 1.0 + (what.norm - 1.0) * fault.size
        return float(f"{loss:.6E}"), round(norm, 3)
