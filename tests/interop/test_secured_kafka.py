"""The columnar client with an Apache Kafka that asks for TLS, certificates and logins. `make interop-kafka` runs it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
import pytest
import trustme
from bench.versus.kafka_jars import find_kafka
from bench.versus.kafka_process import KafkaProcess
from bench.versus.ports import free_ports
from cryptography.hazmat.primitives import serialization

import respool
from respool import Login, Security, Tls
from respool.client.kafka.errors import ClientError, LoginRefused, TlsRefused
from support.topics import Topics

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

PASSWORD = "hunter2"
MODULES = "org.apache.kafka.common.security"
ROWS = 200_000


@dataclass(frozen=True)
class Secured:
    authority: trustme.CA
    # Where nothing is asked for, where a login is, and where a certificate is.
    plain: str
    by_login: str
    by_certificate: str

    @property
    def tls(self) -> Tls:
        return Tls(authorities=self.authority.cert_pem.bytes().decode())


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = trustme.CA()
    folder = tmp_path_factory.mktemp("secured")
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    (folder / "broker.pem").write_text(_key_and_chain(authority, "127.0.0.1"))
    plain, login, certificate, controller = free_ports(4)
    listeners = {"PLAINTEXT": plain, "SASL_SSL": login, "SSL": certificate}
    text = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
    scram = f"{MODULES}.scram.ScramLoginModule required;"
    settings = {
        "listeners": f"{text},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": text,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:{name}" for name in listeners),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required "
        f'user_etl="{PASSWORD}";',
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
    }
    users = [
        f"--add-scram={mechanism}=[name=etl,password={PASSWORD}]"
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    broker = KafkaProcess(find_kafka(), settings=settings, format_options=users)
    broker.port = plain
    with broker:
        yield Secured(authority, broker.address, f"127.0.0.1:{login}", f"127.0.0.1:{certificate}")


def _key_and_chain(authority: trustme.CA, name: str) -> str:
    """In one text, the key as Java wants it (PKCS 8)."""
    issued = authority.issue_cert(name)
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    pkcs8 = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return b"".join([pkcs8, *(one.bytes() for one in issued.cert_chain_pems)]).decode()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_tables_go_both_ways_after_a_login(kafka: Secured, mechanism: str) -> None:
    login = Login(mechanism=mechanism, username="etl", password=PASSWORD)
    _write_and_read(kafka, kafka.by_login, Security(tls=kafka.tls, login=login))


def test_tables_go_both_ways_with_a_certificate(kafka: Secured) -> None:
    tls = replace(kafka.tls, certificate=_key_and_chain(kafka.authority, "etl.example.org"))
    _write_and_read(kafka, kafka.by_certificate, Security(tls=tls))


def test_who_is_not_to_be_trusted_is_told(kafka: Secured) -> None:
    """Each as a broker of many years says it."""
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        login = Login(mechanism=mechanism, username="etl", password="guess")
        with pytest.raises(LoginRefused, match="refuses 'etl'"):
            _read(kafka.by_login, Security(tls=kafka.tls, login=login))
    with pytest.raises(TlsRefused, match="not to be trusted"):
        _read(kafka.by_login, Security(tls=Tls()))
    with pytest.raises(ClientError):
        _read(kafka.by_certificate, Security(tls=kafka.tls))
    with pytest.raises(ClientError):
        _read(kafka.by_login, Security(tls=kafka.tls))
    with pytest.raises(ClientError):
        _read(kafka.by_login, Security())


def _write_and_read(kafka: Secured, address: str, security: Security) -> None:
    values = [f"{number:0100}" for number in range(ROWS)]
    topic = f"rides-{uuid4()}"
    Topics(kafka.plain).create(topic, partitions=3)
    respool.write_table(pa.table({"value": values}), topic, bootstrap=address, security=security)
    read = respool.read_table(topic, bootstrap=address, security=security, columns=["value"])
    assert sorted(read["value"].to_pylist()) == [one.encode() for one in values]


def _read(address: str, security: Security) -> None:
    respool.read_table("rides", bootstrap=address, security=security, retry_ms=500)
