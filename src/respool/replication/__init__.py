"""Replication state machines: a partition's leader and its followers. Pure: no clock, no I/O."""
