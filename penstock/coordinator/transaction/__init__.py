"""The transaction coordinator: who may write under a transactional id, and how its transactions end.

    state.py           one transaction and the table of its moves
    records.py         the records of `__transaction_state`, byte for byte Kafka's
    initialize.py      InitProducerId: fencing, epochs, producer-id rotation, two-phase commit (KIP-939)
    decisions.py       AddPartitionsToTxn, EndTxn, completion, time-outs, id expiry
    shard.py           the transactions of one partition: commands → (records, answer), and replay
    queries.py         ListTransactions, DescribeTransactions
    producer_ids.py    blocks of producer ids from the store
    marker_sender.py   the driver that brings decided transactions to their end
    verification.py    KIP-890: what Produce and TxnOffsetCommit ask before they append
    service.py         `TransactionCoordinator`: the door that the broker's APIs knock at

Everything above `marker_sender.py` is pure: no I/O, time and fresh producer ids are handed in.
"""
