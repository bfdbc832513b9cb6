"""Kafka Connect's REST as a facade over pipelines, on a port of its own: scripts for Connect find what they know."""
