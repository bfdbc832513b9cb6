"""Neighbours, unmodified from Maven Central and PyPI, run against Penstock with kills; each has its own verdict."""
