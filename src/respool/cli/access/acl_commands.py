"""`respool acl`: who may do what. ACLs as Kafka's, and the switch that says whether they are enforced."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.exit_codes import ExitCode
from respool.model.operator_errors import UsageError
from respool.model.quantities import counted
from respool.model.security.acl import (
    ANY,
    CLUSTER_NAME,
    AccessMode,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    ResourcePattern,
)

if TYPE_CHECKING:
    from respool.operate.cluster_admin import ClusterAdmin

app = typer.Typer(
    no_args_is_help=True, help="Who may do what: list, create, delete and check ACLs."
)


class _Kind(StrEnum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"
    USER = "user"
    DELEGATION_TOKEN = "delegation-token"  # noqa: S105 - a type of resources.


_RESOURCES = {
    _Kind.TOPIC: AclResource.TOPIC,
    _Kind.GROUP: AclResource.GROUP,
    _Kind.TRANSACTIONAL_ID: AclResource.TRANSACTIONAL_ID,
    _Kind.CLUSTER: AclResource.CLUSTER,
    _Kind.USER: AclResource.USER,
    _Kind.DELEGATION_TOKEN: AclResource.DELEGATION_TOKEN,
}
_KINDS = {resource: kind.value for kind, resource in _RESOURCES.items()}
_RESOURCE_HELP = (
    "topic:NAME, group:NAME, transactional-id:NAME, user:NAME or cluster; * is any name."
)

Resource = Annotated[
    str | None, typer.Option("--resource", "-r", metavar="TYPE:NAME", help=_RESOURCE_HELP)
]
Prefix = Annotated[
    bool, options.flag("--prefix", text="The name is a prefix of the resources' names.")
]
PrincipalFilter = Annotated[
    str | None, typer.Option("--principal", metavar="USER:NAME", help="Only of this principal.")
]


@app.command(
    "list",
    epilog="Piped, the columns are separated by tabs.\n\n"
    "Examples:\n"
    "  respool acl list\n"
    "  respool acl list --resource topic:orders --matching\n"
    "  respool acl list --principal User:billing",
)
@to_broker
def list_acls(
    *,
    resource: Resource = None,
    prefix: Prefix = False,
    matching: Annotated[
        bool,
        options.flag("--matching", text="All that apply to the resource, also * and prefixes."),
    ] = False,
    principal: PrincipalFilter = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """List ACLs."""
    wanted = _filter(resource, prefix=prefix, matching=matching, principal=principal)

    from respool.operate import access_operations

    _print(access_operations.list_acls(connection.connect(), wanted), as_json=as_json)


@app.command(
    epilog="An ACL may name what does not exist yet. --producer and --consumer create what those need, for a topic and "
    "of a consumer also for its --group.\n\n"
    "Examples:\n"
    "  respool acl create --principal User:billing -o read -r topic:orders\n"
    "  respool acl create --principal User:ops -o all -r topic:team-a. --prefix\n"
    "  respool acl create --principal 'User:*' --deny -o write -r topic:audit\n"
    "  respool acl create --principal User:shop --producer orders\n"
    "  respool acl create --principal User:b --consumer orders --group billing",
)
@to_broker
def create(
    *,
    principal: Annotated[
        str,
        typer.Option(
            metavar="USER:NAME", help="Whom it is about; User:* is everyone.", show_default=False
        ),
    ],
    operations: Annotated[
        list[str] | None,
        typer.Option(
            "--operation",
            "-o",
            metavar="OPERATION",
            help="read, write, create, delete, alter, describe, all, ...; may be repeated.",
        ),
    ] = None,
    resource: Resource = None,
    prefix: Prefix = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="From this address or network only; *: any.")
    ] = ANY,
    deny: Annotated[bool, options.flag("--deny", text="Deny instead of allowing.")] = False,
    producer: Annotated[
        str | None,
        typer.Option("--producer", metavar="TOPIC", help="What a producer to this topic needs."),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", metavar="TOPIC", help="What a consumer of this topic needs."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="The group of --consumer.")
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Create ACLs: let a principal do something with a resource, or deny it."""
    wanted = _wanted(
        operations=operations or [],
        resource=resource,
        prefix=prefix,
        producer=producer,
        consumer=consumer,
        group=group,
    )
    permission = Permission.DENY if deny else Permission.ALLOW
    acls = [
        AclBinding(pattern, AclEntry(principal, operation, permission, host))
        for pattern, operation in wanted
    ]

    from respool.operate import access_operations

    created = access_operations.create_acls(connection.connect(), acls)
    _print(created, as_json=as_json)


