"""Java programs beside brokers of Respool. They share a cluster, and a JVM for Kafka's tools, each with its topics."""

import os
from collections.abc import Iterator

import pytest

from support.broker_cluster import BrokerCluster
from support.kafka_tools import KafkaTools
from support.spark import JVM_OPTIONS


@pytest.fixture(scope="package", autouse=True)
def _jvms_with_kafkas_options() -> Iterator[None]:
    """Kafka's scripts choose their own garbage collector, and a JVM refuses two."""
    with pytest.MonkeyPatch.context() as patched:
        if os.environ.get("JDK_JAVA_OPTIONS") == JVM_OPTIONS:
            patched.delenv("JDK_JAVA_OPTIONS")
        yield


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """Three brokers, with three replicas of a topic by default."""
    with BrokerCluster(tmp_path_factory.mktemp("kafka-interop")) as running:
        yield running


@pytest.fixture(scope="package")
def tools(cluster: BrokerCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with KafkaTools(cluster.bootstrap, tmp_path_factory.mktemp("kafka-tools")) as started:
        yield started
