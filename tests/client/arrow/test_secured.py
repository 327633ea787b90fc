"""The columnar client with brokers that ask for TLS, for a login, or for both."""

import socket
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import pyarrow as pa
import pytest
import trustme

import respool
from respool import Login, Security, Tls, WriteFailed
from respool.client.arrow.errors import TransactionUncertain, WrongState
from respool.client.arrow.prepared import Ended
from respool.client.kafka.connection import Connection
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    LoginRefused,
    TlsRefused,
)
from respool.wire.api_table import Api
from support.broker_process import BrokerProcess
from support.secured_gate import secured_broker, server_side

USERS = {"etl": "hunter2", "a,b=c": "pass,word="}
AUTHORITY = trustme.CA()
CA = AUTHORITY.cert_pem.bytes().decode()
ROWS = 60_000


def table(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {"key": [f"k{one % 100}" for one in numbers], "value": [f"{one:0200}" for one in numbers]}
    )


def write_and_read(address: str, security: Security) -> None:
    result = respool.write_table(table(), "rides", bootstrap=address, security=security)
    assert result.rows_in == ROWS
    read = respool.read_table("rides", bootstrap=address, security=security, columns=["value"])
    assert sorted(read["value"].to_pylist()) == sorted(
        one.encode() for one in table()["value"].to_pylist()
    )


def test_tables_go_over_tls_both_ways(tmp_path: Path) -> None:
    """Many megabytes, sent and received at the same time by several threads."""
    path = tmp_path / "ca.pem"
    path.write_text(CA)
    with secured_broker(tls=server_side(AUTHORITY)) as gate:
        write_and_read(gate.address, Security(tls=Tls(authorities=str(path), newest_only=True)))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_over_tls(mechanism: str) -> None:
    with secured_broker(tls=server_side(AUTHORITY), users=USERS) as gate:
        for user, password in USERS.items():
            login = Login(mechanism=mechanism, username=user, password=password)
            security = Security(tls=Tls(authorities=CA), login=login)
            assert (
                respool.read_table("rides", bootstrap=gate.address, security=security).num_rows == 0
            )
            assert set(gate.logins) == {user}
            gate.logins.clear()


def test_a_login_without_tls() -> None:
    login = Login(mechanism="SCRAM-SHA-512", username="etl", password=USERS["etl"])
    with secured_broker(users=USERS) as gate:
        write_and_read(gate.address, Security(login=login))
        assert gate.passwords_seen == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("who", [("etl", "guess"), ("nobody", "hunter2")])
def test_a_wrong_password_is_told_at_once(mechanism: str, who: tuple[str, str]) -> None:
    login = Login(mechanism=mechanism, username=who[0], password=who[1])
    with secured_broker(users=USERS) as gate:
        with pytest.raises(
            LoginRefused, match=f"refuses '{who[0]}' by {mechanism}: no entry"
        ) as told:
            respool.read_table("rides", bootstrap=gate.address, security=Security(login=login))
        # Not again and again, as what may pass is.
        assert gate.attempts == 1
        assert who[1] not in str(told.value)
        assert gate.address in str(told.value)


def test_a_mechanism_that_the_broker_does_not_know_is_told_with_those_it_knows() -> None:
    login = Login(mechanism="PLAIN", username="etl", password=USERS["etl"])
    with secured_broker(users=USERS, mechanisms=["SCRAM-SHA-512"]) as gate:
        with pytest.raises(LoginRefused, match="does not know PLAIN; it knows SCRAM-SHA-512"):
            respool.read_table("rides", bootstrap=gate.address, security=Security(login=login))
        assert gate.passwords_seen == []


def test_a_broker_that_only_pretends_to_know_the_password_is_refused() -> None:
    login = Login(mechanism="SCRAM-SHA-256", username="etl", password=USERS["etl"])
    with (
        secured_broker(users=USERS, knows_password=False) as gate,
        pytest.raises(LoginRefused, match="could not prove"),
    ):
        respool.read_table("rides", bootstrap=gate.address, security=Security(login=login))


