"""`respool status`: a broker or a cluster in one screen, through any of its brokers."""

from typing import Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker_or_bootstrap
from respool.cli.exit_codes import ExitCode

EPILOG = (
    "Piped, each line begins with what it is about, and its fields are separated by tabs: cluster (id, controller, "
    "topics, partitions, offline, under_min_isr, under_replicated, moving, bytes, groups, open transactions, those "
    "open for 15 minutes), broker (number, address, rack, state, leads, replicas, behind, bytes), log_dir (broker, "
    "path, bytes, usable bytes, total bytes, is offline), offline, under_min_isr and under_replicated (topic, "
    "partition, leader, replicas, in sync), group (name, state, type, lag).\n\n"
    "Ends with 1 if a partition is offline, under min ISR or under-replicated, a log folder is offline, or a "
    "broker does not answer, answers with an error, or fails TLS or the login. What could not be learned is said on "
    "standard error.\n\n"
    "Examples:\n"
    "  respool status\n"
    "  respool status --broker 127.0.0.1:9092 --json | jq .is_well\n"
    "  respool status --timeout '30 seconds' | grep ^group"
)
# How long one broker may take, so that others are still asked before the time is up.
SHARE_OF_ONE_REQUEST = 0.5


@to_broker_or_bootstrap
def status(
    *,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="What is not learned in this time is reported as unknown."
        ),
    ] = "10 seconds",
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Show brokers, unhealthy partitions, disk use, consumer groups and open transactions in one screen."""
    limit_ms = options.duration_ms(timeout, option="--timeout")

    from respool.cli.status.broker_status_output import gap_in_words, print_status
    from respool.operate.cluster_admin import CONNECT_SECONDS
    from respool.operate.cluster_overview import describe
    from respool.operate.cluster_survey import survey

    request_ms = max(1, int(limit_ms * SHARE_OF_ONE_REQUEST))
    cluster = connection.unconnected(
        connect_timeout_ms=min(request_ms, int(CONNECT_SECONDS * 1000)),
        request_timeout_ms=request_ms,
        retry_ms=request_ms,
    )
    document = describe(survey(cluster, seconds=limit_ms / 1000))
    if as_json:
        output.print_json(document)
    else:
        print_status(document, connection.bootstrap)
    output.note_some([f"unknown: {gap_in_words(one)}" for one in document["unknown"]])
    if not document["is_well"]:
        raise typer.Exit(ExitCode.FAILED)
