"""Reads a topic's partitions from the cursors' positions until all are done. No group, no commits.

`consume_group.py` does the same as a member of a group, which assigns the partitions.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from respool.cli import kafka_library, output
from respool.cli.connection_options import BrokerConnection
from respool.cli.interrupts import CtrlC
from respool.cli.messages.consume_range import (
    RangeProgress,
    Until,
    all_done,
    first_offset,
    stop_offset,
)
from respool.cli.messages.message_format import ReadMessage
from respool.cli.options import Isolation
from respool.client.kafka.metadata import TopicMetadata
from respool.model.operator_errors import OperatorError, Unreachable
from respool.model.seek_target import AtOffset, AtTime, SeekTarget
from respool.operate.cluster_admin import ClusterAdmin

POLL_MESSAGES = 1_000
POLL_SECONDS = 0.25
# Without --follow: how long a broker may be unreachable before the command fails.
SILENCE_SECONDS_MAX = 30.0


class TopicReader:
    """Reads the partitions of the cursors until all are done."""

    resume_hint = "run it again with --offset to continue where it stopped"

    def __init__(
        self,
        connection: BrokerConnection,
        topic: str,
        cursors: dict[int, RangeProgress],
        *,
        follow: bool,
        isolation: Isolation = Isolation.READ_COMMITTED,
        # The library requires a group id; this one is never joined, and nothing is committed under it.
        group_id: str = "respool-cli",
        **config: str,
    ) -> None:
        self._broker = connection.bootstrap
        self._topic = topic
        self._cursors = cursors
        self._follow = follow
        self._lost = ""
        # The error that ends the reading, raised once the messages before it are handed out.
        self._failure: OperatorError | None = None
        self._heard_at = time.monotonic()
        self._consumer = kafka_library.make_consumer(
            connection,
            group_id=group_id,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            isolation_level=isolation.value,
            on_error=self._on_error,
            **config,
        )
        with kafka_library.translated(self._broker):
            self._attach()

    def batches(self, messages_max: int | None, ctrl_c: CtrlC) -> Iterator[list[ReadMessage]]:
        """Yield messages in batches as they arrive, until everything is read or Ctrl-C was pressed."""
        left = messages_max
        while left != 0 and not ctrl_c.pressed and not self._is_done():
            messages = self.read(POLL_MESSAGES if left is None else min(POLL_MESSAGES, left))
            if messages:
                left = None if left is None else left - len(messages)
                yield messages

    def read(self, messages_max: int, *, seconds: float = POLL_SECONDS) -> list[ReadMessage]:
        """Return the messages that are available or arrive within `seconds`; possibly none."""
        if self._failure is not None:
            raise self._failure
        arrived = self._poll(messages_max, seconds)
        if not arrived:
            self._on_silence()
        messages: list[ReadMessage] = []
        for raw in arrived:
            try:
                message = self._take(raw)
            except OperatorError as error:
                if not messages:
                    raise
                self._failure = error
                break
            if message is not None:
                messages.append(message)
        return messages

    def hold(self, partition: int) -> None:
        """Pause this partition until `resume`."""
        self._consumer.pause([kafka_library.TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        if not self._cursors[partition].is_done:
            self._consumer.resume([kafka_library.TopicPartition(self._topic, partition)])

    def close(self) -> None:
        self._consumer.close()

    def _attach(self) -> None:
        """Assign the partitions to the library's consumer."""
        self._consumer.assign(
            [
                kafka_library.TopicPartition(self._topic, number, cursor.position)
                for number, cursor in self._cursors.items()
                if not cursor.is_done
            ]
        )

    def _is_done(self) -> bool:
        return all_done(self._cursors)

    def _poll(self, messages_max: int, seconds: float) -> list[Any]:
        with kafka_library.translated(self._broker):
            # Wait for one message, then take what is buffered: requesting many at once would wait for all of them.
            first = self._consumer.poll(seconds)
            if first is None:
                return []
            rest = self._consumer.consume(messages_max - 1, 0) if messages_max > 1 else []
        self._heard_at = time.monotonic()
        if self._lost:
            output.note("the broker answers again", style="dim")
            self._lost = ""
        return [first, *rest]

    def _take(self, raw: Any) -> ReadMessage | None:
        error = raw.error()
        if error is not None:
            self._on_message_error(error, raw)
            return None
        cursor = self._cursors.get(raw.partition())
        if cursor is None:
            # The partition was revoked while this message was buffered.
            return None
        timestamp_type, timestamp_ms = raw.timestamp()
        if timestamp_type == kafka_library.TIMESTAMP_NOT_AVAILABLE:
            timestamp_ms = -1
        shown = cursor.on_message(raw.offset(), timestamp_ms)
        if cursor.is_done:
            self._consumer.pause([kafka_library.TopicPartition(self._topic, raw.partition())])
        if not shown:
            return None
        return ReadMessage(
            topic=self._topic,
            partition=raw.partition(),
            offset=raw.offset(),
            timestamp_ms=timestamp_ms,
            key=raw.key(),
            value=raw.value(),
            headers=tuple(raw.headers() or ()),
        )

    def _on_message_error(self, error: Any, raw: Any) -> None:
        where = f"partition {raw.partition()} of {self._topic}"
        if error.code() == kafka_library.PARTITION_EOF:
            if raw.partition() in self._cursors:
                self._cursors[raw.partition()].on_end(raw.offset())
        elif error.code() == kafka_library.OFFSET_GONE:
            raise OperatorError(
                f"{where} lost messages before they were read: {kafka_library.reason(error)}",
                hint="they were deleted, by retention or DeleteRecords; start again with --offset earliest",
            )
        elif error.code() in kafka_library.DAMAGED_CODES:
            position = self._cursors[raw.partition()].position
            raise OperatorError(
                f"{where} cannot be read at offset {position}: {kafka_library.reason(error)}",
                hint="see what is damaged with: respool log verify DATA (the broker's folder); read on behind it with: "
                f"respool consume {self._topic} --partition {raw.partition()} --offset N",
            )
        elif error.code() in kafka_library.UNREACHABLE_CODES:
            self._on_error(error)
        elif not error.retriable():
            raise kafka_library.to_cli_error(error, self._broker)

    def _on_error(self, error: Any) -> None:
        """The library lost its connection; it reconnects by itself."""
        if error.code() in kafka_library.UNREACHABLE_CODES and not self._lost:
            self._lost = kafka_library.reason(error)
            output.note(
                f"the broker at {self._broker} went away ({self._lost}); trying again",
                style="yellow",
            )

    def _on_silence(self) -> None:
        """No message arrived. That is normal at the end of a followed topic; otherwise the silence has a limit."""
        now_ms = int(time.time() * 1000)
        for cursor in self._cursors.values():
            cursor.on_tick(now_ms)
        silent = time.monotonic() - self._heard_at
        if self._lost and not self._follow and silent > SILENCE_SECONDS_MAX:
            raise Unreachable(
                f"the broker at {self._broker} was unreachable for {SILENCE_SECONDS_MAX:.0f} seconds: {self._lost}",
                hint=self.resume_hint,
            )


