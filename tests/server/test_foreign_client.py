"""HTTP and TLS clients on the Kafka listener are named; what looks like nothing known is not."""

import struct

import pytest

from respool.server.foreign_client import foreign_client


def first_frame_size(data: bytes) -> int:
    (size,) = struct.unpack_from(">i", data)
    return int(size)


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"]
)
def test_an_http_client_is_named_by_its_method_and_answered(method: str) -> None:
    size = first_frame_size(f"{method} / HTTP/1.1\r\n".encode())
    client = foreign_client(size, metrics_listen="127.0.0.1:9644")
    assert client is not None
    assert f"an HTTP client ({method})" in client.reason
    assert "metrics_listen = 127.0.0.1:9644" in client.reason
    assert client.reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_an_http_reply_has_the_length_it_states() -> None:
    client = foreign_client(first_frame_size(b"GET "), metrics_listen="")
    assert client is not None
    head, body = client.reply.split(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"Kafka protocol" in body


def test_without_a_metrics_listener_the_setting_for_one_is_named() -> None:
    client = foreign_client(first_frame_size(b"GET "), metrics_listen="")
    assert client is not None
    assert "set metrics_listen" in client.reason


def test_an_http_2_client_is_named_and_gets_no_http_1_reply() -> None:
    size = first_frame_size(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    client = foreign_client(size, metrics_listen="")
    assert client is not None
    assert "HTTP/2" in client.reason
    assert client.reply == b""


@pytest.mark.parametrize("minor", range(5))
def test_a_tls_client_is_named_in_every_version(minor: int) -> None:
    hello = bytes([0x16, 0x03, minor, 0x02, 0x00, 0x01])
    client = foreign_client(first_frame_size(hello), metrics_listen="")
    assert client is not None
    assert "TLS" in client.reason
    assert "PLAINTEXT" in client.reason


@pytest.mark.parametrize("start", [b"SSH-", b"GETS", b"\x7f\xff\xff\xff", b"\x15\x03\x01\x00"])
def test_other_bytes_are_of_no_known_client(start: bytes) -> None:
    assert foreign_client(first_frame_size(start), metrics_listen="") is None
