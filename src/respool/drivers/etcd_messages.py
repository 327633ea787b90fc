"""The part of etcd's API (v3) that the store uses: its messages and methods, with the tags of etcd's rpc.proto.

Fields we neither set nor read are left out.
"""

# ruff: noqa: RUF009 - the functions declare fields, as dataclasses.field does.

from dataclasses import dataclass
from typing import Generic, TypeVar

from respool.drivers.etcd_protobuf import flag, many, number, one, raw, text

Ask = TypeVar("Ask")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Generic[Ask, Reply]):
    path: str
    ask: type[Ask]
    reply: type[Reply]
    # Several messages may go each way on one call.
    is_stream: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    # Which etcd cluster this is; the same from all its members.
    cluster_id: int = number(1)
    # The store's revision when the reply was made.
    revision: int = number(3)


# -- keys --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    key: bytes = raw(1)
    mod_revision: int = number(3)
    value: bytes = raw(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAsk:
    """Linearizable unless `serializable` is set, which we never do."""

    key: bytes = raw(1)
    range_end: bytes = raw(2)
    limit: int = number(3)
    revision: int = number(4)
    keys_only: bool = flag(8)
    count_only: bool = flag(9)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReply:
    header: Header | None = one(1, Header)
    kvs: tuple[KeyValue, ...] = many(2, KeyValue)
    more: bool = flag(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutAsk:
    key: bytes = raw(1)
    value: bytes = raw(2)
    lease: int = number(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAsk:
    key: bytes = raw(1)
    range_end: bytes = raw(2)


# -- transactions ------------------------------------------------------------------------------------------------------

COMPARE_MOD_REVISION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Equal (0, the default) of the key's `target` and the revision here; a key that is not there has revision 0."""

    target: int = number(2)
    key: bytes = raw(3)
    mod_revision: int = number(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One of these."""

    range: RangeAsk | None = one(1, RangeAsk)
    put: PutAsk | None = one(2, PutAsk)
    delete: DeleteAsk | None = one(3, DeleteAsk)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationReply:
    range: RangeReply | None = one(1, RangeReply)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnAsk:
    compare: tuple[Compare, ...] = many(1, Compare)
    success: tuple[Operation, ...] = many(2, Operation)
    failure: tuple[Operation, ...] = many(3, Operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnReply:
    header: Header | None = one(1, Header)
    succeeded: bool = flag(2)
    responses: tuple[OperationReply, ...] = many(3, OperationReply)


# -- watches -----------------------------------------------------------------------------------------------------------

EVENT_DELETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCreate:
    key: bytes = raw(1)
    range_end: bytes = raw(2)
    start_revision: int = number(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchAsk:
    create: WatchCreate | None = one(1, WatchCreate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    type: int = number(1)
    kv: KeyValue | None = one(2, KeyValue)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReply:
    created: bool = flag(3)
    canceled: bool = flag(4)
    # Not 0: the watch is over because changes before this revision are gone.
    compact_revision: int = number(5)
    cancel_reason: str = text(6)
    # Whole revisions: the server splits one only when asked for fragments.
    events: tuple[Event, ...] = many(11, Event)


# -- leases, login, server ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGrantAsk:
    ttl_s: int = number(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGrantReply:
    id: int = number(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAsk:
    id: int = number(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTtlReply:
    # 0 or less: there is no such lease.
    ttl_s: int = number(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAsk:
    name: str = text(1)
    password: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginReply:
    token: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReply:
    header: Header | None = one(1, Header)
    version: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    pass


RANGE = Method(path="/etcdserverpb.KV/Range", ask=RangeAsk, reply=RangeReply)
TXN = Method(path="/etcdserverpb.KV/Txn", ask=TxnAsk, reply=TxnReply)
WATCH = Method(path="/etcdserverpb.Watch/Watch", ask=WatchAsk, reply=WatchReply, is_stream=True)
LEASE_GRANT = Method(
    path="/etcdserverpb.Lease/LeaseGrant", ask=LeaseGrantAsk, reply=LeaseGrantReply
)
LEASE_REVOKE = Method(path="/etcdserverpb.Lease/LeaseRevoke", ask=LeaseAsk, reply=Nothing)
LEASE_KEEP_ALIVE = Method(
    path="/etcdserverpb.Lease/LeaseKeepAlive", ask=LeaseAsk, reply=LeaseTtlReply, is_stream=True
)
LEASE_TIME_TO_LIVE = Method(
    path="/etcdserverpb.Lease/LeaseTimeToLive", ask=LeaseAsk, reply=LeaseTtlReply
)
AUTHENTICATE = Method(path="/etcdserverpb.Auth/Authenticate", ask=LoginAsk, reply=LoginReply)
STATUS = Method(path="/etcdserverpb.Maintenance/Status", ask=Nothing, reply=StatusReply)
