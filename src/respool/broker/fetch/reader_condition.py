"""The condition that a reader sends with its Fetch (`wire/fetch_condition.py`): text from outside, parsed once.

It only allows to send less, so a text that is no condition here is as good as none: a newer client may say more than
this broker understands, and sifts what it is sent.
"""

from functools import lru_cache

from respool.model.conditions.clause_parser import InvalidWhere
from respool.model.where import TEXT_BYTES_MAX, Where, parse_where

# At most 4 KiB each.
_PARSED_MAX = 200


def reader_condition(text: str) -> Where | None:
    """None if there is none, or none that can be read."""
    if not text or len(text) > TEXT_BYTES_MAX:
        return None
    return _parsed(text)


# Each fetch of a reader has the same.
@lru_cache(maxsize=_PARSED_MAX)
def _parsed(text: str) -> Where | None:
    try:
        return parse_where(text)
    except InvalidWhere:
        return None
