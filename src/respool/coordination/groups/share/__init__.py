"""Share groups (KIP-932) at their coordinator: members, assignment, and which partitions have state."""
