"""`respool queue`: share groups, which read topics as queues, and their dead letters."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.queues import queue_output
from respool.cli.replays.letter_output import (
    LETTERS_SHOWN,
    AgainOption,
    LimitOption,
    RateOption,
    WhereOption,
    carry_out,
    plan_replay,
    show_letters,
)
from respool.model.operator_errors import UsageError
from respool.model.quantities import counted

if TYPE_CHECKING:
    from respool.operate.queue_operations import QueueStart

MESSAGES_SHOWN = 10

app = typer.Typer(
    no_args_is_help=True,
    help="List, create and look into queues (share groups), and redrive their dead letters.",
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The share group.", show_default=False)]


class StartChoice(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"

    @property
    def start(self) -> "QueueStart":
        return "earliest" if self is StartChoice.EARLIEST else "latest"


class OrderChoice(StrEnum):
    NONE = "none"
    KEY = "key"


@app.command(
    "list",
    epilog="Piped, the columns are separated by tabs.\n\n"
    "Examples:\n  respool queue list\n  respool queue list --json | jq '.queues[] | .lag'",
)
@to_broker
def list_queues(as_json: options.Json = False, *, connection: BrokerConnection) -> None:
    """List share groups: state, the topics they read, and how many messages are not finished."""
    from respool.operate.queue_operations import QueueOperations

    found, known = QueueOperations(connection.connect()).list()
    queue_output.print_queues(found, as_json=as_json)
    # The known groups are printed; an incomplete list is still an error.
    known.check()
    if not found and not as_json:
        output.note("no share groups")


@app.command(epilog="Example:\n  respool queue describe mailing --json | jq .settings")
@to_broker
def describe(group: Group, *, as_json: options.Json = False, connection: BrokerConnection) -> None:
    """Show a share group: its members, where it is in each partition, and its own settings."""
    from respool.operate.queue_operations import QueueOperations

    found = QueueOperations(connection.connect()).describe(group)
    queue_output.print_queue(found, as_json=as_json)


@app.command(
    epilog="A group is there with its first worker, too: this sets what it begins with. A topic for dead letters is "
    "created if there is none.\n\n"
    "Examples:\n"
    "  respool queue create orders --topic rides --from earliest\n"
    "  respool queue create mails --retry-delays 1s,10s,10m --attempts 8\n"
    "  respool queue create refunds --dead-letters dlq.refunds --order key"
)
@to_broker
def create(
    group: Group,
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            parser=options.topic_name,
            help="With --from: a topic.",
        ),
    ] = None,
    start: Annotated[
        StartChoice | None,
        typer.Option(
            "--from",
            metavar="earliest|latest",
            help="Start there in the topics, from now on.",
            show_default="latest, when the first worker comes",
        ),
    ] = None,
    retry_delays: Annotated[
        str | None,
        typer.Option(
            metavar="TIME,...", help="Pauses before redeliveries: 1s,10s,10m. The last one repeats."
        ),
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Deliveries after which a message has failed."),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            parser=options.topic_name,
            help="The topic for messages that have failed, such as dlq.mailing.",
        ),
    ] = None,
    order: Annotated[
        OrderChoice | None,
        typer.Option(metavar="none|key", help="key: messages of a key one after the other."),
    ] = None,
    lock: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long a message belongs to its worker, such as 1m."),
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Create the settings of a share group, and with --from its start in topics."""
    if bool(topics) != (start is not None):
        raise UsageError("--topic and --from need each other")
    from respool.operate.queue_operations import DEAD_LETTER_TOPIC, QueueOperations

    given = {
        "respool.share.retry.delays.ms": _delays(retry_delays),
        "share.delivery.count.limit": None if attempts is None else str(attempts),
        DEAD_LETTER_TOPIC: dead_letters,
        "respool.share.order": None if order is None else order.value,
        "share.record.lock.duration.ms": None
        if lock is None
        else str(options.duration_ms(lock, option="--lock")),
    }
    settings = {name: value for name, value in given.items() if value is not None}
    if not settings and not topics:
        raise UsageError(
            "nothing to create: a share group is there with its first worker",
            hint="give a start (--topic and --from) or a setting, such as --attempts",
        )
    offsets = QueueOperations(connection.connect()).create(
        group,
        topics=dict.fromkeys(topics or ()),
        settings=settings,
        start=None if start is None else start.start,
    )
    queue_output.print_created(group, settings, offsets, as_json=as_json)


@app.command(
    epilog="The first message of a partition is not finished; of later ones some may be.\n\n"
    "Examples:\n"
    "  respool queue peek mailing\n"
    "  respool queue peek mailing --topic rides --limit 3 --json"
)
@to_broker
def peek(
    group: Group,
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            parser=options.topic_name,
            help="Only this topic; may be repeated.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="The oldest messages of each partition.")
    ] = MESSAGES_SHOWN,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Show the messages that a share group has before it, without taking them from its workers."""
    from respool.replay.waiting_messages import peek as read

    with connection.connect().cluster as cluster:
        found = read(cluster, group, topics=topics or (), messages_max=limit)
    queue_output.print_messages(found, as_json=as_json)


@app.command(
    epilog="Examples:\n  respool queue dead mailing\n"
    "  respool queue dead mailing --where \"__dlq.errors.topic = 'rides'\" --json"
)
@to_broker
def dead(
    group: Group,
    where: WhereOption = None,
    limit: LimitOption = LETTERS_SHOWN,
    as_json: options.Json = False,
    *,
    connection: BrokerConnection,
) -> None:
    """Show a share group's dead letters: messages that its workers rejected, or that came back too often."""
    from respool.replay.letter_source import letters_of_queue

    show_letters(
        lambda cluster: letters_of_queue(cluster, group),
        where=where,
        letters_max=limit,
        as_json=as_json,
        connection=connection,
    )


@app.command(
    epilog="In the topics they come from all groups get them again; name a topic of the group's own if others must "
    "not. The letters stay where they are. Interrupted and started again, a redrive continues without gaps or "
    "duplicates; started again when it is done, it copies the letters that have come since.\n\n"
    "Examples:\n"
    "  respool queue redrive mailing --yes\n"
    "  respool queue redrive mailing --to mailing-again --rate 100/s --yes"
)
@to_broker
def redrive(
    group: Group,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="origin|TOPIC", help="Where to.", show_default="origin: where they come from"
        ),
    ] = None,
    where: WhereOption = None,
    rate: RateOption = None,
    again: AgainOption = False,
    *,
    yes: options.Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Copy a share group's dead letters back, to be delivered again with all attempts."""
    from respool.replay.letter_source import letters_of_queue

    plan = plan_replay(
        lambda cluster: letters_of_queue(cluster, group),
        to=to or "origin",
        where=where,
        rate=rate,
        connection=connection,
    )
    if not yes and plan.requests:
        targets = ", ".join(one.into or "" for one in plan.requests)
        output.confirm(
            f"Copy dead letters of {group} to {targets}, for every group there?",
            why="every group that reads the topics gets the messages again",
        )
    carry_out(
        plan,
        rate=rate,
        again=again,
        show_command=f"respool queue dead {group}",
        as_json=as_json,
        connection=connection,
    )
    if not plan.requests and not as_json:
        output.note(f"{counted(0, 'letter')} to redrive")


def _delays(text: str | None) -> str | None:
    """`1s,10m` -> `1000,600000`."""
    if text is None:
        return None
    names = options.parse_names(text, option="--retry-delays")
    found = (options.duration_ms(one, option="--retry-delays") for one in names)
    return ",".join(map(str, found))
