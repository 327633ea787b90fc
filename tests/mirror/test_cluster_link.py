"""Whom a mirror asks who leads what, and whom it believes: a broker that is cut off knows only what was."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from respool.client.kafka.cluster import Cluster
from respool.mirror.cluster_link import ClusterLink, LinkError

ADDRESSES = {1: ("one", 9092), 2: ("two", 9092), 3: ("three", 9092)}


class Brokers:
    """What each says: the leaders of topics' partitions, and their ids; None: it does not answer."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, **said: Mapping[str, int | list[int]] | None
    ) -> None:
        self.ids: dict[str, UUID] = {}
        self.said = said
        self.asked: list[int] = []
        self.link = ClusterLink("the source", Cluster("one:9092"))
        monkeypatch.setattr(self.link, "request", self._request)
        monkeypatch.setattr(self.link, "_find_brokers", self._find_brokers)

    async def _find_brokers(self) -> None:
        """As a bootstrap broker does: it names all brokers, and says nothing of topics."""
        brokers = [
            SimpleNamespace(node_id=one, host=h, port=p) for one, (h, p) in ADDRESSES.items()
        ]
        self.link._learn_brokers(
            SimpleNamespace(brokers=brokers, controller_id=-1, cluster_id=None)
        )

    async def _request(self, number: int, *_: Any) -> Any:
        self.asked.append(number)
        leaders = self.said[f"b{number}"]
        if leaders is None:
            raise LinkError(f"broker {number} does not answer")
        return SimpleNamespace(
            brokers=[
                SimpleNamespace(node_id=one, host=host, port=port)
                for one, (host, port) in ADDRESSES.items()
            ],
            controller_id=-1,
            cluster_id=None,
            topics=[
                SimpleNamespace(
                    name=name,
                    topic_id=self.ids.get(f"b{number}"),
                    error_code=0,
                    is_internal=False,
                    partitions=[
                        SimpleNamespace(
                            partition_index=index,
                            leader_id=leader,
                            leader_epoch=0,
                            replica_nodes=(),
                            isr_nodes=(),
                        )
                        for index, leader in enumerate([led] if isinstance(led, int) else led)
                    ],
                )
                for name, led in leaders.items()
            ],
        )

    def refresh(self) -> list[int]:
        """Who was asked for it."""
        self.asked.clear()
        asyncio.run(self.link.refresh())
        return list(self.asked)


def test_another_one_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 3 is cut off from the others, and still believes that it leads: nothing was copied as long as that."""
    brokers = Brokers(monkeypatch, b1={"rides": 1}, b2={"rides": 1}, b3={"rides": 3})
    brokers.refresh()
    asked = [brokers.refresh() for _ in range(3)]
    assert sorted(one for (one,) in asked) == [1, 2, 3]
    leaders = set()
    for _ in range(2):
        brokers.refresh()
        leaders.add(brokers.link.leader_of(("rides", 0)))
    assert 1 in leaders


@pytest.mark.parametrize("cut_off", ["b1", "b2", "b3"])
def test_a_topic_is_gone_when_two_say_so(monkeypatch: pytest.MonkeyPatch, cut_off: str) -> None:
    """It was stopped for good when the one that was asked had not heard of it yet.

    The first is also the one that the mirror was given: it confirmed itself.
    """
    new = {"rides": 1, "fares": 2}
    brokers = Brokers(monkeypatch, b1=new, b2=new, b3=new)
    brokers.refresh()
    brokers.said[cut_off] = {"rides": 1}
    for _ in range(6):
        brokers.refresh()
        assert brokers.link.topics.keys() == new.keys()
    brokers.said.update({name: {"rides": 1} for name in brokers.said})
    assert len(set(brokers.refresh())) == 2
    assert brokers.link.topics.keys() == {"rides"}


@pytest.mark.parametrize("cut_off", ["b1", "b2", "b3"])
def test_fewer_partitions_or_another_id_count_when_two_say_so(
    monkeypatch: pytest.MonkeyPatch, cut_off: str
) -> None:
    """One is cut off: a topic that had grown was stopped for good when that one was asked."""
    grown, before = {"rides": [1, 2]}, {"rides": [1]}
    brokers = Brokers(monkeypatch, b1=before, b2=before, b3=before)
    brokers.refresh()
    others = sorted(brokers.said.keys() - {cut_off})
    brokers.said.update(dict.fromkeys(others, grown))
    counts = []
    for _ in range(6):
        brokers.refresh()
        counts.append(len(brokers.link.topics["rides"].leaders))
    assert counts == sorted(counts)
    assert counts[-1] == 2
    # Made anew, which that one has not heard of, and then of something else.
    brokers.ids.update(dict.fromkeys(others, UUID(int=7)))
    for _ in range(6):
        brokers.refresh()
    assert brokers.link.topics["rides"].id == UUID(int=7)
    brokers.ids[cut_off] = UUID(int=8)
    for _ in range(6):
        brokers.refresh()
        assert brokers.link.topics["rides"].id == UUID(int=7)


def test_a_broker_alone_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ADDRESSES", {1: ADDRESSES[1]})
    brokers = Brokers(monkeypatch, b1={"rides": 1})
    brokers.refresh()
    brokers.said.update(b1={})
    assert brokers.refresh() == [1]
    assert not brokers.link.topics


def test_where_only_one_answers_what_it_does_not_know_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch, b1={"rides": 1}, b2={"rides": 1}, b3={"rides": 1})
    brokers.refresh()
    brokers.said.update(b1=None, b2=None, b3={})
    brokers.refresh()
    assert brokers.link.leader_of(("rides", 0)) == 1
    brokers.said.update(b3=None)
    with pytest.raises(LinkError):
        brokers.refresh()
