"""`respool topic`: create, list, describe, alter and delete topics."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli import options, output
from respool.cli.asking import confirm
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.errors import ExitCode, TopicExists
from respool.cli.isolation import Isolation
from respool.cli.topic_promise import (
    MIN_ISR,
    acks_all,
    asks_for_too_many,
    fewest_replicas,
    in_words,
)
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.model.quantities import counted, human_bytes
from respool.model.times import format_duration_ms

if TYPE_CHECKING:
    from respool.cli.kafka import Cluster, OffsetRange, Setting, TopicInfo

# What the client library takes.
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

LONG_MAX = 2**63 - 1

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", show_default=False)]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="The topics.", show_default=False)
]


@app.command(
    epilog="Examples:\n"
    "  respool topic create rides --partitions 4\n"
    "  respool topic create audit --set retention.ms=-1 --set respool.flush=always --if-not-exists"
)
@to_broker
def create(
    name: Name,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=PARTITIONS_MAX,
            help="How many partitions.",
            show_default="the broker's num_partitions",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=REPLICAS_MAX,
            help="How many brokers keep each partition.",
            show_default="the broker's choice",
        ),
    ] = None,
    settings: options.Set = None,
    if_not_exists: Annotated[
        bool, options.flag("--if-not-exists", text="Do nothing when there is such a topic.")
    ] = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Create a topic."""
    from respool.cli.kafka import Cluster

    wanted = options.topic_settings(settings)
    cluster = Cluster.connect(connection)
    created = True
    try:
        cluster.create_topic(
            name, partitions=partitions, settings=wanted, replication_factor=replication_factor
        )
    except TopicExists as error:
        if not if_not_exists:
            raise TopicExists(
                f"there is a topic {name!r} already",
                hint=f"see it with: respool topic describe {name}; or use --if-not-exists",
            ) from error
        created = False
    if as_json:
        output.print_json({"topic": name, "created": created})
    else:
        output.note(f"created {name}" if created else f"{name} exists already; nothing changed")
    if created:
        _tell_what_it_means(cluster, name, wanted)


@app.command(
    "list", epilog="Piped, the columns are separated by tabs: respool topic list | cut -f1"
)
@to_broker
def list_topics(
    internal: Annotated[
        bool,
        options.flag(
            "--internal", text="Also the broker's own topics, such as __consumer_offsets."
        ),
    ] = False,
    as_json: options.Json = False,
    *,
    connection: BrokerConnection,
) -> None:
    """List topics: name, partitions, messages and how long they are kept."""
    from respool.cli.kafka import Cluster

    cluster = Cluster.connect(connection)
    topics = [
        topic for _, topic in sorted(cluster.topics().items()) if internal or not topic.is_internal
    ]
    ranges = cluster.ranges(topics, isolation=Isolation.READ_UNCOMMITTED, led_only=True)
    settings = cluster.settings([topic.name for topic in topics])
    documents = [_list_document(topic, ranges, settings[topic.name]) for topic in topics]
    if as_json:
        output.print_json({"topics": documents})
        return
    columns = ("topic", "partitions", "messages", "retention")
    rows = [
        (
            each["topic"],
            each["partition_count"],
            _at_most(each["messages_max"]) if each["messages"] is None else each["messages"],
            retention(settings[topic.name]),
        )
        for topic, each in zip(topics, documents, strict=True)
    ]
    output.print_rows(output.Columns(*columns, numbers=columns[1:3]), rows)
    unled = sum(len(topic.leaders) for topic in topics) - len(ranges)
    if unled:
        output.note(
            f"without what is in {counted(unled, 'partition')} that nobody leads now, for nobody could be asked"
        )
    if not rows:
        output.note("no topics yet; create one with: respool topic create NAME")


