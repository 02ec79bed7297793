"""GPU lines that are no Xid: lost without one, not to be started, AMD's driver."""

from __future__ import annotations

import re
from dataclasses import replace

from collectors.kernel.events import (
    Form,
    KernelEvent,
    Line,
    Part,
    nothing,
    plain,
    read_pci,
)  # fmt: skip

_I = re.IGNORECASE
_ADDRESS = r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)"


def _lost(form: Form, found: re.Match[str], line: Line) -> KernelEvent:
    """The wordings all mean what Xid 79 means."""
    return replace(plain(form, found, line), code=79)


def _named(form: Form, found: re.Match[str], line: Line) -> Part:
    return Part(kind="gpu_named", line=line, pci=read_pci(found["pci"]))


def _nvidia(name: str, pattern: str, example: str, **changes: object) -> Form:
    base = Form(
        name=name, marker=b"nvrm:", type="gpu_lost", severity="critical", class_="fallen",
        pattern=re.compile(pattern, _I | re.DOTALL), make=_lost, example=example,
        source="github issues NVIDIA/open-gpu-kernel-modules",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


_AMDGPU = rf"amdgpu {_ADDRESS}: (?:amdgpu: )?.{{0,160}}?"


def _amd(name: str, words: str, example: str, **changes: object) -> Form:
    base = Form(
        name=name, marker=b"amdgpu", type="gpu", severity="warning", class_="amd", make=plain,
        pattern=re.compile(_AMDGPU + words, _I), example=example,
        source="github issues ROCm/ROCm, gitlab.freedesktop.org drm/amd",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


FORMS: tuple[Form, ...] = (
    _nvidia("GPU lost, one line or one record",
            rf"NVRM: (?:The NVIDIA )?GPU {_ADDRESS}.{{0,200}}?fallen off the bus",
            "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus."),
    _nvidia("GPU lost, the line that names it", rf"NVRM: The NVIDIA GPU {_ADDRESS}",
            "NVRM: The NVIDIA GPU 0000:18:00.0", make=_named),
    _nvidia("GPU lost, the line that says so", r"NVRM: .{0,160}?fallen off the bus",
            "NVRM: fallen off the bus and is not responding to commands."),
    _nvidia("GPU that cannot be started",
            rf"NVRM: GPU {_ADDRESS}: RmInitAdapter failed! \(0x[0-9a-f]{{1,8}}:",
            "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x62:0x65:2168)",
            type="gpu", class_="init_failed", make=plain),
    Form(
        name="peermem callback", marker=b"nvidia-peermem", type="gpu", severity="info",
        class_="peermem", make=plain,
        pattern=re.compile(r"nvidia-peermem nv_get_p2p_free_callback:\d{1,6} ERROR"),
        example="nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context,"
                " skipping further processing",
        source="leptonai/gpud testdata (Apache-2.0); benign on old drivers",
    ),
    _amd("AMD GPU lost", r"(?:device lost from bus|GPU is lost|fallen off the bus)",
         "amdgpu 0000:c3:00.0: amdgpu: device lost from bus!",
         type="gpu_lost", severity="critical", class_="fallen"),
    _amd("AMD uncorrectable error", r"uncorrectable hardware error\(",
         "amdgpu 0000:68:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
         severity="critical", class_="ras_uncorrected"),
    _amd("AMD RAS count, uncorrectable",
         r"\b[1-9]\d{0,9} (?:new )?uncorrectable (?:hardware )?errors?",
         "amdgpu 0000:c3:00.0: amdgpu: socket: 0, die: 0 1 new uncorrectable hardware errors"
         " detected in umc block", severity="critical", class_="ras_uncorrected"),
    _amd("AMD RAS count, correctable", r"\d{1,10} (?:new )?correctable (?:hardware )?errors?",
         "amdgpu 0000:c3:00.0: amdgpu: socket: 0, die: 0 1 new correctable hardware errors"
         " detected in umc block", severity="info", class_="ras_corrected"),
    _amd("AMD poison", r"\bpoison (?:is )?(?:created|consumed|consumption)",
         "amdgpu 0000:c3:00.0: amdgpu: poison is consumed by client 2", severity="critical",
         class_="ras_uncorrected"),
    _amd("AMD accelerator check",
         r"\[Hardware Error\]: Accelerator Check Architecture events logged",
         "amdgpu 0000:9e:00.0: {1}[Hardware Error]: Accelerator Check Architecture events logged",
         class_="ras"),
    _amd("AMD hardware error, its registers", r"\[Hardware Error\]",
         "amdgpu 0000:9e:00.0: {1}[Hardware Error]: aca entry[00].STATUS=0x98000800003e0000",
         severity="info", class_="detail"),
    _amd("AMD ring time-out", r"\bring [\w.]{1,32} timeout",
         "amdgpu 0000:28:00.0: ring gfx_0.0.0 timeout, signaled seq=57638, emitted seq=57641",
         class_="ring_timeout"),
    _amd("AMD reset", r"GPU reset begin!", "amdgpu 0000:28:00.0: GPU reset begin!. Source:  1",
         class_="reset"),
    _amd("AMD reset failed", r"(?:GPU reset.{0,40} failed|GPU Recovery Failed)",
         "amdgpu 0000:28:00.0: amdgpu: GPU reset end with ret = -62, GPU Recovery Failed: -62",
         severity="critical", class_="reset_failed"),
    _amd("AMD page fault",
         r"page fault \(.{0,160}?for process (?P<process>[^\n]{1,64}?) pid (?P<pid>\d{1,10})",
         "amdgpu 0000:c3:00.0: amdgpu: [gfxhub0] page fault (src_id:0 ring:24 vmid:8 pasid:32770,"
         " for process python3 pid 4711 thread python3 pid 4711)", class_="page_fault"),
    _amd("AMD, any other line", "", "amdgpu 0000:03:00.0: amdgpu: PSP is resuming...",
         make=nothing),
)  # fmt: skip
