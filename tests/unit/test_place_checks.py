"""Addresses, URLs and shared paths that cannot be meant stop the start with one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodewarden.cli import run
from nodewarden.place_checks import wrong_places
from nodewarden.settings_file import leaves, load, variable_of
from telemetry.addresses import host_port, wrong_url
from telemetry.errors import SettingsError
from telemetry.settings import Configuration

ADDRESSES = [
    "act.address", "act.metrics_address", "stream.metrics_address", "archive.metrics_address",
    "inventory.metrics_address", "collect.metrics_address", "syslog.address", "kafka.brokers",
]  # fmt: skip
URLS = [
    "act.url", "act.inventory", "act.workers", "act.silences.url", "act.slurm.url",
    "inventory.slurmrestd.url", "deadman.url", "deadman.workers", "collect.exporters",
    "prometheus.url", "archive.endpoint_url", "act.webhook.url",
]  # fmt: skip
PATHS = ["act.launch.dir", "act.mpirun.dir", "collect.step_socket", "collect.jobs_dir"]


def refused(key: str, value: str) -> str:
    with pytest.raises(SettingsError) as found:
        load(None, {variable_of(tuple(key.split("."))): value})
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize("key", ADDRESSES)
@pytest.mark.parametrize("value", ["9120", ":9120", "host", "host:", "host:x", "host:65536",
                                   "http://host:9120", "ho st:1", "host:-1", "host:²"])  # fmt: skip
def test_an_address_is_host_and_port(key: str, value: str) -> None:
    assert key in refused(key, value)


@pytest.mark.parametrize("key", URLS)
@pytest.mark.parametrize("value", ["127.0.0.1:9120", "host", "ftp://host/x", "http://", "//host",
                                   "http://host:0", "http://host:99999", "http://ho st",
                                   "http://name:word@host"])  # fmt: skip
def test_a_url_is_one(key: str, value: str) -> None:
    assert key in refused(key, value)


@pytest.mark.parametrize("key", PATHS)
def test_a_path_that_others_know_too_is_absolute(key: str) -> None:
    assert f"{key}: 'shared/jobs' is no absolute path" in refused(key, "shared/jobs")


@pytest.mark.parametrize("key", ["deadman.url", "act.webhook.url"])
def test_a_secret_url_is_not_repeated(key: str) -> None:
    assert "hush" not in refused(key, "ftp://host/hush")


def test_a_path_behind_a_server_that_would_not_be_used_is_said() -> None:
    assert "a path in it is not used" in refused("act.url", "http://host:9120/warden")


def test_what_need_not_be_set_may_be_empty_and_what_is_needed_may_not() -> None:
    for key in ("stream.metrics_address", "act.inventory", "act.slurm.url", "act.launch.dir"):
        load(None, {variable_of(tuple(key.split("."))): ""})
    for key in ("act.address", "act.url"):
        assert key in refused(key, "")


def test_the_defaults_and_usual_forms_are_fine() -> None:
    assert [] == list(wrong_places(Configuration()))
    assert ("::1", 9120) == host_port("[::1]:9120")
    assert ("0.0.0.0", 0) == host_port("0.0.0.0:0")
    assert host_port("0.0.0.0:0", port_min=1) is None
    for url in ("http://h", "https://h.example/", "http://[::1]:9120"):
        assert "" == wrong_url(url, server_only=True)
    assert "" == wrong_url("unix:/run/slurmrestd.sock", unix=True)
    assert wrong_url("unix:run", unix=True)
    assert wrong_url("unix:/run/slurmrestd.sock")


def test_protected_nodes_are_a_host_list() -> None:
    assert "inventory.protected: host list with 'n[1'" in refused("inventory.protected", "n[1")


def test_config_check_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text('[act]\naddress = "9120"\n')
    assert 2 == run(["config", "check", "--config", str(file)], {})
    said = capsys.readouterr().err
    assert f"{file}: act.address: '9120': expected HOST:PORT" in said
    assert 1 == len(said.splitlines())


def test_no_setting_that_names_an_address_or_url_is_left_out() -> None:
    named = {".".join(path) for path, _ in leaves(Configuration)}
    looks_so = {
        key for key in named
        if key.rpartition(".")[2] in ("url", "address", "metrics_address", "endpoint_url",
                                      "brokers", "workers", "exporters")
    }  # fmt: skip
    assert looks_so <= {*ADDRESSES, *URLS}
