"""Which dead letters of a group a replay copies, and what the copies look like. Pure.

    retry    into the group's retry topic: handled again, as messages of the topic they come from, with all attempts
    origin   into the topic they come from, as they were: every group of that topic reads them
    topic    into any other topic, as they are, with the headers of their failure

The first two leave out letters that are not whole, or do not say where they come from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from respool.model.conditions.clause_parser import InvalidWhere
from respool.model.retry.failure_headers import (
    GROUP_BYTES_MAX,
    FailureRecord,
    UnreadableFailure,
    own_headers,
    read_failure,
    shortened,
)
from respool.model.where import Where, parse_where
from respool.records.plain_match import RecordCondition
from respool.records.record import Record
from respool.replay.errors import InvalidReplay

LetterTarget = Literal["retry", "origin", "topic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRules:
    to: LetterTarget
    where: Where | None = None
    # With "origin": only letters that come from this topic.
    origin: str | None = None
    # Only letters of this group: other groups may have theirs in the same topic.
    group: str | None = None
    _condition: RecordCondition | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        assert (self.origin is not None) == (self.to == "origin")
        condition = None if self.where is None else RecordCondition.of(self.where)
        object.__setattr__(self, "_condition", condition)

    def selects(self, record: Record) -> bool:
        return self.selects_failure(record, failure_of(record))

    def selects_failure(self, record: Record, failure: FailureRecord | None) -> bool:
        """`failure`: what `failure_of` found in the record."""
        if not self._matches(record):
            return False
        if self.group is not None and not _is_of(failure, self.group):
            return False
        if self.to == "topic":
            return True
        return (
            failure is not None and not failure.truncated and self.origin in {None, failure.topic}
        )

    def _matches(self, record: Record) -> bool:
        if self._condition is None:
            return True
        headers = [(name.encode(), value) for name, value in record.headers]
        return self._condition.holds(record.key, headers, has_value=record.value is not None)

    def copy_of(self, letter: Record, *, now_ms: int) -> Record | None:
        """The record to be written for a letter; None if it is not selected.

        Its time is that of the copy: retention counts from it, and the target's may be shorter than the letters'.
        """
        failure = failure_of(letter)
        if not self.selects_failure(letter, failure):
            return None
        if self.to == "topic":
            return replace(letter, timestamp=now_ms)
        headers = own_headers(letter.headers)
        if self.to == "retry":
            assert failure is not None
            headers += replace(failure, deliveries=0).to_headers()
        return replace(letter, headers=headers, timestamp=now_ms)

    def to_document(self) -> dict[str, Any]:
        where = None if self.where is None else str(self.where)
        return {"to": self.to, "where": where, "origin": self.origin, "group": self.group}

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> "LetterRules | None":
        if document is None:
            return None
        assert document["to"] in get_args(LetterTarget)
        text = document["where"]
        where = None if text is None else parse_where(text)
        # Documents of earlier versions have no group.
        return cls(
            to=document["to"], where=where, origin=document["origin"], group=document.get("group")
        )


def _is_of(failure: FailureRecord | None, group: str) -> bool:
    """A header has no room for a long group id: what is there of it counts."""
    return failure is not None and failure.group.encode() == shortened(group, GROUP_BYTES_MAX)


def failure_of(record: Record) -> FailureRecord | None:
    """The failure described by a letter's headers; None if they cannot be read."""
    try:
        return read_failure(record.headers)
    except UnreadableFailure:
        return None


def parse_letters_where(text: str | None) -> Where | None:
    """
    Raises:
        InvalidReplay: the text is not a condition.
    """
    try:
        return None if text is None else parse_where(text)
    except InvalidWhere as error:
        raise InvalidReplay(f"--where: {error}") from None
