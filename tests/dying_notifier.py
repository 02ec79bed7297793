"""A notifier that is killed: DIR URL. Takes incidents, says each that is saved, and tells them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from actions.notify.board import Board
from actions.notify.channels import build_channels
from actions.notify.http import UrllibHttp
from actions.notify.metrics import NotifyMetrics
from actions.notify.notifier import Notifier
from actions.notify.routing import Router
from actions.notify.store import Store
from nodewarden.clock import SystemClock
from tests.paging import CLUSTER, incident, paging

COUNT = 200


def main(directory: str, url: str) -> None:
    """Until it is killed."""
    settings = paging(
        receivers={
            "oncall": {"kind": "pagerduty", "routing_key": "R" * 32, "url": url},
            "chat": {"kind": "webhook", "url": url},
        },
        route={"receiver": "oncall", "group_wait_s": 0.0},
    )
    clock = SystemClock()
    board = Board(Router(settings, CLUSTER), CLUSTER, Store(Path(directory)))
    notifier = Notifier(
        board,
        build_channels(settings, UrllibHttp, clock),
        clock,
        NotifyMetrics(CollectorRegistry()),
    )
    for number in range(COUNT):
        notifier.take(incident(number, node=f"node-{number}", at=clock.time_s()))
        if number % 20 == 19:
            notifier.save()
            print(number, flush=True)
            notifier.step()
    while True:
        time.sleep(notifier.step())


if __name__ == "__main__":
    main(*sys.argv[1:])