def test_no_password_goes_to_a_broker_that_asks_for_none(broker: BrokerProcess) -> None:
    login = Login(mechanism="PLAIN", username="etl", password=USERS["etl"])
    with pytest.raises(LoginRefused, match="has none on this port"):
        respool.read_table("rides", bootstrap=broker.address, security=Security(login=login))


def test_a_certificate_of_somebody_else_is_not_trusted() -> None:
    others = Tls(authorities=trustme.CA().cert_pem.bytes().decode())
    with secured_broker(tls=server_side(AUTHORITY)) as gate:
        for tls in (others, Tls()):
            with pytest.raises(TlsRefused, match="not to be trusted"):
                respool.read_table("rides", bootstrap=gate.address, security=Security(tls=tls))


def test_a_certificate_for_another_host_is_taken_only_where_that_is_allowed() -> None:
    with secured_broker(tls=server_side(AUTHORITY, "kafka.example.org")) as gate:
        with pytest.raises(TlsRefused, match="not to be trusted"):
            respool.read_table(
                "rides", bootstrap=gate.address, security=Security(tls=Tls(authorities=CA))
            )
        careless = Security(tls=Tls(authorities=CA, checks_host=False))
        assert respool.read_table("rides", bootstrap=gate.address, security=careless).num_rows == 0


@pytest.mark.parametrize("in_files", [False, True])
def test_a_broker_that_asks_who_we_are_is_shown_our_certificate(
    tmp_path: Path, in_files: bool
) -> None:
    ours = AUTHORITY.issue_cert("client.example.org")
    key, chain = (
        ours.private_key_pem.bytes().decode(),
        "".join(one.bytes().decode() for one in ours.cert_chain_pems),
    )
    if in_files:
        path = tmp_path / "both.pem"
        path.write_text(key + chain)
        tls = Tls(authorities=CA, certificate=str(path))
    else:
        tls = Tls(authorities=CA, certificate=chain, key=key)
    with secured_broker(tls=server_side(AUTHORITY, asks_who=True)) as gate:
        security = Security(tls=tls)
        assert respool.read_table("rides", bootstrap=gate.address, security=security).num_rows == 0
        # A connection that is reset may swallow what the broker had to say.
        with pytest.raises(ClientError, match=r"(?i)certificate.required|closed|reset|pipe"):
            respool.read_table(
                "rides",
                bootstrap=gate.address,
                security=Security(tls=Tls(authorities=CA)),
                retry_ms=300,
            )


def test_tls_to_a_broker_without_it_and_the_other_way_round(
    broker: BrokerProcess,
) -> None:
    with pytest.raises(ClientError, match="TLS"):
        respool.read_table(
            "rides",
            bootstrap=broker.address,
            security=Security(tls=Tls(authorities=CA)),
            retry_ms=300,
        )
    with (
        secured_broker(tls=server_side(AUTHORITY)) as gate,
        pytest.raises(BrokerUnreachable),
    ):
        respool.read_table("rides", bootstrap=gate.address, retry_ms=300)


def test_a_read_over_tls_that_is_closed_ends_at_once() -> None:
    with secured_broker(tls=server_side(AUTHORITY)) as gate:
        security = Security(tls=Tls(authorities=CA))
        stream = respool.stream_batches("rides", bootstrap=gate.address, security=security)

        def take() -> None:
            with suppress(ClientClosed):
                list(stream)

        taking = Thread(target=take)
        taking.start()
        respool.write_table(table(10), "rides", bootstrap=gate.address, security=security)
        stream.close()
        taking.join(10)
        assert not taking.is_alive()


