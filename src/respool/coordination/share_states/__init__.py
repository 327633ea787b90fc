"""The share coordinator: the state of share partitions in `__share_group_state`. Pure."""
