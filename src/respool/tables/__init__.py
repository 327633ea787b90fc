"""Topics as tables: a service that writes them exactly once, and reads over a table and the log behind it."""
