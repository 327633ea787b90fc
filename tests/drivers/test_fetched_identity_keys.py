"""The identity provider's keys over HTTP: one URL, no redirects, bounded."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from respool.drivers.fetched_identity_keys import (
    DOCUMENT_BYTES_MAX,
    FetchedIdentityKeys,
    KeysNotFetched,
    fetch_keys,
)


@contextmanager
def served(*, status: int = 200, body: bytes = b"{}") -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_keys_come_by_http_or_from_a_file(tmp_path: Path) -> None:
    with served(body=b'{"keys": []}') as url:
        assert fetch_keys(url) == b'{"keys": []}'
    (tmp_path / "keys.json").write_bytes(b"[]")
    assert fetch_keys((tmp_path / "keys.json").as_uri()) == b"[]"


@pytest.mark.parametrize("status", [301, 302, 404, 500])
def test_redirects_and_errors_are_refused(status: int) -> None:
    with served(status=status) as url, pytest.raises(KeysNotFetched, match=str(status)):
        fetch_keys(url)


def test_an_endless_document_is_refused() -> None:
    with served(body=b" " * (DOCUMENT_BYTES_MAX + 1)) as url, pytest.raises(KeysNotFetched):
        fetch_keys(url)


def test_a_dead_provider_is_refused() -> None:
    with pytest.raises(KeysNotFetched):
        fetch_keys("http://127.0.0.1:1/keys")
    with pytest.raises(KeysNotFetched):
        fetch_keys("file:///nowhere/keys.json")


def test_keys_are_fetched_in_the_background() -> None:
    async def story(url: str) -> bytes | None:
        keys = FetchedIdentityKeys(url, refresh_ms=60_000)
        assert keys.document is None
        fetching = asyncio.create_task(keys.keep_fetching())
        while keys.document is None:
            await asyncio.sleep(0.001)
        fetching.cancel()
        keys.refresh_soon()
        return keys.document

    with served(body=b'{"keys": []}') as url:
        assert asyncio.run(story(url)) == b'{"keys": []}'
