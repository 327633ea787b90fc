"""Replay, mirror and kcat as users with the rights that they need, and no others, on a broker that enforces ACLs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.client.kafka.acls import create_acls
from respool.client.kafka.cluster import Cluster
from respool.model.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclOperation,
    AclResource,
    PatternType,
    ResourcePattern,
)
from support.secured_broker import PASSWORD, SecuredBroker, secured

pytestmark = pytest.mark.clients
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorization": "enforce", "super_users": "User:ANONYMOUS"}
    with secured(tmp_path_factory.mktemp("source"), settings=settings) as made:
        yield made


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorization": "enforce", "super_users": "User:ANONYMOUS"}
    with secured(tmp_path_factory.mktemp("target"), settings=settings) as made:
        yield made


def user(
    broker: SecuredBroker,
    name: str,
    folder: Path,
    *rights: tuple[AclOperation, AclResource, str],
    prefix: str = "",
) -> str:
    """Add a user with these rights; return its file of client properties. `prefix`: may do everything with topics."""
    broker.add_user(name)
    acls = [
        AclBinding(ResourcePattern(kind, named), AclEntry(f"User:{name}", operation))
        for operation, kind, named in rights
    ]
    if prefix:
        pattern = ResourcePattern(TOPIC, prefix, PatternType.PREFIXED)
        acls.append(AclBinding(pattern, AclEntry(f"User:{name}", AclOperation.ALL)))
    with Cluster(broker.address("client")) as cluster:
        create_acls(cluster, acls)
    file = folder / f"{name}.properties"
    file.write_text(
        f"bootstrap.servers={broker.address('sasl')}\nsecurity.protocol=SASL_SSL\n"
        f"ssl.ca.location={broker.ca_file}\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={name}\nsasl.password={PASSWORD}\n"
    )
    return str(file)


def denied(broker: SecuredBroker, user: str) -> set[str]:
    """What the broker has refused to this user, from its log."""
    return {
        line[line.index('"operation"') :]
        for line in broker.broker.log.splitlines()
        if '"event": "denied"' in line and f'"User:{user}"' in line
    }


def test_a_replay_needs_to_read_the_topic_and_to_write_the_copy(
    run: Run, broker: SecuredBroker, tmp_path: Path
) -> None:
    open_listener = ("--broker", broker.address("client"))
    assert run("topic", "create", "orders", *open_listener).code == 0
    assert run("produce", "orders", *open_listener, stdin=b"one\ntwo\n").code == 0
    as_user = (
        "--client-config",
        user(
            broker,
            "replayer",
            tmp_path,
            (READ, TOPIC, "orders"),
            (DESCRIBE_CONFIGS, TOPIC, "orders"),
            (CREATE, TOPIC, "__respool_replays"),
            (READ, TOPIC, "__respool_replays"),
            (WRITE, TOPIC, "__respool_replays"),
            prefix="again",
        ),
    )
    ended = run("replay", "run", "orders", "--from", "1h", "--into", "again", *as_user)
    assert ended.code == 0, (ended.err, denied(broker, "replayer"))
    read = run("consume", "again", "--from-beginning", *open_listener)
    assert read.out == "one\ntwo\n"
    refused = run("replay", "run", "again", "--from", "1h", "--into", "orders2", *as_user)
    assert refused.code == ExitCode.FAILED
    assert "AUTHORIZATION_FAILED" in refused.err


def test_a_mirror_needs_to_read_at_the_source_and_to_alter_the_copy(
    run: Run, broker: SecuredBroker, target: SecuredBroker, tmp_path: Path
) -> None:
    open_listener = ("--broker", broker.address("client"))
    assert run("topic", "create", "fares", *open_listener).code == 0
    assert run("produce", "fares", *open_listener, stdin=b"one\ntwo\n").code == 0
    source_user = user(
        broker,
        "reader",
        tmp_path,
        (READ, TOPIC, "fares"),
        (DESCRIBE_CONFIGS, TOPIC, "fares"),
        (DESCRIBE, CLUSTER, CLUSTER_NAME),
    )
    target_user = user(
        target, "writer", tmp_path, (DESCRIBE, CLUSTER, CLUSTER_NAME), prefix="fares"
    )
    places = ("--from-client-config", source_user, "--client-config", target_user)
    ended = run("mirror", *places, "--topics", "fares", "--once")
    assert ended.code == 0, (ended.err, denied(broker, "reader"), denied(target, "writer"))
    read = run("consume", "fares", "--from-beginning", "-b", target.address("client"))
    assert read.out == "one\ntwo\n"
    other = ("--from-client-config", source_user, "--client-config", user(target, "poor", tmp_path))
    refused = run("mirror", *other, "--topics", "fares", "--once")
    assert refused.code == ExitCode.FAILED
    assert "AUTHORIZATION_FAILED" in refused.err
