"""All wordings, in the order in which they are tried. Adding one is adding a row to its module."""

from __future__ import annotations

from collectors.kernel import gpu, host, nic, oom, storage, xid
from collectors.kernel.events import Form, Line, Said

FORMS: tuple[Form, ...] = (
    *xid.FORMS, *gpu.FORMS, *nic.FORMS, *storage.FORMS, *oom.FORMS, *host.FORMS,
)  # fmt: skip

# The kernel's own records hold 1 KB; a wrapped one (JSON, another tool's line) may hold more.
LOOKED_AT = 8_192

# journald writes a message that is no plain text as numbers: no marker can be seen in it.
NUMBERS = (b'"message":[', b'"message": [', b'"message" : [')


# Words that several markers share: one search finds all of them. None is common in ordinary lines.
SHARED = (
    b" down", b"bug: ", b"error", b"failure", b"killed", b"mlx5_", b"nvrm:", b"nvswitch",
    b"oom-kill", b"out of memory", b"sxid (", b"temperature", b"timeout",
)  # fmt: skip


def _by_searched() -> dict[bytes, tuple[Form, ...]]:
    """What a piece of a file is searched for, and whose lines hold it: no row is left out."""
    rows: dict[bytes, tuple[Form, ...]] = dict.fromkeys(NUMBERS, ())
    for form in FORMS:
        searched = next((word for word in SHARED if word in form.marker), form.marker)
        rows[searched] = (*rows.get(searched, ()), form)
    return rows


SEARCHED = _by_searched()
SEARCHED_PLAIN = tuple(word for word in SEARCHED if word not in NUMBERS)


def may_say(data: bytes, searched: list[bytes]) -> bool:
    """Whether a line is worth to be opened: most that hold such words are ordinary all the same."""
    if data.lstrip().startswith(b"{"):
        return True
    lower, text = data.lower(), data.decode("utf-8", "replace")
    return any(
        form.pattern.search(text, 0, len(text) if form.anywhere else LOOKED_AT)
        for word in searched
        for form in SEARCHED[word]
        if form.marker in lower
    )


def said_by(line: Line) -> Said | str | None:
    """What one record says; a text is why it is broken, None an ordinary one."""
    lower = line.message.lower().encode("utf-8", "replace")
    for form in FORMS:
        if form.marker not in lower or (line.user_space and not form.anywhere):
            continue
        end = len(line.message) if form.anywhere else LOOKED_AT
        found = form.pattern.search(line.message, 0, end)
        if found is not None:
            return form.make(form, found, line)
    return None
