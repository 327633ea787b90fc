"""The work of `respool cluster elect`: other leaders for partitions; unclean, where nobody has all of one any more."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from respool.cli import cluster_store, output
from respool.cli.asking import confirm
from respool.cli.cluster_address import ClusterAddress
from respool.cli.cluster_store import ClusterStore
from respool.cluster import keys
from respool.cluster.election import is_unclean
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.leader_requests import ElectionKind, elect_leaders
from respool.cluster.status import Awaited, waits_for
from respool.cluster.view import ClusterView
from respool.model.errors import ElectionNotNeeded, RequestError
from respool.model.ids import BrokerId, TopicPartition
from respool.model.operator_errors import NotFound, OperatorError

# How many that could not be are named with one reason.
LISTED_MAX = 10
COLUMNS = ("topic", "partition", "from", "to", "may lose", "waited for")


class Election(NamedTuple):
    """Who would lead a partition."""

    leader: BrokerId | None
    elected: BrokerId
    # It may lack what was acknowledged.
    may_lose: bool
    # What the partition would no longer wait for.
    waited_for: Awaited | None


class Elections(NamedTuple):
    elected: dict[TopicPartition, Election]
    refused: dict[TopicPartition, RequestError]


class Chosen(NamedTuple):
    """What is to be elected; no topics: whatever needs it."""

    # None for a topic: all its partitions.
    topics: Mapping[str, Sequence[int] | None]
    unclean: bool

    @property
    def kind(self) -> ElectionKind:
        return ElectionKind.UNCLEAN if self.unclean else ElectionKind.PREFERRED


def elect(
    address: ClusterAddress, chosen: Chosen, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    async def look(cluster: ClusterStore) -> Elections:
        sight = await cluster.look()
        sight.check_is_there()
        return plan(sight.view, chosen)

    found = cluster_store.run(address, look)
    _show(found, dry_run=dry_run, as_json=as_json)
    lossy = {of: one for of, one in found.elected.items() if one.may_lose}
    if found.elected and not dry_run:
        if lossy and not yes:
            what = output.counted(len(lossy), "partition")
            confirm(
                f"Elect although {what} may lose acknowledged records for good?",
                why=f"{what} may lose acknowledged records for good",
            )
        elected = cluster_store.run(
            address, lambda cluster: _carry_out(cluster, chosen.kind, found.elected)
        )
        output.note(f"{output.counted(len(elected), 'leader')} elected")
        if changed := [str(of) for of in found.elected if of not in elected]:
            raise OperatorError(
                f"the cluster has changed meanwhile, and other leaders would be elected of {', '.join(changed)}",
                hint="look again: the same command with --dry-run",
            )
    if problems := _by_reason(found.refused):
        raise OperatorError("; ".join(problems), hint=f"look with: {address.command('status')}")


def _by_reason(refused: Mapping[TopicPartition, RequestError]) -> list[str]:
    """What could not be: each reason once, with some of those that it is for."""
    those: dict[str, list[str]] = {}
    for of, why in refused.items():
        if not isinstance(why, ElectionNotNeeded):
            those.setdefault(str(why), []).append(str(of))
    return [f"{_some_of(names)}: {why}" for why, names in those.items()]


def _some_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_MAX:,} more" if len(names) > LISTED_MAX else ""
    return ", ".join(names[:LISTED_MAX]) + more


async def _carry_out(
    cluster: ClusterStore, kind: ElectionKind, shown: dict[TopicPartition, Election]
) -> set[TopicPartition]:
    """Only what was shown, and agreed to: who has come back meanwhile may be better. Returns what was done."""
    done: set[TopicPartition] = set()

    def decide(view: ClusterView) -> list[GuardedWrite]:
        # Decided again where somebody was faster, and by then some may have been written.
        done.update(of for of, one in shown.items() if _leader_of(view, of) == one.elected)
        left = {of: one for of, one in shown.items() if of not in done}
        found = _plan(view, kind, list(left)).elected
        same = [of for of, one in left.items() if found.get(of) == one]
        writes = elect_leaders(view, kind, same).writes
        written.clear()
        written.update(same)
        return writes

    written: set[TopicPartition] = set()
    await cluster.change(decide)
    return done | written


def _leader_of(view: ClusterView, of: TopicPartition) -> BrokerId | None:
    found = view.partition(of)
    return None if found is None else found[1].leader


def plan(view: ClusterView, chosen: Chosen) -> Elections:
    """Raises:
    NotFound: there is no such topic, or it has no such partition.
    """
    partitions = _partitions(view, chosen.topics) if chosen.topics else None
    return _plan(view, chosen.kind, partitions)


def _plan(
    view: ClusterView, kind: ElectionKind, partitions: Sequence[TopicPartition] | None
) -> Elections:
    outcome = elect_leaders(view, kind, partitions)
    elected: dict[TopicPartition, Election] = {}
    names = {topic.id: topic.name for topic in view.topics.values()}
    for write in outcome.writes:
        for key, value in write.puts.items():
            topic_id, number = keys.parse_partition_key(key)
            of = TopicPartition(names[topic_id], number)
            leader = keys.decode_partition(value).leader
            found = view.partition(of)
            assert found is not None
            assert leader is not None
            topic, before = found
            may_lose = is_unclean(leader, before, topic.rules, view)
            elected[of] = Election(
                leader=before.leader,
                elected=leader,
                may_lose=may_lose,
                waited_for=waits_for(view, before) if may_lose else None,
            )
    return Elections(elected, dict(outcome.refused))


def _partitions(
    view: ClusterView, wanted: Mapping[str, Sequence[int] | None]
) -> list[TopicPartition]:
    partitions: list[TopicPartition] = []
    for name, numbers in wanted.items():
        topic = view.topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name!r}")
        count = len(topic.partitions)
        for number in range(count) if numbers is None else numbers:
            if number >= count:
                raise NotFound(
                    f"there is no partition {number} of {name!r}",
                    hint=output.partition_numbers(count),
                )
            partitions.append(TopicPartition(name, number))
    return partitions


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
        output.print_rows(output.Columns(*COLUMNS, numbers=("partition", "to")), rows)
    elif not found.refused:
        output.note("there is nothing to elect")
    for of, why in found.refused.items():
        if isinstance(why, ElectionNotNeeded):
            output.note(f"{of}: {why}; nothing to elect")
    if rows and dry_run:
        output.note("nothing was changed")
