"""A produce on its way from the connection to the log: its bytes, its checks, what is opened or waits."""
