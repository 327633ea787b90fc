"""What partition leaders and group coordinators ask of the share coordinator, as its machine takes it and on the wire.

Between brokers these are Kafka's InitializeShareGroupState to ReadShareGroupStateSummary (keys 83 to 87). A request has
one group and says who sends it: these requests could rewrite any group, so only brokers may send them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from respool.coordination.share.share_state import (
    STORED_STATES,
    UNDECIDED_START,
    ShareKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from respool.coordination.share_states.share_state_requests import (
    DeleteStates,
    InitializeStates,
    InitialState,
    ReadStates,
    StateRequest,
    StateSummary,
    SummarizeStates,
    WriteStates,
)
from respool.model.errors import InvalidRequest, RequestError
from respool.model.ids import NO_LEADER_EPOCH, ZERO_TOPIC_ID, LeaderEpoch, Offset
from respool.wire.api_table import API_TABLE, Api

Values = Mapping[ShareKey, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOperation:
    api: Api
    # A request to the coordinator's machine.
    request: Callable[[Values], StateRequest]
    # The fields of a partition in a request, and the value from them.
    fields: Callable[[Any], Mapping[str, Any]]
    value: Callable[[Any], Any]
    # The fields of a result in a reply, and the result from them and the value that was sent.
    result_fields: Callable[[Any], Mapping[str, Any]]
    result: Callable[[Any, Any], Any]

    @property
    def version(self) -> int:
        return API_TABLE[self.api].version_max

    def topics(self, values: Values) -> list[dict[str, Any]]:
        """The field `topics` of a request about one group."""
        topics: dict[Any, list[dict[str, Any]]] = {}
        for key, value in values.items():
            topics.setdefault(key.topic_id, []).append(
                {"partition": key.partition, **self.fields(value)}
            )
        return [{"topic_id": one, "partitions": parts} for one, parts in topics.items()]

    def values(self, body: Any) -> dict[ShareKey, Any]:
        """What a request asks for.

        Raises:
            InvalidRequest: a partition is named twice, or its fields cannot be.
        """
        found: dict[ShareKey, Any] = {}
        for topic in body.topics:
            for one in topic.partitions:
                key = ShareKey(body.group_id, topic.topic_id or ZERO_TOPIC_ID, one.partition)
                if key in found:
                    raise InvalidRequest(f"partition {one.partition} is named twice")
                found[key] = self.value(one)
        return found

    def results(self, body: Any, results: Mapping[ShareKey, Any]) -> list[dict[str, Any]]:
        """The field `results` of the reply, in the order of the request."""
        return [
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    self._result(
                        one.partition,
                        results[
                            ShareKey(body.group_id, topic.topic_id or ZERO_TOPIC_ID, one.partition)
                        ],
                    )
                    for one in topic.partitions
                ],
            }
            for topic in body.topics
        ]

    def _result(self, partition: int, result: Any) -> dict[str, Any]:
        if isinstance(result, RequestError):
            return {
                "partition": partition,
                "error_code": result.code,
                "error_message": str(result),
                **self.result_fields(None),
            }
        return {
            "partition": partition,
            "error_code": 0,
            "error_message": None,
            **self.result_fields(result),
        }


def _batches(batches: tuple[StateBatch, ...]) -> list[dict[str, int]]:
    return [
        {
            "first_offset": one.first,
            "last_offset": one.last,
            "delivery_state": one.state,
            "delivery_count": one.delivery_count,
            "due_at": one.due_at_ms,
        }
        for one in batches
    ]


def _read_batches(batches: Any) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(
            one.first_offset, one.last_offset, one.delivery_state, one.delivery_count, one.due_at
        )
        for one in batches
    )


def _update_fields(update: ShareStateUpdate) -> Mapping[str, Any]:
    return {
        "state_epoch": update.state_epoch,
        "leader_epoch": update.leader_epoch,
        "start_offset": update.start_offset,
        "delivery_complete_count": update.finished_count,
        "state_batches": _batches(update.batches),
    }


def _update(one: Any) -> ShareStateUpdate:
    batches = _read_batches(one.state_batches)
    end = -1
    for batch in batches:
        if not end < batch.first <= batch.last:
            raise InvalidRequest(f"state of {batch.first} to {batch.last} after {end}")
        if batch.state not in STORED_STATES or batch.delivery_count < 0:
            raise InvalidRequest(f"state {batch.state}, delivery count {batch.delivery_count}")
        end = batch.last
    return ShareStateUpdate(
        state_epoch=one.state_epoch,
        leader_epoch=LeaderEpoch(one.leader_epoch),
        start_offset=Offset(one.start_offset),
        finished_count=one.delivery_complete_count,
        batches=batches,
    )


def _state_fields(state: ShareState | None) -> Mapping[str, Any]:
    if state is None:
        return {"state_epoch": 0, "start_offset": -1, "state_batches": ()}
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": _batches(state.batches),
    }


def _state(one: Any, leader_epoch: LeaderEpoch) -> ShareState:
    return ShareState(
        state_epoch=one.state_epoch,
        leader_epoch=leader_epoch,
        start_offset=Offset(one.start_offset),
        batches=_read_batches(one.state_batches),
    )


def _summary_fields(summary: StateSummary | None) -> Mapping[str, Any]:
    summary = summary or StateSummary(0, NO_LEADER_EPOCH, Offset(-1), -1)
    return {
        "state_epoch": summary.state_epoch,
        "leader_epoch": summary.leader_epoch,
        "start_offset": summary.start_offset,
        "delivery_complete_count": summary.finished_count,
    }


def _initial(one: Any) -> InitialState:
    if one.state_epoch < 0 or one.start_offset < UNDECIDED_START:
        raise InvalidRequest(f"state epoch {one.state_epoch}, start {one.start_offset}")
    return InitialState(one.state_epoch, Offset(one.start_offset))


def _no_value(_: Any) -> None:
    return None


def _done(*_: Any) -> None:
    return None


def _nothing(_: Any) -> Mapping[str, Any]:
    return {}


INITIALIZE = StateOperation(
    api=Api.INITIALIZE_SHARE_GROUP_STATE,
    request=lambda values: InitializeStates(states=values),
    fields=lambda one: {"state_epoch": one.state_epoch, "start_offset": one.start_offset},
    value=_initial,
    result_fields=_nothing,
    result=_done,
)
READ = StateOperation(
    api=Api.READ_SHARE_GROUP_STATE,
    request=lambda values: ReadStates(leader_epochs=values),
    fields=lambda leader_epoch: {"leader_epoch": leader_epoch},
    value=lambda one: LeaderEpoch(one.leader_epoch),
    result_fields=_state_fields,
    result=_state,
)
WRITE = StateOperation(
    api=Api.WRITE_SHARE_GROUP_STATE,
    request=lambda values: WriteStates(updates=values),
    fields=_update_fields,
    value=_update,
    result_fields=_nothing,
    result=_done,
)
DELETE = StateOperation(
    api=Api.DELETE_SHARE_GROUP_STATE,
    request=lambda values: DeleteStates(keys=frozenset(values)),
    fields=_nothing,
    value=_no_value,
    result_fields=_nothing,
    result=_done,
)
SUMMARIZE = StateOperation(
    api=Api.READ_SHARE_GROUP_STATE_SUMMARY,
    request=lambda values: SummarizeStates(keys=frozenset(values)),
    fields=lambda _: {"leader_epoch": NO_LEADER_EPOCH},
    value=_no_value,
    result_fields=_summary_fields,
    result=lambda one, _: StateSummary(
        one.state_epoch,
        LeaderEpoch(one.leader_epoch),
        Offset(one.start_offset),
        one.delivery_complete_count,
    ),
)
