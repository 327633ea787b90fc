"""Connections between brokers over TLS, by certificate and by login; and who is believed to be a broker."""

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respool.drivers.tcp_peers import TcpPeers
from respool.model.errors import SettingsError
from respool.model.ids import BrokerId
from respool.model.security.principal import Principal
from respool.model.settings import Settings
from respool.node.peer_security import peer_security_of
from respool.ports.peers import PeerRefused, PeerUnreachable
from respool.wire.api_table import Api
from support.secured_broker import PASSWORD, SecuredBroker, secured

PEER = BrokerId(2)
API_VERSIONS = struct.pack(">hhih", Api.API_VERSIONS, 0, 5, -1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured(tmp_path_factory.mktemp("peers")) as made:
        yield made


def ask(broker: SecuredBroker, listener: str, properties: dict[str, str]) -> bytes:
    path = broker.folder / f"{listener}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    settings = Settings.from_flat(
        etcd="localhost:1", protocol="PLAINTEXT", inter_broker_config=str(path)
    )

    async def story() -> bytes:
        address = broker.listener.addresses[listener]
        peers = TcpPeers({PEER: address}, security=peer_security_of(settings))
        try:
            return bytes(await peers.request(PEER, API_VERSIONS))
        finally:
            await peers.close()

    return asyncio.run(story())


def by_login(broker: SecuredBroker, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": broker.ca_file,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": password,
    }


def test_brokers_connect_by_scram(broker: SecuredBroker) -> None:
    assert ask(broker, "sasl", by_login(broker))[:4] == struct.pack(">i", 5)


def test_brokers_connect_by_certificate(broker: SecuredBroker) -> None:
    pem = broker.client_certificate("broker-2")
    properties = {
        "security.protocol": "SSL",
        "ssl.ca.location": broker.ca_file,
        "ssl.certificate.location": pem,
    }
    assert ask(broker, "mtls", properties)[:4] == struct.pack(">i", 5)


def test_a_refused_login_or_certificate_is_no_sign_of_death(broker: SecuredBroker) -> None:
    """Only a refused TCP connection is: a broker whose certificate has expired is not dead."""
    for listener, properties in (
        ("sasl", by_login(broker, "guess")),
        ("mtls", {"security.protocol": "SSL", "ssl.ca.location": broker.ca_file}),
        ("tls", {"security.protocol": "SSL"}),
    ):
        with pytest.raises(PeerUnreachable) as caught:
            ask(broker, listener, properties)
        assert not isinstance(caught.value, PeerRefused)
        assert "guess" not in str(caught.value)


def cluster(tmp_path: Path, **more: Any) -> Settings:
    return Settings.from_flat(
        etcd="localhost:1",
        listener={
            "between": {"listen": "127.0.0.1:9095", "protocol": "SASL_PLAINTEXT"},
        },
        inter_broker_listener_name="between",
        **more,
    )


def test_a_secured_listener_of_brokers_needs_their_names_and_a_login(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="broker_principals"):
        cluster(tmp_path)
    settings = cluster(tmp_path, broker_principals="User:broker")
    assert settings.security.brokers == {Principal("broker")}
    with pytest.raises(SettingsError, match="inter_broker_config is empty"):
        peer_security_of(settings)


def test_no_client_is_believed_to_be_a_broker_of_a_secured_cluster(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from respool.broker.logins.logins import Logins
    from respool.model.security.principal import AuthenticationMethod, ClientSession

    settings = cluster(tmp_path, broker_principals="User:broker;User:CN=b2,O=x")
    world: Any = SimpleNamespace(
        clock=None, rng=None, offload=None, token_secret=b"", identity_keys=None
    )
    catalog: Any = SimpleNamespace()

    async def story() -> None:
        logins = Logins(settings=settings, catalog=catalog, world=world)
        client, between = settings.listeners
        assert not logins.first_session(client, "127.0.0.1").is_broker
        assert not logins.first_session(between, "127.0.0.1").is_broker
        for name, listener, token, expected in (
            ("broker", "between", None, True),
            ("CN=b2,O=x", "between", None, True),
            ("broker", "client", None, False),
            ("alice", "between", None, False),
            ("broker", "between", "a token of it", False),
        ):
            session = ClientSession(
                principal=Principal(name),
                listener=listener,
                method=AuthenticationMethod.SCRAM_SHA_512,
                token_id=token,
            )
            assert logins.is_broker(session) is expected

    asyncio.run(story())
