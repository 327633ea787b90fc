"""Writes several decisions, merged into few writes to the store; each has its own result.

A single broker's store takes any number of changes in one write, and syncs once; etcd's limit is `OPERATIONS_MAX`.
After a conflict, what is not written yet is decided again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from respool.broker.metadata.catalog import TRIES_MAX, Catalog
from respool.cluster.guarded_write import OPERATIONS_MAX, GuardedWrite, merged
from respool.cluster.view import ClusterView
from respool.model.errors import RequestError, RequestTimedOut
from respool.ports.metadata_store import GuardFailed

T = TypeVar("T")

DECIDED_AT_ONCE = 25


async def write_each(
    catalog: Catalog,
    names: Sequence[str],
    decide: Callable[[ClusterView, str], list[GuardedWrite]],
    *,
    write_parts: Callable[[Sequence[GuardedWrite]], Awaitable[None]],
    outcome: Callable[[str], T],
    done: dict[str, T | RequestError],
    begin: Callable[[ClusterView], None] = lambda _: None,
) -> None:
    """Write the decision about each name; `done` gets `outcome` of each, or the error of its decision.

    `begin` gets the view of the decisions that follow. `write_parts` writes a decision that needs several writes.

    Raises:
        StoreUnavailable: it is unknown whether those were written that are not in `done`.
    """
    for _ in range(TRIES_MAX):
        view = await catalog.sure_view()
        begin(view)
        whole: dict[str, GuardedWrite] = {}
        in_parts: dict[str, list[GuardedWrite]] = {}
        for count, name in enumerate([one for one in names if one not in done], start=1):
            if count % DECIDED_AT_ONCE == 0:
                # Serve requests before the next ones. The guards notice what changes meanwhile.
                await asyncio.sleep(0)
            try:
                writes = decide(view, name)
            except RequestError as error:
                done[name] = error
                continue
            if len(writes) == 1:
                whole[name] = writes[0]
            else:
                in_parts[name] = writes
        try:
            limit = None if catalog.is_alone else OPERATIONS_MAX
            for written, write in merged(whole, operations_max=limit):
                await catalog.write(write)
                for name in written:
                    done[name] = _outcome(name, outcome)
            for name, writes in in_parts.items():
                await write_parts(writes)
                done[name] = _outcome(name, outcome)
        except GuardFailed:
            await catalog.read_view()
        else:
            return
    conflict = RequestTimedOut(f"others have changed the cluster {TRIES_MAX} times meanwhile")
    for name in names:
        done.setdefault(name, conflict)


def _outcome(name: str, outcome: Callable[[str], T]) -> T | RequestError:
    try:
        return outcome(name)
    except RequestError as error:
        # Somebody has deleted it meanwhile.
        return error
