"""confluent-kafka's errors as the command line's, and what is said where it is not installed."""

import builtins
import sys
from typing import Any

import pytest
from confluent_kafka import KafkaError

from cli.running import Run
from respool import cli
from respool.cli import messages
from respool.cli.kafka_library import reason, to_cli_error
from respool.model.operator_errors import NotFound, OperatorError, Unreachable
from respool.operate.errors import NobodyLeads, TopicExists


@pytest.mark.parametrize(
    ("code", "family"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NotFound),
        (KafkaError._UNKNOWN_TOPIC, NotFound),
        (KafkaError.TOPIC_ALREADY_EXISTS, TopicExists),
        (KafkaError._TRANSPORT, Unreachable),
        (KafkaError._TIMED_OUT, Unreachable),
        (KafkaError.NOT_LEADER_FOR_PARTITION, NobodyLeads),
        (KafkaError.LEADER_NOT_AVAILABLE, NobodyLeads),
        (KafkaError.POLICY_VIOLATION, OperatorError),
    ],
)
def test_kafka_s_errors_become_ours_and_keep_their_words(
    code: int, family: type[OperatorError]
) -> None:
    error = to_cli_error(KafkaError(code, "because of that"), "127.0.0.1:9092")
    assert type(error) is family
    assert "because of that" in error.message


def test_a_reason_names_the_error_s_code() -> None:
    assert reason(KafkaError(KafkaError.POLICY_VIOLATION, "no")) == "no (POLICY_VIOLATION)"


def test_without_the_client_library_the_error_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without_client(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("confluent_kafka"):
            raise ImportError(name)
        return real_import(name, *arguments, **named)

    for package, name in ((cli, "kafka_library"), (messages, "topic_reader")):
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
        monkeypatch.delattr(package, name, raising=False)
    monkeypatch.setattr(builtins, "__import__", without_client)
    ended = run("consume", "rides")
    assert ended.code == 1
    assert 'pip install ".[client]"' in ended.err
