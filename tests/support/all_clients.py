"""Every client a test can ask for, by name, and as pytest parameters."""

from collections.abc import Mapping

import pytest
from _pytest.mark import ParameterSet

from support.aiokafka_client import AiokafkaClient
from support.confluent_client import ConfluentClient
from support.kafka_python_client import KafkaPythonClient
from support.kcat_client import KCAT, MISSING, KcatClient
from support.message import KafkaClient

CLIENTS: Mapping[str, KafkaClient] = {
    client.name: client
    for client in (ConfluentClient(), KafkaPythonClient(), AiokafkaClient(), KcatClient())
}
# kcat is a program of its own and may be missing.
INSTALLED = tuple(client for client in CLIENTS.values() if client.name != "kcat" or KCAT)


def each_client() -> list[ParameterSet]:
    """A parameter for each client; kcat's tests are skipped where it is missing."""
    without_kcat = pytest.mark.skipif(KCAT is None, reason=MISSING)
    return [
        pytest.param(client, id=name, marks=without_kcat if name == "kcat" else ())
        for name, client in CLIENTS.items()
    ]
