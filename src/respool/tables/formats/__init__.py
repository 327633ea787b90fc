"""Delta and Iceberg behind one port, and the files of a table."""
