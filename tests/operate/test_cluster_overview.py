"""What `respool status` says about a survey: which partitions have problems, and whether all is well."""

from typing import Any

import pytest

from respool.client.kafka.admin import BrokerNode, ClusterDescription
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.groups import GroupListing
from respool.client.kafka.metadata import PartitionLeader, TopicMetadata
from respool.client.kafka.replicas import LogDir, Reassignment, ReplicaSize
from respool.operate.cluster_overview import describe
from respool.operate.cluster_survey import Gap, GapReason, Survey


def partition(
    *, leader: int | None = 1, replicas: tuple[int, ...] = (1, 2, 3), in_sync: tuple[int, ...]
) -> TopicMetadata:
    return TopicMetadata(
        name="rides",
        id=None,
        leaders={0: None if leader is None else PartitionLeader(broker=leader, epoch=0)},
        replicas={0: replicas},
        in_sync={0: in_sync},
    )


def survey(topic: TopicMetadata | None = None, *, up: tuple[int, ...] = (1, 2, 3)) -> Survey:
    return Survey(
        cluster=ClusterDescription(
            id="here",
            controller=1,
            brokers={
                one: BrokerNode(id=one, address=(f"host-{one}", 9092), rack=f"r{one}") for one in up
            },
        ),
        topics={"rides": topic or partition(in_sync=(1, 2, 3))},
    )


def problems(found: Survey) -> set[str]:
    document = describe(found)
    named = ("offline", "under_min_isr", "under_replicated")
    return {name for name in named if document[name]}


def test_all_is_well_while_all_replicas_are_in_sync() -> None:
    document = describe(survey())
    assert document["is_well"]
    assert (document["topic_count"], document["partition_count"]) == (1, 1)
    assert [(one["broker"], one["rack"], one["leads"]) for one in document["brokers"]] == [
        (1, "r1", 1),
        (2, "r2", 0),
        (3, "r3", 0),
    ]


@pytest.mark.parametrize(
    ("topic", "min_isr", "found"),
    [
        (partition(in_sync=(1, 2)), 2, {"under_replicated"}),
        (partition(in_sync=(1,)), 2, {"under_replicated", "under_min_isr"}),
        (partition(in_sync=(2,), leader=None), 1, {"under_replicated", "offline"}),
        # The minimum of a topic with one replica is one replica.
        (partition(replicas=(1,), in_sync=(1,)), 2, set()),
    ],
)
def test_a_partition_is_listed_under_each_of_its_problems(
    topic: TopicMetadata, min_isr: int, found: set[str]
) -> None:
    seen = survey(topic)
    seen.min_isr["rides"] = min_isr
    assert problems(seen) == found
    assert describe(seen)["is_well"] is not bool(found)


def test_a_replica_that_a_reassignment_adds_is_not_missing_yet() -> None:
    seen = survey(partition(replicas=(1, 2, 3), in_sync=(1, 2)))
    assert problems(seen) == {"under_replicated"}
    moving = Reassignment(replicas=(1, 2, 3), adding=(3,), removing=())
    seen.reassignments = {("rides", 0): moving}
    assert problems(seen) == set()
    assert describe(seen)["moving"] == [
        {"topic": "rides", "partition": 0, "adding": [3], "removing": []}
    ]


def test_a_broker_that_has_replicas_and_does_not_run_is_missing() -> None:
    seen = survey(partition(in_sync=(1, 2)), up=(1, 2))
    missing = describe(seen)["brokers"][2]
    assert (missing["state"], missing["address"], missing["behind"]) == ("missing", None, 1)


def log_dir(size: int, **fields: Any) -> LogDir:
    held = {("rides", 0): ReplicaSize(bytes=size, lag=0, is_future=False)}
    known: dict[str, Any] = {"total_bytes": 100, "usable_bytes": 50, "error": None}
    return LogDir(path="/data", replicas=held, **{**known, **fields})


def test_sizes_are_summed_over_the_brokers_that_report_them() -> None:
    seen = survey()
    assert describe(seen)["bytes"] is None
    seen.log_dirs = {1: [log_dir(5), log_dir(6)], 2: [log_dir(7)]}
    document = describe(seen)
    assert document["bytes"] == 18
    assert [one["bytes"] for one in document["brokers"]] == [11, 7, None]


def test_an_offline_log_folder_is_a_problem() -> None:
    seen = survey()
    seen.log_dirs = {1: [log_dir(5, error=refused("reading", Code.kafka_storage_error))]}
    assert not describe(seen)["is_well"]


@pytest.mark.parametrize(
    ("reason", "is_well", "state"),
    [
        (GapReason.TIMEOUT, False, "unresponsive"),
        (GapReason.UNREACHABLE, False, "unreachable"),
        (GapReason.UNTRUSTED, False, "untrusted"),
        (GapReason.REFUSED, False, "up"),
        # Old brokers of Kafka, and clients that may not look: then nothing is known to be wrong.
        (GapReason.UNAUTHORIZED, True, "up"),
        (GapReason.UNSUPPORTED, True, "up"),
        # Coordinators that load their groups.
        (GapReason.TRANSIENT, True, "up"),
    ],
)
def test_a_broker_that_does_not_answer_is_a_problem(
    reason: GapReason, is_well: bool, state: str
) -> None:
    seen = survey()
    seen.gaps = [Gap(subject="log_dirs", broker=2, reason=reason, message="why")]
    document = describe(seen)
    assert document["is_well"] is is_well
    assert [one["state"] for one in document["brokers"]] == ["up", state, "up"]
    assert document["unknown"] == [
        {"subject": "log_dirs", "broker": 2, "reason": reason.value, "message": "why"}
    ]


def test_what_there_was_no_time_for_is_no_problem_if_all_brokers_answer() -> None:
    seen = survey()
    seen.gaps = [Gap(subject="lag", reason=GapReason.TIMEOUT, message="no time")]
    assert describe(seen)["is_well"]


def test_unknown_groups_are_null_and_not_none() -> None:
    assert describe(survey())["groups"] is None


def test_an_unknown_lag_is_null_and_not_zero() -> None:
    seen = survey()
    seen.groups = [
        GroupListing(name=name, state="Stable", type="classic") for name in ("billing", "pricing")
    ]
    seen.lags = {"pricing": 7}
    lags = [(one["group"], one["lag"]) for one in describe(seen)["groups"]]
    assert lags == [("billing", None), ("pricing", 7)]
