"""Share groups (KIP-932): members, offsets, and the state of share partitions between brokers."""
