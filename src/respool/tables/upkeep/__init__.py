"""Joining small files, expiry, and the operations of the command line."""
