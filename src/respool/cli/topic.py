"""`respool topic`: create, list, describe, alter, shrink and delete topics."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli import options, output, topic_partitions
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.deletion import delete_each
from respool.cli.exit_codes import ExitCode
from respool.cli.output import confirm
from respool.model.operator_errors import OperatorError, UsageError
from respool.model.quantities import counted, human_bytes
from respool.model.times import format_duration_ms

if TYPE_CHECKING:
    from respool.client.kafka.metadata import TopicMetadata
    from respool.operate.cluster_admin import ClusterAdmin

# Limits of the client library.
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

LONG_MAX = 2**63 - 1

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", parser=options.topic_name, help="The topic.", show_default=False
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", parser=options.topic_name, help="The topics.", show_default=False
    ),
]


@app.command(
    epilog="Examples:\n"
    "  respool topic create rides --partitions 4\n"
    "  respool topic create audit --set respool.flush=always --if-not-exists"
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
            help="Number of partitions.",
            show_default="the broker's num_partitions",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=REPLICAS_MAX,
            help="Replication factor.",
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
    from respool.operate.errors import TopicExists

    wanted = options.settings_in_plain_numbers(settings)
    cluster = connection.connect()
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
        _explain_settings(cluster, name, wanted)


@app.command(
    "list",
    epilog="Piped, the columns are separated by tabs.\n\n"
    "Examples:\n  respool topic list\n  respool topic list --internal | cut -f1",
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
    """List topics: name, partitions, messages and how long they are kept. For views see respool view list."""
    from respool.operate import topic_description

    cluster = connection.connect()
    documents, settings, leaderless = topic_description.list_topics(cluster, internal=internal)
    if as_json:
        output.print_json({"topics": documents})
        return
    columns = ("topic", "partitions", "messages", "retention")
    rows = [
        (
            each["topic"],
            each["partition_count"],
            _at_most(each["messages_max"]) if each["messages"] is None else each["messages"],
            f"view of {each['view_of']}"
            if each["view_of"]
            else topic_description.retention(settings[each["topic"]]),
        )
        for each in documents
    ]
    output.print_rows(output.Headings(*columns, numbers=columns[1:3]), rows)
    if leaderless:
        output.note(f"sizes exclude {counted(leaderless, 'partition')} without a leader")
    if not rows:
        output.note("no topics yet; create one with: respool topic create NAME")


@app.command(
    epilog="Piped, the fields are separated by tabs: topic, promise, text; topic, setting, name, value, source; "
    "topic, partition, number, leader, start offset, end offset, messages, replicas, in sync. Of a topic that was "
    "shrunk: topic, sealed, number, heir, sealed end, messages, bytes, groups behind; topic, held, number, shown end. "
    "With --keys: topic, keys, scanned, available, keys, in several partitions; topic, key, name, partitions, by "
    "murmur2, by CRC32.\n\n"
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
    """Describe topics: settings and their sources, partitions, and what an acks=all reply guarantees."""
    if not keys and (scan, since, scan_time) != (None, None, None):
        raise UsageError("--scan, --since and --scan-time need --keys")

    from respool.cli.messages.newest_messages import StoppedBy, parse_scan
    from respool.cli.topic_keys import explain_cause, print_report, scan_keys
    from respool.operate.topic_description import describe_topic

    wanted = parse_scan(scan, since, scan_time)
    cluster = connection.connect()
    descriptions = {name: describe_topic(cluster, name) for name in dict.fromkeys(names)}
    reports = {}
    for name in descriptions if keys else ():
        reports[name] = scan_keys(cluster, cluster.topic(name), wanted)
        if reports[name].scanned.stopped_by is StoppedBy.INTERRUPT:
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
        explain_cause(report)
    if any(report.scanned.stopped_by is StoppedBy.INTERRUPT for report in reports.values()):
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
        typer.Option(
            metavar="SETTING",
            help="Remove the topic's setting, so that the broker's default applies; may be repeated.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Grow to this many partitions; sealed ones take messages again first. To shrink: topic shrink.",
        ),
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Change a topic's settings, or add partitions."""
    from respool.operate.topic_description import check_growth, check_setting_names, describe_topic
    from respool.operate.topic_layouts import grow_shrunk_topic

    wanted = options.settings_in_plain_numbers(settings)
    both = sorted(set(wanted) & set(unset or ()))
    if both:
        raise UsageError(f"{', '.join(both)} cannot be both --set and --unset")
    if not wanted and not unset and partitions is None:
        raise UsageError(
            "nothing to change", hint="give --set NAME=VALUE, --unset NAME or --partitions N"
        )
    cluster = connection.connect()
    topic = cluster.topic(name)
    layout = None
    if partitions is not None:
        layout = cluster.layout(name)
        check_growth(topic, partitions, active=None if layout is None else layout.active)
    # Settings first: an invalid one is refused before partitions are added, which cannot be undone.
    if unset:
        check_setting_names(unset, [each.name for each in cluster.settings([name])[name]])
    if wanted or unset:
        cluster.alter_topic(name, settings=wanted, unset=unset or [])
    if partitions is not None and layout is not None:
        if partitions > layout.active:
            grow_shrunk_topic(cluster, name, to=partitions, on_aligning=output.note)
    elif partitions is not None and partitions > topic.partitions:
        cluster.grow_topic(name, partitions=partitions)
    if as_json:
        output.print_json(describe_topic(cluster, name))
    else:
        output.note(f"altered {name}")
    _explain_settings(cluster, name, wanted)


