"""Changes of ACLs, quotas, users and delegation tokens, as guarded writes of the metadata store. Pure."""
