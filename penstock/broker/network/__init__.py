"""Listeners and connections: frames in, answers out, TLS, SASL, and the bounds of both."""
