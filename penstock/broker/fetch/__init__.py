"""A fetch on its way from the log to the connection: its bytes, its session, the usual one and the large one."""
