"""Kafka's client properties from a file: understood, or refused with the name that is wrong and without secrets."""

from pathlib import Path

import confluent_kafka
import pytest
import trustme

from respool.client.kafka.client_config import (
    parse_client_config,
    read_client_config,
    with_limits,
)
from respool.client.kafka.errors import BadArgument
from respool.client.kafka.security import IN_THE_CLEAR, PEM_MARK, Login, Security, Tls
from respool.client.kafka.security_properties import (
    library_settings,
    properties_of,
    security_of,
)

SECRET = "hunter2"
LOGIN = Login(mechanism="SCRAM-SHA-512", username="u", password=SECRET)


def test_a_file_says_how_to_reach_a_secured_cluster(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        f"""# The production cluster.
bootstrap.servers = kafka-1:9093,kafka-2:9093
client.id: reports
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
sasl.mechanism SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="app" \\
    password="{SECRET}";
request.timeout.ms=5000
default.api.timeout.ms=20000
socket.connection.setup.timeout.ms=700
metadata.max.age.ms=1000
"""
    )
    config = read_client_config(path)
    assert config.bootstrap is not None
    assert config.bootstrap.servers == "kafka-1:9093,kafka-2:9093"
    assert config.client_id == "reports"
    assert (config.request_timeout_ms, config.retry_ms, config.connect_timeout_ms) == (
        5_000,
        20_000,
        700,
    )
    assert config.security == Security(
        tls=Tls(authorities="/etc/kafka/ca.pem"),
        login=Login(mechanism="SCRAM-SHA-512", username="app", password=SECRET),
    )
    assert SECRET not in repr(config)


def test_an_empty_file_says_nothing() -> None:
    config = parse_client_config("\n  ! nothing\n", origin="file")
    assert config.bootstrap is None
    assert config.client_id is None
    assert config.security == IN_THE_CLEAR


@pytest.mark.parametrize(
    ("line", "password"),
    [
        ("sasl.password=a=b:c", "a=b:c"),
        ("sasl.password = a\\=b\\\\", "a=b\\"),
        ("sasl.password : \\u00e9\\tz", "é\tz"),
        ("sasl.password\ta b", "a b"),
        ("sasl\\.password=plain", "plain"),
        ("sasl.password=first\nsasl.password=last", "last"),
    ],
)
def test_values_are_escaped_as_in_java(line: str, password: str) -> None:
    config = parse_client_config(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=u\n{line}", origin="file"
    )
    assert config.security.login == Login(mechanism="PLAIN", username="u", password=password)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "\nsecurty.protocol=SSL",
            "file, line 2: 'securty.protocol' .* did you mean 'security.prot",
        ),
        ("security.protocl=SSL", "file: security.protocl: there is no such property; did you mean"),
        (
            "acks=all",
            "file, line 1: 'acks' is not a property .*properties of the connection only.* those of producers",
        ),
        ("# a file\nhello", "file, line 2 is not name=value"),
        ("hello world", "file, line 1 is not name=value"),
        ("securty.protocol SSL", "did you mean 'security.protocol'"),
        ("bootstrap.servers=", "file: bootstrap.servers is empty"),
        ("request.timeout.ms=5s", "file: request.timeout.ms = '5s': milliseconds"),
        ("security.protocol=SSL\nssl.keystore.password=" + SECRET, "PEM is needed"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "PLAIN, SCRAM-SHA-256"),
        ("security.protocol=SASL_SSL\nsasl.oauthbearer.method=oidc", "nothing like this"),
        ("sasl.password=" + SECRET, "would not use it"),
    ],
)
def test_what_is_unknown_or_unsupported_is_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(BadArgument, match=told) as refusal:
        parse_client_config(text, origin="file")
    assert SECRET not in str(refusal.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="missing: No such file"):
        read_client_config(tmp_path / "missing")
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadArgument, match="no text in UTF-8"):
        read_client_config(path)


def test_librdkafka_takes_the_same_security() -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    pem = certificate.private_key_and_cert_chain_pem.bytes().decode()
    security = Security(
        tls=Tls(
            authorities=authority.cert_pem.bytes().decode(), certificate=pem, checks_host=False
        ),
        login=Login(mechanism="SCRAM-SHA-256", username="u", password=SECRET),
    )
    settings = library_settings(security)
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["ssl.key.pem"] == pem
    assert settings["ssl.endpoint.identification.algorithm"] == "none"
    confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})


@pytest.mark.parametrize(
    "security",
    [
        IN_THE_CLEAR,
        Security(tls=Tls()),
        Security(tls=Tls(authorities="ca.pem", newest_only=True, checks_host=False)),
        Security(tls=Tls(certificate="me.pem", key="me.key", key_password=" k ")),
        Security(tls=Tls(certificate=f"{PEM_MARK}CERTIFICATE-----"), login=LOGIN),
        Security(login=LOGIN),
    ],
)
def test_properties_of_a_security_make_the_same_one(security: Security) -> None:
    assert security_of(properties_of(security)) == security


def test_settings_for_librdkafka_name_files_and_timeouts() -> None:
    config = parse_client_config(
        "bootstrap.servers=a:1\nclient.id=c\nrequest.timeout.ms=5\nsocket.connection.setup.timeout.ms=1000\n"
        "security.protocol=SSL\nssl.certificate.location=me.pem\nssl.key.location=me.key\nssl.key.password=k",
        origin="file",
    )
    assert config.library_settings() == {
        "bootstrap.servers": "a:1",
        "client.id": "c",
        "socket.timeout.ms": "5",
        "socket.connection.setup.timeout.ms": "1000",
        "security.protocol": "SSL",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.key",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert library_settings(IN_THE_CLEAR) == {"security.protocol": "PLAINTEXT"}
    with pytest.raises(BadArgument, match="librdkafka"):
        library_settings(Security(tls=Tls(newest_only=True)))


def test_limits_lower_what_a_file_sets_and_stand_in_for_what_it_does_not() -> None:
    settings = {"client_id": "app", "request_timeout_ms": 60_000, "connect_timeout_ms": 300}
    limits = {"request_timeout_ms": 2_000, "connect_timeout_ms": 1_000, "retry_ms": 5}
    assert with_limits(settings, limits) == {
        "client_id": "app",
        "request_timeout_ms": 2_000,
        "connect_timeout_ms": 300,
        "retry_ms": 5,
    }
