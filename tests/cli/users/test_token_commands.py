"""`respool token` against a broker with logins: a token is made, used, listed, renewed and expired."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.client.kafka.client_config import read_client_config
from respool.client.kafka.errors import BadArgument
from support.secured_broker import PASSWORD, SecuredBroker, secured


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("tokens")
    key = folder / "tokens.key"
    key.write_bytes(b"0123456789abcdef0123456789abcdef")
    key.chmod(0o600)
    with secured(folder, settings={"delegation_token_secret_key_file": str(key)}) as made:
        yield made


@pytest.fixture
def alice(broker: SecuredBroker, tmp_path: Path) -> tuple[str, str]:
    file = tmp_path / "alice.properties"
    file.write_text(
        connection(broker)
        + f"sasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password={PASSWORD}\n"
    )
    return "--client-config", str(file)


def connection(broker: SecuredBroker) -> str:
    return (
        f"bootstrap.servers={broker.address('sasl')}\nsecurity.protocol=SASL_SSL\n"
        f"ssl.ca.location={broker.ca_file}\n"
    )


def test_a_token_is_made_used_renewed_and_expired(
    run: Run, broker: SecuredBroker, alice: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "job.properties"
    made = run(
        "token", "create", "--lifetime", "2h", "--renewer", "User:bob", "--write", str(file),
        "--json", *alice,
    )  # fmt: skip
    assert made.code == 0, made.err
    token = json.loads(made.out)
    assert token["owner"] == "User:alice"
    assert token["renewers"] == ["User:bob"]
    assert token["max_ms"] - token["issued_ms"] == 7_200_000
    assert "hmac" not in token
    assert file.stat().st_mode & 0o077 == 0

    # It says where to connect, too.
    as_job = ("--client-config", str(file))
    assert run("topic", "list", *as_job).out.startswith("rides\t1\t")
    # Who has a token makes no tokens.
    refused = run("token", "create", *as_job)
    assert refused.code == ExitCode.FAILED
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.err

    listed = run("token", "list", "--owner", "User:alice", "--json", *alice)
    assert json.loads(listed.out) == {"tokens": [token]}
    renewed = run("token", "renew", token["token"], "--for", "1h", "--json", *alice)
    assert json.loads(renewed.out)["expires_ms"] <= token["max_ms"]
    assert run("token", "expire", token["token"], *alice).code == 0
    assert run("topic", "list", *as_job).code == ExitCode.FAILED
    assert json.loads(run("token", "list", "--json", *alice).out) == {"tokens": []}
    gone = run("token", "renew", token["token"], *alice)
    assert gone.code == ExitCode.NOT_FOUND


def test_a_token_is_printed_as_client_properties(
    run: Run, alice: tuple[str, str], tmp_path: Path
) -> None:
    printed = run("token", "create", *alice)
    file = tmp_path / "printed.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\n{printed.out}")
    config = read_client_config(file)
    assert config.security.login is not None
    assert config.security.login.is_token
    assert config.security.login.password not in repr(config)
    assert config.security.login.password not in printed.err
    # Its C library cannot, and says so instead of trying it as a password.
    with pytest.raises(BadArgument, match="delegation tokens"):
        config.library_settings()
    run("token", "expire", config.security.login.username, *alice)


def test_tokens_soon_expire(run: Run, alice: tuple[str, str]) -> None:
    token = json.loads(run("token", "create", "--json", *alice).out)
    assert len(token["hmac"]) > 80
    soon = json.loads(run("token", "expire", token["token"], "--in", "1h", "--json", *alice).out)
    assert soon["expires_ms"] < token["expires_ms"]


@pytest.mark.parametrize(
    "line",
    [
        "create --owner alice",
        "create --renewer bob",
        "create --lifetime long",
        "renew x --for never",
        "expire x --in never",
    ],
)
def test_bad_arguments_are_named(run: Run, alice: tuple[str, str], line: str) -> None:
    ended = run("token", *line.split(), *alice)
    assert ended.code == ExitCode.USAGE
    assert line.split()[-2] in ended.err
