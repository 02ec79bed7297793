"""What the eviction of a parallel group costs: GPU-hours that are lost, as expected.

Stacks name the smallest group that holds all outliers; one or two of its machines are really bad
(ByteRobust: 2 of 6, 1 or 2 of 8). To evict all of them never misses; to evict those that stand out
most keeps the others at work, and may miss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from telemetry.attempts import Attempt
from telemetry.settings import PolicySettings


class Option(NamedTuple):
    """One way to evict.

    chance        that the bad nodes are among them
    lost_gpu_h    expected GPU-hours lost
    """

    way: str
    nodes: list[str]
    chance: float
    lost_gpu_h: float


def options(
    group: Attempt, job_nodes: int, gpus_per_node: int, policy: PolicySettings
) -> tuple[Option, Option]:
    """(whole, ranked).

    lost = job's GPUs x restart + evicted GPUs x diagnosis + (1 - chance) x job's GPUs x again
    """
    nodes = sorted(group.nodes or ())
    best, chance = _ranked(group, nodes, policy.ranked_nodes)
    job_gpus = job_nodes * gpus_per_node

    def option(way: str, evicted: list[str], chance: float) -> Option:
        lost_s = job_gpus * policy.group_restart_s
        lost_s += len(evicted) * gpus_per_node * policy.group_diagnosis_s
        lost_s += (1.0 - chance) * job_gpus * policy.group_again_s
        return Option(way, evicted, chance, lost_s / 3_600.0)

    return option("whole", nodes, 1.0), option("ranked", best, chance)


def _ranked(group: Attempt, nodes: list[str], count: int) -> tuple[list[str], float]:
    """The nodes that stand out most, and the chance that the bad ones are among them.

    Without scores all are alike, and the chance is their share.
    """
    scores: dict[str, float] = dict.fromkeys(nodes, 1.0)
    if group.nodes is not None and len(group.scores) == len(group.nodes):
        scores = dict(zip(group.nodes, group.scores, strict=True))
    best = sorted(nodes, key=lambda node: (-scores[node], node))[:count]
    total = sum(scores.values())
    chance = sum(scores[node] for node in best) / total if total > 0.0 else len(best) / len(nodes)
    return sorted(best), chance


def copies_survive(copies: dict[str, list[str]] | None, evicted: Sequence[str]) -> bool | None:
    """Whether a copy of each evicted node's checkpoint is elsewhere; None where nobody knows."""
    gone = set(evicted)
    if copies is None or not gone <= copies.keys():
        return None
    return all(set(copies[node]) - gone for node in gone)
