"""TLS and logins by the names of Kafka's clients. What is not there is refused, and no secret is told."""

import pickle

import pytest

from respool.client.kafka.security import IN_THE_CLEAR, Login, Security, Tls, warn_of_plain_login
from respool.spark.client_options import ClientOptions
from respool.spark.option_values import BadOption, Options
from respool.spark.sink.sink_options import SinkOptions
from respool.spark.source.source_options import SourceOptions

HERE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SECRET = "hunter2"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def security(given: dict[str, str]) -> Security:
    return ClientOptions.of(Options(HERE | given)).security


def test_without_options_nothing_is_sealed() -> None:
    assert security({}) is IN_THE_CLEAR
    assert security({"kafka.security.protocol": "plaintext"}) is IN_THE_CLEAR


def test_a_job_for_a_cluster_with_tls_and_scram_needs_no_other_options() -> None:
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/kafka/ca.pem",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{SCRAM_MODULE} required username="etl" password="{SECRET}";',
    }
    expected = Security(
        tls=Tls(authorities="/etc/kafka/ca.pem"),
        login=Login(mechanism="SCRAM-SHA-512", username="etl", password=SECRET),
    )
    assert security(given) == expected
    source = SourceOptions.of(Options(HERE | given | {"subscribe": "rides"}), "batch")
    sink = SinkOptions.of(Options(HERE | given | {"topic": "rides"}), is_stream=False)
    assert source.client.security == sink.client.security == expected
    assert sink.producer_settings()["security"] == expected
    assert pickle.loads(pickle.dumps(source)).client.security == expected
    assert SECRET not in repr((source, sink))


def test_names_of_librdkafka_are_known_too() -> None:
    given = {
        "kafka.security.protocol": "sasl_ssl",
        "kafka.ssl.ca.location": "ca.pem",
        "kafka.ssl.certificate.location": "me.pem",
        "kafka.ssl.key.location": "me.key",
        "kafka.ssl.key.password": SECRET,
        "kafka.ssl.endpoint.identification.algorithm": "none",
        "kafka.ssl.enabled.protocols": "TLSv1.3, TLSv1.3",
        "kafka.sasl.mechanisms": "PLAIN",
        "kafka.sasl.username": "etl",
        "kafka.sasl.password": SECRET,
    }
    assert security(given) == Security(
        tls=Tls(
            authorities="ca.pem",
            certificate="me.pem",
            key="me.key",
            key_password=SECRET,
            checks_host=False,
            newest_only=True,
        ),
        login=Login(mechanism="PLAIN", username="etl", password=SECRET),
    )


@pytest.mark.parametrize(
    ("entry", "password"),
    [
        (f'{PLAIN_MODULE} required username="u" password="{SECRET}";', SECRET),
        (f"{PLAIN_MODULE} REQUIRED\n  username='u'\n  password={SECRET} ;", SECRET),
        (
            f'kafkashaded.{PLAIN_MODULE} required password="a \\"b\\" \\\\;" username="u";',
            'a "b" \\;',
        ),
    ],
)
def test_a_login_modules_line_is_read(entry: str, password: str) -> None:
    given = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": entry,
    }
    login = security(given).login
    assert login == Login(mechanism="PLAIN", username="u", password=password)


SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kafka.security.protocol": "TLS"}, "may be 'PLAINTEXT' or 'SSL'"),
        ({"kafka.ssl.truststore.location": "/t.pem"}, "would not use it"),
        ({"kafka.security.protocol": "SSL", "kafka.sasl.mechanism": "PLAIN"}, "would not use it"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, r"kafka\.sasl\.mechanism is missing"),
        ({**SASL, "kafka.sasl.mechanism": "GSSAPI"}, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 are"),
        ({**SASL, "kafka.sasl.username": "u"}, "a username and a password"),
        ({**SASL, "kafka.sasl.jaas.config": SECRET}, "one entry is needed"),
        ({**SASL, "kafka.sasl.jaas.config": f"{PLAIN_MODULE} required {SECRET} x;"}, "as name="),
        (
            {**SASL, "kafka.sasl.jaas.config": f'{SCRAM_MODULE} required password="{SECRET}";'},
            "ScramLoginModule is no module for",
        ),
        (
            {**SASL, "kafka.sasl.jaas.config": f'{PLAIN_MODULE} required tokenauth="{SECRET}";'},
            "all that is known here",
        ),
        (
            {
                **SASL,
                "kafka.sasl.jaas.config": f'{PLAIN_MODULE} required password="{SECRET}";',
                "kafka.sasl.username": "u",
            },
            "contradict each other",
        ),
        ({**SASL, "kafka.sasl.kerberos.service.name": SECRET}, "nothing like this"),
        ({**SASL, "kafka.ssl.cipher.suites": SECRET}, "nothing like this"),
        ({**SASL, "kafka.security.providers": SECRET}, "nothing like this"),
        ({**SASL, "kafka.ssl.truststore.type": "JKS"}, "PEM is needed"),
        ({**SASL, "kafka.ssl.truststore.password": SECRET}, "PEM is needed"),
        (
            {
                **SASL,
                "kafka.sasl.username": "u",
                "kafka.sasl.password": SECRET,
                "kafka.ssl.key.password": SECRET,
            },
            "neither key nor certificate",
        ),
        (
            {**SASL, "kafka.ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
            "TLSv1.2 and TLSv1.3 are safe",
        ),
        (
            {**SASL, "kafka.ssl.ca.location": "a", "kafka.ssl.truststore.location": "b"},
            "contradict each other",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.key": SECRET},
            "no certificate that it belongs to",
        ),
    ],
)
def test_what_cannot_be_is_refused_without_telling_secrets(
    given: dict[str, str], told: str
) -> None:
    for make in (
        lambda: SourceOptions.of(Options(HERE | given | {"subscribe": "rides"})),
        lambda: SinkOptions.of(Options(HERE | given | {"topic": "rides"}), is_stream=True),
    ):
        with pytest.raises(BadOption, match=told) as refusal:
            make()
        assert SECRET not in str(refusal.value)


def test_a_password_in_the_clear_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_plain_login.cache_clear()
    login = Login(mechanism="PLAIN", username="u", password=SECRET)
    Security(tls=Tls(), login=login)
    assert not caplog.records
    Security(login=login)
    Security(login=login)
    assert caplog.text.count("without TLS") == 1
    assert SECRET not in caplog.text
