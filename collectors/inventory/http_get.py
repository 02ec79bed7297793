"""What the inventory asks HTTP servers with: `telemetry.http_get`, for readers of this package."""

from __future__ import annotations

from telemetry.http_get import Answer, HttpGet

__all__ = ["Answer", "HttpGet"]
