"""Where a cluster's keys lie in etcd: under `/respool/<cluster>/`, which nobody but the driver sees.

A key with a leading slash goes there without it, `/brokers/1` as `/respool/<cluster>/brokers/1`; one without gets a
second slash, so that the two cannot be mistaken for each other.
"""


class KeySpace:
    def __init__(self, cluster: str) -> None:
        self.root = f"/respool/{cluster}/"
        self._root = self.root.encode()

    def stored(self, key: str) -> bytes:
        assert not key.startswith("//"), key
        tail = key[1:] if key.startswith("/") else f"/{key}"
        return self._root + tail.encode(errors="surrogateescape")

    def seen(self, stored: bytes) -> str:
        tail = stored.removeprefix(self._root).decode(errors="surrogateescape")
        return tail[1:] if tail.startswith("/") else f"/{tail}"

    def span(self, prefix: str) -> tuple[bytes, bytes]:
        """First key and end of all keys with this prefix. For `""` and `"/"` there may be others among them."""
        first = self._root if prefix in {"", "/"} else self.stored(prefix)
        # No UTF-8 ends in 0xff, so this never overflows.
        return first, first[:-1] + bytes([first[-1] + 1])
