"""The data service: snapshots and streams of a cluster for one viewer, without any widget.

Every function takes a `Viewer` first and holds to what its role may see; pages and REST go through here alone.
"""
