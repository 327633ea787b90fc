"""Fetches the keys of an identity provider, in a thread and in the background: no login waits for HTTP.

Only the URL of the settings is asked, without redirects; https checks the server's certificate.
"""

import asyncio
import http.client
import logging
import ssl
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit
from urllib.request import url2pathname

logger = logging.getLogger(__name__)

DOCUMENT_BYTES_MAX = 1 << 20
TIMEOUT_S = 10.0
# Tokens with unknown keys, which anybody may send, cause a fetch at most this often.
REFRESH_S_MIN = 10.0
OK = 200


class KeysNotFetched(Exception):
    """The identity provider's keys could not be read."""


class FetchedIdentityKeys:
    """A `ports.identity_keys.IdentityKeys`."""

    def __init__(self, url: str, *, refresh_ms: int) -> None:
        self._url = url
        self._refresh_s = refresh_ms / 1000
        self._document: bytes | None = None
        self._is_wanted = asyncio.Event()

    @property
    def document(self) -> bytes | None:
        return self._document

    def refresh_soon(self) -> None:
        self._is_wanted.set()

    async def keep_fetching(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._document = await loop.run_in_executor(None, fetch_keys, self._url)
            except KeysNotFetched as error:
                # The old keys stay valid: an outage of the provider must not lock anybody out.
                logger.warning("the identity provider's keys cannot be fetched: %s", error)
            self._is_wanted.clear()
            await asyncio.sleep(min(REFRESH_S_MIN, self._refresh_s))
            if self._document is not None:
                await self._wait_s(self._refresh_s - REFRESH_S_MIN)

    async def _wait_s(self, seconds: float) -> None:
        """Wait this long, or until a token names an unknown key."""
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._is_wanted.wait()
        except TimeoutError:
            pass


def fetch_keys(url: str) -> bytes:
    """
    Raises:
        KeysNotFetched
    """
    parts = urlsplit(url)
    try:
        document = (
            Path(url2pathname(parts.path)).read_bytes()
            if parts.scheme == "file"
            else _get(parts.scheme, parts.netloc, parts.path or "/", parts.query)
        )
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise KeysNotFetched(f"{url}: {error}") from None
    if len(document) > DOCUMENT_BYTES_MAX:
        raise KeysNotFetched(f"{url}: more than {DOCUMENT_BYTES_MAX} bytes")
    return document


def _get(scheme: str, host: str, path: str, query: str) -> bytes:
    connection = (
        http.client.HTTPSConnection(host, timeout=TIMEOUT_S, context=ssl.create_default_context())
        if scheme == "https"
        else http.client.HTTPConnection(host, timeout=TIMEOUT_S)
    )
    try:
        connection.request("GET", f"{path}?{query}" if query else path)
        reply = connection.getresponse()
        if reply.status != OK:
            raise ValueError(f"HTTP status {reply.status}; redirects are not followed")
        return reply.read(DOCUMENT_BYTES_MAX + 1)
    finally:
        connection.close()
