"""What the last lines of a process that died say: the failures a training log tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.training import speakers
from collectors.training.failures import exited, read_failure
from collectors.training.incidents import Elastic, Incident, Tracebacks, placed
from collectors.training.model import Failure

LAUNCHER = "ChildFailedError"  # torchrun's summary follows


def failure_of(lines: Iterable[str], code: int) -> Failure:
    """The first cause in `lines`, else the last thing they warn of, else what the code says.

    code   the exit code, -N where signal N ended the process
    """
    said = list(_failures(lines))
    cause = next((one for one in said if one.role == "cause"), None)
    by_code = exited(code, "")
    if cause is not None:
        return cause
    if said and by_code.class_ in ("unknown", "user_code"):
        return said[-1]
    return by_code


def _failures(lines: Iterable[str]) -> Iterable[Failure]:
    tracebacks, elastic, incident = Tracebacks(), Elastic(), Incident()
    for line in lines:
        speaker, text = speakers.split(line)
        if LAUNCHER in text:
            elastic.begin()
        found = None
        if elastic and (block := elastic.read(text)) is not None:
            found = block[0]
        if found is None:
            found = tracebacks.read(speaker.key, speaker.rank is not None, text)
        if found is None and not tracebacks.repeats(speaker.key, text):
            found = read_failure(text)
            if found is not None:
                tracebacks.remember(speaker.key, text)
        if found is None:
            continue
        judged = incident.judge(placed(found))
        if judged is not None:
            yield judged
    for _, unfinished in tracebacks.finish():
        judged = incident.judge(placed(unfinished))
        if judged is not None:
            yield judged
