"""`respool produce`: lines from a file or a pipe become messages."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from respool.cli import options, output
from respool.cli.errors import ExitCode, NotFound, UsageError
from respool.cli.message_format import BadInput, Header, NewMessage, from_json_line

if TYPE_CHECKING:
    from respool.cli.kafka import Cluster

# No line is read further than this: it bounds memory, and the broker takes no larger request by default.
LINE_BYTES_MAX = 100 * 1024 * 1024
MESSAGE_BYTES_MAX = LINE_BYTES_MAX
PROGRESS_EVERY = 1_000
FLUSH_STEP_SECONDS = 0.5
# Somebody who pressed Ctrl-C wants to leave, but what is on its way should be accounted for.
AFTER_CTRL_C_SECONDS = 5.0


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


EPILOG = (
    "Messages of one key keep their order. It ends with 0 only when every message was acknowledged.\n\n"
    "Examples:\n"
    "  echo hello | respool produce greetings\n\n"
    "  respool produce rides --file rides.txt --key-separator : --compression zstd\n"
    "  respool produce greetings -m hello -m 'hello again' --header lang=en\n"
    "  respool consume rides --json | respool produce rides-copy --json-lines"
)


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic.")],
    *,
    messages: Annotated[
        list[str] | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="Send this instead of reading input; may be repeated.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Read lines from here, not from standard input."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of every message.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="SEP", help="Each line is KEY SEP VALUE; \\t stands for a tab."),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Add a header; may be repeated."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="Send to this partition."),
    ] = None,
    compression: Annotated[
        Compression, typer.Option(help="How batches are compressed.")
    ] = Compression.NONE,
    acks: Annotated[
        Acks,
        typer.Option(
            help="Whose answer counts: nobody's, the leader's, all in-sync replicas'. Idempotent with 'all'."
        ),
    ] = Acks.ALL,
    json_lines: Annotated[
        bool,
        options.flag(
            "--json-lines",
            text="Each line is an object with key, value, headers, timestamp, partition.",
        ),
    ] = False,
    repartition: Annotated[
        bool,
        options.flag(
            "--repartition",
            text="With --json-lines: place by key, whatever partition a line names.",
        ),
    ] = False,
    null_marker: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="A key or value equal to this is sent as null (a tombstone)."
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="How long a message may take before it counts as failed.",
        ),
    ] = 30.0,
    as_json: Annotated[
        bool, options.flag("--json", text="Print the summary as JSON on standard output.")
    ] = False,
    broker: options.Broker = options.DEFAULT_BROKER,
) -> None:
    """Send messages, one per line, from a file, a pipe or the keyboard."""
    if messages and file:
        raise UsageError("--message and --file cannot both be given")
    if repartition and not json_lines:
        raise UsageError("--repartition needs --json-lines")
    reader = LineReader(
        key=key,
        key_separator=key_separator.replace("\\t", "\t") if key_separator is not None else None,
        headers=tuple(
            (name, value.encode())
            for name, value in options.parse_pairs(headers, option="--header")
        ),
        partition=partition,
        json_lines=json_lines,
        repartition=repartition,
        null_marker=null_marker,
    )
    # A pipe may be named too, such as /dev/stdin.
    if file is not None and (not file.exists() or file.is_dir()):
        raise NotFound(f"there is no file {str(file)!r}")

    from respool.cli.kafka import Cluster

    cluster = Cluster.connect(broker)
    _check_topic(cluster, topic, partition)
    sender = Sender(cluster, topic, acks=acks, compression=compression, timeout=timeout)
    summary = sender.send_all(reader, messages=messages, file=file)
    summary.tell(topic, as_json=as_json)
    if summary.exit_code != ExitCode.OK:
        raise typer.Exit(summary.exit_code)


class LineReader:
    """A line of input -> the message it stands for."""

    def __init__(
        self,
        *,
        key: str | None = None,
        key_separator: str | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        json_lines: bool = False,
        repartition: bool = False,
        null_marker: str | None = None,
    ) -> None:
        if key is not None and key_separator is not None:
            raise UsageError("--key and --key-separator cannot both be given")
        if key_separator == "":
            raise UsageError("--key-separator is empty")
        if json_lines and (key_separator is not None or null_marker is not None):
            raise UsageError(
                "--json-lines says key and null itself; leave --key-separator and --null-marker out"
            )
        self._key = key.encode() if key is not None else None
        self._separator = key_separator.encode() if key_separator is not None else None
        self._headers = headers
        self._partition = partition
        self._json_lines = json_lines
        self._repartition = repartition
        self._null = null_marker.encode() if null_marker is not None else None

    def read(self, line: bytes) -> NewMessage:
        """
        Raises:
            BadInput: the line does not have the form asked for.
        """
        if self._json_lines:
            return self._read_json(line)
        key, value = self._key, line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                raise BadInput(f"there is no {self._separator.decode()!r} between key and value")
        return NewMessage(
            key=self._or_null(key),
            value=self._or_null(value),
            headers=self._headers,
            partition=self._partition,
        )

    def _read_json(self, line: bytes) -> NewMessage:
        message = from_json_line(line)
        named = None if self._repartition else message.partition
        return NewMessage(
            key=message.key if message.key is not None else self._key,
            value=message.value,
            headers=message.headers + self._headers,
            timestamp_ms=message.timestamp_ms,
            partition=self._partition if self._partition is not None else named,
        )

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data is not None and data == self._null else data


class Summary:
    """What became of the messages."""

    def __init__(self) -> None:
        self.acknowledged: Counter[int] = Counter()
        self.failures: Counter[str] = Counter()
        self.bytes = 0
        self.seconds = 0.0
        self.stopped_by = ""
        self.interrupted = False

    @property
    def exit_code(self) -> ExitCode:
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if self.failures or self.stopped_by else ExitCode.OK

    def tell(self, topic: str, *, as_json: bool) -> None:
        count = self.acknowledged.total()
        if as_json:
            output.print_json(
                {
                    "topic": topic,
                    "messages": count,
                    "bytes": self.bytes,
                    "seconds": round(self.seconds, 3),
                    "partitions": {str(n): c for n, c in sorted(self.acknowledged.items())},
                    "failed": dict(self.failures),
                    "stopped_by": self.stopped_by or None,
                    "interrupted": self.interrupted,
                }
            )
        rate = count / self.seconds if self.seconds > 0 else 0.0
        where = ", ".join(
            f"{number}: {each:,}" for number, each in sorted(self.acknowledged.items())
        )
        output.note(
            f"{count:,} messages ({output.human_bytes(self.bytes)}) to {topic} in {self.seconds:.2f} s, "
            f"{rate:,.0f} messages/s" + (f"; by partition {where}" if where else "")
        )
        for why, failed in self.failures.most_common():
            output.print_error(f"{failed:,} messages were not acknowledged: {why}")
        if self.stopped_by:
            output.print_error(self.stopped_by, "the messages before it were sent")


class Sender:
    """Feeds the client library, collects its delivery reports."""

    def __init__(
        self,
        cluster: "Cluster",
        topic: str,
        *,
        acks: Acks,
        compression: Compression,
        timeout: float,
    ) -> None:
        from respool.cli.kafka import KafkaException, reason

        self._client_errors, self._reason = KafkaException, reason
        self._topic = topic
        self._timeout = timeout
        self._summary = Summary()
        self._producer = cluster.producer(
            acks=acks.value,
            enable_idempotence=acks is Acks.ALL,
            compression_type=compression.value,
            message_timeout_ms=int(timeout * 1000),
            message_max_bytes=MESSAGE_BYTES_MAX,
            # A key goes where the Java client would send it, so both agree on a topic's partitions.
            partitioner="murmur2_random",
        )

    def send_all(
        self, reader: LineReader, *, messages: list[str] | None, file: Path | None
    ) -> Summary:
        began = time.monotonic()
        summary = self._summary
        with ExitStack() as stack:
            try:
                lines, total = _open_input(messages, file, stack)
                interactive = messages is None and file is None and sys.stdin.isatty()
                bar = (
                    None
                    if interactive
                    else stack.enter_context(output.progress(f"to {self._topic}", total=total))
                )
                self._send_lines(lines, reader, bar)
            except KeyboardInterrupt:
                summary.interrupted = True
            left = self._finish()
        if left:
            summary.failures["no answer came before the end"] += left
        summary.seconds = time.monotonic() - began
        return summary

    def _send_lines(self, lines: Iterator[bytes], reader: LineReader, bar: Any) -> None:
        number = unreported = 0
        try:
            for line in lines:
                number += 1
                self._send(reader.read(line))
                unreported += len(line) + 1
                if bar is not None and number % PROGRESS_EVERY == 0:
                    bar.advance(unreported)
                    unreported = 0
        except BadInput as error:
            self._summary.stopped_by = f"line {max(number, 1)}: {error}"

    def _send(self, message: NewMessage) -> None:
        placed: dict[str, Any] = (
            {"partition": message.partition} if message.partition is not None else {}
        )
        if message.timestamp_ms is not None:
            placed["timestamp"] = message.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers) or None,
                    on_delivery=self._on_delivery,
                    **placed,
                )
            except BufferError:
                # The client's queue is full: wait for the broker to take some of it.
                self._producer.poll(0.5)
            except self._client_errors as error:
                self._summary.failures[self._reason(error)] += 1
                return
            else:
                self._producer.poll(0)
                return

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._summary.failures[self._reason(error)] += 1
            return
        self._summary.acknowledged[message.partition()] += 1
        self._summary.bytes += len(message)

    def _finish(self) -> int:
        """Wait until every message has its report; Ctrl-C stops the waiting. Returns how many have none."""
        patience = AFTER_CTRL_C_SECONDS if self._summary.interrupted else self._timeout + 1
        deadline = time.monotonic() + patience
        try:
            # In short steps, because the library does not notice Ctrl-C while it waits.
            while len(self._producer) and time.monotonic() < deadline:
                self._producer.flush(FLUSH_STEP_SECONDS)
        except KeyboardInterrupt:
            self._summary.interrupted = True
        return len(self._producer)


def _open_input(
    messages: list[str] | None, file: Path | None, stack: ExitStack
) -> tuple[Iterator[bytes], int | None]:
    """The lines to send, and how many bytes they are when that is known."""
    if messages:
        return iter([text.encode() for text in messages]), None
    if file is not None:
        source = stack.enter_context(file.open("rb"))
        return read_lines(source), file.stat().st_size if file.is_file() else None
    if sys.stdin.isatty():
        output.note("one message per line; Ctrl-D ends", style="dim")
    return read_lines(sys.stdin.buffer), None


def read_lines(source: IO[bytes], *, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """Lines without their newline; the last one may lack it.

    Raises:
        BadInput: a line is longer than any message can be.
    """
    while line := source.readline(line_bytes_max + 1):
        if len(line) > line_bytes_max:
            raise BadInput(
                f"it is longer than {line_bytes_max:,} bytes; messages are read one per line"
            )
        yield line.removesuffix(b"\n")


def _check_topic(cluster: "Cluster", topic: str, partition: int | None) -> None:
    known = cluster.topics().get(topic)
    if known is None:
        # The broker may create it, or refuse; either way it has the word.
        output.note(f"there is no topic {topic} yet; asking the broker to create it", style="dim")
    elif partition is not None and partition not in known.leaders:
        raise NotFound(
            f"{topic} has {len(known.leaders)} partitions, so there is no partition {partition}",
            hint=f"they are numbered from 0 to {len(known.leaders) - 1}",
        )
