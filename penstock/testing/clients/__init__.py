"""Clients' own stress: exactly-once loops in Java, C, Go and Python at once on three brokers, with kills."""
