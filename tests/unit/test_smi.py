"""What GPU tools print: units, words for no value, and XML that must not be followed."""

from __future__ import annotations

import pytest

from collectors.smi import (
    SmiGpu,
    SmiReading,
    SmiSaid,
    pci_of,
    read_csv,
    read_dmon,
    read_rocm,
    read_xml,
)
from telemetry.records import Rejected

BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa">'
    b'<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><nvidia_smi_log><gpu>&b;</gpu></nvidia_smi_log>'
)
FOREIGN = (
    b'<!DOCTYPE nvidia_smi_log [<!ENTITY f SYSTEM "file:///etc/passwd">]>'
    b"<nvidia_smi_log><gpu id='x'><uuid>&f;</uuid></gpu></nvidia_smi_log>"
)


def readings(said: list[SmiSaid]) -> dict[str, float | str | None]:
    return {
        one.metric.name: one.missing or one.value for one in said if isinstance(one, SmiReading)
    }


def test_csv_values_lose_their_units_and_words_are_missing() -> None:
    said = list(read_csv(
        [b"index, uuid, pci.bus_id, temperature.gpu, power.draw [W], memory.used [MiB],"
         b" utilization.gpu [%], clocks_event_reasons.active, pstate, fan.speed [%]",
         b"3, GPU-1, 00000000:C3:00.0, 41, 600.50 W, 575 MiB, [N/A], 0x0000000000000044, P0,"
         b" [Unknown Error]"],
        "t",
    ))  # fmt: skip
    assert SmiGpu("GPU-1", "GPU-1", "3", "0000:c3:00") in said
    assert {
        "gpu_temperature_celsius": 41.0, "gpu_power_watts": 600.5, "gpu_framebuffer_used_mib": 575,
        "gpu_utilization_percent": "not available", "gpu_throttle_reasons_mask": 68.0,
        "gpu_performance_state": 0.0, "gpu_fan_percent": "error",
    } == readings(said)  # fmt: skip


@pytest.mark.parametrize(
    "word", ["[N/A]", "[Not Supported]", "Unknown Error", "ERR!", "[GPU is lost]"]
)
def test_a_word_in_place_of_a_number_is_missing_and_never_zero(word: str) -> None:
    (_, said) = read_csv([b"uuid, temperature.gpu", f"GPU-1, {word}".encode()], "t")
    assert isinstance(said, SmiReading)
    assert said.value is None
    assert said.missing


def test_a_row_that_does_not_fit_its_header_costs_only_itself() -> None:
    said = list(
        read_csv([b"uuid, temperature.gpu", b"GPU-1, 41, 7", b"GPU-2, x", b"GPU-3, 42"], "t")
    )
    reasons = [one.reason for one in said if isinstance(one, Rejected)]
    assert ["3 values under 2 names", "temperature.gpu: the value is no number"] == reasons
    assert {"gpu_temperature_celsius": 42.0} == readings(said)


@pytest.mark.parametrize("data", [BOMB, FOREIGN])
def test_xml_that_declares_an_entity_is_refused(data: bytes) -> None:
    (said,) = read_xml([data], "t")
    assert isinstance(said, Rejected)
    assert "declares an entity" in said.reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"<html></html>", "no nvidia_smi_log"), (b"<nvidia_smi_log>" + b"<a>" * 40, "too deep"),
     (b"<nvidia_smi_log>", "no element found"), (b"", "no element found")],
)  # fmt: skip
def test_xml_that_is_something_else_is_refused(data: bytes, reason: str) -> None:
    (said,) = read_xml([data], "t")
    assert isinstance(said, Rejected)
    assert reason in said.reason


def test_of_a_torn_document_the_whole_gpus_are_read() -> None:
    gpu = ("<gpu id='00000000:0{}:00.0'><uuid>GPU-{}</uuid><temperature><gpu_temp>4{} C</gpu_temp>"
           "</temperature></gpu>")  # fmt: skip
    text = "<nvidia_smi_log>" + gpu.format(1, 1, 1) + gpu.format(2, 2, 2)[:-20]
    said = list(read_xml([text.encode()], "t"))
    assert ["GPU-1"] == [one.entity for one in said if isinstance(one, SmiGpu)]
    assert [Rejected] == [type(one) for one in said if isinstance(one, Rejected)]


def test_throttle_reasons_of_both_namings_become_one_mask() -> None:
    for word in ("event", "throttle"):
        text = (
            f"<nvidia_smi_log><gpu id='00000000:01:00.0'><clocks_{word}_reasons>"
            f"<clocks_{word}_reason_hw_thermal_slowdown>Active</clocks_{word}_reason_hw_thermal_slowdown>"
            f"<clocks_{word}_reason_hw_slowdown>Active</clocks_{word}_reason_hw_slowdown>"
            f"<clocks_{word}_reason_gpu_idle>Not Active</clocks_{word}_reason_gpu_idle>"
            f"</clocks_{word}_reasons></gpu></nvidia_smi_log>"
        )
        assert {"gpu_throttle_reasons_mask": 72.0} == readings(list(read_xml([text.encode()], "t")))


def test_rocm_smi_s_zero_power_is_not_supported_and_other_objects_are_no_cards() -> None:
    data = (
        b'{"card0": {"Average Graphics Package Power (W)": "0.0", "GPU use (%)": "7"},'
        b' "dcu1": {"DCU use (%)": "9"}, "system": {"Driver version": "6"}}'
    )
    said = list(read_rocm(data, "t"))
    assert ["gpu0", "gpu1"] == [one.entity for one in said if isinstance(one, SmiGpu)]
    assert ["not supported"] == [
        one.missing
        for one in said
        if isinstance(one, SmiReading) and one.name.startswith("Average")
    ]


def test_dmon_reads_gpus_and_no_switches() -> None:
    said = list(read_dmon([b"#Entity TMPTR POWER", b"ID", b"GPU 0 41 N/A", b"Switch 0 30 1"], "t"))
    assert {"gpu_temperature_celsius": 41.0, "gpu_power_watts": "not available"} == readings(said)


@pytest.mark.parametrize(
    ("text", "pci"),
    [("00000000:C3:00.0", "0000:c3:00"), ("0000:1E:00.0", "0000:1e:00"), ("[N/A]", "")],
)
def test_one_device_has_one_pci_name(text: str, pci: str) -> None:
    assert pci == pci_of(text)
