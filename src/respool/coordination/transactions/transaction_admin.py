"""ListTransactions and DescribeTransactions, which are read-only and for operators."""

from collections.abc import Collection

from respool.coordination.topic_patterns.topic_pattern import TopicPattern
from respool.coordination.transactions.transaction_metadata import TransactionMetadata
from respool.coordination.transactions.transaction_requests import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsReply,
    ListedTransaction,
    ListTransactions,
    ListTransactionsReply,
    TransactionState,
)
from respool.model.coordinator_errors import InvalidRegularExpression, TransactionalIdNotFound
from respool.model.errors import InvalidRequest

_STATES = {state.kafka_name: state for state in TransactionState}
# Transient states of Kafka that do not exist here; requests may name them.
_STATES_IN_PASSING = {"Dead", "PrepareEpochFence"}


class TransactionAdmin:
    def __init__(self, transactions: dict[str, TransactionMetadata]) -> None:
        self._transactions = transactions

    def list(self, request: ListTransactions, now_ms: int) -> ListTransactionsReply:
        states = {_STATES[name] for name in request.states if name in _STATES}
        found = [
            one
            for one in self._transactions.values()
            if (not request.states or one.state in states)
            and (not request.producer_ids or one.producer_id in request.producer_ids)
            and (request.duration_ms_min < 0 or _is_open_for(one, request.duration_ms_min, now_ms))
        ]
        if request.id_pattern:
            try:
                matching = _matching(request.id_pattern, [one.transactional_id for one in found])
            except InvalidRegularExpression as error:
                return ListTransactionsReply(error=error)
            found = [one for one in found if one.transactional_id in matching]
        return ListTransactionsReply(
            unknown_states=tuple(sorted(request.states - _STATES.keys() - _STATES_IN_PASSING)),
            transactions=tuple(
                ListedTransaction(one.transactional_id, one.producer_id, one.state) for one in found
            ),
        )

    def describe(self, request: DescribeTransactions) -> DescribeTransactionsReply:
        return DescribeTransactionsReply(
            transactions=tuple(self._describe_one(one) for one in request.transactional_ids)
        )

    def _describe_one(self, transactional_id: str) -> DescribedTransaction:
        if not transactional_id:
            return DescribedTransaction(
                transactional_id=transactional_id,
                error=InvalidRequest("the transactional id is empty"),
            )
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return DescribedTransaction(
                transactional_id=transactional_id,
                error=TransactionalIdNotFound(f"there is no transactional id {transactional_id!r}"),
            )
        return DescribedTransaction(
            transactional_id=transactional_id,
            state=transaction.state,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            timeout_ms=transaction.timeout_ms,
            started_at_ms=transaction.started_at_ms,
            partitions=transaction.partitions,
        )


def _is_open_for(transaction: TransactionMetadata, duration_ms: int, now_ms: int) -> bool:
    # Kafka also lists idle ids, which does not help to find hanging transactions.
    return not transaction.is_idle and now_ms - transaction.started_at_ms > duration_ms


def _matching(pattern: str, names: Collection[str]) -> frozenset[str]:
    return TopicPattern(pattern).matching(names)
