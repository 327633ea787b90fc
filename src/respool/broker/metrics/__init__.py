"""Metrics about topics, partitions and groups, published through `ports.metrics`."""
