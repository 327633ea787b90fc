"""What a request does to one transactional id: the id's new state, if any, and the answer, if it can be given yet."""

from typing import Any, NamedTuple

from respool.coordination.transaction import Transaction

# The answer follows when the markers of the transaction before are written; the request is decided anew then.
WAIT = None


class Step(NamedTuple):
    # None: it stays as it is.
    transaction: Transaction | None
    reply: Any
