"""Between the API's thread and the loop that decides: a short queue of questions."""

from __future__ import annotations

import queue
from concurrent.futures import Future
from typing import Any

import msgspec

from actions.service import Asked

WAITING_MAX = 100


class Reply(msgspec.Struct, frozen=True):
    """What the API answers: an HTTP status and a JSON object."""

    status: int
    body: dict[str, Any]


class Question(msgspec.Struct, frozen=True):
    """What was asked, and where the reply is waited for.

    status  HTTP status of the refusal where `asked.problem` says why it is one, else 0
    """

    asked: Asked
    reply: Future[Reply]
    status: int = 0


class Desk:
    """Safe for one asking and one answering thread. A standby refuses everything."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting: queue.Queue[Question] = queue.Queue(waiting_max)
        self.open = False

    def ask(self, asked: Asked, status: int = 0) -> Future[Reply]:
        """The reply to come; at once where nobody is there, or too many wait."""
        reply: Future[Reply] = Future()
        if not self.open:
            reply.set_result(
                Reply(503, {"error": "this instance is a standby; ask the active one"})
            )
            return reply
        try:
            self._waiting.put_nowait(Question(asked, reply, status))
        except queue.Full:
            reply.set_result(Reply(503, {"error": "too many requests wait; try again"}))
        return reply

    def take(self) -> list[Question]:
        """What waits, oldest first; those whose asker left are dropped."""
        found: list[Question] = []
        while not self._waiting.empty():
            question = self._waiting.get_nowait()
            if question.reply.set_running_or_notify_cancel():
                found.append(question)
        return found

    def close(self) -> None:
        """Refuse from now on, those that wait too."""
        self.open = False
        for question in self.take():
            question.reply.set_result(Reply(503, {"error": "this instance ends; ask again"}))
