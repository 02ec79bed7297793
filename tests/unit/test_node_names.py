"""Which node a series speaks of."""

from __future__ import annotations

import pytest

from collectors.names import NodeNames


def test_the_first_label_that_the_allocation_knows_wins() -> None:
    names = NodeNames(["n1", "n2"], [])
    assert "n2" == names.of_labels({"Hostname": "exporter-x7f", "node": "n2", "instance": "n1:9"})


@pytest.mark.parametrize(
    ("known", "said", "node"),
    [
        ("n1", "n1.example.org", "n1"),
        ("n1.example.org", "n1", "n1.example.org"),
        ("n1.example.org", "n1.example.org", "n1.example.org"),
        ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
    ],
)
def test_short_and_fully_qualified_are_one_node(known: str, said: str, node: str) -> None:
    assert node == NodeNames([known], []).of_labels({"Hostname": said})


def test_an_address_has_no_short_form() -> None:
    assert "10.0.0.2" == NodeNames(["10.0.0.1"], []).of_labels({"node": "10.0.0.2"})


def test_a_short_name_that_two_nodes_share_names_neither() -> None:
    names = NodeNames(["n1.a.org", "n1.b.org"], [])
    assert "n1" == names.of_labels({"Hostname": "n1"})


@pytest.mark.parametrize(
    ("instance", "node"),
    [("n1:9400", "n1"), ("n1", "n1"), ("[fe80::1]:9400", "fe80::1"), ("10.0.0.1:9", "10.0.0.1")],
)
def test_an_instance_loses_its_port(instance: str, node: str) -> None:
    assert node == NodeNames([], []).of_labels({"instance": instance})


def test_without_an_allocation_a_kernel_log_s_name_wins_else_the_first_present() -> None:
    labels = {"Hostname": "pod-1", "instance": "n1:9400"}
    assert "n1" == NodeNames([], ["n1"]).of_labels(labels)
    assert "pod-1" == NodeNames([], ["n2"]).of_labels(labels)
    assert NodeNames([], []).of_labels({"job": "dcgm"}) is None


def test_a_kernel_log_is_named_as_the_allocation_names_its_node() -> None:
    names = NodeNames(["n1"], ["n1.example.org"])
    assert ("n1", "n9") == (names.of_file("n1.example.org"), names.of_file("n9"))
    assert "n1" == names.of_labels({"Hostname": "n1.example.org"})
