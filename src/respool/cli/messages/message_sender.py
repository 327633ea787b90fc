"""Passes messages to the client library and counts which were acknowledged and which failed."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from respool.cli import output
from respool.cli.connection_options import BrokerConnection
from respool.cli.exit_codes import ExitCode
from respool.cli.kafka_library import KafkaException, make_producer, reason
from respool.cli.messages.message_format import LINE_BYTES_MAX, LineReader, NewMessage, read_lines
from respool.model.json_bytes import BadInput
from respool.model.operator_errors import OperatorError
from respool.model.quantities import counted, human_bytes
from respool.model.times import format_duration_ms
from respool.operate.cluster_admin import ClusterAdmin

MESSAGE_BYTES_MAX = LINE_BYTES_MAX
# The library's default for one batch.
BATCH_BYTES_MAX = 1_000_000
PROGRESS_EVERY = 1_000
FLUSH_STEP_SECONDS = 0.5
# After Ctrl-C the user wants the command to end, but messages in flight should still be accounted for.
AFTER_CTRL_C_SECONDS = 5.0


# The client retries when replicas are missing, so that a message may also fail with a timeout.
TOO_FEW_REPLICAS = {"NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "_MSG_TIMED_OUT"}


class Refusal(NamedTuple):
    why: str
    hint: str


class Replicas(NamedTuple):
    """How many replicas a partition has, and how many of them are in sync."""

    held: int
    in_sync: int


def explain(
    code: str,
    *,
    topic: str,
    settings: Mapping[str, str],
    replicas: Replicas | None = None,
    is_new: bool = False,
) -> Refusal | None:
    """The topic setting that explains an error code, by its Kafka name; None if no setting does.

    `replicas` are the partition's; None if unknown or irrelevant. `is_new`: the topic did not exist before.
    """
    try:
        if code in TOO_FEW_REPLICAS:
            return _too_few_replicas(topic, settings, replicas)
        return _explain(code, topic, settings, is_new=is_new)
    except (KeyError, ValueError):
        # Not a Respool broker: its settings differ.
        return None


def _explain(code: str, topic: str, settings: Mapping[str, str], *, is_new: bool) -> Refusal | None:
    match code:
        case "_UNKNOWN_PARTITION":
            return Refusal(
                f"{topic} has fewer partitions than that",
                "without --keep-partition and --partition, the key decides the partition",
            )
        case "MSG_SIZE_TOO_LARGE":
            limit = int(settings["max.message.bytes"])
            # A topic does not stay that was created for a message that is too large.
            command, unless = (
                ("create", " (or alter, if it is there by now)") if is_new else ("alter", "")
            )
            return Refusal(
                f"{topic} takes at most {limit:,} bytes at once ({human_bytes(limit)}, max.message.bytes)",
                f"raise it with: respool topic {command} {topic} --set max.message.bytes=BYTES{unless}; "
                "or compress: --compression zstd",
            )
        case "INVALID_RECORD" if "compact" in settings["cleanup.policy"]:
            return Refusal(
                f"{topic} keeps the newest message of each key (cleanup.policy={settings['cleanup.policy']}), so every "
                "message needs a key",
                "give one with --key, with --key-separator, or in --json-lines",
            )
        case "POLICY_VIOLATION" if settings["respool.mirror"] == "true":
            return Refusal(
                f"{topic} is a mirror of another cluster's topic (respool.mirror=true): only respool mirror writes it",
                f"produce to that cluster; or, to write here: respool mirror promote {topic} --to HOST:PORT",
            )
        case "INVALID_TIMESTAMP":
            before, after = (
                _span(settings[f"message.timestamp.{side}.max.ms"]) for side in ("before", "after")
            )
            return Refusal(
                f"{topic} takes timestamps at most {before} before and {after} after the broker's clock "
                "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
                f"send other timestamps, or widen it with: respool topic alter {topic} --set "
                "message.timestamp.after.max.ms=TIME",
            )
    return None


def _too_few_replicas(
    topic: str, settings: Mapping[str, str], replicas: Replicas | None
) -> Refusal | None:
    if replicas is None:
        return None
    if not replicas.in_sync:
        return Refusal(
            f"a partition of {topic} has no leader: no broker with an in-sync replica is up",
            "start them; their state is shown by: respool cluster status --etcd HOST:PORT",
        )
    # The broker lowers min.insync.replicas to the replication factor.
    needed = min(int(settings["min.insync.replicas"]), replicas.held)
    if replicas.in_sync >= needed:
        return None
    return Refusal(
        f"{topic} takes messages with {counted(needed, 'replica')} in sync (min.insync.replicas), "
        f"and has {replicas.in_sync}",
        f"start the brokers that are missing, or lower it: respool topic alter {topic} --set min.insync.replicas=N; "
        "or send with --acks 1",
    )


def _span(ms: str) -> str:
    # The maximum value of a long stands for no limit.
    return "any time" if int(ms) >= 2**63 - 1 else format_duration_ms(int(ms))


class MessageSender:
    """Passes messages to the client library and collects its delivery reports."""

    def __init__(
        self,
        connection: BrokerConnection,
        cluster: ClusterAdmin,
        topic: str,
        *,
        acks: str,
        compression: str,
        timeout: float,
        settings: Mapping[str, str],
        is_new: bool = False,
    ) -> None:
        """`settings` are the topic's, as far as they are known; `is_new`: the broker is to create it with these."""
        self._topic = topic
        self._timeout = timeout
        # Replicas and in-sync replicas per partition; None until a failure occurs that they might explain.
        self._known: dict[int, Replicas] | None = None
        self._summary = SendSummary(topic, settings, is_new=is_new)
        # Only acks=all waits for in-sync replicas.
        self._cluster = cluster if acks == "all" else None
        self._producer = make_producer(
            connection,
            acks=acks,
            enable_idempotence=acks == "all",
            compression_type=compression,
            message_timeout_ms=int(timeout * 1000),
            message_max_bytes=MESSAGE_BYTES_MAX,
            # Messages that are small enough one by one must not be refused because they were batched.
            batch_size=min(
                BATCH_BYTES_MAX, int(settings.get("max.message.bytes", BATCH_BYTES_MAX))
            ),
            # The Java client's partitioner, so that both clients place a key in the same partition.
            partitioner="murmur2_random",
        )

    def send_all(
        self, reader: LineReader, *, messages: list[str] | None, file: Path | None
    ) -> "SendSummary":
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
            self._summary.bad_line = {"line": max(number, 1), "message": str(error)}

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
                # The client's queue is full: wait until the broker has accepted some of it.
                self._producer.poll(0.5)
            except KafkaException as error:
                self._summary.add_failure(error.args[0])
                return
            else:
                self._producer.poll(0)
                return

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._summary.add_failure(error, replicas=self._replicas(error, message.partition()))
            return
        self._summary.acknowledged[message.partition()] += 1
        self._summary.bytes += len(message)

    def _replicas(self, error: Any, partition: int) -> Replicas | None:
        """The partition's replicas and in-sync replicas now, if too few of them may have caused the error."""
        if self._cluster is None or error.name() not in TOO_FEW_REPLICAS:
            return None
        if self._known is None:
            # Fetched only once: thousands of messages may fail together.
            try:
                found = self._cluster.topics().get(self._topic)
            except OperatorError:
                found = None
            self._known = {}
            if found is not None:
                self._known = {
                    number: Replicas(held=len(brokers), in_sync=len(found.in_sync.get(number, ())))
                    for number, brokers in found.replicas.items()
                }
        return self._known.get(partition)

    def _finish(self) -> int:
        """Wait until every message has its report, or until Ctrl-C. Returns how many messages have none."""
        patience = AFTER_CTRL_C_SECONDS if self._summary.interrupted else self._timeout + 1
        deadline = time.monotonic() + patience
        try:
            # In short steps, because the library does not react to Ctrl-C while it waits.
            while len(self._producer) and time.monotonic() < deadline:
                self._producer.flush(FLUSH_STEP_SECONDS)
        except KeyboardInterrupt:
            self._summary.interrupted = True
        return len(self._producer)


