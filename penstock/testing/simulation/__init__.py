"""The whole cluster in one process, on virtual time, from one seed.

Real: the controller's decision core, the replica manager and its partition cores, fetch plans and the rules of
following, the tree of the store; with `--real-logs` also the log and its manager, over files that lose what was not
synced. Simulated: time, network, disks, sessions, processes and clients. The same seed gives the same run, step by
step; `python -m penstock.testing.simulation --seed S` replays it and prints what happened.
"""
