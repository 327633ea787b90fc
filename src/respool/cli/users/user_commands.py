"""`respool user`: users that may log in by SCRAM, or by PLAIN over TLS."""

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.users.login_file import escaped, write_login
from respool.model.operator_errors import NotFound, UsageError

RANDOM_PASSWORD_BYTES = 18

app = typer.Typer(no_args_is_help=True, help="List, add and remove users, and set passwords.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--new-password-file",
        metavar="FILE",
        help="Read the password from this file, or - for standard input. Default: a random one.",
    ),
]
Write = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the login to this new file as client properties, instead of printing the password.",
    ),
]


@app.command(
    "list", epilog="Examples:\n  respool user list\n  respool user list --json | jq .users"
)
@to_broker
def list_users(*, as_json: options.Json = False, connection: BrokerConnection) -> None:
    """List users with their mechanisms."""
    from respool.client.kafka import users

    found = users.list_users(connection.connect().cluster)
    if as_json:
        listed = [{"name": one.name, "mechanisms": sorted(one.credentials)} for one in found]
        output.print_json({"users": listed})
        return
    rows = [(one.name, ", ".join(sorted(one.credentials))) for one in found]
    output.print_rows(output.Headings("user", "mechanisms"), rows)
    if not found:
        output.note("no users")


@app.command(
    epilog="The password is never an argument: others on this machine could read it.\n\n"
    "Examples:\n"
    "  respool user add etl --write etl.properties\n"
    "  respool user add app --new-password-file secret.txt"
)
@to_broker
def add(
    name: Name,
    *,
    new_password_file: PasswordFile = None,
    write: Write = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Add a user."""
    _check_name(name)
    from respool.client.kafka import users

    cluster = connection.connect().cluster
    if users.list_users(cluster, [name]):
        raise UsageError(
            f"there is a user {name!r} already", hint=f"change it: respool user password {name}"
        )
    _store(name, new_password_file, write, as_json=as_json, connection=connection)


@app.command(
    epilog="Connections that are open stay; the next login needs the new password.\n\n"
    "Example:\n  respool user password etl --write new.properties"
)
@to_broker
def password(
    name: Name,
    *,
    new_password_file: PasswordFile = None,
    write: Write = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Set the password of a user."""
    _check_name(name)
    from respool.client.kafka import users

    if not users.list_users(connection.connect().cluster, [name]):
        raise NotFound(f"there is no user {name!r}", hint="see: respool user list")
    _store(name, new_password_file, write, as_json=as_json, connection=connection)


@app.command(epilog="Its connections end at once.\n\nExample:\n  respool user remove etl")
@to_broker
def remove(name: Name, *, as_json: options.Json = False, connection: BrokerConnection) -> None:
    """Remove a user."""
    from respool.client.kafka import users

    cluster = connection.connect().cluster
    found = users.list_users(cluster, [name])
    if not found:
        raise NotFound(f"there is no user {name!r}", hint="see: respool user list")
    users.remove_user(cluster, found[0])
    if as_json:
        output.print_json({"removed": name})
    else:
        output.note(f"removed the user {name}")


def _store(
    name: str,
    password_file: Path | None,
    write: Path | None,
    *,
    as_json: bool,
    connection: BrokerConnection,
) -> None:
    from respool.client.kafka import users

    chosen = _read_password(password_file)
    made = chosen or secrets.token_urlsafe(RANDOM_PASSWORD_BYTES)
    if write is not None:
        write_login(write, _login_lines(name, made), connection)
    users.store_password(connection.connect().cluster, name, made)
    shows = chosen is None and write is None
    if as_json:
        output.print_json({"user": name} | ({"password": made} if shows else {}))
    elif shows:
        output.note(f"the password of {name}, shown once:")
        output.print_line(made)
    else:
        output.note(f"stored the password of {name}")


def _read_password(path: Path | None) -> str | None:
    if path is None:
        return None
    text = sys.stdin.readline() if str(path) == "-" else path.read_text(encoding="utf-8")
    found = text.rstrip("\r\n")
    if not found or "\0" in found or "\n" in found:
        raise UsageError(f"--new-password-file {path}: one line with the password is needed")
    return found


def _login_lines(name: str, made: str) -> list[str]:
    return [
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.username={escaped(name)}",
        f"sasl.password={escaped(made)}",
    ]


def _check_name(name: str) -> None:
    from respool.model.security.scram_credential import name_problem

    problem = name_problem(name)
    if problem is not None:
        raise UsageError(f"{name!r}: {problem}")
