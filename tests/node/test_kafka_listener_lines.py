"""Listeners, TLS and logins of a Kafka broker's server.properties: acted on, accepted, or refused by name."""

from pathlib import Path

import pytest

from respool.model.errors import SettingsError
from respool.model.security.listener_settings import ClientAuth, ListenerProtocol
from respool.model.settings import Settings
from respool.node.config import load_settings

SECURED = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER
listeners=IN://10.0.0.1:9092,OUT://:9094,BETWEEN://10.0.0.1:9095,CONTROLLER://:9093
advertised.listeners=IN://b1.internal:9092,OUT://b1.example.org:9094
listener.security.protocol.map=IN:SASL_SSL,OUT:SSL,BETWEEN:SSL,CONTROLLER:SSL
inter.broker.listener.name=BETWEEN
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location=/etc/kafka/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
ssl.client.auth=none
ssl.protocol=TLSv1.3
ssl.enabled.protocols=TLSv1.3
ssl.endpoint.identification.algorithm=https
listener.name.out.ssl.client.auth=required
listener.name.out.ssl.principal.mapping.rules=RULE:^CN=([^,]*).*$/$1/,DEFAULT
listener.name.out.max.connections=500
listener.name.between.ssl.client.auth=required
listener.name.between.ssl.keystore.location=/etc/kafka/between.pem
listener.name.in.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.controller.ssl.client.auth=required
super.users=User:admin
"""


def load(tmp_path: Path, text: str, **flags: object) -> Settings:
    file = tmp_path / "server.properties"
    file.write_text(text)
    return load_settings(file=None, environ={}, flags=flags, kafka_file=file)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    return str(caught.value)


def test_a_secured_kafka_becomes_a_secured_broker(tmp_path: Path) -> None:
    in_cluster = {"etcd": "localhost:2379", "broker_principals": "User:CN=broker"}
    settings = load(tmp_path, SECURED, **in_cluster)
    client, out, between = settings.listeners
    assert (client.name, client.listen, client.advertised) == (
        "client",
        "10.0.0.1:9092",
        "b1.internal:9092",
    )
    assert client.protocol is ListenerProtocol.SASL_SSL
    assert client.sasl_enabled_mechanisms == ("SCRAM-SHA-512",)
    assert client.ssl_certificate_file == "/etc/kafka/broker.pem"
    assert (out.name, out.listen, out.advertised) == ("out", "0.0.0.0:9094", "b1.example.org:9094")
    assert out.protocol is ListenerProtocol.SSL
    assert out.ssl_client_auth is ClientAuth.REQUIRED
    assert out.principal_mapping.name_of("CN=shop,O=Example") == "shop"
    assert out.ssl_ca_file == "/etc/kafka/ca.pem"
    assert out.connections_max == 500
    assert between.ssl_certificate_file == "/etc/kafka/between.pem"
    assert settings.inter_broker_listener == "between"
    assert settings.security.tls_versions == ("TLSv1.3",)


def test_a_broker_that_is_alone_needs_no_listener_of_brokers(tmp_path: Path) -> None:
    settings = load(tmp_path, SECURED)
    assert settings.inter_broker_listener == "client"
    notes = "\n".join(settings.accepted)
    assert "inter.broker.listener.name" in notes
    # Where brokers' own logins are said instead.
    assert "listener.name.in.scram-sha-512.sasl.jaas.config" in notes
    assert "inter_broker_config" in notes


def test_the_protocol_of_a_listener_may_be_its_name(tmp_path: Path) -> None:
    text = (
        "listeners=SASL_SSL://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092\n"
        "ssl.keystore.type=pem\nssl.keystore.location=/b.pem\n"
    )
    settings = load(tmp_path, text)
    first, second = settings.listeners
    assert (first.protocol, second.name) == (ListenerProtocol.SASL_SSL, "plaintext")
    # Kafka's default would be Kerberos, which nobody would expect to be dropped silently.
    assert any("GSSAPI, is not served" in note for note in settings.accepted)


def test_the_listener_of_brokers_may_be_named_by_its_protocol(tmp_path: Path) -> None:
    text = (
        "listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093\nssl.keystore.type=PEM\n"
        "ssl.keystore.location=/b.pem\nsecurity.inter.broker.protocol=SSL\n"
    )
    settings = load(tmp_path, text, etcd="localhost:2379")
    assert settings.inter_broker_listener == "ssl"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("listeners=SSL://127.0.0.1:9093", "needs ssl_certificate_file"),
        (
            "listeners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER",
            "no listener of clients",
        ),
        ("listeners=IN://:9092", "IN has no protocol"),
        ("listener.security.protocol.map=IN:KERBEROS", "IN:KERBEROS is none of"),
        ("listeners=PLAINTEXT://127.0.0.1:9092\nadvertised.listeners=OUT://b:1", "OUT is none of"),
        ("listeners=PLAINTEXT://127.0.0.1:9092\ninter.broker.listener.name=OUT", "OUT is none of"),
        ("security.inter.broker.protocol=SSL", "no listener has the protocol SSL"),
        ("ssl.keystore.location=/b.jks", "Java's stores are not read"),
        ("ssl.keystore.type=JKS", "set ssl.keystore.type=PEM"),
        ("ssl.keystore.type=PEM\nssl.keystore.password=SECRET", "no password of its own"),
        ("ssl.key.password=SECRET", "ssl_key_password_file"),
        ("ssl.keystore.key=SECRET", "write it to a file"),
        ("ssl.cipher.suites=TLS_AES_128_GCM_SHA256", "which chooses ciphers"),
        ("ssl.engine.factory.class=org.X", "Java classes cannot be loaded"),
        ("ssl.endpoint.identification.algorithm=", "accepted is only https"),
        ("sasl.enabled.mechanisms=GSSAPI", "sasl_enabled_mechanisms"),
        (
            "sasl.jaas.config=a.b.PlainLoginModule required username=b password=SECRET user_a=SECRET;",
            "respool user add",
        ),
        (
            "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required SECRET;",
            "cannot be loaded",
        ),
        ("listener.name.out.ssl.client.auth=required", "out is none of listeners"),
        (
            "listeners=PLAINTEXT://127.0.0.1:9092\nlistener.name.plaintext.num.network.threads=3",
            "one listener has no such setting",
        ),
    ],
)
def test_what_cannot_be_acted_on_is_refused_and_no_secret_told(
    tmp_path: Path, text: str, why: str
) -> None:
    told = refused(tmp_path, f"{text}\n")
    assert why in told
    assert "SECRET" not in told
