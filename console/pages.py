"""HTML pages of templates: escaped throughout, and a name that nobody gives is an error."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from console import text


def pages() -> Environment:
    """The templates of this package, with the filters that every page has."""
    environment = Environment(
        loader=PackageLoader("console", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        visible=text.visible, name=text.name, utc=text.utc, iso=text.iso, duration=text.duration
    )
    return environment
