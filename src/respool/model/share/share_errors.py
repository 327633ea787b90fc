"""Errors of share groups (KIP-932) in replies; see `model/errors.py` for the families."""

from respool.model.errors import RequestError


class InvalidRecordState(RequestError):
    """The record is not acquired by this member (any more), so its acknowledgement has no effect."""

    code = 121


class ShareSessionNotFound(RequestError):
    """There is no share session of this member on this connection; the client should open one."""

    code = 122
    retriable = True


class InvalidShareSessionEpoch(RequestError):
    """The request is out of step with the share session; the client should open a new one."""

    code = 123
    retriable = True


class FencedStateEpoch(RequestError):
    """The state of the share partition was initialized or deleted since it was read; the leader must read it again."""

    code = 124


class ShareSessionLimitReached(RequestError):
    """The broker has as many share sessions as group.share.max.share.sessions allows."""

    code = 133
    retriable = True
