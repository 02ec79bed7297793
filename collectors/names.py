"""Which node a line speaks of: labels, file names and the scheduler spell one node differently."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from telemetry.codec import name_fault

NODE_LABELS = ("Hostname", "hostname", "node", "nodename", "instance")  # the first two are one


class NodeNames:
    """The names that are known, short or fully qualified.

    allocated   as the scheduler has them; where it says nothing, empty
    logged      of nodes with a kernel log
    aliases     other name -> allocated name: addresses, host names below the scheduler's name
    """

    def __init__(
        self, allocated: Iterable[str], logged: Iterable[str],
        aliases: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        names = list(allocated)
        other = {alias.lower(): name for alias, name in (aliases or {}).items() if name in names}
        self._allocated = other | _spellings(names)
        self._logged = _spellings(self._known(name) or name for name in sorted(logged))

    def of_labels(self, labels: Mapping[str, str]) -> str | None:
        """The node of a series: the first label that the allocation knows, else one with a kernel
        log, else the first present. None where no label can be a node's name."""
        said = [(label, labels.get(label, "")) for label in NODE_LABELS]
        names = [_bare(name) if label == "instance" else name for label, name in said if name]
        for known in (self._allocated, self._logged):
            for name in names:
                found = _find(known, name)
                if found is not None:
                    return found
        return next((name for name in names if name and name_fault("node", name) is None), None)

    def knows(self, node: str) -> bool:
        """Whether the allocation lists it."""
        return node in self._allocated.values()

    def of_file(self, name: str) -> str:
        """The node of `kernel/<name>.log`."""
        return self._known(name) or name

    def _known(self, name: str) -> str | None:
        return _find(self._allocated, name)


def _spellings(names: Iterable[str]) -> dict[str, str]:
    """Each name under itself and, where only one node claims it, under its short form."""
    whole = {name.lower(): name for name in names}
    short: dict[str, str | None] = {}
    for name in sorted(whole):
        bare = name.partition(".")[0]
        short[bare] = whole[name] if bare not in short else None
    return {bare: name for bare, name in short.items() if name is not None} | whole


def _find(known: Mapping[str, str], said: str) -> str | None:
    """In any case, with or without its domain or the dot at its end."""
    name = said.lower().removesuffix(".")
    exact = known.get(name)
    if exact is not None or _is_address(name):
        return exact
    return known.get(name.partition(".")[0])


def _bare(instance: str) -> str:
    """ "n1:9400" and "[fe80::1]:9400" without the port."""
    if instance.startswith("["):
        return instance[1:].partition("]")[0]
    host, colon, port = instance.rpartition(":")
    return host if colon and port.isdecimal() and ":" not in host else instance


def _is_address(name: str) -> bool:
    return name.replace(".", "").isdecimal()


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key that puts "mlx5_2" before "mlx5_10"."""
    return tuple(
        (int(piece), "") if piece.isdecimal() else (-1, piece)
        for piece in re.split(r"([0-9]{1,9})", name, maxsplit=16)
    )
