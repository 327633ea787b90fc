"""What a request does to one transactional id: the id's new state, if any, and the answer, if it can be given yet."""

from typing import Any, NamedTuple

from respool.coordination.transactions.transaction_metadata import TransactionMetadata

# The answer follows when the markers of the transaction before are written; the request is decided anew then.
WAIT = None


class Step(NamedTuple):
    # None: it stays as it is.
    transaction: TransactionMetadata | None
    reply: Any
