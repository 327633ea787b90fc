"""Stock clients with tokens of an OpenID provider, whose keys the broker fetches over HTTPS."""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from respool.drivers import fetched_identity_keys
from support.identity_provider import AUDIENCE, IdentityProvider, identity_provider
from support.secured_broker import SecuredBroker, secured
from support.waiting import wait_until

pytestmark = [
    # As in test_secured_clients.py.
    pytest.mark.filterwarnings("ignore:unclosed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    with identity_provider(tmp_path_factory.mktemp("provider")) as made:
        yield made


@pytest.fixture(scope="module")
def broker(
    provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    settings = {
        "listener.tokens.listen": "127.0.0.1:0",
        "listener.tokens.protocol": "SASL_SSL",
        "listener.tokens.sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": provider.keys_url,
        "sasl_oauthbearer_expected_issuer": provider.url,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
    }
    with pytest.MonkeyPatch.context() as patch:
        # The broker trusts the authorities of its machine.
        patch.setenv("SSL_CERT_FILE", str(provider.ca_file))
        patch.setattr(fetched_identity_keys, "REFRESH_S_MIN", 0.05)
        with secured(tmp_path_factory.mktemp("broker"), settings=settings) as made:
            wait_until(lambda: provider.fetches > 0, "the broker has fetched the keys")
            yield made


def librdkafka(broker: SecuredBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address("tokens"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": broker.ca_file,
        "sasl.mechanisms": "OAUTHBEARER",
        **more,
    }


def delivered(producer: Producer) -> bool:
    errors: list[object] = []
    producer.produce("rides", b"x", on_delivery=lambda error, _: errors.append(error))
    return producer.flush(30) == 0 and errors == [None]


def principals(broker: SecuredBroker) -> set[str]:
    return {str(one.session.principal) for one in broker.listener.connections}


def test_librdkafka_gets_its_tokens_from_the_provider(
    broker: SecuredBroker, provider: IdentityProvider
) -> None:
    producer = Producer(
        librdkafka(
            broker,
            **{
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "billing",
                "sasl.oauthbearer.client.secret": "a secret",
                "sasl.oauthbearer.token.endpoint.url": provider.token_url,
                "https.ca.location": str(provider.ca_file),
            },
        )
    )
    assert delivered(producer)
    assert "User:billing" in principals(broker)


def with_token(broker: SecuredBroker, token: str) -> tuple[Producer, list[str]]:
    """A producer that shows this token, and what it says when it does not come in."""
    refusals: list[str] = []
    settings = librdkafka(
        broker,
        oauth_cb=lambda _: (token, 4_000_000_000.0),
        error_cb=lambda error: refusals.append(str(error)),
    )
    return Producer(settings), refusals


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "another service"},
        {"iss": "https://elsewhere.example.org"},
        {"exp": 1_000_000_000},
        {"nbf": 4_000_000_000},
        {"sub": ""},
    ],
    ids=lambda one: next(iter(one)),
)
def test_a_token_for_others_does_not_come_in(
    broker: SecuredBroker, provider: IdentityProvider, changed: dict[str, Any]
) -> None:
    producer, refusals = with_token(broker, provider.token("mallory", **changed))
    wait_until(lambda: producer.poll(0.05) is not None and bool(refusals), "it is refused")
    assert "User:mallory" not in principals(broker)


def test_kafka_python_comes_in_by_its_token(
    broker: SecuredBroker, provider: IdentityProvider
) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return provider.token("kafka-python")

    producer = KafkaProducer(
        bootstrap_servers=broker.address("tokens"),
        security_protocol="SASL_SSL",
        ssl_cafile=broker.ca_file,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    producer.send("rides", b"x").get(20)
    assert "User:kafka-python" in principals(broker)
    producer.close()


def test_aiokafka_comes_in_by_its_token(broker: SecuredBroker, provider: IdentityProvider) -> None:
    class Tokens(AioTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return provider.token("aiokafka")

    async def story() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.address("tokens"),
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=broker.ca_file),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        async with producer:
            await producer.send_and_wait("rides", b"x")
            assert "User:aiokafka" in principals(broker)

    asyncio.run(story())


def test_new_keys_of_the_provider_are_fetched_and_the_old_ones_forgotten(
    broker: SecuredBroker, provider: IdentityProvider
) -> None:
    before = provider.token("before")
    provider.rotate()
    after, _ = with_token(broker, provider.token("after"))
    # The first try names a key that is not known yet, and has it fetched.
    assert delivered(after)
    old, refusals = with_token(broker, before)
    wait_until(lambda: old.poll(0.05) is not None and bool(refusals), "the old key is gone")


def test_while_the_provider_is_down_known_keys_count(
    broker: SecuredBroker, provider: IdentityProvider
) -> None:
    producer, _ = with_token(broker, provider.token("known"))
    assert delivered(producer)
    provider.is_down = True
    try:
        fetched = provider.fetches
        unknown = IdentityProvider(provider.url, provider.ca_file)
        stranger, refusals = with_token(broker, unknown.token("stranger"))
        wait_until(lambda: stranger.poll(0.05) is not None and bool(refusals), "it is refused")
        wait_until(lambda: provider.fetches > fetched, "the keys were asked for in vain")
        again, _ = with_token(broker, provider.token("known"))
        assert delivered(again)
    finally:
        provider.is_down = False


def test_a_session_ends_with_its_token(broker: SecuredBroker, provider: IdentityProvider) -> None:
    producer, _ = with_token(broker, provider.token("brief"))
    assert delivered(producer)
    sessions = [
        one.session
        for one in broker.listener.connections
        if str(one.session.principal) == "User:brief"
    ]
    assert sessions
    assert all(one.expires_ms is not None for one in sessions)
