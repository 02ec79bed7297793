"""JSON that a log line holds, as a plain value."""

from __future__ import annotations

import json
from typing import Any

import msgspec

DEPTH_BYTES_MAX = 1 << 20


def decoded(text: str) -> Any:
    """The value, None where the text is no JSON. Python's NaN and Infinity are read."""
    if len(text) > DEPTH_BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
