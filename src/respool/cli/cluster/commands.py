"""`respool cluster`: run a development cluster; show a cluster, change its brokers, leaders and throttles."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options
from respool.cli.cluster.cluster_options import Set, on_cluster, on_cluster_and_brokers
from respool.model.operator_errors import UsageError

if TYPE_CHECKING:
    from respool.operate.cluster_store import ClusterAddress

app = typer.Typer(
    no_args_is_help=True,
    help="Run a development cluster; operate one: status, add, drain, remove, balance, elect, throttle.",
)

Number = Annotated[
    int,
    typer.Argument(
        metavar="BROKER",
        parser=options.broker_number,
        help="The broker's number.",
        show_default=False,
    ),
]
Wait = Annotated[
    bool, options.flag("--wait/--no-wait", text="Show the progress, until it is done.")
]


@app.command(
    epilog="etcd is the one on the PATH, or the one that the extra dev-cluster brings. "
    "Ctrl-C stops everything cleanly, a second one at once. The data stays: run it again to continue.\n\n"
    "Examples:\n"
    "  respool cluster up\n"
    "  respool cluster up --brokers 5 --data ./five --set num_partitions=6\n"
    "  respool cluster up --racks a,b,c\n"
    "  respool cluster up --secure\n"
    "  respool cluster status --config respool-cluster/cluster.toml"
)
def up(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=100, help="Number of brokers.")] = 3,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder for all data and logs.")
    ] = Path("respool-cluster"),
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="The first broker's listener; the others use the next ports. Port 0 picks free ones.",
        ),
    ] = "127.0.0.1:9092",
    advertised: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="The host advertised to clients, where it differs from --listen. Required for 0.0.0.0.",
        ),
    ] = None,
    racks: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,...]",
            help="Rack names, assigned round-robin.",
        ),
    ] = None,
    etcd: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[,...]", help="Use this etcd instead of starting one."),
    ] = None,
    insecure: Annotated[
        bool,
        options.flag(
            "--insecure",
            text="Allow listening beyond this machine, and plain http to an etcd beyond it.",
        ),
    ] = False,
    secure: Annotated[
        bool,
        options.flag(
            "--secure",
            text="Serve with TLS, logins and ACLs; what is missing is made in DIR/security.",
        ),
    ] = False,
    settings: Set = None,
) -> None:
    """Run etcd and several brokers on this machine, until Ctrl-C; for development."""
    from respool.cli.cluster.up import run_cluster

    given = options.parse_assignments(settings)
    if insecure:
        given["insecure"] = "true"
    run_cluster(
        broker_count=brokers,
        folder=data,
        listen=listen,
        advertised=advertised,
        racks=[] if racks is None else options.parse_names(racks, option="--racks"),
        etcd=etcd,
        given=given,
        secure=secure,
    )


@app.command(
    epilog="Piped, each line begins with what it is about, and its fields are separated by tabs:\n"
    "  cluster, name, controller, topics, partitions,\n"
    "    and counts: offline, under_min_isr, under_replicated, moving\n"
    "  broker, number, address, rack, state, leads, replicas, behind, coming\n"
    "  offline | under_min_isr | under_replicated,\n"
    "    topic, partition, leader, replicas, in sync, waits for\n"
    "  moving, topic, partition, from, to, copied, bytes copied, bytes in all\n\n"
    "Examples:\n"
    "  respool cluster status --etcd 127.0.0.1:2379\n"
    "  respool cluster status --config respool.toml --check --json\n"
    "  respool cluster status --watch"
)
@on_cluster_and_brokers
def status(
    *,
    check: Annotated[
        bool,
        options.flag(
            "--check", text="Exit with 1 when a partition is offline or under-replicated."
        ),
    ] = False,
    watch: Annotated[bool, options.flag("--watch", text="Keep updating, until Ctrl-C.")] = False,
    as_json: options.Json = False,
    address: "ClusterAddress",
) -> None:
    """Show brokers, leaders, unhealthy partitions and reassignments in progress."""
    from respool.cli.status import cluster_status

    how = cluster_status.StatusOptions(as_json=as_json, check=check, watch=watch)
    cluster_status.show_status(address, how)


@app.command(
    epilog="Its replicas are copied to the others, a few at a time; clients are not interrupted. When none is left, "
    "stop it and remove it.\n\n"
    "Examples:\n"
    "  respool cluster drain 3\n"
    "  respool cluster drain 3 --no-wait"
)
@on_cluster_and_brokers
def drain(
    broker: Number,
    *,
    wait: Wait = True,
    yes: options.Yes = False,
    as_json: options.Json = False,
    address: "ClusterAddress",
) -> None:
    """Move all replicas of a broker to others, so that it can be removed. On a terminal it asks first."""
    from respool.cli.cluster import broker_commands
    from respool.model.ids import BrokerId

    broker_commands.drain(address, BrokerId(broker), wait=wait, yes=yes, as_json=as_json)


@app.command(
    epilog="A broker that runs is not removed, nor one that has replicas, unless it is lost for good and --force "
    "is given.\n\n"
    "Examples:\n"
    "  respool cluster remove 3\n"
    "  respool cluster remove 3 --force"
)
@on_cluster
def remove(
    broker: Number,
    *,
    force: Annotated[
        bool,
        options.flag(
            "--force",
            text="Remove it although it has replicas; they are recreated from the others.",
        ),
    ] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    address: "ClusterAddress",
) -> None:
    """Remove a broker that is stopped and drained, or lost for good."""
    from respool.cli.cluster import broker_commands
    from respool.model.ids import BrokerId

    broker_commands.remove(address, BrokerId(broker), force=force, yes=yes, as_json=as_json)


@app.command(
    epilog="A new broker joins when it is started; it has no replicas until topics are created or partitions are moved "
    "to it.\n\n"
    "Examples:\n"
    "  respool cluster add 4 --balance\n"
    "  respool cluster add 3      # after it was drained or removed"
)
@on_cluster_and_brokers
def add(
    broker: Number,
    *,
    balance: Annotated[
        bool,
        options.flag("--balance", text="Wait until it runs, then balance."),
    ] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    address: "ClusterAddress",
) -> None:
    """Admit a drained or removed broker again; or show how to start a new one, and balance."""
    from respool.cli.cluster import broker_commands
    from respool.model.ids import BrokerId

    how = broker_commands.AddOptions(balance=balance, yes=yes, as_json=as_json)
    broker_commands.add(address, BrokerId(broker), how)


@app.command(
    epilog="All reassignments start at once; a broker copies a few partitions at a time. "
    "Producers and consumers are not interrupted.\n\n"
    "Examples:\n"
    "  respool cluster balance --dry-run\n"
    "  respool cluster balance --yes --no-wait"
)
@on_cluster_and_brokers
def balance(
    *,
    dry_run: Annotated[bool, options.flag("--dry-run", text="Only show what would move.")] = False,
    yes: options.Yes = False,
    wait: Wait = True,
    as_json: options.Json = False,
    address: "ClusterAddress",
) -> None:
    """Balance replicas and leaders over brokers and racks, with few reassignments."""
    from respool.cli.cluster import broker_commands

    broker_commands.balance(address, dry_run=dry_run, yes=yes, wait=wait, as_json=as_json)


@app.command(
    epilog="Without --unclean, the first replica of each partition is elected if it is in sync. With it, partitions "
    "without a leader get the best remaining replica as leader. Records that only other replicas have are then lost, "
    "also when those return: the command shows for which replicas a partition would no longer wait, and asks.\n\n"
    "Examples:\n"
    "  respool cluster elect\n"
    "  respool cluster elect rides:0,2 fares --unclean --dry-run"
)
@on_cluster
def elect(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[:P,...]]...",
            help="Topics, or some of their partitions. Default: all that need an election.",
            show_default=False,
        ),
    ] = None,
    *,
    unclean: Annotated[
        bool,
        options.flag(
            "--unclean", text="Elect leaders of offline partitions although records may be lost."
        ),
    ] = False,
    dry_run: Annotated[
        bool, options.flag("--dry-run", text="Only show which leaders would be elected.")
    ] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    address: "ClusterAddress",
) -> None:
    """Elect preferred leaders, or unclean ones for offline partitions."""
    from respool.cli.cluster import elect as election
    from respool.operate.elections import ElectionScope

    wanted = options.topics_and_partitions(topics or (), option="TOPIC")
    scope = ElectionScope(topics=wanted, unclean=unclean)
    election.elect(address, scope, dry_run=dry_run, yes=yes, as_json=as_json)


@app.command(
    epilog="It holds at once, and until it is changed, also for brokers that are started again. Those who were away "
    "and catch up are not slowed down. Without a rate it shows what is set, also by Kafka's tools.\n\n"
    "Examples:\n"
    "  respool cluster throttle 50MiB\n"
    "  respool cluster throttle 20MiB --broker 4\n"
    "  respool cluster throttle none"
)
@on_cluster
def throttle(
    rate: Annotated[
        str | None,
        typer.Argument(
            metavar="RATE",
            help="Bytes a second, such as 50MiB; none: no limit but that of the brokers' settings files, "
            "and for one broker, while there is one for all, no limit at all.",
            show_default=False,
        ),
    ] = None,
    *,
    broker: Annotated[
        int | None,
        typer.Option(
            metavar="BROKER",
            parser=options.broker_number,
            help="Only for copies to this broker.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
    address: "ClusterAddress",
) -> None:
    """Set or show the throttle of reassignment copies, for each broker or one."""
    from respool.cli.cluster import broker_commands
    from respool.model.ids import BrokerId

    if rate is None and broker is not None:
        raise UsageError("--broker needs a rate, such as 50MiB, or none")
    limit = None
    if rate is not None and rate.lower() != "none":
        limit = broker_commands.rate_by(rate)
    if rate is None:
        broker_commands.show_throttles(address, as_json=as_json)
        return
    chosen = None if broker is None else BrokerId(broker)
    broker_commands.throttle(address, chosen, limit, as_json=as_json)
