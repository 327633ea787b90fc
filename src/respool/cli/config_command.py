"""`respool config`: show and change settings of running brokers and of groups."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.model.operator_errors import UsageError

if TYPE_CHECKING:
    from respool.operate.runtime_settings import ConfigTarget

app = typer.Typer(
    no_args_is_help=True,
    help="Show and change settings of running brokers and of groups; those of topics: respool topic.",
)


class ConfigOwner(StrEnum):
    BROKER = "broker"
    GROUP = "group"


Owner = Annotated[
    ConfigOwner, typer.Argument(metavar="broker|group", help="Whose settings.", show_default=False)
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The broker's number, or the group. Without a number: what was changed for all brokers.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting, such as log.retention.ms=7d; may be given several times.",
    ),
]


@app.command(
    epilog="Sources: broker, brokers (changed while running, for one or for all), group, start (the broker's file, "
    "variables and options), default. Piped, the columns are separated by tabs.\n\n"
    "Examples:\n"
    "  respool config describe broker 1\n"
    "  respool config describe broker 1 --changed\n"
    "  respool config describe broker\n"
    "  respool config describe group billing"
)
@to_broker
def describe(
    owner: Owner,
    name: Name = "",
    *,
    changed: Annotated[
        bool, options.flag("--changed", text="Only settings that are not at their default.")
    ] = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Show the settings of a broker or a group, and where each value comes from."""
    from respool.operate.runtime_settings import describe_settings

    target = _target(owner, name)
    described = describe_settings(connection.connect(), target)
    shown = [one for one in described if not changed or one.source != "default"]
    if as_json:
        documents = [
            {
                "name": one.name,
                "value": one.value,
                "source": one.source,
                "is_read_only": one.is_read_only,
            }
            for one in shown
        ]
        output.print_json({**_document(owner, name), "settings": documents})
        return
    rows = [
        (
            one.name,
            "-" if one.value is None else one.value,
            one.source,
            "at start" if one.is_read_only else "any time",
        )
        for one in shown
    ]
    output.print_rows(output.Headings("setting", "value", "source", "can be changed"), rows)
    if not rows:
        output.note(f"nothing was changed for {target}")


@app.command(
    epilog="Examples:\n"
    "  respool config alter broker --set log.retention.ms=30d\n"
    "  respool config alter broker 1 --set message.max.bytes=2MiB\n"
    "  respool config alter broker --unset log.retention.ms\n"
    "  respool config alter group billing --set consumer.session.timeout.ms=60s"
)
@to_broker
def alter(
    owner: Owner,
    name: Name = "",
    *,
    settings: Set = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="Remove the value, so that the next source's applies; may be repeated.",
        ),
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Change settings of a broker, of all brokers or of a group, without a restart."""
    from respool.operate.runtime_settings import alter_settings

    target = _target(owner, name)
    wanted = options.settings_in_plain_numbers(settings)
    both = sorted(set(wanted) & set(unset or ()))
    if both:
        raise UsageError(f"{', '.join(both)} cannot be both --set and --unset")
    if not wanted and not unset:
        raise UsageError("nothing to change", hint="give --set NAME=VALUE or --unset NAME")
    alter_settings(connection.connect(), target, settings=wanted, unset=unset or [])
    if as_json:
        output.print_json(
            {**_document(owner, name), "set": sorted(wanted), "unset": sorted(unset or [])}
        )
    else:
        output.note(f"changed the settings of {target}")


def _document(owner: ConfigOwner, name: str) -> dict[str, object]:
    return (
        {"group": name} if owner is ConfigOwner.GROUP else {"broker": int(name) if name else None}
    )


def _target(owner: ConfigOwner, name: str) -> "ConfigTarget":
    from respool.operate.runtime_settings import ConfigTarget

    if owner is ConfigOwner.GROUP:
        if not name:
            raise UsageError("config group: which group?", hint="give its name after `group`")
        return ConfigTarget.group(name)
    if name and not (name.isascii() and name.isdecimal()):
        raise UsageError(f"config broker {name}: a broker's number is expected")
    return ConfigTarget.broker(int(name) if name else None)
