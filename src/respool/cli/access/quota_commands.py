"""`respool quota`: how much clients may take, on each broker."""

from collections.abc import Mapping
from typing import Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.model.operator_errors import UsageError
from respool.model.security.quota import (
    CLIENT_ID,
    CLIENT_LIMITS,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
)

app = typer.Typer(
    no_args_is_help=True,
    help="How much clients may take: quotas of users, client ids and addresses. They hold on each broker by itself: "
    "with three brokers, a client may take three times as much.",
)
DEFAULT = "default"
_LIMITS = (*CLIENT_LIMITS, CONNECTION_CREATION_RATE)
_BYTE_RATES = ("producer_byte_rate", "consumer_byte_rate")

_TEXT = "{}; 'default': all without a quota of their own."
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help=_TEXT.format("A user"))]
ClientId = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help=_TEXT.format("A client id"))
]
Address = Annotated[
    str | None, typer.Option("--ip", metavar="ADDRESS", help=_TEXT.format("An address"))
]


@app.command(
    "list",
    epilog="Piped, the columns are separated by tabs.\n\nExample:\n  respool quota list",
)
@to_broker
def list_quotas(*, as_json: options.Json = False, connection: BrokerConnection) -> None:
    """List quotas."""
    from respool.operate import access_operations

    found = access_operations.list_quotas(connection.connect())
    if as_json:
        output.print_json({"quotas": [_document(one.entity, one.limits) for one in found]})
        return
    rows = [
        (*(_shown(one.entity, kind) for kind in (USER, CLIENT_ID, IP)), limit, f"{value:g}")
        for one in found
        for limit, value in sorted(one.limits.items())
    ]
    headings = output.Headings("user", "client id", "ip", "limit", "value", numbers=("value",))
    output.print_rows(headings, rows)
    if not found:
        output.note("no quotas")


@app.command(
    "set",
    epilog=f"Limits: {', '.join(_LIMITS)}. Byte rates take units: 10MB.\n\n"
    "Examples:\n"
    "  respool quota set --user billing producer_byte_rate=10MB\n"
    "  respool quota set --user default request_percentage=50\n"
    "  respool quota set --user b --client-id nightly producer_byte_rate=1MB\n"
    "  respool quota set --ip default connection_creation_rate=20",
)
@to_broker
def set_quota(
    limits: Annotated[list[str], typer.Argument(metavar="LIMIT=VALUE...", show_default=False)],
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Set limits of a user, a client id, both, or an address."""
    entity = _entity(user, client_id, ip)
    values = {
        name: _value(name, text) for name, text in options.parse_pairs(limits, option="LIMIT=VALUE")
    }

    from respool.operate import access_operations

    access_operations.alter_quota(connection.connect(), entity, values)
    if as_json:
        output.print_json(_document(entity, values))


@app.command(
    epilog="Examples:\n"
    "  respool quota remove --user billing producer_byte_rate\n"
    "  respool quota remove --user billing",
)
@to_broker
def remove(
    limits: Annotated[
        list[str] | None, typer.Argument(metavar="[LIMIT...]", show_default=False)
    ] = None,
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Remove limits; without names, all of the user, client id or address."""
    entity = _entity(user, client_id, ip)

    from respool.operate import access_operations

    admin = connection.connect()
    known = next(
        (one.limits for one in access_operations.list_quotas(admin) if one.entity == entity), {}
    )
    removed = [*(limits or known)]
    if removed:
        access_operations.alter_quota(admin, entity, dict.fromkeys(removed))
    if as_json:
        left = {name: value for name, value in known.items() if name not in removed}
        output.print_json(_document(entity, left))


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    named = {USER: user, CLIENT_ID: client_id, IP: ip}
    found = {
        kind: None if name == DEFAULT else name for kind, name in named.items() if name is not None
    }
    if not found:
        raise UsageError("say whose quota", hint="--user, --client-id, both, or --ip")
    return found


def _value(name: str, text: str) -> float:
    if name in _BYTE_RATES:
        return float(options.byte_count(text, option=name, or_word="a number"))
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name}={text} is no number") from None


def _shown(entity: Mapping[str, str | None], kind: str) -> str | None:
    if kind not in entity:
        return None
    return entity[kind] or DEFAULT


def _document(
    entity: Mapping[str, str | None], limits: Mapping[str, float | None]
) -> dict[str, object]:
    return {
        "user": _shown(entity, USER),
        "client_id": _shown(entity, CLIENT_ID),
        "ip": _shown(entity, IP),
        "limits": [{"limit": name, "value": value} for name, value in sorted(limits.items())],
    }
