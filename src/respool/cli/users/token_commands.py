"""`respool token`: delegation tokens, logins that their owner hands to others and that end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.model.operator_errors import NotFound, UsageError

if TYPE_CHECKING:
    from respool.client.kafka.token_requests import TokenDescription
    from respool.model.security.principal import Principal

app = typer.Typer(no_args_is_help=True, help="Make, list, renew and expire delegation tokens.")

TokenId = Annotated[
    str, typer.Argument(metavar="ID", help="The token, by its id.", show_default=False)
]
Owner = Annotated[
    str | None,
    typer.Option(metavar="USER:NAME", help="As whom the token logs in. Default: you"),
]


@app.command(
    epilog="What is printed, or written with --write, are client properties, for Java's clients and ours.\n\n"
    "Examples:\n"
    "  respool token create --write job.properties\n"
    "  respool token create --lifetime 12h --renewer User:scheduler --json"
)
@to_broker
def create(
    *,
    owner: Owner = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER:NAME", help="Who may renew and expire it, too; may be repeated."
        ),
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="It ends after this time, renewed or not: 12h. Default: as long as brokers allow",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the login to this new file instead of printing it."
        ),
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Make a token: a login as its owner, for jobs that must not have a password."""
    lifetime_ms = -1 if lifetime is None else options.duration_ms(lifetime, option="--lifetime")
    named = None if owner is None else _principal(owner, "--owner")
    renewers = [_principal(one, "--renewer") for one in renewer or ()]
    if write is not None and write.exists():
        raise UsageError(f"--write {write}: it exists")

    from respool.cli.users.login_file import write_login
    from respool.client.kafka.token_requests import create_token
    from respool.operate.errors import client_errors_translated

    admin = connection.connect()
    with client_errors_translated():
        made = create_token(admin.cluster, owner=named, renewers=renewers, lifetime_ms=lifetime_ms)
    lines = _login_lines(made)
    if write is not None:
        write_login(write, lines, connection)
    if as_json:
        shown = {} if write is not None else {"hmac": _password(made)}
        output.print_json(_document(made) | shown)
        return
    if write is None:
        output.note("the login, shown once:")
        for line in lines:
            output.print_line(line)
    output.note(f"made token {made.id} of {made.owner}, valid until {_time(made.expires_ms)}")


@app.command(
    "list",
    epilog="Its password is not shown.\n\n"
    "Examples:\n"
    "  respool token list\n"
    "  respool token list --owner User:etl --json",
)
@to_broker
def list_tokens(
    *, owner: Owner = None, as_json: options.Json = False, connection: BrokerConnection
) -> None:
    """List the tokens that you own or may renew, and those that ACLs show you."""
    owners = None if owner is None else [_principal(owner, "--owner")]

    from respool.client.kafka import token_requests
    from respool.operate.errors import client_errors_translated

    with client_errors_translated():
        found = token_requests.list_tokens(connection.connect().cluster, owners)
    found.sort(key=lambda one: (str(one.owner), one.issued_ms, one.id))
    if as_json:
        output.print_json({"tokens": [_document(one) for one in found]})
        return
    rows = [
        (
            one.id,
            str(one.owner),
            ", ".join(map(str, one.renewers)),
            _time(one.expires_ms),
            _time(one.max_ms),
        )
        for one in found
    ]
    names = ("token", "owner", "renewers", "valid until", "renewable until")
    output.print_rows(output.Headings(*names), rows)
    if not found:
        output.note("no tokens")


@app.command(
    epilog="Example:\n  respool token renew 2f1c8a5e0b7d4f6a9c3e1d2b4a6f8e70",
)
@to_broker
def renew(
    token: TokenId,
    *,
    period: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="Valid for this time from now on. Default: brokers decide"
        ),
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Let a token be valid for longer, up to its maximum lifetime."""
    period_ms = -1 if period is None else options.duration_ms(period, option="--for")

    from respool.client.kafka.token_requests import renew_token
    from respool.operate.errors import client_errors_translated

    admin = connection.connect()
    with client_errors_translated():
        found = _find(connection, token)
        expires_ms = renew_token(admin.cluster, found, period_ms=period_ms)
    _say_expiry(token, expires_ms, as_json=as_json)


@app.command(
    epilog="Without --in it is gone at once, and its connections end.\n\n"
    "Examples:\n"
    "  respool token expire 2f1c8a5e0b7d4f6a9c3e1d2b4a6f8e70\n"
    "  respool token expire 2f1c8a5e0b7d4f6a9c3e1d2b4a6f8e70 --in 1h"
)
@to_broker
def expire(
    token: TokenId,
    *,
    delay: Annotated[
        str | None, typer.Option("--in", metavar="TIME", help="Not at once, but after this time.")
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """End a token, at once or soon."""
    period_ms = -1 if delay is None else options.duration_ms(delay, option="--in")

    from respool.client.kafka.token_requests import expire_token
    from respool.operate.errors import client_errors_translated

    admin = connection.connect()
    with client_errors_translated():
        found = _find(connection, token)
        expires_ms = expire_token(admin.cluster, found, period_ms=period_ms)
    if delay is None and not as_json:
        output.note(f"token {token} is gone")
    else:
        _say_expiry(token, expires_ms, as_json=as_json)


def _find(connection: BrokerConnection, token_id: str) -> "TokenDescription":
    """The id is not secret, the HMAC is: commands take the id."""
    from respool.client.kafka.token_requests import list_tokens

    for one in list_tokens(connection.connect().cluster):
        if one.id == token_id:
            return one
    raise NotFound(
        f"there is no token {token_id!r} that you may see", hint="see: respool token list"
    )


def _say_expiry(token_id: str, expires_ms: int, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"token": token_id, "expires_ms": expires_ms})
    else:
        output.note(f"token {token_id} is valid until {_time(expires_ms)}")


def _login_lines(token: "TokenDescription") -> list[str]:
    from respool.client.kafka.security import Login
    from respool.client.kafka.security_properties import jaas_of_token

    mechanism = "SCRAM-SHA-512"
    login = Login(mechanism=mechanism, username=token.id, password=_password(token), is_token=True)
    return [f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas_of_token(login)}"]


def _password(token: "TokenDescription") -> str:
    import base64

    return base64.b64encode(token.hmac).decode()


def _principal(text: str, option: str) -> "Principal":
    from respool.model.errors import InvalidRequest
    from respool.model.security.principal import Principal

    try:
        return Principal.parse(text)
    except InvalidRequest as error:
        raise UsageError(f"{option}: {error}") from error


def _time(ms: int) -> str:
    from respool.model.times import format_ms

    return format_ms(ms)


def _document(one: "TokenDescription") -> dict[str, object]:
    return {
        "token": one.id,
        "owner": str(one.owner),
        "requester": str(one.requester),
        "renewers": [str(each) for each in one.renewers],
        "issued_ms": one.issued_ms,
        "expires_ms": one.expires_ms,
        "max_ms": one.max_ms,
    }
