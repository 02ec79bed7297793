"""`nodewarden resume`: ends a pause."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking("resume", "resume", "", "Let the service act again after a pause.")
