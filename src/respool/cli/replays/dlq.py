"""`respool dlq`: the dead letters of groups whose consumers retry."""

from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
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
from respool.model.quantities import counted

if TYPE_CHECKING:
    from respool.replay.dead_letters import GroupLetters

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, replay and purge dead letters: messages that a group could not handle.",
)

Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)
]


@app.command(
    "list", epilog="Example:\n  respool dlq list --json | jq '.groups[] | select(.group == null)'"
)
@to_broker
def list_groups(as_json: options.Json = False, *, connection: BrokerConnection) -> None:
    """List the groups that retry, and how many dead letters they have.

    Topics of these names that belong to no group are listed without one: the group was renamed or deleted.
    """
    from respool.replay.dead_letters import list_letters

    with connection.connect().cluster as cluster:
        found = list_letters(cluster)
    if as_json:
        output.print_json({"groups": [_group_document(one) for one in found]})
        return
    columns = ("group", "dead letters", "topic", "retry topic")
    rows = [(one.group, one.letters, one.dead_letter_topic, one.retry_topic) for one in found]
    output.print_rows(output.Headings(*columns, numbers=columns[1:2]), rows)
    if not found:
        output.note("no group has a retry topic or dead letters")
    strays = [one for one in found if one.group is None]
    if strays:
        output.note(
            f"{counted(len(strays), 'row')} without a group: renamed, deleted, or without commits"
        )


@app.command(
    epilog="Examples:\n  respool dlq show billing\n"
    "  respool dlq show billing --where \"__dlq.errors.topic = 'rides'\"\n"
    "  respool dlq show billing --json | jq '.letters[].value'"
)
@to_broker
def show(
    group: Group,
    where: WhereOption = None,
    limit: LimitOption = LETTERS_SHOWN,
    as_json: options.Json = False,
    *,
    connection: BrokerConnection,
) -> None:
    """Show a group's dead letters: where they come from, how often they failed, and why."""
    from respool.replay.letter_source import LetterSource

    show_letters(
        lambda _cluster: LetterSource.of_retries(group),
        where=where,
        letters_max=limit,
        as_json=as_json,
        connection=connection,
    )


@app.command(
    epilog="Interrupted (Ctrl-C, a crash, a broker that goes away) and started again with the same arguments, a replay "
    "continues without gaps or duplicates. Started again when it is done, it copies the letters that have come "
    "since.\n\n"
    "Examples:\n"
    "  respool dlq replay billing\n"
    "  respool dlq replay billing --where \"tag = 'paid'\" --rate 100/s\n"
    "  respool dlq replay billing --to origin\n"
    "  respool dlq replay billing --to billing-archive"
)
@to_broker
def replay(
    group: Group,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="origin|TOPIC",
            help="origin: the topics they come from, where every group reads them; or any topic.",
            show_default="the group's retry topic",
        ),
    ] = None,
    where: WhereOption = None,
    rate: RateOption = None,
    again: AgainOption = False,
    *,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Copy a group's dead letters to where they are handled again: by default for this group alone, at once."""
    from respool.replay.letter_source import LetterSource

    plan = plan_replay(
        lambda _cluster: LetterSource.of_retries(group),
        to=to,
        where=where,
        rate=rate,
        connection=connection,
    )
    carry_out(
        plan,
        rate=rate,
        again=again,
        show_command=f"respool dlq show {group}",
        as_json=as_json,
        connection=connection,
    )


@app.command(epilog="Example:\n  respool dlq purge billing --yes")
@to_broker
def purge(
    group: Group,
    *,
    yes: options.Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Delete all dead letters that a group has now. They cannot be replayed afterwards."""
    from respool.replay.dead_letters import letters_held, purge_letters
    from respool.replay.errors import client_errors_translated
    from respool.replay.letter_source import LetterSource

    with connection.connect().cluster as cluster:
        with client_errors_translated():
            source = LetterSource.of_retries(group)
            held = letters_held(cluster, source)
        count = sum(span.messages for span in held.values())
        if not yes:
            output.confirm(
                f"Delete {counted(count, 'dead letter')} of group {group}?",
                why="purging deletes dead letters",
            )
        purge_letters(cluster, group, {number: span.stop for number, span in held.items()})
    if as_json:
        output.print_json({"group": group, "topic": source.topic, "messages": count})
    else:
        output.note(f"deleted {counted(count, 'dead letter')} from {source.topic}")


def _group_document(one: "GroupLetters") -> dict[str, object]:
    return {
        "group": one.group,
        "topic": one.dead_letter_topic,
        "retry_topic": one.retry_topic,
        "messages": one.letters,
    }
