"""The options that name a cluster by its etcd, and those for its brokers."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import (
    ClientConfigFile,
    Mechanism,
    PasswordFile,
    Protocol,
    SecurityOptions,
    TlsCa,
    TlsCert,
    TlsKey,
    Username,
    connection_to,
)
from respool.cli.options import option_group
from respool.model.operator_errors import UsageError

if TYPE_CHECKING:
    from respool.operate.cluster_store import ClusterAddress

Etcd = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT[,...]",
        help="The cluster's etcd; also RESPOOL_ETCD or --config.",
    ),
]
Cluster = Annotated[
    str | None, typer.Option(metavar="NAME", help="The cluster's name in etcd. Default: respool")
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="The settings file of any broker of the cluster."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting by its name; may be repeated."),
]
Insecure = Annotated[
    bool, options.flag("--insecure", text="Allow plain http to an etcd on another machine.")
]


def cluster_address(
    *,
    etcd: Etcd = None,
    cluster: Cluster = None,
    config: Config = None,
    insecure: Insecure = False,
    settings: Set = None,
) -> "ClusterAddress":
    """The cluster named by flags, the environment and a broker's settings file.

    Raises:
        UsageError: the options name no cluster, or contradict each other.
        NotFound: the settings file does not exist.
    """
    from respool.model.errors import SettingsError
    from respool.model.settings import is_secret
    from respool.node.config import load_settings, unknown_variables
    from respool.operate.cluster_store import ClusterAddress

    # Warnings about etcd are in the brokers' logs; here they would mix with the output.
    logging.basicConfig(level=logging.ERROR)
    given = {"etcd": etcd, "cluster": cluster, "insecure": insecure or None}
    flags = options.broker_settings(settings, given, files=[config])
    try:
        loaded = load_settings(file=config, environ=os.environ, flags=flags)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    output.note_some(unknown_variables(os.environ))
    if not loaded.metadata_store.addresses:
        raise UsageError(
            "which cluster? The address of its etcd is not given",
            hint="give --etcd HOST:PORT, or --config with a broker's settings file, or set RESPOOL_ETCD",
        )
    as_given: list[str] = []
    for flag, said in {"--config": config, "--etcd": etcd, "--cluster": cluster}.items():
        if said is not None:
            as_given += [flag, str(said)]
    if insecure:
        as_given.append("--insecure")
    for name, value in options.parse_assignments(settings).items():
        # Suggested commands are printed, so they must not contain passwords.
        as_given += ["--set", f"{name}={'...' if is_secret(name) else value}"]
    return ClusterAddress(settings=loaded, flags=tuple(as_given))


def cluster_and_brokers(
    *,
    etcd: Etcd = None,
    cluster: Cluster = None,
    config: Config = None,
    insecure: Insecure = False,
    settings: Set = None,
    security_protocol: Protocol = None,
    sasl_mechanism: Mechanism = None,
    username: Username = None,
    password_file: PasswordFile = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_config: ClientConfigFile = None,
) -> "ClusterAddress":
    """The cluster, and how to connect to its brokers, whose addresses are in etcd. Raises as `cluster_address`."""
    address = cluster_address(
        etcd=etcd, cluster=cluster, config=config, insecure=insecure, settings=settings
    )
    given = SecurityOptions(
        protocol=security_protocol,
        mechanism=sasl_mechanism,
        username=username,
        password_file=password_file,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )
    connection = connection_to(None, given, client_config)
    file = () if client_config is None else ("--client-config", str(client_config))
    return replace(
        address,
        security=connection.security,
        client={} if connection.config is None else connection.config.cluster_settings(),
        broker_flags=(*given.flags, *file),
    )


# Replace a command's parameter `address` with the options that name a cluster; the second for those that ask brokers.
on_cluster = option_group("address", cluster_address)
on_cluster_and_brokers = option_group("address", cluster_and_brokers)
