"""What the NVLink 5 Xids (144-150) mean: by unit, status word and, for a link down, its reason.

From the Xid catalogue's 94 rules, condensed. A line's own word, Fatal or Nonfatal, always wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal[
    "ignore", "log", "restart_app", "reset_gpu", "report_if_alone", "report_if_often",
    "check_link", "check_software", "check_peer", "check_host",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """One row.

    unit      what the line's unit, or a part of it between slashes, begins with
    statuses  errorStatus words (or, of a link down, reasons) it holds for; () is all others
    fatal     what the catalogue says; None where it depends
    action    what is to be done with this GPU; "check_peer" accuses the other end
    """

    code: int
    unit: str
    statuses: tuple[int, ...]
    fatal: bool | None
    action: Action


LINK_DOWN = "NETIR_LINK_"  # NETIR_LINK_EVT and NETIR_LINK_DOWN: judged by reason

RULES: tuple[Rule, ...] = (
    Rule(144, "SAW_MVB", (0x1, 0x8), False, "log"),  # Xid 48 or poison follows and says more
    Rule(144, "SAW_MVB", (0x2, 0x10), True, "reset_gpu"),
    Rule(144, "SAW_MVB", (0x4, 0x20), False, "ignore"),
    Rule(145, "RLW_CTRL", (0x80000000,), False, "check_software"),
    Rule(145, "RLW_REMAP", (0x1, 0x2, 0x4, 0x8, 0x10, 0x20), False, "restart_app"),
    Rule(145, "RLW_REMAP", (0x40, 0x80), True, "reset_gpu"),
    Rule(145, "RLW_REMAP", (0x100, 0x200), False, "ignore"),
    Rule(145, "RLW_RSPCOL", (0x1,), False, "ignore"),
    Rule(145, "RLW_RSPCOL", (0x2,), True, "reset_gpu"),
    Rule(145, "RLW_RXPIPE", (0x1, 0x2, 0x4), False, "restart_app"),  # packets lost; then a reset
    Rule(145, "RLW_RXPIPE", (0x8,), False, "log"),
    Rule(145, "RLW_SRC_TRACK", (0x1, 0x10, 0x20), True, "reset_gpu"),
    Rule(145, "RLW_SRC_TRACK", (0x2,), False, "ignore"),
    Rule(145, "RLW_SRC_TRACK", (0x4, 0x8), False, "restart_app"),
    Rule(145, "RLW_TAGSTATE", (0x1, 0x10000), False, "ignore"),
    Rule(145, "RLW_TAGSTATE", (0x2, 0x20000, 0x100000), True, "reset_gpu"),
    Rule(146, "TLW_", (0x1,), False, "ignore"),
    Rule(146, "TLW_", (0x2,), False, "log"),  # 48, 94 or 95 follows and says more
    Rule(146, "TLW_", (0x4,), True, "reset_gpu"),
    Rule(147, "TREX", (), False, "log"),
    Rule(148, "NVLPW", (), False, "log"),
    Rule(149, "NETIR_BER_EVENT", (), False, "check_link"),
    Rule(149, "NETIR_MFDE_EVENT", (1, 4, 5, 7), True, "reset_gpu"),
    Rule(149, "NETIR_MFDE_EVENT", (3,), False, "ignore"),
    Rule(149, LINK_DOWN, (0b000000,), True, "report_if_alone"),
    Rule(149, LINK_DOWN, (0b000001,), True, "report_if_often"),  # more than once a day
    Rule(149, LINK_DOWN, (0b000010, 0b000100, 0b001010), True, "check_link"),
    Rule(149, LINK_DOWN, (0b001111, 0b010001, 0b010110), True, "check_software"),
    Rule(149, LINK_DOWN, (0b010000, 0b010010), True, "check_software"),
    Rule(149, LINK_DOWN, (0b010101, *range(0b100000, 0b100110)), True, "check_peer"),
    Rule(149, LINK_DOWN, (0b100110,), None, "check_software"),  # the only ones without a reset
    Rule(149, LINK_DOWN, (0b101000,), True, "check_host"),
    Rule(149, LINK_DOWN, (0b101010, 0b101011), True, "check_link"),
    Rule(149, "NETIR", (), True, "report_if_alone"),  # NETIR_INT: a link is dead
    Rule(150, "MSE", (), True, "reset_gpu"),
)


def reason(interrupt: int) -> int:
    """The sub-code, bits 20 to 25 of the first status word."""
    return (interrupt >> 20) & 0b111111


def decode(code: int, unit: str, fatal: bool, interrupt: int | None, status: int | None) -> Action:
    """What to do; where the table does not know the row or contradicts the line, the line's word
    decides: fatal resets the GPU, nonfatal is only noted."""
    bare: Action = "reset_gpu" if fatal else "log"
    parts = unit.split("/")
    for rule in RULES:
        if rule.code != code or not any(part.startswith(rule.unit) for part in parts):
            continue
        if rule.unit == LINK_DOWN:
            seen = reason(interrupt) if interrupt is not None else None
        else:
            seen = status
        if rule.statuses == () or seen in rule.statuses:
            return rule.action if rule.fatal in (None, fatal) else bare
    return bare
