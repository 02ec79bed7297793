"""A real API server takes what deploy/kubernetes gives it, every field of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubernetes import dynamic

from tests.kube.cluster import Kube

pytestmark = pytest.mark.kube

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"


def test_every_manifest_is_taken_without_an_unknown_field(kube: Kube) -> None:
    chosen = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text("utf-8"))
    api = dynamic.DynamicClient(kube.api().api_client)
    taken = 0
    for file in chosen["resources"]:
        for manifest in yaml.safe_load_all((MANIFESTS / file).read_text("utf-8")):
            kind = manifest["kind"]
            resource = api.resources.get(api_version=manifest["apiVersion"], kind=kind)
            made = resource.create(
                body=manifest, query_params=[("fieldValidation", "Strict")],
                namespace=chosen["namespace"] if resource.namespaced else None,
            )  # fmt: skip
            assert made.metadata.name == manifest["metadata"]["name"]
            taken += 1
    assert taken >= len(chosen["resources"])
