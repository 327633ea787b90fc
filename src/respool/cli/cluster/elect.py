"""Run and print `respool cluster elect`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from respool.cli import output
from respool.cli.output import confirm
from respool.model.errors import ElectionNotNeeded, RequestError
from respool.model.ids import TopicPartition
from respool.model.operator_errors import OperatorError
from respool.model.quantities import counted
from respool.operate.cluster_store import ClusterAddress, run_on_cluster
from respool.operate.elections import Elections, ElectionScope, carry_out, plan_elections

# Partitions listed per reason.
LISTED_MAX = 10
COLUMNS = ("topic", "partition", "from", "to", "may lose", "waited for")


def elect(
    address: ClusterAddress, scope: ElectionScope, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    found = run_on_cluster(address, lambda cluster: plan_elections(cluster, scope))
    _show(found, dry_run=dry_run, as_json=as_json)
    lossy = {of: one for of, one in found.elected.items() if one.may_lose}
    if found.elected and not dry_run:
        if lossy and not yes:
            what = counted(len(lossy), "partition")
            confirm(
                f"Elect although {what} may lose acknowledged records for good?",
                why=f"{what} may lose acknowledged records for good",
            )
        elected = run_on_cluster(
            address, lambda cluster: carry_out(cluster, scope.kind, found.elected)
        )
        output.note(f"{counted(len(elected), 'leader')} elected")
        if changed := [str(of) for of in found.elected if of not in elected]:
            raise OperatorError(
                f"the cluster has changed: other leaders would be elected of {', '.join(changed)}",
                hint="run it again with --dry-run",
            )
    if problems := _by_reason(found.refused):
        raise OperatorError("; ".join(problems), hint=f"see: {address.command('status')}")


def _by_reason(refused: Mapping[TopicPartition, RequestError]) -> list[str]:
    """Each reason once, with some of the partitions it applies to."""
    those: dict[str, list[str]] = {}
    for of, why in refused.items():
        if not isinstance(why, ElectionNotNeeded):
            those.setdefault(str(why), []).append(str(of))
    return [f"{_some_of(names)}: {why}" for why, names in those.items()]


def _some_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_MAX:,} more" if len(names) > LISTED_MAX else ""
    return ", ".join(names[:LISTED_MAX]) + more


def _show(found: Elections, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        output.print_json(
            {
                "dry_run": dry_run,
                "elected": [
                    {
                        "topic": of.topic,
                        "partition": of.partition,
                        "from": one.leader,
                        "to": one.elected,
                        "may_lose": one.may_lose,
                        "waited_for": None if one.waited_for is None else asdict(one.waited_for),
                    }
                    for of, one in found.elected.items()
                ],
                "refused": [
                    {
                        "topic": of.topic,
                        "partition": of.partition,
                        "error_code": why.code,
                        "message": str(why),
                    }
                    for of, why in found.refused.items()
                ],
            }
        )
        return
    rows = [
        (
            of.topic,
            of.partition,
            "" if one.leader is None else str(one.leader),
            one.elected,
            "yes" if one.may_lose else "no",
            one.waited_for,
        )
        for of, one in found.elected.items()
    ]
    if rows:
        output.print_rows(output.Headings(*COLUMNS, numbers=("partition", "to")), rows)
    elif not found.refused:
        output.note("there is nothing to elect")
    for of, why in found.refused.items():
        if isinstance(why, ElectionNotNeeded):
            output.note(f"{of}: {why}; nothing to elect")
    if rows and dry_run:
        output.note("nothing was changed")
