"""Each question to the brokers stands alone: what one of them does not answer is a gap, and the rest is known."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from respool.client.kafka import list_offsets
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.errors import (
    BrokerUnreachable,
    LoginRefused,
    TlsRefused,
    UnknownPartition,
    VersionUnsupported,
)
from respool.client.kafka.metadata import Address, Place
from respool.client.kafka.versions import VersionRange
from respool.model.operator_errors import Unreachable
from respool.operate import cluster_survey
from respool.operate.cluster_survey import GapReason, survey
from respool.wire.api_table import Api

ADDRESSES = {1: ("one", 9092), 2: ("two", 9092)}
Answer = Callable[[Mapping[str, Any]], Any]


def told(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"error_code": 0, "error_message": None, **fields})


def metadata(fields: Mapping[str, Any], *topics: Any) -> Any:
    there = topics or (
        topic("rides", [told_partition(0, leader=1), told_partition(1, leader=2, in_sync=[2])]),
    )
    named = None if fields["topics"] is None else {one["name"] for one in fields["topics"]}
    answers = [one for one in there if named is None or one.name in named]
    for name in sorted((named or set()) - {one.name for one in answers}):
        unknown = topic(name, [])
        unknown.error_code = int(Code.unknown_topic_or_partition)
        answers.append(unknown)
    return told(
        brokers=[
            told(node_id=one, host=host, port=port, rack=None)
            for one, (host, port) in ADDRESSES.items()
        ],
        controller_id=1,
        cluster_id="here",
        topics=answers,
    )


def told_partition(number: int, *, leader: int, in_sync: list[int] | None = None) -> Any:
    return told(
        partition_index=number,
        leader_id=leader,
        leader_epoch=0,
        replica_nodes=[1, 2],
        isr_nodes=in_sync or [1, 2],
    )


def topic(name: str, partitions: list[Any]) -> Any:
    return told(name=name, topic_id=None, is_internal=False, partitions=partitions)


def described_configs(fields: Mapping[str, Any]) -> Any:
    entry = told(
        name="min.insync.replicas",
        value="2",
        config_source=5,
        read_only=False,
        is_sensitive=False,
    )
    names = [one["resource_name"] for one in fields["resources"]]
    return told(results=[told(resource_name=name, configs=[entry]) for name in names])


def offsets(fields: Mapping[str, Any]) -> Any:
    return told(
        topics=[
            told(
                name=each["name"],
                partitions=[
                    told(
                        partition_index=one["partition_index"],
                        # Earliest is -2.
                        offset=0 if one["timestamp"] == -2 else 10,
                        timestamp=-1,
                    )
                    for one in each["partitions"]
                ],
            )
            for each in fields["topics"]
        ]
    )


COMMITTED = [
    told(partition_index=number, committed_offset=4, metadata="", committed_leader_epoch=-1)
    for number in (0, 1)
]
ANSWERS: dict[Api, Answer] = {
    Api.METADATA: metadata,
    Api.DESCRIBE_CONFIGS: described_configs,
    Api.LIST_PARTITION_REASSIGNMENTS: lambda _: told(topics=[]),
    Api.DESCRIBE_LOG_DIRS: lambda _: told(results=[told(log_dir="/data", topics=[])]),
    Api.LIST_TRANSACTIONS: lambda _: told(transaction_states=[]),
    Api.LIST_GROUPS: lambda _: told(
        groups=[
            told(group_id="billing", group_state="Stable", group_type="classic", protocol_type="")
        ]
    ),
    Api.FIND_COORDINATOR: lambda _: told(node_id=1, host="one", port=9092),
    Api.OFFSET_FETCH: lambda _: told(topics=[told(name="rides", partitions=COMMITTED)]),
    Api.LIST_OFFSETS: offsets,
}


class AnsweringCluster(Cluster):
    """Answers as two good brokers would; `instead` replaces what one of them answers to one request."""

    def __init__(self, instead: Mapping[tuple[int, Api], Answer]) -> None:
        super().__init__("one:9092", retry_ms=1)
        self.instead = instead
        self.asked: Counter[Api] = Counter()

    def _request_at(
        self,
        address: Address,
        api: Api,
        fields: Mapping[str, Any],
        *,
        versions: VersionRange | None = None,
        wait_ms: int = 0,
    ) -> Any:
        self.asked[api] += 1
        broker = next(number for number, one in ADDRESSES.items() if one == address)
        return self.instead.get((broker, api), ANSWERS[api])(fields)

    def never(self, _: Mapping[str, Any]) -> Any:
        """No answer until the client is interrupted: then `sleep` raises ClientClosed."""
        self.sleep(600)
        raise AssertionError("it was not interrupted")


def fails(error: Exception) -> Answer:
    def answer(_: Mapping[str, Any]) -> Any:
        raise error

    return answer


def test_everything_is_known_if_all_brokers_answer() -> None:
    found = survey(AnsweringCluster({}), seconds=600)
    assert found.gaps == []
    assert found.min_isr == {"rides": 2}
    assert found.log_dirs.keys() == {1, 2}
    assert found.open_transactions == {1: 0, 2: 0}
    assert found.groups is not None
    assert [one.name for one in found.groups] == ["billing"]
    assert found.lags == {"billing": 12}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BrokerUnreachable("two is down"), GapReason.UNREACHABLE),
        (VersionUnsupported("two is old"), GapReason.UNSUPPORTED),
        (TlsRefused("two has another certificate"), GapReason.UNTRUSTED),
        (LoginRefused("two does not know this user"), GapReason.UNTRUSTED),
        (refused("reading folders", Code.kafka_storage_error), GapReason.REFUSED),
    ],
)
def test_a_request_that_fails_at_one_broker_is_one_gap(error: Exception, reason: GapReason) -> None:
    instead = {(2, Api.DESCRIBE_LOG_DIRS): fails(error)}
    found = survey(AnsweringCluster(instead), seconds=600)
    (gap,) = found.gaps
    assert (gap.subject, gap.broker, gap.reason) == ("log_dirs", 2, reason)
    assert gap.message == str(error)
    assert found.log_dirs.keys() == {1}
    assert found.lags == {"billing": 12}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BrokerUnreachable("two is down"), GapReason.UNREACHABLE),
        (LoginRefused("two does not know this user"), GapReason.UNTRUSTED),
        (VersionUnsupported("two is old"), GapReason.UNSUPPORTED),
        # As right after a restart.
        (refused("listing groups", Code.coordinator_load_in_progress), GapReason.TRANSIENT),
        (refused("listing groups", Code.cluster_authorization_failed), GapReason.UNAUTHORIZED),
    ],
)
def test_a_broker_that_lists_no_groups_hides_only_its_own(
    error: Exception, reason: GapReason
) -> None:
    found = survey(AnsweringCluster({(2, Api.LIST_GROUPS): fails(error)}), seconds=600)
    (gap,) = found.gaps
    assert (gap.subject, gap.broker, gap.reason) == ("groups", 2, reason)
    assert found.lags == {"billing": 12}


def test_groups_that_no_broker_lists_are_unknown_and_not_none() -> None:
    down = fails(BrokerUnreachable("down"))
    found = survey(
        AnsweringCluster({(one, Api.LIST_GROUPS): down for one in ADDRESSES}), seconds=600
    )
    assert found.groups is None


def test_a_refusal_is_a_gap_with_the_broker_s_reason() -> None:
    code = int(Code.cluster_authorization_failed)
    instead = {(1, Api.LIST_PARTITION_REASSIGNMENTS): lambda _: told(error_code=code, topics=[])}
    found = survey(AnsweringCluster(instead), seconds=600)
    (gap,) = found.gaps
    assert (gap.subject, gap.reason) == ("moving", GapReason.UNAUTHORIZED)
    assert "CLUSTER_AUTHORIZATION_FAILED" in gap.message


def test_what_a_silent_broker_was_asked_is_unknown_when_the_time_is_up() -> None:
    cluster = AnsweringCluster({})
    cluster.instead = {
        (broker, api): cluster.never
        for broker in ADDRESSES
        for api in ANSWERS
        if api != Api.METADATA
    }
    found = survey(cluster, seconds=0.01)
    assert {gap.reason for gap in found.gaps} == {GapReason.TIMEOUT}
    assert {gap.subject for gap in found.gaps} == {
        "groups",
        "log_dirs",
        "min_isr",
        "moving",
        "transactions",
    }
    assert found.topics.keys() == {"rides"}


def test_no_metadata_in_time_is_an_error_that_says_what_to_do() -> None:
    cluster = AnsweringCluster({})
    cluster.instead = {(1, Api.METADATA): cluster.never}
    with pytest.raises(Unreachable, match=r"within 0\.01 s") as caught:
        survey(cluster, seconds=0.01)
    assert "--timeout" in caught.value.hint


def test_the_lag_of_groups_that_there_was_no_time_for_is_unknown() -> None:
    cluster = AnsweringCluster({})
    groups = [
        told(group_id=name, group_state="Empty", group_type="classic", protocol_type="")
        for name in ("a", "b", "c")
    ]
    cluster.instead = {
        (1, Api.LIST_GROUPS): lambda _: told(groups=groups),
        (1, Api.OFFSET_FETCH): cluster.never,
    }
    found = survey(cluster, seconds=0.01)
    (gap,) = found.gaps
    assert gap.message == "no time for the offsets of 4 groups"
    # It tells nothing about a broker.
    assert (gap.subject, gap.broker, gap.reason) == ("lag", None, GapReason.TIMEOUT)
    assert found.lags == {}


def test_log_ends_that_there_was_no_time_for_tell_nothing_about_their_broker() -> None:
    cluster = AnsweringCluster({})
    cluster.instead = {(2, Api.LIST_OFFSETS): cluster.never}
    (gap,) = survey(cluster, seconds=0.01).gaps
    assert gap.message == "log ends on broker 2: no answer in time"
    assert (gap.subject, gap.broker, gap.reason) == ("lag", None, GapReason.TIMEOUT)


def test_the_offsets_of_several_groups_are_fetched_at_a_time_and_after_all_else() -> None:
    cluster = AnsweringCluster({})
    names = [f"group-{number}" for number in range(cluster_survey._GROUPS_AT_ONCE)]
    groups = [
        told(group_id=name, group_state="Empty", group_type="classic", protocol_type="")
        for name in names
    ]
    together = threading.Barrier(len(names))

    def fetched(fields: Mapping[str, Any]) -> Any:
        together.wait(timeout=60)
        # They share connections with these questions.
        assert cluster.asked[Api.DESCRIBE_LOG_DIRS] == cluster.asked[Api.LIST_TRANSACTIONS] == 2
        return ANSWERS[Api.OFFSET_FETCH](fields)

    cluster.instead = {
        **{(one, Api.LIST_GROUPS): lambda _: told(groups=groups) for one in ADDRESSES},
        (1, Api.OFFSET_FETCH): fetched,
    }
    found = survey(cluster, seconds=600)
    assert (found.lags, found.gaps) == (dict.fromkeys(names, 12), [])


def test_partitions_that_have_gone_leave_lags_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Cluster, places: Iterable[Place]) -> dict[int, list[Place]]:
        raise UnknownPartition(*min(places), 0)

    monkeypatch.setattr(list_offsets, "leaders_of", gone)
    found = survey(AnsweringCluster({}), seconds=600)
    (gap,) = found.gaps
    assert (gap.subject, gap.reason) == ("lag", GapReason.TRANSIENT)
    assert found.lags == {}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (Code.kafka_storage_error, GapReason.REFUSED),
        (Code.topic_authorization_failed, GapReason.UNAUTHORIZED),
        # It is being deleted.
        (Code.unknown_topic_or_partition, GapReason.TRANSIENT),
    ],
)
def test_a_topic_whose_metadata_is_an_error_is_a_gap(code: Code, reason: GapReason) -> None:
    def with_error(fields: Mapping[str, Any]) -> Any:
        failed = topic("payments", [])
        failed.error_code = int(code)
        return metadata(fields, topic("rides", [told_partition(0, leader=1)]), failed)

    found = survey(
        AnsweringCluster({(one, Api.METADATA): with_error for one in ADDRESSES}), seconds=600
    )
    (gap,) = found.gaps
    assert (gap.subject, gap.reason) == ("topics", reason)
    assert "'payments'" in gap.message
    assert found.topics.keys() == {"rides"}


def test_configs_are_read_only_for_topics_with_replicas_out_of_sync() -> None:
    def in_sync(fields: Mapping[str, Any]) -> Any:
        return metadata(fields, topic("rides", [told_partition(0, leader=1)]))

    cluster = AnsweringCluster({(1, Api.METADATA): in_sync, (2, Api.METADATA): in_sync})
    assert survey(cluster, seconds=600).gaps == []
    assert Api.DESCRIBE_CONFIGS not in cluster.asked


def test_a_topic_deleted_in_the_meantime_hides_no_other() -> None:
    def of_two(fields: Mapping[str, Any]) -> Any:
        out_of_sync = [told_partition(0, leader=1, in_sync=[1])]
        return metadata(fields, *(topic(name, out_of_sync) for name in ("gone", "rides")))

    def without_one(fields: Mapping[str, Any]) -> Any:
        reply = described_configs(fields)
        for one in reply.results:
            if one.resource_name == "gone":
                one.error_code = int(Code.unknown_topic_or_partition)
        return reply

    instead = {
        (broker, api): answer
        for broker in ADDRESSES
        for api, answer in ((Api.METADATA, of_two), (Api.DESCRIBE_CONFIGS, without_one))
    }
    found = survey(AnsweringCluster(instead), seconds=600)
    assert (found.min_isr, found.gaps) == ({"rides": 2}, [])


def test_ctrl_c_does_not_wait_for_brokers_that_are_silent() -> None:
    cluster = AnsweringCluster({})

    def interrupt(_: Mapping[str, Any]) -> Any:
        # As the terminal does: to the thread that waits for the others.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return cluster.never(_)

    cluster.instead = {
        (1, Api.LIST_GROUPS): interrupt,
        (2, Api.DESCRIBE_LOG_DIRS): cluster.never,
    }
    with pytest.raises(KeyboardInterrupt):
        survey(cluster, seconds=600)
