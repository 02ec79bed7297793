"""Kernel logs that machines have printed, and what has to be read in them.

The copies in tests/data are always read; the whole corpus only where it lies beside the checkout.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.kernel_log import KernelLog, objects
from telemetry.records import Rejected

DATA = Path(__file__).parents[1] / "data" / "kernel"
CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "xid"
TYPES = {"fallen": "gpu_lost", "amd": "gpu", "disk": "storage", "fs": "storage",
         "mce": "machine_check", "lockup": "os"}  # fmt: skip
# The one decoy that is news: benign on old drivers, so it is told as `info` and accuses nobody.
PEERMEM = "nv_get_p2p_free_callback"


def said_in(raw: str) -> list[dict[str, Any]]:
    return list(objects("x", [raw.encode()]))


def said_of(name: str) -> list[dict[str, Any]]:
    return list(objects(name, [(DATA / name).read_bytes()]))


def rows(*files: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def check_line(row: dict[str, Any]) -> None:
    found = said_in(row["raw"])
    events = [one for one in found if one["type"] != "rejected"]
    if row["cls"] == "info":
        assert [] == [one for one in events if one["severity"] != "info"]
        assert (PEERMEM in row["raw"]) == bool(events)
        return
    (event,) = events
    pci = row["pci"][:10] if row["pci"] else None
    want = (TYPES.get(row["cls"], row["cls"]), row["code"], pci, row["pid"], row["name"])
    assert want == tuple(event[key] for key in ("type", "code", "pci", "pid", "process"))
    assert event["text"] == row["raw"].strip("\n") or "\n" in row["raw"].strip("\n")


@pytest.mark.parametrize(
    "row", rows(DATA / "xid_lines.jsonl", DATA / "other_lines.jsonl"), ids=lambda row: row["id"]
)
def test_a_line_seen_in_the_wild_is_read_right(row: dict[str, Any]) -> None:
    check_line(row)


def test_the_whole_corpus_of_lines_is_read_right() -> None:
    if not CORPUS.is_dir():
        pytest.skip("no corpus lies beside the checkout")
    lines = rows(CORPUS / "lines.jsonl")
    for row in lines:
        check_line(row)
    assert 242 == len(lines)


def test_all_lines_as_one_log_give_the_same_codes_in_order() -> None:
    """Nothing of one line leaks into another, whatever stands between them."""
    single = [row for row in rows(DATA / "xid_lines.jsonl") if "\n" not in row["raw"]]
    log = KernelLog("x")
    text = "\n".join(row["raw"] for row in single).encode()
    found = [one for one in (*log.feed(text), *log.finish()) if not isinstance(one, Rejected)]
    want = [(row["code"], row["pid"]) for row in single if row["cls"] == "xid"]
    assert want == [(one.code, one.pid) for one in found if one.type == "xid"]


@pytest.mark.parametrize(
    "row", (DATA / "disk_lines_table.tsv").read_text("utf-8").splitlines()[1:], ids=str
)
def test_a_disk_line_is_critical_where_the_table_says_so(row: str) -> None:
    _, want, raw = row.split("\t")
    found = [one for one in said_in(raw) if one["severity"] == "critical"]
    assert (["storage"] if want == "true" else []) == [one["type"] for one in found]


@pytest.mark.parametrize("row", rows(DATA / "oom_sequences.jsonl"), ids=lambda row: row["name"])
def test_a_kill_is_one_event_with_its_victim(row: dict[str, Any]) -> None:
    """The table says "System OOM" where the machine ran out, "OOM" where a limit was hit."""
    found = said_in("\n".join(row["messages"]))
    assert row["expected"] == [
        f"{'System ' if one['class'] == 'system' else ''}OOM encountered, victim process:"
        f" {one['process']}, pid: {one['pid']}"
        for one in found
    ]
    assert {"oom"} >= {one["type"] for one in found}


def test_a_gsp_hang_is_five_xids_and_the_tables_behind_them_are_none() -> None:
    found = said_of("gpud_dmesg_T_xid119_gsp_history.log")
    assert [("xid", 119, "0000:9b:00")] * 5 == [(o["type"], o["code"], o["pci"]) for o in found]
    assert [2024380, 2024380, 2024380, 1263500, 1240590] == [one["pid"] for one in found]
    names = ["nvidia-smi", "nvidia-smi", "nvidia-smi", "cache_mgr_main", "gpud"]
    assert names == [one["process"] for one in found]
    assert 1_740_327_858.0 == found[0]["at"]  # Sun Feb 23 16:24:18 2025, UTC


def test_a_segmentation_fault_names_its_process() -> None:
    found = said_of("gpud_dmesg_decode_iso_nccl_segfault.log")
    assert [("os", "segfault", 2536443, "pt_main_thread")] * 2 == [
        (one["type"], one["class"], one["pid"], one["process"]) for one in found
    ]
    assert [1_737_434_504.28506, 1_737_434_564.28506] == [one["at"] for one in found]


def test_a_full_file_table_is_an_os_event() -> None:
    found = said_of("gpud_dmesg_decode_iso_vfs_filemax.log")
    assert [("os", "file_max")] * 2 == [(one["type"], one["class"]) for one in found]


def test_of_a_fabric_manager_log_only_the_switch_error_is_told_with_switch_and_port() -> None:
    (found,) = said_of("gpud_fabricmanager.log")
    assert ("sxid", 12028, "0000:86:00") == (found["type"], found["code"], found["pci"])
    assert ("warning", "nonfatal") == (found["severity"], found["class"])
    assert {"switch": 3, "link": 61} == found["details"]
    assert 1_740_669_002.0 == found["at"]


def test_a_raw_kmsg_without_trouble_says_nothing() -> None:
    assert [] == said_of("gpud_raw_dev_kmsg_1.log")


def test_a_record_that_is_read_again_is_told_once() -> None:
    (found,) = said_of("gpud_raw_dev_kmsg_2_peermem.log")
    assert ("gpu", "info", "peermem") == (found["type"], found["severity"], found["class"])


def test_a_crash_is_one_event_with_its_process() -> None:
    (found,) = said_of("gpud_pstore_sysrq_oops.txt")
    assert ("os", "oops", "critical") == (found["type"], found["class"], found["severity"])
    assert (1899, "bash") == (found["pid"], found["process"])
