"""`nodewarden ack`: somebody looks after the incident."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking("ack", "ack", "ID", "Say that you look after the incident ID.")
