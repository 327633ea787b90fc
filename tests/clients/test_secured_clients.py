"""Stock clients and ours on listeners with TLS and logins: those that come in, and those that do not."""

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

import respool
from respool import Login, Security, Tls
from respool.client.kafka.errors import ClientError, LoginRefused
from support.secured_broker import PASSWORD, SecuredBroker, secured

# aiokafka does not wait until its TLS transports are closed, and a loop that ends leaves them to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured(tmp_path_factory.mktemp("secured")) as made:
        yield made


def librdkafka(broker: SecuredBroker, listener: str, **more: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.address(listener),
        "ssl.ca.location": broker.ca_file,
        "security.protocol": "SSL",
    }
    return settings | {name.replace("_", "."): value for name, value in more.items()}


def by_login(
    broker: SecuredBroker, mechanism: str, password: str = PASSWORD, user: str = "alice"
) -> dict[str, Any]:
    return librdkafka(
        broker,
        "sasl",
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=password,
    )


def round_trip(settings: dict[str, Any], value: bytes) -> None:
    producer = Producer(settings)
    failures: list[object] = []
    producer.produce("rides", value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(20) == 0
    assert failures == [None]
    consumer = Consumer(
        settings | {"group.id": f"g-{value.decode()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["rides"])
    try:
        seen: list[bytes] = []
        deadline = time.monotonic() + 30
        while value not in seen and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.append(message.value())
        assert value in seen
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_by(broker: SecuredBroker, mechanism: str) -> None:
    round_trip(by_login(broker, mechanism), mechanism.encode())


def test_librdkafka_comes_in_by_its_certificate(broker: SecuredBroker) -> None:
    pem = broker.client_certificate("carol")
    settings = librdkafka(broker, "mtls", ssl_certificate_location=pem, ssl_key_location=pem)
    round_trip(settings, b"by certificate")


def test_librdkafka_comes_in_over_tls_alone(broker: SecuredBroker) -> None:
    round_trip(librdkafka(broker, "tls"), b"by tls")


def refused(settings: dict[str, Any]) -> str:
    """What librdkafka says when it cannot come in."""
    errors: list[str] = []
    client = Producer(settings | {"error_cb": lambda error: errors.append(str(error))})
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not errors:
        client.poll(0.2)
    return " ".join(errors)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_learns_that_its_password_is_wrong(
    broker: SecuredBroker, mechanism: str
) -> None:
    assert "Authentication failed" in refused(by_login(broker, mechanism, "guess"))


def test_an_unknown_user_and_a_wrong_password_get_the_same_answer(broker: SecuredBroker) -> None:
    def text(user: str) -> str:
        with pytest.raises(LoginRefused) as caught:
            ours(broker, login=Login(mechanism="SCRAM-SHA-512", username=user, password="guess"))
        return str(caught.value).replace(user, "USER")

    assert text("alice") == text("nobody")


def test_without_a_certificate_nobody_comes_in_where_one_is_required(
    broker: SecuredBroker,
) -> None:
    with pytest.raises(ClientError):
        respool.read_table(
            "rides",
            bootstrap=broker.address("mtls"),
            security=Security(tls=Tls(authorities=broker.ca_file)),
        )


def test_an_expired_certificate_and_another_authority_are_refused(broker: SecuredBroker) -> None:
    import trustme

    for pem in (
        broker.client_certificate("late", expired=True),
        broker.client_certificate("stranger", authority=trustme.CA()),
    ):
        with pytest.raises(ClientError):
            respool.read_table(
                "rides",
                bootstrap=broker.address("mtls"),
                security=Security(tls=Tls(authorities=broker.ca_file, certificate=pem)),
            )


def ours(broker: SecuredBroker, *, login: Login) -> Any:
    security = Security(tls=Tls(authorities=broker.ca_file), login=login)
    return respool.read_table("rides", bootstrap=broker.address("sasl"), security=security)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_tables_log_in_by(broker: SecuredBroker, mechanism: str) -> None:
    ours(broker, login=Login(mechanism=mechanism, username="alice", password=PASSWORD))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_by(broker: SecuredBroker, mechanism: str) -> None:
    settings = kafka_python(broker, mechanism, PASSWORD)
    producer = KafkaProducer(**settings)
    producer.send("rides", b"kafka-python").get(20)
    producer.close()
    consumer = KafkaConsumer(
        "rides", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings
    )
    assert next(consumer).value is not None
    consumer.close()


def test_kafka_python_does_not_come_in_with_a_wrong_password(broker: SecuredBroker) -> None:
    # With a version it does not connect before it sends: a constructor that fails leaves its sockets open.
    settings = kafka_python(broker, "SCRAM-SHA-512", "guess")
    producer = KafkaProducer(api_version=(3, 0), max_block_ms=3_000, **settings)
    with pytest.raises(KafkaError):
        producer.send("rides", b"x").get(3)
    producer.close(timeout=5)


def kafka_python(broker: SecuredBroker, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.address("sasl"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": broker.ca_file,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


def aiokafka(broker: SecuredBroker, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.address("sasl"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=broker.ca_file),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in_by(broker: SecuredBroker, mechanism: str) -> None:
    async def story() -> None:
        async with AIOKafkaProducer(**aiokafka(broker, mechanism)) as producer:
            await producer.send_and_wait("rides", b"aiokafka")
        async with AIOKafkaConsumer(
            "rides", auto_offset_reset="earliest", **aiokafka(broker, mechanism)
        ) as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 20)).value is not None

    asyncio.run(story())


def test_aiokafka_does_not_come_in_with_a_wrong_password(broker: SecuredBroker) -> None:
    async def story() -> None:
        producer = AIOKafkaProducer(**aiokafka(broker, "SCRAM-SHA-512", "guess"))
        with pytest.raises(AioKafkaError):
            await producer.start()
        await producer.stop()

    asyncio.run(story())


def test_each_client_is_told_the_address_of_its_own_listener(broker: SecuredBroker) -> None:
    found = AdminClient(by_login(broker, "SCRAM-SHA-512")).list_topics(timeout=20)
    [one] = found.brokers.values()
    assert f"{one.host}:{one.port}" == broker.address("sasl")
    found = AdminClient({"bootstrap.servers": broker.address("client")}).list_topics(timeout=20)
    [one] = found.brokers.values()
    assert f"{one.host}:{one.port}" == broker.address("client")


def test_users_are_managed_by_requests(broker: SecuredBroker) -> None:
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient(by_login(broker, "SCRAM-SHA-512"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8_192)
    made = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("bob", info, b"builder", b"a salt of bob")]
    )
    made["bob"].result(20)
    round_trip(by_login(broker, "SCRAM-SHA-512", "builder", "bob"), b"by bob")
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(20)
    [one] = described.scram_credential_infos
    assert one.iterations == 8_192
    too_few = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 1_000)
    refusals = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("eve", too_few, b"x", b"salt")]
    )
    with pytest.raises(KafkaException, match="iterations"):
        refusals["eve"].result(20)
    admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)]
    )["bob"].result(20)
    assert "Authentication failed" in refused(by_login(broker, "SCRAM-SHA-512", "builder", "bob"))


def test_a_removed_user_is_out_at_once(tmp_path: Path) -> None:
    with secured(tmp_path) as broker:
        broker.add_user("mallory")
        login = Login(mechanism="SCRAM-SHA-512", username="mallory", password=PASSWORD)
        producer = Producer(by_login(broker, "SCRAM-SHA-512", user="mallory"))
        producer.produce("rides", b"1")
        assert producer.flush(20) == 0

        def sessions() -> int:
            return sum(
                one.session.principal.name == "mallory" for one in broker.listener.connections
            )

        assert sessions() > 0
        broker.remove_user("mallory")
        assert sessions() == 0
        with pytest.raises(LoginRefused):
            ours(broker, login=login)
