"""The Kubernetes API through its official client; the only module that imports it.

Answers are taken as JSON, not as the client's models: those are slow by the thousand and refuse
objects with a field that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from collectors.inventory.kube_mirror import Object
from collectors.inventory.kube_watch import VersionGone
from telemetry.errors import ListingIncomplete, SettingsError, SourceUnavailable
from telemetry.settings import KubernetesSettings

GONE = 410
SAID_MAX = 200
PAGE_MAX_BYTES = 200_000_000


def collections(settings: KubernetesSettings) -> tuple[KubeCollection, list[KubeCollection]]:
    """Nodes, and the pods of each namespace. Raises SettingsError where there is no cluster."""
    api = client.CoreV1Api(_client(settings))
    nodes = KubeCollection("nodes", api.list_node, settings, settings.node_selector)
    if not settings.namespaces:
        pods = api.list_pod_for_all_namespaces
        return nodes, [KubeCollection("pods", pods, settings, settings.pod_selector)]
    return nodes, [
        KubeCollection(
            f"pods of {space}", api.list_namespaced_pod, settings, settings.pod_selector, space
        )
        for space in dict.fromkeys(settings.namespaces)
    ]


class KubeCollection:
    """A `Collection` of the real API."""

    def __init__(
        self, name: str, ask: Callable[..., Any], settings: KubernetesSettings, selector: str,
        namespace: str = "",
    ) -> None:  # fmt: skip
        self.name = name
        self._ask = ask
        self._settings = settings
        self._chosen: dict[str, Any] = {"namespace": namespace} if namespace else {}
        if selector:
            self._chosen["label_selector"] = selector
        self._watch: watch.Watch | None = None

    def page(self, go_on: str) -> dict[str, Any]:
        """One page, bounded. Raises SourceUnavailable, VersionGone, ListingIncomplete."""
        more = {"_continue": go_on} if go_on else {}
        try:
            answer = self._ask(
                limit=self._settings.page, _preload_content=False,
                _request_timeout=self._settings.timeout_s, **self._chosen, **more,
            )  # fmt: skip
            try:
                body = answer.read(PAGE_MAX_BYTES + 1)
            finally:
                answer.close()
        except (ApiException, HTTPError, OSError) as error:
            raise self._failed(error) from error
        if answer.status != 200:
            raise self._refused(answer.status, body)
        if len(body) > PAGE_MAX_BYTES:
            raise SourceUnavailable(f"{self.name}: a page of more than {PAGE_MAX_BYTES} bytes")
        try:
            said = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ListingIncomplete(f"{self.name}: the answer breaks off: {error}") from error
        if not isinstance(said, dict):
            raise ListingIncomplete(f"{self.name}: the answer is no list")
        return said

    def events(self, version: str, opened: Callable[[], None]) -> Iterator[tuple[str, Object]]:
        """Until the server ends the watch. Raises SourceUnavailable, VersionGone."""
        watching = self._watch = watch.Watch(return_type="object")

        def ask(**arguments: Any) -> Any:
            answer = self._ask(**arguments)
            if answer.status != 200:
                body = answer.read(SAID_MAX * 10)
                answer.close()
                raise self._refused(answer.status, body)
            opened()
            return answer

        stream = watching.stream(
            ask, resource_version=version, allow_watch_bookmarks=True,
            timeout_seconds=int(self._settings.watch_s),
            _request_timeout=(
                self._settings.timeout_s, self._settings.watch_s + self._settings.timeout_s,
            ), **self._chosen,
        )  # fmt: skip
        try:
            for event in stream:
                if event is None:  # a line that breaks off: what follows the last version is asked
                    return
                yield str(event["type"]), event["raw_object"]
        except (ApiException, HTTPError, OSError) as error:
            raise self._failed(error) from error
        finally:
            stream.close()

    def close(self) -> None:
        """End the watch that runs."""
        if self._watch is not None:
            self._watch.stop()

    def _failed(self, error: Exception) -> SourceUnavailable:
        if isinstance(error, ApiException):
            kind = VersionGone if error.status == GONE else SourceUnavailable
            return kind(f"{self.name}: answers {error.status}: {_short(error.reason)}")
        return SourceUnavailable(f"{self.name}: {_short(error)}")

    def _refused(self, status: int, body: bytes) -> SourceUnavailable:
        try:
            said = json.loads(body)["message"]
        except (ValueError, KeyError, TypeError, RecursionError):
            said = body.decode("utf-8", "replace")
        kind = VersionGone if status == GONE else SourceUnavailable
        return kind(f"{self.name}: answers {status}: {_short(said)}")


def _short(said: object) -> str:
    text = " ".join(str(said).split())
    return text[:SAID_MAX] or type(said).__name__


def _client(settings: KubernetesSettings) -> client.ApiClient:
    """Of the kubeconfig, the pod's service account, or the user's own kubeconfig."""
    chosen = client.Configuration()
    try:
        if settings.kubeconfig or settings.context:
            _load_file(settings, chosen)
        else:
            try:
                config.load_incluster_config(client_configuration=chosen)
            except config.ConfigException:
                _load_file(settings, chosen)
    except (config.ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        where = settings.kubeconfig or "kubernetes"
        raise SettingsError(f"inventory.kubernetes: {where}: {_short(error)}") from error
    chosen.retries = False  # the poller tries again, and says so
    return client.ApiClient(configuration=chosen)


def _load_file(settings: KubernetesSettings, chosen: client.Configuration) -> None:
    config.load_kube_config(
        config_file=settings.kubeconfig or None, context=settings.context or None,
        client_configuration=chosen, persist_config=False,
    )  # fmt: skip