@app.command(
    epilog="Piped, the fields are separated by tabs: topic, promise, text; topic, setting, name, value, source; "
    "topic, partition, number, leader, start offset, end offset, messages, replicas, in sync. With --keys: "
    "topic, keys, scanned, available, keys, in several partitions; topic, key, name, partitions, by murmur2, "
    "by CRC32.\n\n"
    "Examples:\n"
    "  respool topic describe rides\n"
    "  respool topic describe rides --json\n"
    "  respool topic describe rides --keys --since '3 days ago' --scan 1000000"
)
@to_broker
def describe(
    names: Names,
    *,
    keys: Annotated[
        bool,
        options.flag("--keys", text="Scan messages for keys that have several partitions."),
    ] = False,
    scan: Annotated[
        str | None,
        typer.Option(
            metavar="N|all",
            help="With --keys: how many messages of a topic to scan, the newest of each partition.",
            show_default="100000",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="With --keys: only messages from this time, such as '3 days ago'."
        ),
    ] = None,
    scan_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --keys: how long the scan of a topic may take.",
            show_default="30s",
        ),
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Show topics whole: settings and who set them, partitions, and what an acknowledgement promises."""
    if not keys and (scan, since, scan_time) != (None, None, None):
        raise UsageError("--scan, --since and --scan-time need --keys")

    from respool.cli.kafka import Cluster
    from respool.cli.topic_keys import StoppedBy, parse_scan, print_report, scan_keys, tell_cause

    wanted = parse_scan(scan, since, scan_time)
    cluster = Cluster.connect(connection)
    descriptions = {name: _describe(cluster, name) for name in dict.fromkeys(names)}
    reports = {}
    for name in descriptions if keys else ():
        reports[name] = scan_keys(cluster, cluster.topic(name), wanted)
        if reports[name].stopped_by is StoppedBy.INTERRUPT:
            break
    if as_json:
        found = {name: {"key_scan": report.document()} for name, report in reports.items()}
        described = [{**one, **found.get(name, {})} for name, one in descriptions.items()]
        output.print_json({"topics": described})
    else:
        for name, description in descriptions.items():
            _print_description(description)
            if name in reports:
                print_report(name, reports[name])
    for report in reports.values():
        tell_cause(report)
    if any(report.stopped_by is StoppedBy.INTERRUPT for report in reports.values()):
        raise typer.Exit(ExitCode.INTERRUPTED)


@app.command(
    epilog="Examples:\n"
    "  respool topic alter rides --set retention.ms=30d --unset segment.bytes\n"
    "  respool topic alter rides --partitions 8"
)
@to_broker
def alter(
    name: Name,
    *,
    settings: options.Set = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTING", help="Go back to the broker's default; may be repeated."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Grow to this many partitions; it cannot shrink.")
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Change a topic's settings, or add partitions."""
    wanted = options.topic_settings(settings)
    both = sorted(set(wanted) & set(unset or ()))
    if both:
        raise UsageError(f"{', '.join(both)} cannot be both --set and --unset")
    if not wanted and not unset and partitions is None:
        raise UsageError(
            "nothing to change", hint="give --set NAME=VALUE, --unset NAME or --partitions N"
        )
    from respool.cli.kafka import Cluster

    cluster = Cluster.connect(connection)
    topic = cluster.topic(name)
    if partitions is not None:
        _check_growth(topic, partitions)
    # Settings first: a wrong one is refused before partitions are added, which cannot be taken back.
    if unset:
        _check_names(unset, [each.name for each in cluster.settings([name])[name]])
    if wanted or unset:
        cluster.alter_topic(name, settings=wanted, unset=unset or [])
    if partitions is not None and partitions > len(topic.leaders):
        cluster.grow_topic(name, partitions=partitions)
    if as_json:
        output.print_json(_describe(cluster, name))
    else:
        output.note(f"altered {name}")
    _tell_what_it_means(cluster, name, wanted)


