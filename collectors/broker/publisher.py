"""The Publisher for programs that wait for the log: imports, pollers, rejected records."""

from __future__ import annotations

from collections.abc import Sequence

from collectors.broker.producer import Pipe
from collectors.link import Message
from telemetry.errors import NotAccepted, PublishError, SettingsError
from telemetry.ports import Clock
from telemetry.settings import KafkaSettings

MESSAGES_MAX = 10_000
BYTES_MAX = 16_000_000
REPLACEMENTS_MAX = 3  # in a row, without one acknowledgement between them


class KafkaPublisher:
    """Keeps at most `MESSAGES_MAX` messages under way, and waits when there are more.

    Raises PublishError where a record is refused, or where nothing is acknowledged for the
    settings' request timeout; what is under way is kept: `flush` tries again.
    """

    def __init__(
        self, settings: KafkaSettings, clock: Clock, client_id: str = "nodewarden"
    ) -> None:
        """Wait for a broker; raises PublishError where none answers in time or it refuses us, and
        SettingsError for a file of `kafka.security`.
        """
        self._settings = settings
        self._clock = clock
        self._client_id = client_id
        self._replaced = 0
        self._left: list[Message] = []  # of a pipe that could not be replaced yet
        self._pipe: Pipe | None = self._open()

    def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Queue one record, after waiting for room."""
        pipe = self._sound()
        if len(pipe) >= MESSAGES_MAX or pipe.unsettled_bytes >= BYTES_MAX:
            self._wait_until(MESSAGES_MAX // 2, BYTES_MAX // 2)
        self._sound().send(Message(topic, value, key, partition, tuple(headers)))
        self._settle()

    def flush(self) -> None:
        """Return when everything published so far is acknowledged."""
        self._wait_until(0, 0)

    def close(self) -> None:
        """Leave without waiting; `flush` first."""
        if self._pipe is not None:
            self._left = self._pipe.end() + self._left
            self._pipe = None

    def _wait_until(self, messages: int, size_bytes: int) -> None:
        """Wait until no more than this is under way."""
        patience_s = self._settings.request_timeout_s
        heard_s = self._clock.monotonic_s()
        while True:
            pipe = self._sound()
            if len(pipe) <= messages and pipe.unsettled_bytes <= size_bytes:
                return
            pipe.wait(min(1.0, patience_s))
            if self._settle():
                heard_s = self._clock.monotonic_s()
            elif self._clock.monotonic_s() - heard_s >= patience_s:
                where = ", ".join(self._settings.brokers)
                raise PublishError(f"{where}: nothing acknowledged for {patience_s:g} s")

    def _settle(self) -> bool:
        """Whether anything was settled. Raises PublishError for the first that was refused."""
        done = self._pipe.settled() if self._pipe is not None else []
        for settled in done:
            if settled.fault is not None:
                raise PublishError(f"{settled.message.topic}: {settled.fault}")
        if done:
            self._replaced = 0
        return bool(done)

    def _sound(self) -> Pipe:
        """The pipe, replaced where it broke, with everything not acknowledged in it again."""
        if self._pipe is not None and self._pipe.broken is None:
            return self._pipe
        if self._pipe is not None:
            self._settle()
            why, refused = self._pipe.broken, self._pipe.refused
            self._left = self._pipe.end() + self._left
            self._pipe = None
            if refused:
                raise NotAccepted(str(why))
            self._replaced += 1
            if self._replaced > REPLACEMENTS_MAX:
                self._replaced = 0
                raise PublishError(str(why))
        try:
            pipe = self._pipe = self._open()
        except SettingsError as error:  # a file that was there at the start: it is being replaced
            raise PublishError(str(error)) from error
        for message in self._left:
            pipe.send(message)
        self._left = []
        return pipe

    def _open(self) -> Pipe:
        return Pipe(self._settings, self._client_id, connect_s=self._settings.request_timeout_s)
