"""Metrics beyond this machine: by TLS, and for those who show the token."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from respool.model.errors import SettingsError
from respool.model.settings import Settings
from respool.node.metrics_endpoint import token_of
from respool.testing import Broker
from support.secured_broker import write_certificate

TOKEN = "a token for Prometheus"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("metrics")
    authority = trustme.CA()
    write_certificate(made / "metrics.pem", authority.issue_cert("127.0.0.1"))
    (made / "ca.pem").write_bytes(authority.cert_pem.bytes())
    (made / "token").write_text(f"{TOKEN}\n")
    (made / "token").chmod(0o600)
    return made


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    settings = {
        "metrics_listen": "127.0.0.1:0",
        "metrics_token_file": str(folder / "token"),
        "metrics_certificate_file": str(folder / "metrics.pem"),
    }
    with Broker(settings=settings) as running:
        yield running


def get(broker: Broker, folder: Path, page: str, authorization: str | None) -> tuple[int, str]:
    assert broker.metrics_url is not None
    url = broker.metrics_url.replace("http://", "https://").removesuffix("/metrics") + page
    headers = {} if authorization is None else {"Authorization": authorization}
    asked = urllib.request.Request(url, headers=headers)
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    try:
        with urllib.request.urlopen(asked, context=context, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_who_shows_the_token_sees_metrics(broker: Broker, folder: Path) -> None:
    status, text = get(broker, folder, "/metrics", f"Bearer {TOKEN}")
    assert status == 200
    assert "respool_connections" in text


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN],
)
@pytest.mark.parametrize("page", ["/metrics", "/no-such-page"])
def test_others_see_nothing(
    broker: Broker, folder: Path, authorization: str | None, page: str
) -> None:
    status, text = get(broker, folder, page, authorization)
    assert status == 401
    assert "respool_" not in text


def test_probes_need_no_token(broker: Broker, folder: Path) -> None:
    assert get(broker, folder, "/readyz", None) == (200, "ready\n")
    assert get(broker, folder, "/healthz", None) == (200, "ok\n")


def test_a_client_in_the_clear_gets_nothing(broker: Broker) -> None:
    assert broker.metrics_url is not None
    with pytest.raises(OSError, match=r".*") as caught:
        urllib.request.urlopen(broker.metrics_url.replace("https://", "http://"), timeout=10)
    assert not isinstance(caught.value, urllib.error.HTTPError)


def test_a_replaced_token_counts_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("the first token of two")
    token = token_of(Settings.from_flat(metrics_token_file=str(file)))
    assert token is not None
    assert token() == b"the first token of two"
    file.write_text("the second token of two\n")
    assert token() == b"the second token of two"
    # While it is being replaced, the one before counts; an empty file lets nobody in.
    file.write_text("")
    assert token() == b"the second token of two"
    file.unlink()
    assert token() == b"the second token of two"


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("short")
    with pytest.raises(SettingsError, match="at least 16 bytes"):
        token_of(Settings.from_flat(metrics_token_file=str(file)))


@pytest.mark.parametrize(("token", "certificate"), [("", ""), ("t", ""), ("", "c")])
def test_beyond_this_machine_both_are_needed(token: str, certificate: str) -> None:
    def settings(token: str, certificate: str) -> Settings:
        return Settings.from_flat(
            metrics_listen="0.0.0.0:9100",
            metrics_token_file=token,
            metrics_certificate_file=certificate,
        )

    with pytest.raises(SettingsError, match="metrics_token_file and metrics_certificate_file"):
        settings(token, certificate)
    assert settings("t", "c").metrics.token_file == "t"
