"""Chaos on real processes: three hosts with a broker and a ZooKeeper each, clients, faults, and a checker.

`python -m penstock.testing.chaos --minutes M --seed S` runs in namespaces of its own where that is allowed (root, or a
container that may), so that nothing it starts or cuts touches the machine and all of it dies with it.
"""
