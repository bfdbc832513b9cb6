"""Searches over the disk: one scripted life of some logs, on disks that refuse single calls or lose their power."""
