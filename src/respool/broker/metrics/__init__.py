"""What an operator sees of topics, partitions and groups, published through `ports.metrics`."""
