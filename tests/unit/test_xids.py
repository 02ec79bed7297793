"""The Xid catalogue is whole, typed and sober about what one event proves."""

from __future__ import annotations

import pytest

from telemetry.xids import XidRow, catalogue, lookup

NAMED = (
    8, 11, 13, 25, 31, 32, 37, 38, 39, 43, 44, 45, 46, 48, 54, 60, 61, 62, 63, 64, 66, 67, 68, 69,
    74, 78, 79, 80, 92, 93, 94, 95, 109, 110, 119, 120, 121, 122, 136, 137, 140, 141, 143, 144,
    145, 146, 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162, 163,
    164, 165, 166, 167, 168, 169, 170, 171, 172,
)  # fmt: skip
ENGINES = (
    40, 41, 70, 71, 72, 75, 76, 77, 82, 83, 84, 85, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102,
    103, 104, 105, 106, 107, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139, 142,
)  # fmt: skip
UNUSED = (
    1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 28, 29,
    30, 33, 34, 35, 36, 42, 47, 49, 50, 51, 52, 53, 55, 56, 57, 58, 59, 65, 73, 81, 87, 90, 91,
    108, 111, 112, 113, 114, 115, 116, 117, 118, 123, 124, 125, 138,
)  # fmt: skip
UNPUBLISHED = (173,)


def row(code: int) -> XidRow:
    found = lookup(code)
    assert found is not None
    return found


def test_every_published_code_has_its_row_and_no_other_does() -> None:
    assert sorted(NAMED + ENGINES + UNUSED + UNPUBLISHED) == list(catalogue())


def test_a_code_nobody_knows_is_none() -> None:
    assert lookup(0) is None
    assert lookup(9_999) is None
    assert lookup(-79) is None


@pytest.mark.parametrize(
    ("code", "nvidia", "kind"),
    [
        (79, "RESTART_BM", "gpu_lost"),
        (48, "WORKFLOW_XID_48", "gpu_memory"),
        (64, "RESET_GPU", "gpu_memory"),
        (95, "RESET_GPU", "gpu_memory"),
        (140, "RESET_GPU", "gpu_memory"),
        (119, "RESET_GPU", "gpu_fault"),
        (120, "RESET_GPU", "gpu_fault"),
        (62, "RESET_GPU", "gpu_fault"),
        (46, "RESET_GPU", "gpu_fault"),
        (143, "RESET_GPU", "gpu_fault"),
        (158, "RESET_GPU", "gpu_fault"),
        (110, "RESET_GPU", "gpu_fault"),
        (167, "", "gpu_lost"),
        (169, "", "gpu_fault"),
    ],
)
def test_a_certain_machine_fault_isolates_on_one_event(code: int, nvidia: str, kind: str) -> None:
    assert row(code).isolate_on_one
    assert row(code).severity == "critical"
    assert row(code).nvidia == nvidia
    assert row(code).kind == kind


def test_nothing_else_isolates_on_one_event() -> None:
    """Application errors, hints, echoes, links that need decoding, and 154 whose text decides."""
    certain = {code for code, known in catalogue().items() if known.isolate_on_one}
    assert certain == {46, 48, 62, 64, 79, 95, 110, 119, 120, 140, 143, 158, 167, 169}


def test_only_what_isolates_is_critical() -> None:
    assert all(known.isolate_on_one == (known.severity == "critical")
               for known in catalogue().values())  # fmt: skip


def test_aegis_stands_in_its_own_column() -> None:
    assert {code for code, known in catalogue().items() if known.aegis == "kills the job"} == {
        48, 94, 95,
    }  # fmt: skip
    assert {code for code, known in catalogue().items() if known.aegis == "HBM hint"} == {
        63, 64, 92,
    }  # fmt: skip


def test_where_the_sources_differ_the_row_says_which_wins() -> None:
    assert row(64).wins.startswith("NVIDIA over Aegis")
    assert row(63).wins.startswith("NVIDIA and Aegis over GPUd")
    assert all(known.wins for known in catalogue().values())
    assert all(known.advice for known in catalogue().values())
    assert all(known.meaning for known in catalogue().values())


@pytest.mark.parametrize(("code", "kind"), [(74, "nvlink_fault"), (136, "nvlink_fault"),
                                            (149, "nvlink_fault"), (32, "pcie_degraded"),
                                            (54, "gpu_power"), (13, "gpu_fault")])  # fmt: skip
def test_kinds_speak_of_the_part_that_fails(code: int, kind: str) -> None:
    assert row(code).kind == kind


def test_a_code_that_the_vendor_calls_unused_keeps_the_other_opinion() -> None:
    assert row(9).class_ == "unused"
    assert row(9).gpud == "Fatal: reboot"
    assert row(14).nvidia == "IGNORE"
    assert row(123).gpud == "Fatal: reboot+hw-inspect"
