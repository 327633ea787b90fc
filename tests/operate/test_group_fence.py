"""A forced reset against members that come back at the worst moment."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import OffsetAndMetadata
from respool.client.kafka.versions import VERSIONS
from respool.operate.group_fence import GroupFence, NotFenced
from respool.wire.api_table import Api
from respool.wire.client_codec import encode_request

PLACES = {
    ("rides", 0): OffsetAndMetadata(offset=30),
    ("rides", 1): OffsetAndMetadata(offset=7, metadata="why"),
}
OK, UNKNOWN_MEMBER, TOPIC_DENIED, GROUP_NOT_FOUND = 0, 25, 29, 69


class Broker:
    """A group as its coordinator sees it, behind the methods of the client's `Cluster` and `Connection`."""

    def __init__(self, *states: str, comes_back: int = 0, refuses: int = OK) -> None:
        # What each look at the group shows; the last one stays.
        self._states = list(states)
        # So often a member joins between our look and our commit.
        self._comes_back = comes_back
        self._refuses = refuses
        self.members = {"m-1": None, "m-2": "static-2"}
        self.offsets: dict[tuple[str, int], int] = {}
        self.asked: list[int] = []
        self.forgets = False
        self.is_mixed = False
        self.is_classic = False

    # As a cluster.

    def coordinator(self, key: str, *, is_transaction: bool) -> int:
        assert (key, is_transaction) == ("billing", False)
        return 1

    def address_of(self, broker: int) -> tuple[str, int]:
        assert broker == 1
        return "coordinator", 9092

    def retrying(self, attempt: Any, *, limit_ms: int | None = None) -> Any:
        assert limit_ms is None
        return attempt()

    def request(self, broker: int, api: Api, fields: Any, *, versions: object = None) -> Any:
        assert (broker, versions) == (1, None)
        (reply,) = self.request_all((api, fields))
        return reply

    def connect(self, broker: int) -> "Broker":
        assert broker == 1
        return self

    def release(self, connection: "Broker") -> None:
        assert connection is self

    # As a connection.

    def request_all(self, *requests: tuple[Api, Any]) -> list[Any]:
        for api, fields in requests:
            # It must be a request that can be sent.
            encode_request(api, VERSIONS[api].newest, fields, correlation_id=1, client_id="c")
        return [self._answer(api, fields) for api, fields in requests]

    def _answer(self, api: Api, fields: Any) -> Any:
        self.asked.append(api)
        match api:
            case Api.DESCRIBE_GROUPS:
                state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
                return self._described(state, "group_instance_id")
            case Api.CONSUMER_GROUP_DESCRIBE:
                return self._described("Stable", "instance_id")
            case Api.LEAVE_GROUP:
                for member in fields["members"]:
                    assert self.members.pop(member["member_id"]) == member["group_instance_id"]
                if self._comes_back:
                    self._comes_back -= 1
                    self.members["back"] = None
                return None
            case Api.CONSUMER_GROUP_HEARTBEAT:
                assert fields["member_epoch"] == -1
                if not self.is_classic:
                    del self.members[fields["member_id"]]
                # Only those of the classic protocol are left.
                self.is_classic = set(self.members) == {"m-2"} and self.is_mixed
                return None
            case Api.OFFSET_COMMIT:
                return self._commit(fields)
            case _:
                return self._fetch(fields)

    def _described(self, state: str, instance_field: str) -> Any:
        members = [
            SimpleNamespace(
                member_id=name,
                client_id="app",
                client_host="/10.0.0.7",
                member_assignment=b"",
                assignment=SimpleNamespace(topic_partitions=[]),
                **{instance_field: instance},
            )
            for name, instance in self.members.items()
        ]
        code = GROUP_NOT_FOUND if self.is_classic and instance_field == "instance_id" else OK
        group = SimpleNamespace(
            error_code=code,
            group_state=state,
            members=members,
            protocol_data="range",
            assignor_name="uniform",
        )
        return SimpleNamespace(groups=[group])

    def _commit(self, fields: Any) -> Any:
        assert (fields["member_id"], fields["generation_id_or_member_epoch"]) == ("", -1)
        code = self._refuses or (UNKNOWN_MEMBER if self.members else OK)
        for topic in fields["topics"]:
            for each in topic["partitions"]:
                if not code and not self.forgets:
                    self.offsets[topic["name"], each["partition_index"]] = each["committed_offset"]
        answer = SimpleNamespace(error_code=code)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[answer])])

    def _fetch(self, fields: Any) -> Any:
        topics = [
            SimpleNamespace(
                name=topic["name"],
                partitions=[
                    SimpleNamespace(
                        partition_index=number,
                        committed_offset=self.offsets.get((topic["name"], number), -1),
                        metadata="",
                    )
                    for number in topic["partition_indexes"]
                ],
            )
            for topic in fields["topics"]
        ]
        return SimpleNamespace(topics=topics)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def fence(broker: Broker, *, is_classic: bool = True, seconds: float = 10) -> int:
    broker.is_classic = is_classic
    clock = Clock()
    return GroupFence(
        cast("Cluster", broker), "billing", reason="a test", clock=clock, pause=clock.pause
    ).set_offsets(PLACES, seconds=seconds)


