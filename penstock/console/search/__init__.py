"""Searching through messages: what is asked for, how it is found quickly, and the processes that do it."""
