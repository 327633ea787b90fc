"""All groups of a cluster are listed, or it is an error: those without a coordinator are in no broker's list."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from respool.broker.coordinators.coordinator_listing import CoordinatorListing
from respool.broker.share.share_starts import ShareStarts
from respool.model.coordinator_errors import CoordinatorNotAvailable
from respool.model.ids import BrokerId
from respool.ports.peers import PeerUnreachable

OFFSETS = "__consumer_offsets"


class Link:
    """Broker 2 answers, broker 3 does not."""

    async def ask(self, broker: int, *_: Any, **__: Any) -> Any:
        if broker != 2:
            raise PeerUnreachable("refused")
        groups = [
            SimpleNamespace(group_id="pool", group_type="share"),
            SimpleNamespace(group_id="etl", group_type="classic"),
        ]
        return SimpleNamespace(error_code=0, groups=groups)


def parts(leaders: Sequence[int | None], *, brokers: Sequence[int] = (1, 2, 3)) -> tuple[Any, Any]:
    """The groups and the catalog of broker 1."""
    partitions = [SimpleNamespace(leader=one) for one in leaders]
    image = SimpleNamespace(
        brokers=set(brokers), topics={OFFSETS: SimpleNamespace(partitions=partitions)}
    )
    runtimes = SimpleNamespace(topic=OFFSETS, has_topic=False)
    return SimpleNamespace(runtimes=runtimes), SimpleNamespace(image=image, me=1)


def listing(leaders: Sequence[int | None], **more: Any) -> CoordinatorListing:
    groups, catalog = parts(leaders, **more)
    link: Any = Link()
    return CoordinatorListing(groups, catalog, link, channel=6)


def test_every_other_broker_is_asked() -> None:
    assert listing([1, 2]).others() == [2, 3]


@pytest.mark.parametrize("leaders", [[1, None], [1, 4]])
def test_groups_without_a_coordinator_are_an_error(leaders: list[int | None]) -> None:
    with pytest.raises(CoordinatorNotAvailable, match=f"{OFFSETS}-1 has no leader now"):
        listing(leaders).others()


def test_where_share_groups_begin_is_unknown_while_one_has_no_coordinator() -> None:
    """What is finished for the others would be deleted before that group has read it."""
    groups, catalog = parts([1, None])
    link: Any = Link()
    states: Any = None
    starts = ShareStarts(groups=groups, catalog=catalog, states=states, link=link)
    with pytest.raises(CoordinatorNotAvailable, match="has no leader now"):
        asyncio.run(starts.of_topics(["orders"]))


def test_groups_of_a_type_are_listed() -> None:
    found = asyncio.run(listing([1, 2]).of(BrokerId(2), {"share"}))
    assert [one.group_id for one in found] == ["pool"]


def test_a_broker_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(CoordinatorNotAvailable, match="broker 3 does not answer: refused"):
        asyncio.run(listing([1, 2]).of(BrokerId(3), {"share"}))
