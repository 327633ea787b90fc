"""`respool mirror` between clusters that want TLS and a login, each with its own."""

from pathlib import Path

import pytest
import trustme

from cli.running import Run
from support.secured_gate import secured_broker, server_side

pytestmark = pytest.mark.clients
PASSWORD = "four strings"


def test_source_and_target_have_security_of_their_own(run: Run, tmp_path: Path) -> None:
    authorities = [trustme.CA(), trustme.CA()]
    ca_files = [tmp_path / "source-ca.pem", tmp_path / "target-ca.pem"]
    for authority, file in zip(authorities, ca_files, strict=True):
        authority.cert_pem.write_to_path(str(file))
    with (
        secured_broker(tls=server_side(authorities[0]), users={"app": PASSWORD}) as source,
        secured_broker(tls=server_side(authorities[1])) as target,
    ):
        config = tmp_path / "source.properties"
        config.write_text(
            f"bootstrap.servers={source.address}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.username=app\nsasl.password={PASSWORD}\nssl.ca.location={ca_files[0]}\n"
        )
        at_source = ("--client-config", str(config))
        to_target = ("--security-protocol", "SSL", "--tls-ca", str(ca_files[1]))
        assert run("topic", "create", "fares", *at_source).code == 0
        assert run("produce", "fares", *at_source, stdin=b"one\ntwo\n").code == 0
        assert run("consume", "fares", "--group", "billing", *at_source).code == 0

        # The source's address is in its file.
        both = ("--from-client-config", str(config), "--to", target.address, *to_target)
        chosen = ("--topics", "fares")
        mirrored = run("mirror", *both, *chosen, "--groups", ".*", "--once")
        assert mirrored.code == 0, mirrored.err
        assert "offsets of 1 group" in mirrored.err
        status = run("mirror", "status", *both, *chosen)
        assert status.out.split("\t")[2] == "mirror", status.err
        promoted = run("mirror", "promote", "fares", "--to", target.address, *to_target)
        assert "fares takes producers now" in promoted.err
        read = run("consume", "fares", "--from-beginning", "-b", target.address, *to_target)
        assert read.out == "one\ntwo\n"

        # Security of one side is not used for the other.
        without = run(
            "mirror", "--from", source.address, "--to", target.address, *to_target, *chosen, "--once"
        )  # fmt: skip
        assert without.code != 0
        assert "source" in without.err


def test_the_same_file_for_both_sides_is_one_cluster(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=127.0.0.1:9092\n")
    ended = run(
        "mirror", "--from-client-config", str(config), "--client-config", str(config), "--topics", "a"
    )  # fmt: skip
    assert ended.code == 2
    assert "the same" in ended.err
