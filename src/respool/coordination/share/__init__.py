"""Share groups: the records of one partition that a group's members acquire and acknowledge one by one. Pure."""
