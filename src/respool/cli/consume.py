"""`respool consume`: read a topic without a group, from any point of its history."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli import options, output
from respool.cli.consume_range import (
    AtOffset,
    AtTime,
    Cursor,
    Start,
    Until,
    all_done,
    first_offset,
    parse_start,
    parse_until,
    stop_offset,
)
from respool.cli.errors import BrokerUnreachable, CliError, ExitCode, NotFound, UsageError
from respool.cli.message_format import ReadMessage, compile_format, for_terminal, to_json_line
from respool.cli.times import format_ms

if TYPE_CHECKING:
    from respool.cli.kafka import Cluster, TopicInfo

POLL_MESSAGES = 1_000
POLL_SECONDS = 0.25
# Without --follow: how long a broker that went away may take to come back before the command gives up.
SILENCE_SECONDS_MAX = 30.0

EPILOG = (
    "Order holds within a partition; partitions are merged as they arrive. Nothing is committed, no group is joined. "
    "Piped, the value of each message is a line of its own.\n\n"
    "Examples:\n"
    "  respool consume rides\n"
    "  respool consume rides --follow --since '3 hours ago'\n"
    "  respool consume rides --offset -10 --format '{partition}/{offset} {key}: {value}'\n"
    "  respool consume rides --since '2026-11-12 08:00' --until '2026-11-12 09:00' --json | jq .value"
)


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic.")],
    *,
    from_beginning: Annotated[
        bool,
        options.flag(
            "--from-beginning", text="Start at the first message (the default without --follow)."
        ),
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N",
            help="Start at N, earliest, latest, or -N: the last N per partition.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start at a time: '3 hours ago', 'yesterday 08:00', '2026-11-12T07:00Z'.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME|OFFSET", help="Stop before this time, or before this offset."),
    ] = None,
    follow: Annotated[
        bool,
        options.flag(
            "--follow", "-F", text="Keep on reading; without it, stop at the end seen at the start."
        ),
    ] = False,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, metavar="N", help="Only this partition; may be repeated."
        ),
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "-n", min=1, metavar="N", help="Stop after N messages."),
    ] = None,
    format_text: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="One line per message, with {topic} {partition} {offset} {timestamp} {timestamp_ms} {key} {value} "
            "and {headers}.",
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", text="One JSON object per line.")] = False,
    raw: Annotated[
        bool,
        options.flag("--raw", text="The values' bytes as they are, with nothing between them."),
    ] = False,
    broker: options.Broker = options.DEFAULT_BROKER,
) -> None:
    """Read messages: all there are, those of a time span, or all that come."""
    if sum([format_text is not None, as_json, raw]) > 1:
        raise UsageError("give only one of --format, --json and --raw")
    write = choose_writer(format_text=format_text, as_json=as_json, raw=raw)
    now = datetime.now(UTC)
    start = parse_start(
        from_beginning=from_beginning, offset=offset, since=since, follow=follow, now=now
    )
    stop = parse_until(until, now=now)

    from respool.cli.kafka import Cluster

    cluster = Cluster.connect(broker)
    known = cluster.topic(topic)
    chosen = _choose_partitions(known, partitions)
    cursors = plan(cluster, known, chosen, start=start, until=stop, follow=follow)
    reader = TopicReader(cluster, topic, cursors, follow=follow)
    shown = 0
    interrupted = False
    try:
        for messages in reader.batches(max_messages):
            sys.stdout.buffer.write(b"".join(map(write, messages)))
            sys.stdout.buffer.flush()
            shown += len(messages)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        reader.close()
    if interrupted or sys.stderr.isatty():
        where = ", ".join(
            f"{number}: {cursor.position}" for number, cursor in sorted(cursors.items())
        )
        output.note(
            f"{shown:,} messages from {topic}; next offset by partition {where}", style="dim"
        )
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def plan(
    cluster: "Cluster",
    topic: "TopicInfo",
    partitions: Sequence[int],
    *,
    start: Start,
    until: Until,
    follow: bool,
) -> dict[int, Cursor]:
    """Ask the broker what the partitions hold, and decide per partition what to read of it."""
    ranges = cluster.ranges([topic])
    since_at = cluster.offsets_at(topic, partitions, start.ms) if isinstance(start, AtTime) else {}
    until_at = cluster.offsets_at(topic, partitions, until.ms) if isinstance(until, AtTime) else {}
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
        cursors[number] = Cursor(position=position, stop=stop, until_ms=until_ms)
    return cursors


class TopicReader:
    """Reads the partitions of the cursors until all are done."""

    def __init__(
        self, cluster: "Cluster", topic: str, cursors: dict[int, Cursor], *, follow: bool
    ) -> None:
        from respool.cli import kafka

        self._kafka = kafka
        self._broker = cluster.broker
        self._topic = topic
        self._cursors = cursors
        self._follow = follow
        self._lost = ""
        self._heard_at = time.monotonic()
        self._consumer = cluster.consumer(
            # The library wants a name for a group; nothing is committed under it, and it is never joined.
            group_id="respool-cli",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            on_error=self._on_error,
        )
        with kafka.translated(self._broker):
            self._consumer.assign(
                [
                    kafka.TopicPartition(topic, number, cursor.position)
                    for number, cursor in cursors.items()
                    if not cursor.is_done
                ]
            )

    def batches(self, messages_max: int | None) -> Iterator[list[ReadMessage]]:
        """Messages as they come, some at a time."""
        left = messages_max
        while left != 0 and not all_done(self._cursors):
            arrived = self._poll(POLL_MESSAGES if left is None else min(POLL_MESSAGES, left))
            messages = [message for raw in arrived if (message := self._take(raw)) is not None]
            if not arrived:
                self._on_silence()
            if messages:
                left = None if left is None else left - len(messages)
                yield messages

    def close(self) -> None:
        self._consumer.close()

    def _poll(self, messages_max: int) -> list[Any]:
        with self._kafka.translated(self._broker):
            # Wait for one, then take what else is there: asking for many at once would wait for all of them.
            first = self._consumer.poll(POLL_SECONDS)
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
        cursor = self._cursors[raw.partition()]
        timestamp_type, timestamp_ms = raw.timestamp()
        if timestamp_type == self._kafka.TIMESTAMP_NOT_AVAILABLE:
            timestamp_ms = -1
        shown = cursor.on_message(raw.offset(), timestamp_ms)
        if cursor.is_done:
            self._consumer.pause([self._kafka.TopicPartition(self._topic, raw.partition())])
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
        if error.code() == self._kafka.PARTITION_EOF:
            self._cursors[raw.partition()].on_end(raw.offset())
        elif error.code() == self._kafka.OFFSET_GONE:
            raise CliError(
                f"partition {raw.partition()} lost messages before they were read: {self._kafka.reason(error)}",
                hint="retention was faster than this reader; start again with --offset earliest",
            )
        elif error.code() in self._kafka.UNREACHABLE_CODES:
            self._on_error(error)
        elif not error.retriable():
            raise self._kafka.to_cli_error(error, self._broker)

    def _on_error(self, error: Any) -> None:
        """The library lost its connection; it goes on trying by itself."""
        if error.code() in self._kafka.UNREACHABLE_CODES and not self._lost:
            self._lost = self._kafka.reason(error)
            output.note(
                f"the broker at {self._broker} went away ({self._lost}); trying again",
                style="yellow",
            )

    def _on_silence(self) -> None:
        """Nothing came. At the end of a followed topic that is how it should be; elsewhere patience has an end."""
        now_ms = int(time.time() * 1000)
        for cursor in self._cursors.values():
            cursor.on_tick(now_ms)
        silent = time.monotonic() - self._heard_at
        if self._lost and not self._follow and silent > SILENCE_SECONDS_MAX:
            raise BrokerUnreachable(
                f"the broker at {self._broker} was away for {SILENCE_SECONDS_MAX:.0f} seconds: {self._lost}",
                hint="run it again with --offset to go on where it stopped",
            )


def choose_writer(
    *, format_text: str | None, as_json: bool, raw: bool
) -> Callable[[ReadMessage], bytes]:
    if as_json:
        return lambda message: to_json_line(message).encode() + b"\n"
    if raw:
        return lambda message: message.value or b""
    if format_text is not None:
        formatted = compile_format(format_text)
        if output.is_terminal():
            return lambda message: for_terminal(formatted(message)).encode() + b"\n"
        return lambda message: formatted(message) + b"\n"
    if output.is_terminal():
        return pretty_writer(colour="NO_COLOR" not in os.environ)
    return lambda message: (message.value or b"") + b"\n"


def pretty_writer(*, colour: bool) -> Callable[[ReadMessage], bytes]:
    """For eyes: where and when in grey, the key in cyan, then the value."""
    grey, cyan, plain = ("\x1b[2m", "\x1b[36m", "\x1b[0m") if colour else ("", "", "")

    def write(message: ReadMessage) -> bytes:
        where = (
            f"{grey}{message.partition}:{message.offset} {format_ms(message.timestamp_ms)}{plain}"
        )
        key = f" {cyan}{for_terminal(message.key)}{plain}" if message.key is not None else ""
        value = for_terminal(message.value) if message.value is not None else f"{grey}null{plain}"
        return f"{where}{key} {value}\n".encode()

    return write


def _choose_partitions(topic: "TopicInfo", wanted: list[int] | None) -> list[int]:
    chosen = sorted(set(wanted)) if wanted else topic.partitions
    missing = [number for number in chosen if number not in topic.leaders]
    if missing:
        raise NotFound(
            f"{topic.name} has no partition {missing[0]}",
            hint=f"its partitions are 0 to {len(topic.leaders) - 1}",
        )
    unled = [number for number in chosen if topic.leaders[number] is None]
    if unled:
        raise BrokerUnreachable(f"nobody leads partition {unled[0]} of {topic.name} now")
    return chosen
