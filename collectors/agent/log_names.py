"""Paths that templates name, and the job and rank that stand in them."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path

from telemetry.errors import SettingsError

_PLACES = {"{job}": r"(?P<job>[^/]+?)", "{rank}": r"(?P<rank>\d{1,7})"}
_RANK = re.compile(r"rank[-_]?(\d{1,7})(?!\d)")


class LogNames:
    """`/logs/{job}/rank-{rank}.log` names what is found under it; `{node}` is this node.

    Without {job} the directory's name is the job's, without {rank} a `rank-<n>` in the file's name.
    """

    def __init__(self, template: str, node: str, setting: str = "training_logs") -> None:
        """Raises SettingsError where the template cannot be meant."""
        if not template.startswith("/") or template.count("{job}") > 1:
            raise SettingsError(
                f"collect.{setting}: {template!r} is no path; as /logs/{{job}}/rank-{{rank}}.log"
            )
        self.template = template = template.replace("{node}", node)
        self._glob = template.replace("{job}", "*").replace("{rank}", "*")
        pattern = "".join(
            _PLACES.get(part, re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]"))
            for part in re.split(r"(\{job\}|\{rank\})", template)
        )
        self._pattern = re.compile(pattern)

    def paths(self) -> Iterator[str]:
        """What is there now."""
        return glob.iglob(self._glob)

    def read(self, path: str) -> tuple[str, int | None] | None:
        """Job and rank, None where the file is none of these."""
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        groups = found.groupdict()
        named = groups.get("rank")
        if named is None:
            in_name = _RANK.search(Path(path).stem)
            named = in_name[1] if in_name is not None else None
        job = groups.get("job") or Path(path).parent.name
        return job, int(named) if named is not None else None