def test_a_broker_that_never_answers_the_first_words_of_tls_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        from respool.client.kafka.cluster import Cluster

        security = Security(tls=Tls(authorities=CA))
        with (
            Cluster(address, connect_timeout_ms=100, retry_ms=1, security=security) as cluster,
            pytest.raises(BrokerUnreachable, match=r"TLS did not begin within 0\.1 s"),
        ):
            cluster.topic("rides")


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        (Tls(authorities="/nowhere/ca.pem"), "No such file"),
        (Tls(authorities=CA, certificate="/nowhere/me.pem"), "No such file"),
        (Tls(authorities=CA.replace("M", "!")), "PEM is needed"),
        (Tls(authorities=CA, certificate=CA), "PEM is needed"),
    ],
)
def test_files_that_cannot_be_used_are_told(broker: BrokerProcess, tls: Tls, words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        respool.read_table("rides", bootstrap=broker.address, security=Security(tls=tls))


def test_of_a_store_of_java_s_it_is_told_how_to_make_pem(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(bytes.fromhex("feedfeed0000000200000000"))
    with pytest.raises(BadArgument, match=r"trust\.jks.*keytool -importkeystore"):
        respool.read_table(
            "rides", bootstrap=broker.address, security=Security(tls=Tls(authorities=str(store)))
        )


def test_what_cannot_be_a_login_is_refused() -> None:
    with pytest.raises(BadArgument, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        Login(mechanism="GSSAPI", username="u", password="p")
    with pytest.raises(BadArgument, match="without zero bytes"):
        Login(mechanism="PLAIN", username="u\0root", password="p")
    assert "PRIVATE" not in repr(Tls(certificate="-----BEGIN PRIVATE KEY-----"))
    assert "hunter2" not in repr(
        Security(login=Login(mechanism="SCRAM-SHA-256", username="u", password="hunter2"))
    )


def test_a_producer_whose_broker_is_no_longer_to_be_trusted_says_so() -> None:
    """It was told as a mistake of the client's own."""
    login = Login(mechanism="SCRAM-SHA-256", username="etl", password=USERS["etl"])
    users = dict(USERS)
    with secured_broker(users=users) as gate:
        producer = respool.ArrowProducer(
            gate.address,
            security=Security(login=login),
            request_timeout_ms=1_000,
            delivery_timeout_ms=2_000,
        )
        # Metadata is known by now, and the connection that it came by is open.
        assert producer._cluster.topic("rides")
        users["etl"] = "changed meanwhile"
        producer.write(table(10), "rides")
        with pytest.raises(WriteFailed, match="refuses 'etl' by SCRAM-SHA-256") as told:
            producer.flush()
        assert told.value.result.rows_not_in == 10
        producer.close()


def test_a_commit_whose_broker_stops_trusting_us_is_told_as_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was told as a refused login alone, as if nothing had been asked for."""
    login = Login(mechanism="SCRAM-SHA-256", username="etl", password=USERS["etl"])
    users = dict(USERS)
    with secured_broker(users=users) as gate:
        security = Security(login=login)
        producer = respool.ArrowProducer(gate.address, security=security, transactional_id="load")
        producer.begin()
        producer.write(table(10), "rides")
        producer.flush()
        request = Connection.request

        def asked_and_not_heard(self: Connection, api: Api, *more: Any, **named: Any) -> Any:
            reply = request(self, api, *more, **named)
            if api is Api.END_TXN:
                users["etl"] = "changed meanwhile"
                raise ConnectionLost("the reply did not come")
            return reply

        monkeypatch.setattr(Connection, "request", asked_and_not_heard)
        with pytest.raises(TransactionUncertain, match="refuses 'etl'") as told:
            producer.commit()
        monkeypatch.undo()
        users["etl"] = USERS["etl"]
        ended = told.value.transaction.commit(gate.address, security=security)
        assert ended == Ended(is_commit=True, was_before=True)
        producer.close()


def test_offsets_that_may_not_be_part_of_a_transaction_keep_it_from_being_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller that went on after a refused login could commit its rows without the offsets they came from."""
    login = Login(mechanism="SCRAM-SHA-256", username="etl", password=USERS["etl"])
    with secured_broker(users=USERS) as gate:
        security = Security(login=login)
        producer = respool.ArrowProducer(gate.address, security=security, transactional_id="load")
        producer.begin()
        producer.write(table(10), "rides")
        producer.flush()

        def not_trusted(self: Coordinator, api: Api, *more: Any, **named: Any) -> NoReturn:
            raise LoginRefused("no more")

        with monkeypatch.context() as patched:
            patched.setattr(Coordinator, "request", not_trusted)
            with pytest.raises(LoginRefused):
                producer.send_offsets("fare-job", {("rides", 0): 7})
        with pytest.raises(WrongState):
            producer.commit()
        producer.abort()
        producer.close()
