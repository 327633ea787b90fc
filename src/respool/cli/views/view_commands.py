"""`respool view`: create, list, describe, try and delete views: topics that show some records of another topic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.deletion import delete_each
from respool.cli.exit_codes import ExitCode
from respool.cli.output import confirm
from respool.model.quantities import counted

if TYPE_CHECKING:
    from respool.client.kafka.view_descriptions import ViewDescription
    from respool.operate.cluster_admin import ClusterAdmin

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list, describe, try and delete views, which show some messages of a topic.",
)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", parser=options.topic_name, help="The view.", show_default=False),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", parser=options.topic_name, help="The views.", show_default=False
    ),
]
Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", parser=options.topic_name, help="The topic.", show_default=False
    ),
]
Where = Annotated[
    str,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Which messages it shows, such as: tag = 'paid' and region in ('eu', 'us')",
        show_default=False,
    ),
]
Parent = Annotated[
    str,
    typer.Option(
        "--of",
        metavar="TOPIC",
        parser=options.topic_name,
        help="The topic whose messages it shows.",
        show_default=False,
    ),
]


@app.command(
    epilog='Its condition is changed with: respool topic alter NAME --set respool.view.where="..."\n\n'
    "Examples:\n"
    "  respool view create rides.v.paid --of rides --where \"tag = 'paid'\"\n"
    "  respool view create rides.v.eu --of rides --where \"region = 'eu'\" --json"
)
@to_broker
def create(
    name: Name,
    *,
    of: Parent,
    where: Where,
    listed: Annotated[
        bool,
        options.flag(
            "--listed",
            text="Show it to clients that ask for all topics, or subscribe by a pattern.",
        ),
    ] = False,
    if_not_exists: Annotated[
        bool, options.flag("--if-not-exists", text="Do nothing when there is such a view.")
    ] = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Create a view of a topic. It stores nothing; consumers read it like a topic."""
    from respool.operate.errors import TopicExists
    from respool.operate.view_operations import create_view

    condition = options.where(where)
    cluster = connection.connect()
    created = True
    try:
        create_view(cluster, name, of=of, where=condition, is_listed=listed)
    except TopicExists as error:
        if not if_not_exists or name not in cluster.views():
            raise TopicExists(
                f"there is a view or topic {name!r} already",
                hint=f"see it with: respool topic describe {name}; or use --if-not-exists",
            ) from error
        created = False
    if as_json:
        document = {"view": name, "of": of, "where": str(condition), "listed": listed}
        output.print_json({**document, "created": created})
    elif created:
        output.note(f"created {name}, a view of {of}; see: respool consume {name}")
    else:
        output.note(f"{name} exists already; nothing changed")


@app.command(
    "list",
    epilog="Piped, the columns are separated by tabs: view, topic, listed, condition.\n\n"
    "Examples:\n  respool view list\n  respool view list --of rides --json",
)
@to_broker
def list_views(
    of: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="TOPIC", parser=options.topic_name, help="Only views of this topic."
        ),
    ] = None,
    *,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """List views, also those that are not listed for clients that ask for all topics."""
    cluster = connection.connect()
    found = [one for one in cluster.views().values() if of in (None, one.parent)]
    if as_json:
        output.print_json({"views": [_document(one) for one in found]})
        return
    columns = ("view", "of", "listed", "where")
    rows = [(one.name, one.parent, "yes" if one.is_listed else "no", one.where) for one in found]
    output.print_rows(output.Headings(*columns), rows)
    if not rows:
        output.note(
            "no views; create one with: respool view create NAME --of TOPIC --where CONDITION"
        )


@app.command(
    epilog="Piped, the fields are separated by tabs: view, of, topic; view, where, condition; view, listed, yes or "
    "no; view, partition, number, leader, start offset, end offset.\n\n"
    "Examples:\n  respool view describe rides.v.paid\n  respool view describe rides.v.paid --json"
)
@to_broker
def describe(
    names: Names,
    *,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Describe views: topic, condition, and partitions with their offsets, which are the topic's."""
    from respool.operate.view_operations import describe_view

    cluster = connection.connect()
    found = [(one, describe_view(cluster, one)) for one in _known(cluster, names)]
    if as_json:
        output.print_json(
            {"views": [{**_document(view), "partitions": parts} for view, parts in found]}
        )
        return
    for view, partitions in found:
        _print_description(view, partitions)


@app.command(
    "try",
    epilog="Piped, one line with tabs: topic, matching, scanned, available.\n\n"
    "Examples:\n"
    "  respool view try rides --where \"tag = 'paid'\"\n"
    "  respool view try rides --where 'exists(tag)' --since '1 day ago' --json",
)
@to_broker
def try_condition(
    topic: Topic,
    *,
    where: Where,
    scan: Annotated[
        str | None,
        typer.Option(
            metavar="N|all",
            help="How many messages to read, the newest of each partition.",
            show_default="100000",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only messages from this time, such as '3 days ago'."),
    ] = None,
    scan_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long it may take.", show_default="30s"),
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Count the newest messages that a view with this condition would show. Nothing is created."""
    from respool.cli.messages.newest_messages import StoppedBy, note_offline, parse_scan
    from respool.cli.views.view_trial import print_trial, run_trial

    wanted = parse_scan(scan, since, scan_time)
    condition = options.where(where)
    cluster = connection.connect()
    trial = run_trial(cluster, cluster.topic(topic), condition, wanted)
    if as_json:
        output.print_json(trial.document())
    else:
        print_trial(trial)
    note_offline(trial.scanned.offline)
    if trial.scanned.stopped_by is StoppedBy.INTERRUPT:
        raise typer.Exit(ExitCode.INTERRUPTED)


@app.command(epilog="Example:\n  respool view delete rides.v.paid --yes")
@to_broker
def delete(
    names: Names,
    *,
    yes: options.Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Delete views; their topics' messages stay. On a terminal it asks first; elsewhere it needs --yes."""
    cluster = connection.connect()
    views = _known(cluster, names)
    if not yes:
        confirm(
            f"Delete {counted(len(views), 'view')}?",
            why="deleting a view deletes the offsets that groups have committed in it",
            explain=lambda: _note_parents(views),
        )
    delete_each([one.name for one in views], cluster.delete_topic, noun="view", as_json=as_json)


def _note_parents(views: "Sequence[ViewDescription]") -> None:
    for one in views:
        output.note(f"{one.name}: a view of {one.parent}, whose messages stay")


def _known(cluster: "ClusterAdmin", names: list[str]) -> "list[ViewDescription]":
    from respool.operate.view_operations import find_views

    return find_views(cluster, list(dict.fromkeys(names)))


def _document(view: "ViewDescription") -> dict[str, Any]:
    return {
        "view": view.name,
        "of": view.parent,
        "where": view.where,
        "listed": view.is_listed,
    }


def _print_description(view: "ViewDescription", partitions: list[dict[str, Any]]) -> None:
    facts = [
        ("of", view.parent),
        ("where", view.where),
        ("listed", "yes" if view.is_listed else "no"),
    ]
    rows = [tuple(each.values()) for each in partitions]
    if not output.is_terminal():
        # All lines have the same shape: view, kind of line, then its fields.
        output.print_rows(output.Headings(), [(view.name, *fact) for fact in facts])
        output.print_rows(output.Headings(), [(view.name, "partition", *row) for row in rows])
        return
    output.print_heading(f"view {view.name}")
    for name, value in facts:
        output.print_line(f"{name}: {value}")
    numbers = ("partition", "leader", "start offset", "end offset")
    output.print_rows(output.Headings(*numbers, numbers=numbers), rows)
