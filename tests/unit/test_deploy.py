"""What is deployed exists: images, commands, options, settings, files that are mounted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from actions.policy import verdict
from nodewarden.cli import cli
from nodewarden.settings_file import PREFIX, load
from streams.live.metrics import WorkerMetrics
from streams.live.worker import StreamWorker
from telemetry.settings import Configuration

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
KUBERNETES = ROOT / "deploy" / "kubernetes"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "nodewarden.json"


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
    return found


def ours() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in services().items() if one["image"].startswith("nodewarden")}


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(KUBERNETES.glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text("utf-8")):
            yield file.name, manifest


def parsed(words: list[str]) -> None:
    """The command line is one: the command exists, and so do its options."""
    assert isinstance(cli, click.Group)
    group: click.Command = cli
    context = click.Context(cli, info_name="nodewarden")
    while isinstance(group, click.Group):
        name, *words = words
        found = group.get_command(context, name)
        assert found is not None, name
        group, context = found, click.Context(found, parent=context, info_name=name)
    group.parse_args(context, list(words))


def test_the_compose_file_is_one_by_the_schema_of_its_specification() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*checker, str(COMPOSE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(ours()))
def test_a_service_runs_a_command_that_exists_with_settings_that_are_known(name: str) -> None:
    service = ours()[name]
    parsed(service["command"])
    environ = {key: str(value) for key, value in service["environment"].items()}
    assert all(key.startswith(PREFIX) for key in environ)
    assert load(None, environ).configuration.kafka.brokers == ("kafka:9092",)
    assert (ROOT / service["build"] / "Dockerfile").is_file()


def test_images_of_others_name_a_version() -> None:
    others = {one["image"] for one in services().values()} - {"nodewarden:local"}
    assert all(re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", image) for image in others), others


def test_what_is_mounted_from_the_tree_is_there_and_volumes_are_declared() -> None:
    compose = yaml.safe_load(COMPOSE.read_text("utf-8"))
    for service in compose["services"].values():
        for mount in service.get("volumes", ()):
            source = mount.partition(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), source
            else:
                assert source in compose["volumes"]


def test_workers_have_names_of_their_own() -> None:
    key = "NODEWARDEN_STREAM__INSTANCE"
    named = [one["environment"][key] for one in ours().values() if one["command"] == ["stream"]]
    assert len(set(named)) == len(named) == 2


def test_prometheus_scrapes_where_the_services_serve() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    targets = {
        target
        for job in config["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    served = {
        f"{name}:{value.rpartition(':')[2]}"
        for name, one in ours().items()
        for key, value in one["environment"].items()
        if key.endswith("METRICS_ADDRESS")
    }
    assert targets == served


def test_the_dashboard_shows_metrics_that_exist() -> None:
    registry = CollectorRegistry()
    registry.register(WorkerMetrics(StreamWorker(Configuration(), verdict, "w", "0")))
    told = set(re.findall(r"^# TYPE (\S+)", generate_latest(registry).decode(), re.MULTILINE))
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    shown = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"nodewarden_\w+", target["expr"])
    }
    assert shown
    assert shown <= told, shown - told


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_a_unit_runs_a_command_that_exists_and_is_started_again(unit: Path) -> None:
    text = unit.read_text("utf-8")
    command = re.search(r"^ExecStart=/opt/nodewarden/bin/nodewarden (.+)$", text, re.MULTILINE)
    assert command is not None
    parsed(command[1].split())
    assert "Restart=always" in text  # a worker without a broker ends and is started anew
    environ = dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE))
    load(None, environ)


def test_manifests_run_commands_that_exist_with_settings_that_are_known() -> None:
    commands = 0
    for _, manifest in manifests():
        pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            parsed(container["args"])
            load(None, {entry["name"]: "x" for entry in container.get("env", ())})
            assert container["resources"]["limits"]["memory"]
            commands += 1
    assert commands == 5
    configuration = load(KUBERNETES / "nodewarden.toml", {}).configuration
    assert configuration.inventory.source == "kubernetes"


def test_every_service_that_runs_for_long_has_its_place_in_each_way_to_start_it() -> None:
    wanted = {"stream", "archive", "inventory", "act"}
    by_compose = {str(one["command"][0]) for one in ours().values()}
    by_units = {re.split(r"[-@.]", unit.name)[1] for unit in UNITS}
    by_manifests = {
        container["args"][0]
        for _, manifest in manifests()
        for container in manifest.get("spec", {}).get("template", {}).get("spec", {}).get(
            "containers", ()
        )
    }  # fmt: skip
    assert wanted <= by_compose
    assert wanted | {"collect"} == by_units == by_manifests


def test_kustomization_lists_every_manifest() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))["resources"]
    there = {file.name for file in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == there


@pytest.mark.parametrize("script", sorted((ROOT / "deploy").rglob("*.sh")), ids=lambda f: f.name)
def test_scripts_are_executable_and_parse(script: Path) -> None:
    assert os.access(script, os.X_OK)
    first = script.read_text("utf-8").partition("\n")[0]
    shell = "bash" if "bash" in first else "sh"
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
