"""The service of `respool table run`."""
