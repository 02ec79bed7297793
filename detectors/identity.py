"""Which machine and which part a finding is about, whatever they are called at the moment.

A boot may give a port another name, a site may rename a node, a GPU has an address and a UUID. A
finding keeps the identity that its part had when it was first heard of.
"""

from __future__ import annotations

import msgspec

from detectors.base import View
from detectors.story import Placed, Story
from telemetry.findings import Finding


def placed(finding: Finding, view: View) -> Placed:
    """The finding with the job, leaf, machine and part of its node at its onset."""
    if not finding.node:
        return Placed(finding, finding.job, "")
    node = view.named(finding.node)
    if node != finding.node:
        finding = msgspec.structs.replace(finding, node=node)
    place = view.place(node, finding.onset)
    device = view.device(node, finding.entity) if finding.entity else ""
    machine = view.device(node, "")
    return Placed(finding, finding.job or place.job, place.leaf, device=device, machine=machine)


def again(known: Placed, new: Placed) -> Placed:
    """A later revision of a fault: who and what it is about stays as it was known."""
    same = new.finding.node == known.finding.node
    finding = new.finding
    if not same and known.machine:
        finding = msgspec.structs.replace(finding, node=known.finding.node)
    return msgspec.structs.replace(
        new, finding=finding, device=known.device or new.device,
        machine=known.machine or new.machine,
    )  # fmt: skip


def rename(story: Story, new: Placed) -> bool:
    """The machine has another name now: what the story tells of it goes by the new one."""
    changed = False
    for key, fault in story.faults.items():
        same = bool(new.machine) and fault.machine == new.machine
        if same and fault.finding.node != new.finding.node:
            finding = msgspec.structs.replace(fault.finding, node=new.finding.node)
            story.faults[key] = msgspec.structs.replace(fault, finding=finding)
            changed = True
    return changed


def same_device(one: Placed, other: Placed) -> bool:
    """Whether both are about one part of one machine."""
    return (
        bool(one.device) and one.device == other.device and one.finding.node == other.finding.node
    )


def is_over(fault: Placed, view: View) -> bool:
    """Whether the name that an alarm goes by now belongs to another part, or to none while its
    part goes by another name. Nobody will ever clear it under the old name. A part that is gone
    without a successor is lost, and its alarm stays.
    """
    node, entity = fault.finding.node, fault.finding.entity
    if not fault.device or fault.finding.state == "clear":
        return False
    now = view.device(node, entity)
    return now != fault.device and (bool(now) or view.holds(node, fault.device))
