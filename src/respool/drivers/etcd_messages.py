"""The messages and methods of etcd's API (v3) that the store uses, with the tags of etcd's rpc.proto.

Fields that are neither set nor read are left out.
"""

# ruff: noqa: RUF009 - the functions declare fields, as dataclasses.field does.

from dataclasses import dataclass
from typing import Generic, TypeVar

from respool.drivers.etcd_protobuf import flag, many, number, one, raw, text

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Generic[Request, Response]):
    path: str
    request: type[Request]
    response: type[Response]
    # Several messages per direction and call.
    is_stream: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHeader:
    # The etcd cluster's id; the same from all its members.
    cluster_id: int = number(1)
    # The store's revision when the response was made.
    revision: int = number(3)


# -- keys --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    key: bytes = raw(1)
    mod_revision: int = number(3)
    value: bytes = raw(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRequest:
    """Linearizable unless `serializable` is set, which we never do."""

    key: bytes = raw(1)
    range_end: bytes = raw(2)
    limit: int = number(3)
    revision: int = number(4)
    keys_only: bool = flag(8)
    count_only: bool = flag(9)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResponse:
    header: ResponseHeader | None = one(1, ResponseHeader)
    kvs: tuple[KeyValue, ...] = many(2, KeyValue)
    more: bool = flag(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRequest:
    key: bytes = raw(1)
    value: bytes = raw(2)
    lease: int = number(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRangeRequest:
    key: bytes = raw(1)
    range_end: bytes = raw(2)


# -- transactions ------------------------------------------------------------------------------------------------------

COMPARE_MOD_REVISION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """The key's `target` equals (0, the default) this revision; a missing key has revision 0."""

    target: int = number(2)
    key: bytes = raw(3)
    mod_revision: int = number(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOp:
    """Exactly one of these."""

    range: RangeRequest | None = one(1, RangeRequest)
    put: PutRequest | None = one(2, PutRequest)
    delete: DeleteRangeRequest | None = one(3, DeleteRangeRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOp:
    range: RangeResponse | None = one(1, RangeResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnRequest:
    compare: tuple[Compare, ...] = many(1, Compare)
    success: tuple[RequestOp, ...] = many(2, RequestOp)
    failure: tuple[RequestOp, ...] = many(3, RequestOp)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnResponse:
    header: ResponseHeader | None = one(1, ResponseHeader)
    succeeded: bool = flag(2)
    responses: tuple[ResponseOp, ...] = many(3, ResponseOp)


# -- watches -----------------------------------------------------------------------------------------------------------

EVENT_DELETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCreateRequest:
    key: bytes = raw(1)
    range_end: bytes = raw(2)
    start_revision: int = number(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    create: WatchCreateRequest | None = one(1, WatchCreateRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    type: int = number(1)
    kv: KeyValue | None = one(2, KeyValue)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResponse:
    created: bool = flag(3)
    canceled: bool = flag(4)
    # Not 0: the watch has ended because earlier changes are gone.
    compact_revision: int = number(5)
    cancel_reason: str = text(6)
    # Whole revisions: the server splits one only if fragments are enabled.
    events: tuple[Event, ...] = many(11, Event)


# -- leases, login, server ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGrantRequest:
    ttl_s: int = number(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGrantResponse:
    id: int = number(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    id: int = number(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTtlResponse:
    # 0 or less: there is no such lease.
    ttl_s: int = number(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateRequest:
    name: str = text(1)
    password: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateResponse:
    token: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusResponse:
    header: ResponseHeader | None = one(1, ResponseHeader)
    version: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    pass


RANGE = Method(path="/etcdserverpb.KV/Range", request=RangeRequest, response=RangeResponse)
TXN = Method(path="/etcdserverpb.KV/Txn", request=TxnRequest, response=TxnResponse)
WATCH = Method(
    path="/etcdserverpb.Watch/Watch", request=WatchRequest, response=WatchResponse, is_stream=True
)
LEASE_GRANT = Method(
    path="/etcdserverpb.Lease/LeaseGrant", request=LeaseGrantRequest, response=LeaseGrantResponse
)
LEASE_REVOKE = Method(path="/etcdserverpb.Lease/LeaseRevoke", request=LeaseRequest, response=Empty)
LEASE_KEEP_ALIVE = Method(
    path="/etcdserverpb.Lease/LeaseKeepAlive",
    request=LeaseRequest,
    response=LeaseTtlResponse,
    is_stream=True,
)
LEASE_TIME_TO_LIVE = Method(
    path="/etcdserverpb.Lease/LeaseTimeToLive", request=LeaseRequest, response=LeaseTtlResponse
)
AUTHENTICATE = Method(
    path="/etcdserverpb.Auth/Authenticate",
    request=AuthenticateRequest,
    response=AuthenticateResponse,
)
STATUS = Method(path="/etcdserverpb.Maintenance/Status", request=Empty, response=StatusResponse)
