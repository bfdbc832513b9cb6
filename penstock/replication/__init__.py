"""Replication: what a broker does with the replicas it hosts.

`partition` is the core (roles, high watermark, ISR) and does no I/O but through its log; `replica_manager` owns all
partitions of a broker and follows the metadata image; `waits` parks what must wait; `fetcher` is the follower's loop.
"""
