"""The pytest plugin that comes with Penstock."""