app.command(
    epilog="Examples:\n"
    "  respool topic shrink rides --to 2 --dry-run\n"
    "  respool topic shrink rides --to 2 --yes"
)(topic_partitions.shrink)
app.command(epilog="Example:\n  respool topic retire rides --yes")(topic_partitions.retire)


@app.command(epilog="Example:\n  respool topic delete rides --yes")
@to_broker
def delete(
    names: Names,
    *,
    yes: options.Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Delete topics and all their messages. On a terminal it asks first; elsewhere it needs --yes."""
    cluster = connection.connect()
    topics = [cluster.topic(name) for name in dict.fromkeys(names)]
    if not yes:
        confirm(
            "Delete all of it?",
            why="deleting a topic deletes its messages",
            explain=lambda: _note_contents(cluster, topics),
        )
    delete_each([one.name for one in topics], cluster.delete_topic, noun="topic", as_json=as_json)


def _at_most(number: object) -> str:
    return "-" if number is None else f"up to {number:,}"


def _explain_settings(cluster: "ClusterAdmin", name: str, wanted: Mapping[str, str]) -> None:
    """Note it if min.insync.replicas exceeds the number of replicas, and say what applies instead."""
    from respool.operate.topic_description import MIN_ISR, asks_for_too_many, fewest_replicas

    if MIN_ISR not in wanted:
        return
    topic = None
    with suppress(OperatorError):
        # The change itself succeeded; this is only a note. A topic created just now may not be in the metadata yet.
        topic = cluster.topics().get(name)
    replicas = None if topic is None else fewest_replicas(topic)
    text = asks_for_too_many(name, wanted, replicas=replicas)
    if text is not None:
        output.note(text)


def _print_description(description: dict[str, Any]) -> None:
    from respool.operate.topic_description import promise_in_words

    name, settings, partitions = (description[key] for key in ("topic", "settings", "partitions"))
    promised = (
        promise_in_words(description["acks_all"])
        if description["acks_all"] is not None
        else f"nobody writes to a view; its messages are those of {description['view_of']}"
    )
    setting_rows = [(each["name"], each["value"], each["source"]) for each in settings]
    partition_rows = [
        tuple(
            ",".join(map(str, cell)) if isinstance(cell, list) else cell for cell in each.values()
        )
        for each in partitions
    ]
    if not output.is_terminal():
        # All lines have the same shape: topic, kind of line, then its fields.
        output.print_rows(output.Headings(), [(name, "promise", promised)])
        output.print_rows(output.Headings(), [(name, "setting", *row) for row in setting_rows])
        output.print_rows(output.Headings(), [(name, "partition", *row) for row in partition_rows])
        topic_partitions.print_layout(name, description["layout"])
        return
    output.print_heading(f"topic {name}")
    output.print_line(f"promise: {promised}")
    shown = [(name, with_unit(name, value), source) for name, value, source in setting_rows]
    output.print_rows(output.Headings("setting", "value", "source"), shown)
    numbers = ("partition", "leader", "start offset", "end offset", "messages")
    output.print_rows(
        output.Headings(*numbers, "replicas", "in sync", numbers=numbers), partition_rows
    )
    topic_partitions.print_layout(name, description["layout"])


def with_unit(name: str, value: str) -> str:
    """For people: `retention.ms` 604800000 -> '604800000 (7d)'; -1 and other values stay unchanged."""
    if not value.isdecimal() or int(value) >= LONG_MAX:
        return value
    if name.endswith(".ms") and int(value) >= 1000:
        return f"{value} ({format_duration_ms(int(value))})"
    if name.endswith(".bytes") and int(value) >= 1024:
        return f"{value} ({human_bytes(int(value))})"
    return value


def _note_contents(cluster: "ClusterAdmin", topics: Sequence["TopicMetadata"]) -> None:
    from respool.operate.topic_description import is_compacted, parent_of

    ranges = cluster.ranges(topics, isolation="read_uncommitted", led_only=True)
    settings = cluster.settings([topic.name for topic in topics])
    for topic in topics:
        parent = parent_of(settings[topic.name])
        if parent is not None:
            output.note(f"{topic.name}: a view of {parent}, whose messages stay")
            continue
        held = [each for (name, _), each in ranges.items() if name == topic.name]
        unled = topic.partitions - len(held)
        output.note(
            f"{topic.name}: {counted(topic.partitions, 'partition')}, "
            + ("up to " if is_compacted(settings[topic.name]) else "")
            + counted(sum(each.messages for each in held), "message")
            + (f", and those of {unled} partitions without a leader" if unled else "")
        )
