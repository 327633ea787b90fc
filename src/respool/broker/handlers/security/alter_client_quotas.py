"""AlterClientQuotas (key 49): set and remove limits of users, client ids and addresses. Each entity succeeds or fails
as a whole."""

from typing import Any

from respool.broker.admin_log import listed
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER_CONFIGS
from respool.broker.outcome import Reply
from respool.cluster.access.quota_requests import QuotaChange
from respool.model.errors import InvalidRequest, RequestError
from respool.model.security.quota import checked_entity
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.ALTER_CLIENT_QUOTAS, versions=(0, 1), rights=(ALTER_CLUSTER_CONFIGS,))
async def alter_client_quotas(request: Request, broker: Broker) -> Reply:
    entries = request.body.entries
    refusal = broker.access.refusal(request, ALTER_CLUSTER_CONFIGS)
    results: list[RequestError | None] = [refusal] * len(entries)
    if refusal is None:
        changes = [_change(one) for one in entries]
        validate_only = request.body.validate_only
        try:
            results = await broker.access_changes.alter_quotas(changes, validate_only=validate_only)
        except RequestError as error:
            results = [error] * len(entries)
        done = [
            _text(one)
            for one, error in zip(changes, results, strict=True)
            if isinstance(one, QuotaChange) and error is None
        ]
        if done and not validate_only:
            broker.admin_log.log(request, f"changed quotas: {listed(done)}")
    fields = [
        {
            **error_fields(error),
            "entity": [
                {"entity_type": one.entity_type, "entity_name": one.entity_name}
                for one in entry.entity
            ],
        }
        for entry, error in zip(entries, results, strict=True)
    ]
    return [encode_reply(request, {"throttle_time": 0, "entries": fields})]


def _change(entry: Any) -> QuotaChange | RequestError:
    try:
        entity = checked_entity((one.entity_type, one.entity_name) for one in entry.entity)
        limits: dict[str, float | None] = {}
        for one in entry.ops:
            if one.key in limits:
                raise InvalidRequest(f"{one.key} is in the request more than once")
            limits[one.key] = None if one.remove else one.value
    except RequestError as error:
        return error
    return QuotaChange(entity=entity, limits=limits)


def _text(change: QuotaChange) -> str:
    who = " ".join(
        f"{kind}={name!r}" if name else f"{kind} default" for kind, name in change.entity
    )
    limits = " ".join(
        f"{name} unset" if value is None else f"{name}={value:g}"
        for name, value in change.limits.items()
    )
    return f"{who}: {limits}"
