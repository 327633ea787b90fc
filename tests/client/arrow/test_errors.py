"""Errors keep their numbers on the way to another process, as those of Spark's executors must."""

import pickle

import pytest

from respool.client.arrow import errors
from respool.client.kafka.errors import ClientError

PLACE = {"topic": "rides", "partition": 3, "offset": 7}


@pytest.mark.parametrize(
    "error",
    [
        errors.BadArgument("since = -1"),
        errors.UnknownTopic("rides"),
        errors.UnknownPartition("rides", 5, 3),
        errors.BrokerRefused("reading", 6, "not_leader", retriable=True),
        errors.PartitionUnavailable("gone", **PLACE),  # type: ignore[arg-type]
        errors.OutsideRetention("gone", **PLACE, first_offset=9, first_time_ms=5),  # type: ignore[arg-type]
    ],
)
def test_an_error_arrives_as_it_was_sent(error: ClientError) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_who_catches_what_the_language_has_catches_ours() -> None:
    assert issubclass(errors.BadArgument, ValueError)
    assert issubclass(errors.RetentionOvertook, errors.OutsideRetention)
    assert issubclass(errors.ProtocolBroken, errors.BrokerUnreachable)
