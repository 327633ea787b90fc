"""Settings of topics that are kept as tables, and the text in which columns are declared."""
