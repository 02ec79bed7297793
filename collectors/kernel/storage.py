"""Disks, RAID, NVMe and file systems.

"mounted filesystem", "Remounting filesystem read-write" and drivers' announcements match no row.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collectors.kernel.events import Form, plain

_GPUD = "leptonai/gpud components/disk (Apache-2.0)"
_FS = r"(?:EXT[234]-fs|XFS|BTRFS)(?: \((?P<disk>[\w./-]{1,32})\))?"


def _row(
    name: str, marker: bytes, pattern: str, class_: str, example: str, **changes: object
) -> Form:
    base = Form(
        name=name, marker=marker, type="storage", severity="critical", class_=class_, make=plain,
        pattern=re.compile(pattern), example=example, source=_GPUD,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


FORMS: tuple[Form, ...] = (
    _row("RAID lost a disk", b"disk failure on",
         r"md/raid[\w:]{1,24}: Disk failure on (?P<disk>\w{1,24}) detected", "raid_failure",
         "md/raid1:md1: Disk failure on sda1 detected, failing array"),
    _row("file system read-only", b"remounting filesystem read-only",
         rf"(?:{_FS}: )?Remounting filesystem read-only", "fs_read_only",
         "EXT4-fs (md0): Remounting filesystem read-only"),
    _row("NVMe without a path", b"no available path",
         r"block (?P<disk>nvme\w{1,16}): no available path - failing I/O", "nvme_no_path",
         "block nvme0n1: no available path - failing I/O"),
    _row("NVMe time-out with a reset", b"timeout, reset controller",
         r"nvme (?P<disk>nvme\d{1,4}): I/O (?:tag )?\d{1,6} .{0,80}?timeout, reset controller",
         "nvme_timeout", "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset"
         " controller"),
    _row("NVMe time-out", b"timeout, aborting",
         r"nvme (?P<disk>nvme\d{1,4}): I/O (?:tag )?\d{1,6} .{0,80}?timeout, aborting",
         "nvme_timeout", "nvme nvme1: I/O 775 QID 2 timeout, aborting", severity="warning",
         source="public issue threads"),
    _row("NVMe command aborted", b"abort status", r"nvme (?P<disk>nvme\d{1,4}): Abort status: 0x",
         "detail", "nvme nvme1: Abort status: 0x6", severity="info", source="public issue threads"),
    _row("NVMe controller down", b"controller is down",
         r"nvme (?P<disk>nvme\d{1,4}): controller is down; will reset", "nvme_down",
         "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
         source="public issue threads"),
    _row("NVMe controller given up", b"device after reset failure",
         r"nvme (?P<disk>nvme\d{1,4}): Disabling device after reset failure: -\d", "nvme_disabled",
         "nvme nvme4: Disabling device after reset failure: -19"),
    _row("NVMe controller removed", b"removing after probe failure",
         r"nvme (?P<disk>nvme\d{1,4}): Removing after probe failure", "nvme_disabled",
         "nvme nvme0: Removing after probe failure status: -19", source="public issue threads"),
    _row("beyond the end of a device", b"beyond end of device",
         r"(?:(?P<process>[\w./:-]{1,64}): )?attempt to access beyond end of device", "beyond_end",
         "kworker/u203:1: attempt to access beyond end of device"),
    _row("buffered I/O error", b"buffer i/o error",
         r"Buffer I/O error on dev(?:ice)? (?P<disk>[\w.-]{1,32}), logical block \d", "io_error",
         "Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write"),
    _row("block I/O error", b"error, dev",
         r"\b(?:I/O|critical (?:medium|target|nexus|space allocation)) error, dev"
         r" (?P<disk>[\w.-]{1,32}), sector \d", "io_error",
         "I/O error, dev nvme0n1, sector 32545872 op 0x0:(READ) flags 0x80700 phys_seg 1 prio"
         " class 2", source="public issue threads"),
    _row("superblock not written", b"error while writing superblock",
         rf"(?:{_FS}: )?I/O error while writing superblock", "fs_error",
         "EXT4-fs (dm-0): I/O error while writing superblock"),
    _row("XFS damage", b"xfs (",
         r"XFS \((?P<disk>[\w./-]{1,32})\): (?:.{0,64}?Corruption (?:of in-memory data )?detected"
         r"|Metadata corruption detected|I/O Error Detected\. Shutting down filesystem"
         r"|metadata I/O error|.{0,64}?[Ss]hutting down filesystem|log I/O error)", "fs_error",
         "XFS (dm-4): Corruption detected. Unmount and run xfs_repair",
         source="public issue threads"),
    _row("ext4 damage", b"-fs error",
         r"EXT[234]-fs error \(device (?P<disk>[\w.-]{1,32})\)", "fs_error",
         "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm bash",
         source="Linux ext4"),
    _row("btrfs damage", b"btrfs",
         r"BTRFS(?: error| critical)? \(device (?P<disk>[\w.-]{1,32})[^)]{0,32}\).{0,80}?"
         r"(?:forced readonly|corrupt|errs: wr [1-9]|bad tree block|checksum verify failed)",
         "fs_error", "BTRFS error (device sdb1): bad tree block start, want 1 have 0",
         source="Linux btrfs"),
    _row("SATA link error", b"exception emask",
         r"\bata\d{1,3}(?:\.\d{1,2})?: exception Emask 0x", "ata_error",
         "ata1.00: exception Emask 0x10 SAct 0x0 SErr 0x4050000 action 0xe frozen",
         severity="warning", source="Linux libata"),
    _row("Lustre client thrown out", b"lustreerror",
         r"LustreError: .{0,160}?(?:was evicted|operation \w{1,32} to node .{0,80}? failed)",
         "lustre", "LustreError: 167-0: scratch-MDT0000-mdc-ffff8: This client was evicted by"
         " scratch-MDT0000; in progress operations using this service will fail.",
         severity="warning", source="Lustre manual"),
)  # fmt: skip