@app.command(epilog="Example:\n  respool topic delete rides --yes")
@to_broker
def delete(
    names: Names,
    *,
    yes: Annotated[bool, options.flag("--yes", "-y", text="Do not ask.")] = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Delete topics and all their messages. On a terminal it asks first; elsewhere it needs --yes."""
    from respool.cli.kafka import Cluster

    cluster = Cluster.connect(connection)
    topics = [cluster.topic(name) for name in dict.fromkeys(names)]
    if not yes:
        confirm(
            "Delete all of it?",
            why="deleting a topic deletes its messages",
            explain=lambda: _note_contents(cluster, topics),
        )
    failed: list[OperatorError] = []
    deleted: dict[str, bool] = {}
    for topic in topics:
        deleted[topic.name] = False
        try:
            cluster.delete_topic(topic.name)
        except NotFound:
            # Somebody else was faster; it is gone, which is what was asked for.
            pass
        except OperatorError as error:
            failed.append(
                OperatorError(f"{topic.name} was not deleted: {error.message}", hint=error.hint)
            )
            continue
        deleted[topic.name] = True
        if not as_json:
            output.note(f"deleted {topic.name}")
    if as_json:
        documents = [{"topic": name, "deleted": is_gone} for name, is_gone in deleted.items()]
        output.print_json({"topics": documents})
    if failed:
        for failure in failed[:-1]:
            output.print_error(failure.message, failure.hint)
        raise failed[-1]


def _list_document(
    topic: "TopicInfo",
    ranges: dict[tuple[str, int], "OffsetRange"],
    settings: Sequence["Setting"],
) -> dict[str, object]:
    held = [each for (name, _), each in ranges.items() if name == topic.name]
    # None where nobody leads any of its partitions, so that nobody could be asked.
    offsets = sum(each.messages for each in held) if held else None
    return {
        "topic": topic.name,
        "partition_count": len(topic.leaders),
        # Compaction leaves gaps in the offsets, and how many messages are left nobody has counted.
        "messages": None if is_compacted(settings) else offsets,
        "messages_max": offsets,
        **retention_limits(settings),
    }


def _at_most(number: object) -> str:
    return "-" if number is None else f"up to {number:,}"


def is_compacted(settings: Sequence["Setting"]) -> bool:
    return "compact" in _policies(settings)


def _policies(settings: Sequence["Setting"]) -> set[str]:
    found = [each.value for each in settings if each.name == "cleanup.policy"]
    return {word.strip() for text in found or ["delete"] for word in text.split(",")}


def retention_limits(settings: Sequence["Setting"]) -> dict[str, object]:
    """When messages are deleted, for programs; None: never for this reason."""
    values = {setting.name: setting.value for setting in settings}
    policies = _policies(settings)

    def limit(name: str) -> int | None:
        found = int(values.get(name, -1))
        return found if "delete" in policies and found >= 0 else None

    return {
        "cleanup_policy": sorted(policies),
        "retention_ms": limit("retention.ms"),
        "retention_bytes": limit("retention.bytes"),
    }


def retention(settings: Sequence["Setting"]) -> str:
    """How long messages stay, in words: by time, by size, by key, or for ever."""
    limits = retention_limits(settings)
    kept_ms, kept_bytes = limits["retention_ms"], limits["retention_bytes"]
    words = []
    if isinstance(kept_ms, int):
        words.append(format_duration_ms(kept_ms))
    if isinstance(kept_bytes, int):
        words.append(f"{human_bytes(kept_bytes)} per partition")
    if is_compacted(settings):
        words.append("until its key has a newer one")
    return " or ".join(words) or "for ever"


def _tell_what_it_means(cluster: "Cluster", name: str, wanted: Mapping[str, str]) -> None:
    """Where more replicas were asked for than there are, say what was got."""
    if MIN_ISR not in wanted:
        return
    topic = None
    with suppress(OperatorError):
        # What was asked for is done; this is only said beside it. One that was made just now may not be known yet.
        topic = cluster.topics().get(name)
    replicas = None if topic is None else fewest_replicas(topic)
    text = asks_for_too_many(name, wanted, replicas=replicas)
    if text is not None:
        output.note(text)


def _describe(cluster: "Cluster", name: str) -> dict[str, Any]:
    topic = cluster.topic(name)
    ranges = cluster.ranges([topic], isolation=Isolation.READ_UNCOMMITTED, led_only=True)
    settings = cluster.settings([name])[name]
    compacted = is_compacted(settings)
    partitions = []
    for number in topic.partitions:
        held = ranges.get((name, number))
        partitions.append(
            {
                "partition": number,
                # Who did not answer as the leader is none, whatever the metadata still says.
                "leader": topic.leaders[number] if held else None,
                "start_offset": held.start if held else None,
                "end_offset": held.end if held else None,
                "messages": held.messages if held and not compacted else None,
                # The first should lead.
                "replicas": list(topic.replicas.get(number, ())),
                "in_sync": sorted(topic.in_sync.get(number, ())),
            }
        )
    return {
        "topic": name,
        "acks_all": acks_all(settings, replicas=fewest_replicas(topic)),
        "settings": [
            {"name": each.name, "value": each.value, "source": each.source} for each in settings
        ],
        "partitions": partitions,
    }


def _print_description(description: dict[str, Any]) -> None:
    name, settings, partitions = (description[key] for key in ("topic", "settings", "partitions"))
    promised = in_words(description["acks_all"])
    setting_rows = [(each["name"], each["value"], each["source"]) for each in settings]
    partition_rows = [
        tuple(
            ",".join(map(str, cell)) if isinstance(cell, list) else cell for cell in each.values()
        )
        for each in partitions
    ]
    if not output.is_terminal():
        # One shape for every line: topic, what the line is about, then its fields.
        output.print_rows(output.Columns(), [(name, "promise", promised)])
        output.print_rows(output.Columns(), [(name, "setting", *row) for row in setting_rows])
        output.print_rows(output.Columns(), [(name, "partition", *row) for row in partition_rows])
        return
    output.print_heading(f"topic {name}")
    output.print_line(f"promise: {promised}")
    shown = [(name, with_unit(name, value), source) for name, value, source in setting_rows]
    output.print_rows(output.Columns("setting", "value", "source"), shown)
    numbers = ("partition", "leader", "start offset", "end offset", "messages")
    output.print_rows(
        output.Columns(*numbers, "replicas", "in sync", numbers=numbers), partition_rows
    )


def with_unit(name: str, value: str) -> str:
    """For eyes: `retention.ms` 604800000 -> '604800000 (7d)'; -1 and other words stay as they are."""
    if not value.isdecimal() or int(value) >= LONG_MAX:
        return value
    if name.endswith(".ms") and int(value) >= 1000:
        return f"{value} ({format_duration_ms(int(value))})"
    if name.endswith(".bytes") and int(value) >= 1024:
        return f"{value} ({human_bytes(int(value))})"
    return value


def _check_names(unset: Sequence[str], known: Sequence[str]) -> None:
    """What is not there cannot be unset; the broker would say nothing, as Kafka does."""
    for name in unset:
        if name not in known:
            alike = get_close_matches(name, known, n=1)
            hint = f"did you mean {alike[0]}?" if alike else ""
            raise UsageError(f"--unset {name}: there is no such topic setting", hint=hint)


def _check_growth(topic: "TopicInfo", partitions: int) -> None:
    have = len(topic.leaders)
    if partitions < have:
        raise UsageError(
            f"{topic.name} has {counted(have, 'partition')} and cannot shrink to {partitions}: "
            "the messages in the others would be lost, and keys would move",
            hint=f"create a topic with {counted(partitions, 'partition')} and copy: "
            f"respool consume {topic.name} --json | respool produce NEW --json-lines",
        )


def _note_contents(cluster: "Cluster", topics: Sequence["TopicInfo"]) -> None:
    ranges = cluster.ranges(topics, isolation=Isolation.READ_UNCOMMITTED, led_only=True)
    settings = cluster.settings([topic.name for topic in topics])
    for topic in topics:
        held = [each for (name, _), each in ranges.items() if name == topic.name]
        unled = len(topic.leaders) - len(held)
        output.note(
            f"{topic.name}: {counted(len(topic.leaders), 'partition')}, "
            + ("up to " if is_compacted(settings[topic.name]) else "")
            + counted(sum(each.messages for each in held), "message")
            + (f", and what {unled} of them have that nobody leads now" if unled else "")
        )
