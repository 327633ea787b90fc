"""Processes on one machine: how they know that they are, and how one reads what another lends it of its files."""