class SendSummary:
    """Counts acknowledged and failed messages, and explains the failures."""

    def __init__(self, topic: str, settings: Mapping[str, str], *, is_new: bool = False) -> None:
        self._topic = topic
        self._settings = settings
        self._is_new = is_new
        self.acknowledged: Counter[int] = Counter()
        self.failures: Counter[str] = Counter()
        # Kafka's error codes by message, and hints for some of them.
        self._codes: dict[str, str] = {}
        self._hints: dict[str, str] = {}
        self.bytes = 0
        self.seconds = 0.0
        # The invalid input line at which sending stopped, and why it is invalid.
        self.bad_line: dict[str, object] | None = None
        self.interrupted = False

    @property
    def exit_code(self) -> ExitCode:
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if self.failures or self.bad_line else ExitCode.OK

    def add_failure(self, error: Any, *, replicas: Replicas | None = None) -> None:
        why = reason(error)
        refusal = explain(
            error.name(),
            topic=self._topic,
            settings=self._settings,
            replicas=replicas,
            is_new=self._is_new,
        )
        if refusal is not None:
            why = f"{why}: {refusal.why}"
            self._hints[why] = refusal.hint
        self._codes[why] = error.name()
        self.failures[why] += 1

    def tell(self, *, as_json: bool) -> None:
        count = self.acknowledged.total()
        if as_json:
            output.print_json(
                {
                    "topic": self._topic,
                    "messages": count,
                    "bytes": self.bytes,
                    "seconds": round(self.seconds, 3),
                    "partitions": [
                        {"partition": number, "messages": each}
                        for number, each in sorted(self.acknowledged.items())
                    ],
                    "failed": [
                        {"error": self._codes.get(why), "message": why, "messages": failed}
                        for why, failed in self.failures.most_common()
                    ],
                    "bad_line": self.bad_line,
                    "interrupted": self.interrupted,
                }
            )
        rate = count / self.seconds if self.seconds > 0 else 0.0
        where = ", ".join(
            f"{number}: {each:,}" for number, each in sorted(self.acknowledged.items())
        )
        output.note(
            f"{counted(count, 'message')} ({human_bytes(self.bytes)}) to {self._topic} "
            f"in {self.seconds:.2f} s, {rate:,.0f} messages/s"
            + (f"; by partition {where}" if where else "")
        )
        for why, failed in self.failures.most_common():
            were = "was" if failed == 1 else "were"
            output.print_error(
                f"{counted(failed, 'message')} {were} not acknowledged: {why}",
                self._hints.get(why, ""),
            )
        if self.bad_line:
            output.print_error(
                f"line {self.bad_line['line']}: {self.bad_line['message']}",
                "the messages before it were sent",
            )


def _open_input(
    messages: list[str] | None, file: Path | None, stack: ExitStack
) -> tuple[Iterator[bytes], int | None]:
    """The lines to send, and their size in bytes if known."""
    if messages:
        return iter([text.encode() for text in messages]), None
    if file is not None:
        source = stack.enter_context(file.open("rb"))
        return read_lines(source), file.stat().st_size if file.is_file() else None
    if sys.stdin.isatty():
        output.note("one message per line; Ctrl-D ends", style="dim")
    return read_lines(sys.stdin.buffer), None
