"""The table of commands: name, the module that holds it, and its line in `penstock --help`.

Modules are imported when their command runs, so that help and completion stay fast.
"""

from __future__ import annotations

# name → (module in penstock.cli, one line of help), in the order in which help shows them
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Start a broker on this machine, with everything that belongs to it."),
    "broker": ("broker", "Run one broker in the foreground; list and describe brokers."),
    "zookeeper": ("zookeeper", "Run a real ZooKeeper for clusters on this machine."),
    "console": ("console", "The web console: see and steer a cluster in the browser."),
    "cluster": ("cluster", "Start, show and stop a cluster of several brokers on this machine."),
    "topic": ("topic", "List, describe, create, change, import, export and delete topics."),
    "produce": ("produce", "Write records from standard input or files."),
    "consume": ("consume", "Read records: from any offset or time, decoded, filtered, formatted."),
    "group": ("group", "Consumer groups: members, lag, offsets, rebalances."),
    "config": ("config", "Read and change settings of topics, brokers and groups."),
    "acl": ("acl", "Who may do what: list, grant, take away, explain."),
    "quota": ("quota", "Limits of users, client ids and addresses."),
    "token": ("token", "Delegation tokens: create, list, renew, delete."),
    "partition": ("partition", "Move partitions between brokers and elect leaders."),
    "txn": ("txn", "Transactions: list, describe, abort, find hanging ones."),
    "pipeline": ("pipeline", "Data pipelines on Spark: validate, run, apply, watch."),
    "sql": ("sql", "Query topics with Spark SQL."),
    "dlq": ("dlq", "Dead-letter topics: list, show, redrive."),
    "log": ("log", "Look into and verify segment files on disk."),
    "user": ("user", "Users that log in with a password (SCRAM): list, set, delete."),
    "store": ("store", "The coordination store: move it to ZooKeeper, renew the brokers' secret."),
    "perf": ("perf", "Measure produce, consume and end-to-end latency."),
    "top": ("top", "Watch topics, groups and brokers live in the terminal."),
    "doctor": ("doctor", "Check a cluster and say what to do about what is wrong."),
    "profile": ("profile", "Named clusters with their security settings."),
    "completion": ("completion", "Print the completion script of a shell."),
}
