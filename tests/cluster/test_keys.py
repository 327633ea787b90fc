"""What is written in the metadata store can be read again, also by and from brokers of other versions."""

import json
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from respool.cluster import keys
from respool.model.cluster import BrokerEndpoint, PartitionImage, RegistryEntry
from respool.model.ids import BrokerId, LeaderEpoch, TopicId

TOPIC = TopicId(UUID(int=7))
ONE, TWO, THREE, FOUR = map(BrokerId, (1, 2, 3, 4))
MOVING = PartitionImage(
    replicas=(ONE, TWO, FOUR, THREE),
    isr=(TWO,),
    leader=None,
    leader_epoch=LeaderEpoch(5),
    elr=(ONE,),
    last_leader=TWO,
    last_folder=UUID(int=7),
    adding=(FOUR,),
    removing=(THREE,),
    offline=(TWO,),
    revision=12,
)


def test_a_partition_is_read_as_it_was_written() -> None:
    assert keys.decode_partition(keys.encode_partition(MOVING), revision=12) == MOVING


def test_a_partition_written_before_there_were_clusters_is_read_with_defaults() -> None:
    old = b'{"isr":[1],"leader":1,"leader_epoch":3,"replicas":[1]}'
    assert keys.decode_partition(old) == PartitionImage(
        replicas=(ONE,), isr=(ONE,), leader=ONE, leader_epoch=LeaderEpoch(3)
    )


def test_fields_of_a_newer_version_are_passed_over() -> None:
    newer = json.loads(keys.encode_partition(MOVING)) | {"colour": "blue"}
    assert keys.decode_partition(json.dumps(newer).encode(), revision=12) == MOVING
    entry = RegistryEntry(
        rack="a",
        host="h",
        port=9092,
        is_drained=True,
        clean_epoch=9,
        folder=UUID(int=7),
        revision=3,
    )
    newer = json.loads(keys.encode_registry(entry)) | {"colour": "blue"}
    assert keys.decode_registry(json.dumps(newer).encode(), revision=3) == entry


def test_a_registration_s_epoch_is_its_first_revision_however_often_it_is_written() -> None:
    me = BrokerEndpoint(id=ONE, host="host", port=9092, rack="a")
    first = keys.BrokerRegistration(endpoint=me, incarnation=UUID(int=1))
    read = keys.decode_broker(ONE, keys.encode_broker(first), revision=31)
    assert read.endpoint.epoch == 31
    again = keys.decode_broker(ONE, keys.encode_broker(read), revision=40)
    assert again == read


def test_a_registration_names_its_lease_unless_an_older_version_wrote_it() -> None:
    me = BrokerEndpoint(id=ONE, host="host", port=9092)
    written = keys.encode_broker(
        keys.BrokerRegistration(endpoint=me, incarnation=UUID(int=1), lease=2**62)
    )
    assert keys.decode_broker(ONE, written, revision=31).lease == 2**62
    old = json.loads(written)
    del old["lease"]
    assert keys.decode_broker(ONE, json.dumps(old).encode(), revision=31).lease is None


def test_an_empty_registry_entry_is_a_broker_of_which_nothing_is_known() -> None:
    assert keys.decode_registry(b"{}") == RegistryEntry()


def test_the_controller_is_a_broker() -> None:
    assert keys.decode_controller(keys.encode_controller(THREE)) == THREE


@given(st.uuids(), st.integers(0, 100_000))
def test_a_partition_s_key_says_which_it_is(topic: UUID, number: int) -> None:
    key = keys.partition_key(TopicId(topic), number)
    assert keys.parse_partition_key(key) == (topic, number)
