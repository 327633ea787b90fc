"""What a replay should do, and which messages it selects. Pure.

A request is identified by its original words: started again with the same words, a replay continues.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from respool.model.json_bytes import bytes_from_json, bytes_to_json
from respool.records.record import Record
from respool.replay.errors import InvalidReplay
from respool.replay.letter_rules import LetterRules

# Longer key lists are recorded by their hash only, and must be given again to resume.
KEYS_BYTES_MAX = 64 * 1024
# Headers are always recorded in full, so longer ones are rejected.
HEADERS_BYTES_MAX = 64 * 1024

# Header name -> the accepted values.
WantedHeaders = Mapping[str, frozenset[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Selects messages by key and by headers; both must match. None: no restriction."""

    keys: frozenset[bytes] | None = None
    headers: WantedHeaders | None = None

    @property
    def selects_all(self) -> bool:
        return self.keys is None and self.headers is None

    def selects(self, record: Record) -> bool:
        """True if the key is in `keys`, and the record has every required header with an accepted value."""
        if self.keys is not None and record.key not in self.keys:
            return False
        if self.headers is None:
            return True
        return all(
            any(name == wanted and value in values for name, value in record.headers)
            for wanted, values in self.headers.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    topic: str
    # The original words; each run resolves them again.
    from_text: str
    to_text: str
    into: str | None
    group: str | None
    selection: MessageFilter = MessageFilter()
    # The topic has dead letters, which are copied by these rules.
    letters: LetterRules | None = None

    @property
    def fingerprint(self) -> str:
        words: list[Any] = [
            self.topic,
            self.from_text,
            self.to_text,
            self.into,
            self.group,
            keys_hash(self.selection.keys),
        ]
        # Requests without headers keep their fingerprint from before headers were supported.
        if self.selection.headers is not None:
            words.append(_headers_document(self.selection.headers))
        if self.letters is not None:
            words.append(self.letters.to_document())
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]

    def to_document(self) -> dict[str, Any]:
        keys = None if self.selection.keys is None else sorted(self.selection.keys)
        is_short = keys is not None and sum(map(len, keys)) <= KEYS_BYTES_MAX
        document: dict[str, Any] = {
            "topic": self.topic,
            "from": self.from_text,
            "to": self.to_text,
            "into": self.into,
            "group": self.group,
            "keys": [bytes_to_json(key) for key in keys] if keys is not None and is_short else None,
            "keys_hash": keys_hash(self.selection.keys),
        }
        if self.selection.headers is not None:
            document["headers"] = _headers_document(self.selection.headers)
        if self.letters is not None:
            document["letters"] = self.letters.to_document()
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ReplayRequest":
        """Decode a request. Keys are None also if they were too long to be recorded; then compare `keys_hash`."""
        keys, headers = document["keys"], document.get("headers")
        return cls(
            topic=document["topic"],
            from_text=document["from"],
            to_text=document["to"],
            into=document["into"],
            group=document["group"],
            selection=MessageFilter(
                keys=None if keys is None else _bytes_of(keys),
                headers=None
                if headers is None
                else {name: _bytes_of(values) for name, values in headers.items()},
            ),
            letters=LetterRules.from_document(document.get("letters")),
        )


def recorded_filter(
    replay_id: str, document: Mapping[str, Any], given: MessageFilter
) -> MessageFilter:
    """The filter of the replay that `document` records; keys that were too long to be recorded come from `given`.

    Raises:
        InvalidReplay: `given` selects other messages, or keys are missing.
    """
    recorded = ReplayRequest.from_document(document).selection
    keys, wanted_hash = given.keys, document["keys_hash"]
    if keys is None:
        keys = recorded.keys
        if wanted_hash is not None and keys is None:
            raise InvalidReplay(
                f"replay {replay_id} has more keys than are recorded",
                hint="give them again: --key-file FILE, from Python keys=",
            )
    if keys_hash(keys) != wanted_hash:
        raise InvalidReplay(f"replay {replay_id} was begun with other keys")
    if given.headers is not None and given.headers != recorded.headers:
        raise InvalidReplay(f"replay {replay_id} was begun with other headers")
    return MessageFilter(keys=keys, headers=recorded.headers)


def wanted_headers(pairs: Sequence[tuple[str, bytes]]) -> WantedHeaders | None:
    """Collect name-value pairs; a name that occurs twice accepts both values. None if there are no pairs.

    Raises:
        InvalidReplay: the headers are too long to be recorded.
    """
    found: dict[str, set[bytes]] = {}
    for name, value in pairs:
        found.setdefault(name, set()).add(value)
    size = sum(len(name.encode()) + len(value) for name, value in pairs)
    if size > HEADERS_BYTES_MAX:
        raise InvalidReplay(f"headers of {size} bytes, limit {HEADERS_BYTES_MAX}")
    return {name: frozenset(values) for name, values in found.items()} or None


def keys_hash(keys: frozenset[bytes] | None) -> str | None:
    if keys is None:
        return None
    digest = hashlib.sha256()
    for key in sorted(keys):
        digest.update(len(key).to_bytes(4))
        digest.update(key)
    return digest.hexdigest()


def _headers_document(headers: WantedHeaders) -> dict[str, Any]:
    return {
        name: [bytes_to_json(value) for value in sorted(headers[name])] for name in sorted(headers)
    }


def _bytes_of(values: Sequence[Any]) -> frozenset[bytes]:
    return frozenset(bytes_from_json(value, "value") or b"" for value in values)
