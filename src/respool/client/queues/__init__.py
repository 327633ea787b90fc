"""Queues: share groups (KIP-932) from Python. `Queue` and `AsyncQueue` are the entry points."""
