"""`respool produce`: send lines from a file or a pipe as messages."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.delays.delay_options import delay_options
from respool.cli.exit_codes import ExitCode
from respool.cli.messages.message_format import LineReader
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.model.quantities import counted, partition_numbers

if TYPE_CHECKING:
    from respool.operate.cluster_admin import ClusterAdmin

# The settings improve error messages and limit the batch size; they are not worth a long wait.
SETTINGS_SECONDS = 2.0


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
    "A key goes to the partition that Kafka's Java clients choose (murmur2), so its messages keep their order. "
    "Clients on librdkafka choose another unless they set partitioner=murmur2_random. "
    "It ends with 0 only when every message was acknowledged.\n\n"
    "Examples:\n"
    "  echo hello | respool produce greetings\n"
    "  respool produce rides --file rides.txt --key-separator : --compression zstd\n"
    "  respool produce greetings -m hello -m 'hello again' --header lang=en\n"
    "  respool produce reminders -m 'drink' --delay 30m\n"
    "  respool consume rides --json | respool produce rides-copy --json-lines"
)


@to_broker
def produce(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", parser=options.topic_name, show_default=False, help="The topic."
        ),
    ],
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
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Consumers see them after this time, such as 1h30m; the topic needs respool.delay=true.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Consumers see them at this time, such as 'tomorrow 08:00' or 2026-12-01T08:00Z.",
        ),
    ] = None,
    schedule_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="With --delay or --at: a later message with this id, in the same partition, replaces it.",
        ),
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
            help="Acknowledgement: 0 none, 1 the leader, all in-sync replicas. Idempotent with 'all'."
        ),
    ] = Acks.ALL,
    json_lines: Annotated[
        bool,
        options.flag(
            "--json-lines",
            text="Each line is an object with key, value, headers, timestamp, partition. Its key decides "
            "the partition, not its partition field.",
        ),
    ] = False,
    keep_partition: Annotated[
        bool,
        options.flag(
            "--keep-partition",
            text="With --json-lines: send each line to the partition it names.",
        ),
    ] = False,
    # Requests the default; kept for scripts that use it.
    repartition: Annotated[
        bool, typer.Option("--repartition", metavar="", hidden=True, help="The default.")
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
    connection: BrokerConnection,
) -> None:
    """Send messages, one per line, from a file, a pipe or the keyboard."""
    if messages and file:
        raise UsageError("--message and --file cannot both be given")
    _check_placement(
        json_lines=json_lines,
        keep_partition=keep_partition,
        repartition=repartition,
        partition=partition,
    )
    pairs = options.parse_pairs(headers, option="--header")
    reader = LineReader(
        key=key,
        key_separator=key_separator.replace("\\t", "\t") if key_separator is not None else None,
        headers=(
            *((name, value.encode()) for name, value in pairs),
            *delay_options(delay, at, schedule_id),
        ),
        partition=partition,
        json_lines=json_lines,
        keep_partition=keep_partition,
        null_marker=null_marker,
    )
    # A pipe may be named too, such as /dev/stdin.
    if file is not None and (not file.exists() or file.is_dir()):
        raise NotFound(f"there is no file {str(file)!r}")

    from respool.cli.messages.message_sender import MessageSender

    cluster = connection.connect()
    settings, is_new = _check_topic(cluster, topic, partition)
    if (delay or at) and settings and settings.get("respool.delay") != "true":
        raise UsageError(
            f"topic {topic!r} delivers messages at once",
            hint="create one with delays: respool topic create NAME --set respool.delay=true",
        )
    sender = MessageSender(
        connection,
        cluster,
        topic,
        acks=acks.value,
        compression=compression.value,
        timeout=timeout,
        settings=settings,
        is_new=is_new,
    )
    summary = sender.send_all(reader, messages=messages, file=file)
    summary.tell(as_json=as_json)
    if summary.exit_code != ExitCode.OK:
        raise typer.Exit(summary.exit_code)


def _check_placement(
    *, json_lines: bool, keep_partition: bool, repartition: bool, partition: int | None
) -> None:
    for option, given in {"--keep-partition": keep_partition, "--repartition": repartition}.items():
        if given and not json_lines:
            raise UsageError(f"{option} needs --json-lines")
    if keep_partition and repartition:
        raise UsageError("give only one of --keep-partition and --repartition")
    if keep_partition and partition is not None:
        raise UsageError("give only one of --keep-partition and --partition")


def _check_topic(
    cluster: "ClusterAdmin", topic: str, partition: int | None
) -> tuple[dict[str, str], bool]:
    """The topic's settings, as far as the broker returns them, and whether it does not exist yet."""
    from respool.model.view_config import OF, WHERE

    known = cluster.topics(named=[topic]).get(topic)
    if known is None:
        if not cluster.creates_topics():
            raise NotFound(
                f"there is no topic {topic}, and this broker creates none by itself",
                hint=f"create it with: respool topic create {topic}",
            )
        output.note(
            f"there is no topic {topic} yet; the broker creates it with the first message",
            style="dim",
        )
        return cluster.default_topic_settings(), True
    if partition is not None and partition not in known.leaders:
        raise NotFound(
            f"{topic} has {counted(known.partitions, 'partition')}, so there is no partition {partition}",
            hint=partition_numbers(known.partitions),
        )
    try:
        found = cluster.settings([topic], seconds=SETTINGS_SECONDS)[topic]
    except OperatorError:
        # The topic may still accept writes.
        return {}, False
    settings = {each.name: each.value for each in found}
    if OF in settings:
        raise UsageError(
            f"{topic} is a view of {settings[OF]}, and nobody writes to a view",
            hint=f"respool produce {settings[OF]}, with the headers or key that the view shows: "
            f"{settings[WHERE]}",
        )
    return settings, False
