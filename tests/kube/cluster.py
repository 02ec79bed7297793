"""A real Kubernetes API for tests: `deploy/local/kube.sh` as an object, and what tests write."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes import client, config

from tests.inventory_fold import SCRIPTS
from tests.ports import free_port

SCRIPT = SCRIPTS / "kube.sh"
VERB_MAX_S = 120.0
NOTHING_TO_RUN = 3
Labels = Mapping[str, str]
STARTED = "2026-01-31T12:00:00Z"


class KubeMissing(Exception):
    """There is no API server to be had here; the text says what is missing."""


class KubeFailed(Exception):
    """There is, and it did not do what it was told."""


class Kube:
    """An API server without anything that acts on what it holds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port(3)  # and etcd's two
        self.kubeconfig = str(directory / "kubeconfig")

    def start(self) -> None:
        """Returns when it is ready; goes on with its data. Raises KubeMissing."""
        self._verb("start", str(self.port))

    def stop(self) -> None:
        """SIGTERM and wait."""
        self._verb("stop")

    def api(self) -> Any:
        """A client (`CoreV1Api`) with all rights; it takes plain objects too."""
        chosen = client.Configuration()
        config.load_kube_config(config_file=self.kubeconfig, client_configuration=chosen)
        return client.CoreV1Api(client.ApiClient(chosen))

    def _verb(self, verb: str, *arguments: str) -> None:
        with (self.directory.parent / "kube.out").open("w+") as out:
            done = subprocess.run(
                [str(SCRIPT), verb, str(self.directory), *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, timeout=VERB_MAX_S,
                env=os.environ,
            )  # fmt: skip
            out.seek(0)
            said = out.read().strip()
        if done.returncode == NOTHING_TO_RUN:
            raise KubeMissing(said)
        if done.returncode != 0:
            raise KubeFailed(f"kube.sh {verb}: exit {done.returncode}: {said}")


def node(name: str, labels: Labels | None = None) -> dict[str, Any]:
    """A node of 8 GPUs."""
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def pod(name: str, on: str, labels: Labels | None = None, gpus: int = 8) -> dict[str, Any]:
    """A pod that was scheduled to the node `on`."""
    wants = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "nodeName": on, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "train", "image": "train", "resources": wants}],
        },
    }  # fmt: skip


def running(api: Any, name: str, since: str = STARTED) -> None:
    """What a kubelet would say of the pod."""
    status = {"status": {"phase": "Running", "startTime": since}}
    api.patch_namespaced_pod_status(name, "default", status)