@app.command(
    epilog="Examples:\n"
    "  respool acl delete --principal User:billing -r topic:orders --yes\n"
    "  respool acl delete --principal User:gone --yes",
)
@to_broker
def delete(
    *,
    resource: Resource = None,
    prefix: Prefix = False,
    principal: PrincipalFilter = None,
    operation: Annotated[
        str | None, typer.Option("--operation", "-o", metavar="OPERATION", help="Only of this one.")
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Delete the ACLs that are selected by a principal, a resource or both."""
    if resource is None and principal is None:
        raise UsageError(
            "say which ACLs to delete", hint="by --principal, by --resource, or by both"
        )
    wanted = _filter(resource, prefix=prefix, principal=principal, operation=operation)

    from respool.operate import access_operations

    admin = connection.connect()
    found = access_operations.list_acls(admin, wanted)
    if found and not yes:
        output.note_some([str(one) for one in found])
        output.confirm(
            f"delete {counted(len(found), 'ACL')}?", why="deleting ACLs changes who may do what"
        )
    _print(access_operations.delete_acls(admin, wanted) if found else [], as_json=as_json)


@app.command(
    epilog="It is decided as an enforcing broker would, whether ACLs are enforced now or not. The exit code is 0 if it "
    "is allowed, and 1 if it is not.\n\n"
    "Examples:\n"
    "  respool acl check User:billing read topic:orders\n"
    "  respool acl check User:billing write topic:orders --host 10.0.0.7",
)
@to_broker
def check(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", show_default=False)],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", show_default=False)],
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help=_RESOURCE_HELP)],
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The client's address.")
    ] = "127.0.0.1",
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Tell whether a principal may do something, and which ACL decides it."""
    kind, name = _parse_resource(resource)

    from respool.operate import access_operations

    decision = access_operations.check_access(
        connection.connect(),
        principal=principal,
        host=host,
        operation=_operation(operation),
        resource=kind,
        name=name,
    )
    if as_json:
        output.print_json(
            {
                "principal": principal,
                "operation": _operation(operation).name.lower(),
                "resource": _KINDS[kind],
                "name": name,
                "host": host,
                "is_allowed": decision.is_allowed,
                "acl": None if decision.acl is None else _document(decision.acl),
                "message": decision.why,
            }
        )
    else:
        output.print_line(f"{'allowed' if decision.is_allowed else 'denied'}: {decision.why}")
    if not decision.is_allowed:
        raise typer.Exit(ExitCode.FAILED)


@app.command(epilog="Example:\n  respool acl observe")
@to_broker
def observe(*, as_json: options.Json = False, connection: BrokerConnection) -> None:
    """Decide and log what ACLs would deny, on all brokers, and serve everything."""
    _switch(connection.connect(), AccessMode.OBSERVE, as_json=as_json)


@app.command(epilog="Example:\n  respool acl enforce")
@to_broker
def enforce(*, as_json: options.Json = False, connection: BrokerConnection) -> None:
    """Refuse what no ACL allows, on all brokers."""
    _switch(connection.connect(), AccessMode.ENFORCE, as_json=as_json)


@app.command(epilog="Example:\n  respool acl off")
@to_broker
def off(*, as_json: options.Json = False, connection: BrokerConnection) -> None:
    """Let ACLs decide nothing. They are kept."""
    _switch(connection.connect(), AccessMode.OFF, as_json=as_json)


def _switch(admin: "ClusterAdmin", mode: AccessMode, *, as_json: bool) -> None:
    from respool.operate import access_operations

    access_operations.set_mode(admin, mode)
    if as_json:
        output.print_json({"mode": mode.value})
    else:
        output.note(f"ACLs of the cluster: {mode.value}")


def _wanted(
    *,
    operations: list[str],
    resource: str | None,
    prefix: bool,
    producer: str | None,
    consumer: str | None,
    group: str | None,
) -> list[tuple[ResourcePattern, AclOperation]]:
    found: list[tuple[ResourcePattern, AclOperation]] = []
    pattern_type = PatternType.PREFIXED if prefix else PatternType.LITERAL
    if producer is not None:
        topic = ResourcePattern(AclResource.TOPIC, producer, pattern_type)
        needed = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
        found += [(topic, one) for one in needed]
    if (consumer is None) is not (group is None):
        raise UsageError("--consumer and --group belong together")
    if consumer is not None and group is not None:
        topic = ResourcePattern(AclResource.TOPIC, consumer, pattern_type)
        found += [(topic, one) for one in (AclOperation.READ, AclOperation.DESCRIBE)]
        found.append((ResourcePattern(AclResource.GROUP, group, pattern_type), AclOperation.READ))
    if operations or resource is not None:
        if not operations or resource is None:
            raise UsageError("--operation and --resource belong together")
        kind, name = _parse_resource(resource)
        found += [
            (ResourcePattern(kind, name, pattern_type), _operation(one)) for one in operations
        ]
    if not found:
        raise UsageError(
            "say what it allows", hint="for example --operation read --resource topic:orders"
        )
    return found


def _filter(
    resource: str | None,
    *,
    prefix: bool,
    matching: bool = False,
    principal: str | None,
    operation: str | None = None,
) -> AclFilter:
    kind, name = (None, None) if resource is None else _parse_resource(resource)
    pattern = None
    if resource is not None and not matching:
        pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    return AclFilter(
        resource=kind,
        name=name,
        pattern=pattern,
        matches_name=matching and resource is not None,
        principal=principal,
        operation=None if operation is None else _operation(operation),
    )


def _parse_resource(text: str) -> tuple[AclResource, str]:
    kind, colon, name = text.partition(":")
    if kind == _Kind.CLUSTER and not colon:
        return AclResource.CLUSTER, CLUSTER_NAME
    try:
        resource = _RESOURCES[_Kind(kind)]
    except ValueError:
        raise UsageError(f"{text!r} is no resource", hint=_RESOURCE_HELP) from None
    if not name:
        raise UsageError(f"{text!r} has no name", hint=_RESOURCE_HELP)
    return resource, name


def _operation(text: str) -> AclOperation:
    try:
        return AclOperation[text.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(one.name.lower() for one in AclOperation)
        raise UsageError(f"there is no operation {text!r}", hint=known) from None


def _print(acls: list[AclBinding], *, as_json: bool) -> None:
    if as_json:
        output.print_json({"acls": [_document(one) for one in acls]})
        return
    names = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
    rows = [tuple(_document(one)[name] for name in names) for one in acls]
    output.print_rows(output.Headings(*names), rows)
    if not acls:
        output.note("no such ACLs")


def _document(acl: AclBinding) -> dict[str, object]:
    return {
        "principal": acl.entry.principal,
        "permission": acl.entry.permission.name.lower(),
        "operation": acl.entry.operation.name.lower(),
        "resource": _KINDS[acl.pattern.resource],
        "name": acl.pattern.name,
        "pattern": acl.pattern.pattern.name.lower(),
        "host": acl.entry.host,
    }
