"""How far copies are, from what brokers say of their replicas."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Producer

from cluster.cluster_world import ONE, THREE, TWO, image_of, view_of
from respool import testing
from respool.client.kafka.admin import create_topic
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.replicas import LogDir
from respool.client.kafka.security import Login, Security, Tls
from respool.client.kafka.transport import LinkSettings
from respool.cluster.view import ClusterView
from respool.model.cluster import BrokerEndpoint
from respool.model.ids import BrokerId, TopicPartition
from respool.model.settings import Settings
from respool.operate import move_progress
from respool.operate.cluster_store import ClusterAddress
from respool.operate.move_progress import MoveProgress, copy_progress_of, read_copy_progress
from support.secured_gate import secured_broker, server_side

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
CLEAR = ClusterAddress(settings=Settings())
MOVING = image_of(1, 2, 3, isr=[1], adding=(TWO, THREE))


def test_what_is_copied_is_told_for_all_who_copy_it_together() -> None:
    sizes = {ONE: {FIRST: 100, SECOND: 7}, TWO: {FIRST: 30}, THREE: {FIRST: 0, SECOND: 7}}
    assert copy_progress_of(view_of(MOVING, image_of(1, 2)), sizes) == {
        FIRST: MoveProgress(30, 200)
    }


def test_a_copy_that_is_larger_than_its_leader_is_no_more_than_whole() -> None:
    sizes = {ONE: {FIRST: 100}, TWO: {FIRST: 130}, THREE: {FIRST: 40}}
    assert copy_progress_of(view_of(MOVING), sizes) == {FIRST: MoveProgress(140, 200)}


def test_nothing_is_told_of_a_move_of_which_somebody_says_nothing() -> None:
    assert copy_progress_of(view_of(MOVING), {ONE: {FIRST: 100}, TWO: {FIRST: 30}}) == {}
    assert copy_progress_of(view_of(MOVING), {TWO: {FIRST: 30}, THREE: {FIRST: 30}}) == {}
    leaderless = image_of(1, 2, isr=[], leader=None, adding=(TWO,))
    assert copy_progress_of(view_of(leaderless), {ONE: {FIRST: 1}, TWO: {FIRST: 1}}) == {}


def test_replicas_that_only_leave_have_nothing_to_copy() -> None:
    leaving = image_of(1, 2, removing=(TWO,))
    assert copy_progress_of(view_of(leaving), {ONE: {FIRST: 100}, TWO: {FIRST: 100}}) == {}


def at(view: ClusterView, addresses: Mapping[BrokerId, tuple[str, int]]) -> ClusterView:
    """The same brokers, at these addresses."""
    brokers = {
        one: BrokerEndpoint(id=one, host=host, port=port) for one, (host, port) in addresses.items()
    }
    return replace(view, image=replace(view.image, brokers=brokers))


def test_brokers_are_asked_and_those_that_do_not_answer_done_without(
    respool_broker: testing.Broker,
) -> None:
    """One broker plays two: the one that leads, and the one that copies from it."""
    respool_broker.create_topic("t", partitions=2)
    producer = Producer({"bootstrap.servers": respool_broker.bootstrap})
    producer.produce("t", b"a ride", partition=0)
    assert producer.flush(30) == 0
    there, nowhere = (respool_broker.host, respool_broker.port), ("127.0.0.1", 1)
    moves = view_of(
        image_of(1, 2, isr=[1], adding=(TWO,)), image_of(1, 3, isr=[1], adding=(THREE,))
    )
    told = asyncio.run(
        read_copy_progress(at(moves, {ONE: there, TWO: there, THREE: nowhere}), CLEAR)
    )
    assert told.keys() == {FIRST}
    assert told[FIRST].copied_bytes == told[FIRST].total_bytes > len(b"a ride")
    assert asyncio.run(read_copy_progress(at(moves, {ONE: nowhere, TWO: there}), CLEAR)) == {}
    assert asyncio.run(read_copy_progress(at(moves, {TWO: there, THREE: there}), CLEAR)) == {}


def test_brokers_behind_tls_and_a_login_are_asked_with_the_options_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    login = Login(mechanism="SCRAM-SHA-256", username="app", password="four strings")
    tls = Tls(authorities=str(file))
    moves = view_of(image_of(1, 2, isr=[1], adding=(TWO,)))
    with secured_broker(tls=server_side(authority), users={"app": login.password}) as gate:
        host, _, port = gate.address.rpartition(":")
        view = at(moves, dict.fromkeys((ONE, TWO), (host, int(port))))
        with Cluster(gate.address, security=Security(tls=tls, login=login)) as client:
            create_topic(client, "t", partitions=1)
        access = replace(CLEAR, security=Security(tls=tls, login=login))
        told = asyncio.run(read_copy_progress(view, access))
        assert told.keys() == {FIRST}
        wrong = Login(mechanism="SCRAM-SHA-256", username="app", password="another")
        access = replace(CLEAR, security=Security(tls=tls, login=wrong))
        for _ in range(2):
            assert asyncio.run(read_copy_progress(view, access)) == {}
    reported = [one.message for one in caplog.records if "was not asked" in one.message]
    assert len(reported) == 2
    assert "broker 1 was not asked how far copies are" in " ".join(reported)


def test_a_client_config_cannot_make_a_silent_broker_hold_the_progress_up_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[LinkSettings] = []

    def note(cluster: Cluster, *_: object) -> list[LogDir]:
        made.append(cluster._links)
        return []

    monkeypatch.setattr(move_progress, "describe_log_dirs", note)
    view = at(
        view_of(image_of(1, 2, isr=[1], adding=(TWO,))),
        dict.fromkeys((ONE, TWO), ("127.0.0.1", 1)),
    )
    client = {"client_id": "app", "request_timeout_ms": 60_000, "connect_timeout_ms": 300}
    asyncio.run(read_copy_progress(view, replace(CLEAR, client=client)))
    assert {(one.client_id, one.request_timeout_ms, one.connect_timeout_ms) for one in made} == {
        ("app", move_progress.REQUEST_MS_MAX, 300)
    }