WANTED = {("rides", 0): 30, ("rides", 1): 7}


def test_members_leave_and_the_offsets_are_set_in_one_go() -> None:
    broker = Broker("Stable")
    assert fence(broker) == 2
    assert broker.offsets == WANTED
    assert broker.asked == [69, 15, 13, 8, 9]


def test_members_of_the_next_generation_protocol_leave_one_by_one() -> None:
    broker = Broker("Stable")
    assert fence(broker, is_classic=False) == 2
    assert broker.offsets == WANTED
    assert broker.asked == [69, 68, 68, 8, 9]


def test_a_group_that_goes_back_to_the_classic_protocol_meanwhile_is_followed() -> None:
    """With its last member of the new protocol gone, the others are asked to leave in the old words."""
    broker = Broker("Stable")
    broker.is_mixed = True
    assert fence(broker, is_classic=False) == 1
    assert broker.offsets == WANTED
    assert broker.asked == [69, 68, 68, 8, 9, 69, 15, 13, 8, 9]


def test_an_empty_group_needs_nobody_to_leave() -> None:
    broker = Broker("Empty")
    broker.members.clear()
    assert fence(broker) == 0
    assert broker.offsets == WANTED


def test_a_rebalance_is_waited_for() -> None:
    """Whoever is thrown out while it waits for the others is back at once, and the group is never empty."""
    broker = Broker("PreparingRebalance", "CompletingRebalance", "Stable")
    assert fence(broker) == 2
    assert broker.asked == [69, 15, 69, 15, 69, 15, 13, 8, 9]


def test_a_rebalance_that_does_not_end_is_not_waited_for_for_ever() -> None:
    broker = Broker("PreparingRebalance")
    assert fence(broker, seconds=10) == 2
    assert broker.offsets == WANTED


def test_members_that_come_back_are_sent_out_again() -> None:
    broker = Broker("Stable", comes_back=3)
    assert fence(broker) == 1
    assert broker.offsets == WANTED
    assert broker.asked.count(13) == 4


def test_members_that_always_come_back_win_and_it_is_told() -> None:
    broker = Broker("Stable", comes_back=10**6)
    with pytest.raises(NotFenced, match=r"rejoined each time .* 10 seconds"):
        fence(broker)
    assert broker.offsets == {}


def test_a_refusal_that_does_not_pass_ends_it_at_once() -> None:
    broker = Broker("Stable", refuses=TOPIC_DENIED)
    with pytest.raises(NotFenced, match=r"TOPIC_AUTHORIZATION_FAILED \(29\)"):
        fence(broker)
    assert broker.asked == [69, 15, 13, 8, 9]


def test_offsets_that_are_not_there_afterwards_are_noticed() -> None:
    broker = Broker("Stable")
    broker.forgets = True
    with pytest.raises(NotFenced, match="rides/0 was set to 30, but the group has nothing there"):
        fence(broker)
