"""Shrinks topics, grows them again, and retires their sealed partitions, for an operator."""

import time
from collections.abc import Callable

from respool.client.kafka import admin
from respool.client.kafka.codes import Code
from respool.client.kafka.errors import BrokerRefused, ClientError
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import operator_error_of
from respool.wire.layout_change import LayoutChangeKind

ASK_AGAIN_S = 0.5


def shrink_topic(
    cluster: ClusterAdmin,
    name: str,
    *,
    to: int,
    is_unkeyed: bool = False,
    is_dry_run: bool = False,
    on_aligning: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Shrink the topic; return when it takes records in its first `to` partitions only.

    `on_aligning` gets the broker's message, once, if replicas have to be aligned first, which may take long.

    Raises:
        UsageError: the number is none that the topic can be shrunk to.
        OperatorError: the topic cannot be shrunk, or not now.
    """
    kind = LayoutChangeKind.SHRINK_UNKEYED if is_unkeyed else LayoutChangeKind.SHRINK
    _ask_until_aligned(
        lambda: admin.change_layout(
            cluster.cluster, name, kind, count=to, validate_only=is_dry_run
        ),
        # Nothing aligns replicas for a dry run.
        on_aligning=None if is_dry_run else on_aligning,
        sleep=sleep,
    )


def grow_shrunk_topic(
    cluster: ClusterAdmin,
    name: str,
    *,
    to: int,
    on_aligning: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Let sealed partitions take records again, and add those that are missing. As `shrink_topic`."""
    _ask_until_aligned(
        lambda: admin.create_partitions(cluster.cluster, name, count=to),
        on_aligning=on_aligning,
        sleep=sleep,
    )


def _ask_until_aligned(
    ask: Callable[[], None],
    *,
    on_aligning: Callable[[str], None] | None,
    sleep: Callable[[float], None],
) -> None:
    is_noted = False
    while True:
        try:
            ask()
        except BrokerRefused as error:
            if error.code != Code.reassignment_in_progress or on_aligning is None:
                raise operator_error_of(error) from error
            if not is_noted:
                on_aligning(error.message or "replicas are being aligned")
            is_noted = True
            sleep(ASK_AGAIN_S)
        except ClientError as error:
            raise operator_error_of(error) from error
        else:
            return


def retire_partitions(
    cluster: ClusterAdmin, name: str, *, is_forced: bool = False, is_dry_run: bool = False
) -> None:
    """Take the topic's sealed partitions away.

    Raises:
        OperatorError: they have messages, or groups have not read them; `is_forced` allows both.
    """
    kind = LayoutChangeKind.RETIRE_FORCED if is_forced else LayoutChangeKind.RETIRE
    try:
        admin.change_layout(cluster.cluster, name, kind, validate_only=is_dry_run)
    except ClientError as error:
        raise operator_error_of(error) from error
