"""The parameter tables of docs/detectors, from telemetry/settings.py.

To write them: `python -m tests.parameter_tables`. A test says when they are no longer current.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from telemetry import settings
from telemetry.settings import EngineSettings

PAGES = Path(__file__).parents[1] / "docs" / "detectors"
_UNITS = {
    "_bytes_per_second": "bytes/s", "_s": "seconds", "_sigmas": "sigmas", "sigmas": "sigmas",
    "_percent": "percent", "_share": "share", "share": "share", "coverage": "share",
    "_ratio": "ratio", "_multiple": "ratio", "_samples": "samples", "samples_min": "samples",
    "_ticks": "ticks", "_steps": "steps", "_errors": "standard errors", "_floor": "share",
    "group_min": "nodes", "nodes_min": "nodes", "_count": "events",
}  # fmt: skip
_FIELD = re.compile(r"^    (\w+): [^#\n]*?(?:  # (.*))?$", re.MULTILINE)
_BLOCK = re.compile(r"<!-- parameters: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def table(section: str) -> str:
    """The table of one section of `[engine]`, in Markdown."""
    default = getattr(EngineSettings(), section)
    source = Path(settings.__file__).read_text(encoding="utf-8")
    start = source.index(f"class {type(default).__name__}(")
    body = source[start : source.find("\n\n\n", start)]
    why = {name: comment for name, comment in _FIELD.findall(body)}
    rows = ["| key | default | unit | remark |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(default):
        value = getattr(default, field.name)
        rows.append(
            f"| `engine.{section}.{field.name}` | {_shown(value)} | {_unit(field.name, value)} "
            f"| {why.get(field.name, '')} |"
        )
    return "\n".join(rows)


def _shown(value: object) -> str:
    """As it stands in the settings file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}"
    return msgspec.json.encode(value).decode()


def _unit(name: str, value: object) -> str:
    if isinstance(value, bool):
        return ""
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def with_tables(page: str) -> str:
    """The page with its tables as they should be."""
    return _BLOCK.sub(
        lambda found: f"<!-- parameters: {found[1]} -->\n{table(found[1])}\n<!-- end -->", page
    )


def main() -> None:
    """Write all pages."""
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
