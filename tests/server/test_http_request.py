import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.server.http_request import (
    BAD_REQUEST,
    HEAD_BYTES_MAX,
    HEAD_TOO_LARGE,
    VERSION_NOT_SUPPORTED,
    HttpRequest,
    HttpRequestReader,
)

SCRAPE = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n"


def fed(*parts: bytes) -> HttpRequestReader:
    reader = HttpRequestReader()
    for part in parts:
        reader.feed(part)
    return reader


@given(cut=st.integers(0, len(SCRAPE)))
def test_a_request_may_come_in_any_pieces(cut: int) -> None:
    reader = fed(SCRAPE[:cut], SCRAPE[cut:])
    assert reader.request == HttpRequest("GET", "/metrics")
    assert reader.refusal is None


def test_nothing_is_known_before_the_head_is_whole() -> None:
    assert not fed(SCRAPE[:-1]).is_done


def test_a_proxys_whole_url_is_taken_for_its_path() -> None:
    head = b"GET http://broker:9100/readyz HTTP/1.0\r\n\r\n"
    assert fed(head).request == HttpRequest("GET", "/readyz")


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /met rics HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\n\r\n",
        b"G\0T / HTTP/1.1\r\n\r\n",
        b"GET / FTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(head: bytes) -> None:
    assert fed(head).refusal == BAD_REQUEST


def test_other_versions_are_refused() -> None:
    assert fed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").refusal == VERSION_NOT_SUPPORTED


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_head_without_an_end_is_not_buffered(end: bytes) -> None:
    reader = fed(b"GET / HTTP/1.1\r\nX: ", b"x" * HEAD_BYTES_MAX + end)
    assert reader.refusal == HEAD_TOO_LARGE
    reader.feed(b"x" * 1000)
    assert not reader._received


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_a_refusal_or_a_beginning(data: bytes) -> None:
    reader = fed(data, b"\r\n\r\n")
    assert reader.is_done