def plan(
    admin: ClusterAdmin,
    topic: TopicMetadata,
    partitions: Sequence[int],
    *,
    start: SeekTarget,
    until: Until,
    follow: bool,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> dict[int, RangeProgress]:
    """Fetch the partitions' offsets and plan the range to read of each."""
    ranges = admin.ranges([topic], isolation=isolation.level)

    def at_time(place: SeekTarget | Until) -> dict[int, int | None]:
        if not isinstance(place, AtTime):
            return {}
        return admin.offsets_at(topic, partitions, place.ms, isolation=isolation.level)

    since_at, until_at = at_time(start), at_time(until)
    cursors = {}
    for number in partitions:
        held = ranges[topic.name, number]
        position = first_offset(start, low=held.start, high=held.end, at_time=since_at.get(number))
        if isinstance(start, AtOffset) and position != start.offset:
            output.note(
                f"partition {number} holds offsets {held.start} to {held.end - 1}; starting at {position}"
                if held.messages
                else f"partition {number} holds no messages; its next offset is {held.end}"
            )
        stop = stop_offset(until, high=held.end, follow=follow, at_time=until_at.get(number))
        until_ms = until.ms if isinstance(until, AtTime) else None
        cursors[number] = RangeProgress(position=position, stop=stop, until_ms=until_ms)
    return cursors
