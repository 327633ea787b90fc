"""EndTxn, in every version; from 5 on each end comes with the next epoch."""

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NEW,
    NOT_COORDINATOR,
    PRODUCER_FENCED,
    Producer,
    begin_to_load,
    markers,
    read,
    settle,
    start_with_transactions,
    state_of,
)
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.END_TXN)
every_version = pytest.mark.parametrize("version", VERSIONS)
old_versions = pytest.mark.parametrize("version", VERSIONS[:5])
bumping_versions = pytest.mark.parametrize("version", VERSIONS[5:])
either_way = pytest.mark.parametrize("commit", [False, True])
STATES = {True: "CompleteCommit", False: "CompleteAbort"}


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_transactions(start_broker)


@every_version
@either_way
def test_every_version_ends_a_transaction(
    broker: RunningBroker, version: int, commit: bool
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"a")

    assert producer.end(commit=commit, version=version) == 0
    settle(broker)

    assert state_of(broker) == STATES[commit]
    assert [one.is_commit for one in markers(broker, "rides")] == [commit]
    assert read(broker, "rides") == ([b"a"] if commit else [])


@bumping_versions
@either_way
def test_the_producer_is_told_the_next_epoch_and_goes_on_with_it(
    broker: RunningBroker, version: int, commit: bool
) -> None:
    producer = Producer(broker, speaks=NEW)
    producer.write("rides", 0, b"a")

    reply = broker.run(producer.end_(commit=commit, version=version))

    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, producer.id, 1)
    producer.write("rides", 0, b"b")
    producer.commit()
    assert producer.epoch == 2
    assert read(broker, "rides") == ([b"a", b"b"] if commit else [b"b"])


@old_versions
@either_way
def test_what_was_never_begun_cannot_end_in_old_versions(
    broker: RunningBroker, version: int, commit: bool
) -> None:
    producer = Producer(broker)

    assert producer.end(commit=commit, version=version) == INVALID_TXN_STATE
    assert state_of(broker) == "Empty"


@bumping_versions
def test_what_was_never_begun_may_be_aborted_and_not_committed(
    broker: RunningBroker, version: int
) -> None:
    producer = Producer(broker, speaks=NEW)

    refused = broker.run(producer.end_(commit=True, version=version))
    assert (refused.error_code, refused.producer_epoch) == (INVALID_TXN_STATE, -1)
    assert state_of(broker) == "Empty"
    # The client cannot know whether its first write came to anything.
    assert producer.end(commit=False, version=version) == 0
    assert (producer.epoch, state_of(broker)) == (1, "CompleteAbort")


@old_versions
@either_way
def test_the_same_end_again_is_fine_and_the_other_is_not(
    broker: RunningBroker, version: int, commit: bool
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0)
    producer.end(commit=commit, version=version)
    settle(broker)

    assert producer.end(commit=commit, version=version) == 0
    assert producer.end(commit=not commit, version=version) == INVALID_TXN_STATE
    settle(broker)
    assert [one.is_commit for one in markers(broker, "rides")] == [commit]


@bumping_versions
@either_way
def test_an_end_whose_reply_was_lost_is_told_again_and_not_the_other(
    broker: RunningBroker, version: int, commit: bool
) -> None:
    producer = Producer(broker, speaks=NEW)
    producer.write("rides", 0)
    producer.end(commit=commit, version=version, keep=False)
    settle(broker)

    assert producer.end(commit=not commit, version=version) == INVALID_TXN_STATE
    assert producer.epoch == 0
    assert producer.end(commit=commit, version=version) == 0
    assert producer.epoch == 1
    settle(broker)
    assert [one.is_commit for one in markers(broker, "rides")] == [commit]


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, INVALID_PRODUCER_EPOCH), (1, INVALID_PRODUCER_EPOCH)]
    + [(version, PRODUCER_FENCED) for version in VERSIONS[2:]],
)
@either_way
def test_a_producer_of_an_older_epoch_is_fenced(
    broker: RunningBroker, version: int, code: int, commit: bool
) -> None:
    producer = Producer(broker)
    zombie = producer.zombie()
    producer.init()
    producer.write("rides", 0)

    assert zombie.end(commit=commit, version=version) == code
    assert state_of(broker) == "Ongoing"


@every_version
def test_who_is_not_known_ends_nothing(broker: RunningBroker, version: int) -> None:
    producer = Producer(broker)
    producer.write("rides", 0)
    stranger = producer.zombie()
    stranger.id += 1

    assert stranger.end(commit=True, version=version) == INVALID_PRODUCER_ID_MAPPING
    for unknown in ("nobody", ""):
        other = Producer(broker, unknown, init=False)
        assert other.end(commit=True, version=version) == INVALID_PRODUCER_ID_MAPPING
    assert state_of(broker) == "Ongoing"


@every_version
def test_a_coordinator_that_loads_or_is_not_there_says_so(
    broker: RunningBroker, start_broker: StartBroker, version: int
) -> None:
    producer = Producer(broker)
    begin_to_load(broker)
    assert producer.end(commit=True, version=version) == COORDINATOR_LOAD_IN_PROGRESS

    stranger = Producer(start_broker(), init=False)
    assert stranger.end(commit=True, version=version) == NOT_COORDINATOR
