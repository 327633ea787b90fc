"""Errors of the client as failures of operations."""

import pytest

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientError,
    LoginRefused,
    NoBroker,
    UnknownTopic,
)
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError
from respool.operate.errors import NobodyLeads, TopicExists, client_errors_translated


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused("listing offsets", Code.not_leader_or_follower), NobodyLeads),
        (refused("listing offsets", Code.leader_not_available), NobodyLeads),
        (refused("creating topic 't'", Code.topic_already_exists), TopicExists),
        (refused("altering configs of t", Code.invalid_config, "no such setting"), UsageError),
        (refused("creating topic 't'", Code.invalid_topic_exception, "it collides"), UsageError),
        (refused("creating topic 't'", Code.invalid_partitions, "too many"), UsageError),
        (refused("deleting topic 't'", Code.unknown_topic_or_partition), NotFound),
        (refused("deleting topic 't'", Code.policy_violation), OperatorError),
        (UnknownTopic("t"), NotFound),
        (BrokerUnreachable("it is gone"), Unreachable),
        (LoginRefused("the password is wrong"), OperatorError),
        (BadArgument("'nowhere' is not HOST:PORT"), UsageError),
    ],
)
def test_the_client_s_errors_become_failures_of_their_kind(
    error: ClientError, kind: type[OperatorError]
) -> None:
    with pytest.raises(kind) as caught, client_errors_translated():
        raise error
    assert type(caught.value) is kind


def test_the_broker_s_own_message_comes_before_its_code() -> None:
    error = refused("altering configs of t", Code.invalid_config, "no such setting")
    with (
        pytest.raises(UsageError, match=r"^no such setting \(INVALID_CONFIG\)$"),
        client_errors_translated(),
    ):
        raise error


def test_nobody_at_an_address_is_told_with_what_to_do() -> None:
    with pytest.raises(Unreachable) as caught, client_errors_translated():
        raise NoBroker(Bootstrap("127.0.0.1:1", "--broker", "--broker HOST:PORT"), ["refused"])
    assert caught.value.message == "no broker at 127.0.0.1:1, from --broker (refused)"
    assert caught.value.hint.startswith("start one with: respool serve")
