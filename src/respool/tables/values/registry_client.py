"""A schema registry with Confluent's interface: Confluent's own, Karapace, Redpanda's, Apicurio's.

Credentials come from the environment, RESPOOL_REGISTRY_LOGIN=USER:PASSWORD, and never from a setting that everyone can
read.
"""

import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from respool.tables.errors import RegistryUnavailable, SchemaInvalid
from respool.tables.values.message_schema import MessageSchema
from respool.tables.values.schema_parsing import parse_message_schema

LOGIN = "RESPOOL_REGISTRY_LOGIN"
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_TIMEOUT_S = 10.0
# The newest schema of a subject is looked up again after this; an id means the same schema for ever.
SUBJECT_SECONDS = 300.0
_REFERENCES_MAX = 100


class UnknownSchema(Exception):
    """The registry has no schema of this id or subject."""


@dataclass(slots=True)
class RegistryClient:
    url: str
    now_s: Callable[[], float] = time.monotonic
    _by_id: dict[int, MessageSchema] = field(default_factory=dict)
    _latest: dict[str, tuple[float, MessageSchema]] = field(default_factory=dict)

    def schema(self, schema_id: int) -> MessageSchema:
        """
        Raises:
            UnknownSchema: the registry has none of this id.
            RegistryUnavailable: it does not answer, or its reply is invalid.
            SchemaInvalid
        """
        known = self._by_id.get(schema_id)
        if known is None:
            known = self._by_id[schema_id] = self._parsed(self._get(f"/schemas/ids/{schema_id}"))
        return known

    def latest(self, subject: str) -> MessageSchema:
        """The newest schema of a subject; looked up again after five minutes. Raises as `schema` does."""
        known = self._latest.get(subject)
        if known is not None and self.now_s() - known[0] < SUBJECT_SECONDS:
            return known[1]
        found = self._parsed(self._get(f"/subjects/{subject}/versions/latest"))
        self._latest[subject] = self.now_s(), found
        return found

    def _parsed(self, answer: dict[str, Any]) -> MessageSchema:
        references: dict[str, str] = {}
        self._add_references(answer, references)
        kind = str(answer.get("schemaType") or "AVRO")
        return parse_message_schema(kind, str(answer["schema"]), references=references)

    def _add_references(self, answer: dict[str, Any], found: dict[str, str]) -> None:
        """The schemas that this one imports, dependencies first."""
        for one in answer.get("references") or []:
            name = str(one["name"])
            if name in found:
                continue
            if len(found) >= _REFERENCES_MAX:
                raise SchemaInvalid(f"the schema refers to more than {_REFERENCES_MAX} others")
            inner = self._get(f"/subjects/{one['subject']}/versions/{one['version']}")
            self._add_references(inner, found)
            found[name] = str(inner["schema"])

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the setting takes http and https only
            f"{self.url}{path}", headers={"Accept": "application/vnd.schemaregistry.v1+json"}
        )
        if login := os.environ.get(LOGIN):
            request.add_header(
                "Authorization", f"Basic {base64.b64encode(login.encode()).decode()}"
            )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                text = answer.read(_ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise UnknownSchema(f"the registry has no {path}") from error
            raise self._unavailable(f"{path}: HTTP {error.code}") from error
        except OSError as error:
            raise self._unavailable(f"{error}") from error
        try:
            found = json.loads(text)
        except ValueError as error:
            raise self._unavailable(f"{path} is answered with something other than JSON") from error
        if not isinstance(found, dict) or "schema" not in found:
            raise self._unavailable(f"{path} is answered without a schema")
        return found

    def _unavailable(self, what: str) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"the schema registry at {self.url} cannot be used: {what}",
            hint=f"the writer waits for it; see respool.table.registry, and {LOGIN} for a login",
        )
