"""`respool tls`: certificates of an authority in a folder, such as that of `respool serve --secure`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.model.operator_errors import NotFound, UsageError
from respool.model.quantities import counted

if TYPE_CHECKING:
    from respool.node.local_authority import CertificateDescription

SOON_DAYS = 30
CERTIFICATE_DAYS = 825

app = typer.Typer(
    no_args_is_help=True, help="Certificates of a local authority: issue, show and renew them."
)

Folder = Annotated[
    Path,
    typer.Option(
        metavar="DIR", help="The authority's folder: <data>/security of a broker with --secure."
    ),
]
DEFAULT_FOLDER = Path("respool-data/security")
Days = Annotated[
    int, typer.Option(min=1, max=3_650, metavar="N", help="How long it is valid, in days.")
]


@app.command(
    epilog="Dates are in UTC. A problem is why clients would refuse a certificate.\n\n"
    "Examples:\n"
    "  respool tls show\n"
    "  respool tls show --folder /srv/tls --json"
)
def show(*, folder: Folder = DEFAULT_FOLDER, as_json: options.Json = False) -> None:
    """Show the certificates in the folder: names, end and problems."""
    from respool.model.errors import SettingsError
    from respool.node.local_authority import LocalAuthority

    _need(folder)
    try:
        found = LocalAuthority(folder).describe()
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if as_json:
        output.print_json({"certificates": [_document(one) for one in found]})
        return
    rows = [
        (
            one.file.name,
            one.subject,
            ", ".join(one.hosts),
            f"{one.not_after:%Y-%m-%d}",
            one.problem or "",
        )
        for one in found
    ]
    output.print_rows(output.Headings("file", "subject", "hosts", "valid until", "problem"), rows)
    soon = [one.file.name for one in found if one.problem is None and _ends_within(one, SOON_DAYS)]
    if soon:
        output.note(f"renew soon: {', '.join(soon)}; with: respool tls renew --folder {folder}")
    if not found:
        output.note("no certificates")


@app.command(
    epilog="Key and certificate are in one file, readable by you only. The name is what ACLs and broker_principals "
    "call the client, where ssl_principal_mapping_rules takes the CN. The authority is made with the first one.\n\n"
    "Examples:\n"
    "  respool tls issue broker-1 --host broker-1.example.org --host 10.0.0.5\n"
    "  respool tls issue billing --folder /srv/tls --days 90"
)
def issue(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The certificate's name (CN).", show_default=False),
    ],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A name or address of the broker, as clients connect to it; may be repeated.",
        ),
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    days: Days = CERTIFICATE_DAYS,
    as_json: options.Json = False,
) -> None:
    """Make a key and a certificate, for a broker (with its hosts) or a client."""
    from respool.model.errors import SettingsError
    from respool.node.local_authority import LocalAuthority

    authority = LocalAuthority(folder)
    path = authority.file_of(name)
    if path.exists():
        raise UsageError(
            f"{path} exists", hint=f"renew it: respool tls renew {name} --folder {folder}"
        )
    try:
        authority.issue(name, host or (), days=days)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if as_json:
        output.print_json({"file": str(path), "authority": str(authority.ca_file)})
    else:
        output.print_line(str(path))
        output.note(f"its authority, for those who connect: {authority.ca_file}")


@app.command(
    epilog="Each has the same names, a new key and a new end; the authority stays. A broker that runs notices within "
    "five seconds, without a restart.\n\n"
    "Examples:\n"
    "  respool tls renew broker\n"
    "  respool tls renew --within 30"
)
def renew(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The certificate. Default: all of the authority's."),
    ] = None,
    *,
    within: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="DAYS",
            help="Only those that end within this number of days, for a timer.",
        ),
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    days: Days = CERTIFICATE_DAYS,
    as_json: options.Json = False,
) -> None:
    """Renew certificates."""
    from respool.model.errors import SettingsError
    from respool.node.local_authority import LocalAuthority

    _need(folder)
    authority = LocalAuthority(folder)
    try:
        known = authority.describe()
        chosen = [one for one in known if _is_chosen(one, name)]
        if name is not None and not chosen:
            raise NotFound(
                f"there is no certificate {name!r} in {folder}",
                hint=f"see: respool tls show --folder {folder}",
            )
        due = [one for one in chosen if within is None or _ends_within(one, within)]
        renewed = [authority.renew(one.file, days=days) for one in due]
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if as_json:
        output.print_json({"certificates": [_document(one) for one in renewed]})
        return
    for one in renewed:
        output.note(f"renewed {one.file.name}, valid until {one.not_after:%Y-%m-%d}")
    if not renewed:
        output.note(f"none of {counted(len(chosen), 'certificate')} is due")


def _need(folder: Path) -> None:
    if not folder.is_dir():
        raise NotFound(
            f"there is no folder {folder}",
            hint="`respool serve --secure` makes one in its data folder, and so does: respool tls issue",
        )


def _is_chosen(one: "CertificateDescription", name: str | None) -> bool:
    if name is not None:
        return one.file.stem == name
    # What others signed is theirs to renew.
    return not one.is_authority and one.problem != "ca.pem did not sign it"


def _ends_within(one: "CertificateDescription", days: int) -> bool:
    return one.not_after <= datetime.now(UTC) + timedelta(days=days)


def _document(one: "CertificateDescription") -> dict[str, object]:
    return {
        "file": str(one.file),
        "name": one.subject,
        "issuer": one.issuer,
        "hosts": list(one.hosts),
        "not_before_ms": int(one.not_before.timestamp()) * 1_000,
        "not_after_ms": int(one.not_after.timestamp()) * 1_000,
        "is_authority": one.is_authority,
        "problem": one.problem,
    }
