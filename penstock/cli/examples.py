"""One example of every command: docs/cli.md shows them, the suite runs them, in this order, against one broker.

SERVERS run until they are stopped; the suite starts each, waits for `ready:`, and stops it.
"""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "topic create": "penstock topic create orders --partitions 3 --config retention.ms=86400000",
    "topic list": "penstock topic list --json",
    "topic alter": "penstock topic alter orders --config max.message.bytes=2000000 --reset retention.ms",
    "topic add-partitions": "penstock topic add-partitions orders 4",
    "topic describe": "penstock topic describe orders",
    "produce": r"printf 'anna:5 apples\nben:2 pears\n' | penstock produce orders --key-separator : --header source=web",
    "consume": r"penstock consume orders --from-beginning --until-end --format '%p/%o %k: %s\n'",
    "topic export": "penstock topic export orders orders.jsonl",
    "topic import": "penstock topic import orders-copy orders.jsonl",
    "topic copy": "penstock topic copy orders orders-archive",
    "group list": "penstock consume orders --from-beginning --until-end --group shop >/dev/null && penstock group list",
    "group describe": "penstock group describe shop",
    "group members": "penstock group members shop",
    "group rebalances": "penstock group rebalances shop",
    "group reset": "penstock group reset shop --to earliest --yes",
    "group delete-offsets": "penstock group delete-offsets shop --topic orders:0 --yes",
    "group delete": "penstock group delete shop --yes",
    "config get": "penstock config get topic:orders --all | head -n 5",
    "config set": "penstock config set topic:orders retention.ms=3600000",
    "config delete": "penstock config delete topic:orders retention.ms",
    "acl set": "penstock acl set User:anna read topic:ord*",
    "acl list": "penstock acl list --principal anna",
    "acl explain": "penstock acl explain anna read topic:orders",
    "acl delete": "penstock acl delete --principal anna --yes",
    "quota set": "penstock quota set user:anna,client:shop produce=1000000 fetch=2000000",
    "quota list": "penstock quota list",
    "quota explain": "penstock quota explain --user anna --client shop",
    "quota delete": "penstock quota delete user:anna,client:shop",
    "broker list": "penstock broker list",
    "broker describe": 'penstock broker describe "$(penstock broker list --json | jq .id)"',
    "partition status": "penstock partition status",
    "partition elect": "penstock partition elect --topic orders",
    "partition move-folder": (
        'penstock partition move-folder --topic orders --to "$DATA" --broker "$(penstock broker list --json | jq .id)"'
    ),
    "partition reassign": "penstock partition reassign --dry-run",
    "txn list": "echo paid | penstock produce payments --transactional && penstock txn list",
    "txn describe": 'penstock txn describe "$(penstock txn list --json | jq -r .id)"',
    "txn find-hanging": "penstock txn find-hanging --older-than 5m",
    "txn abort": "penstock txn abort --help",
    "dlq list": "penstock dlq list",
    "perf produce": "penstock perf produce speed --records 20000",
    "perf consume": "penstock perf consume speed",
    "perf end-to-end": "penstock perf end-to-end speed --records 500",
    "top": "penstock top --json --count 1 --every 0.5 | jq -r '.topics[0].topic'",
    "doctor": "penstock doctor --json | jq -r .severity",
    "topic trim": "penstock topic trim orders --all --yes",
    "topic delete": "penstock topic delete orders-archive --yes",
    "log dump": 'penstock log dump "$DATA/orders-0" --records',
    "log verify": 'penstock log verify "$DATA"',
    "user set": "echo 'a long password' | penstock user set anna",
    "user list": "penstock user list",
    "user delete": "penstock user delete anna --yes",
    "user bootstrap": "echo 'a long password' | penstock user bootstrap admin --set log.dirs=fresh-data",
    "profile set": "penstock profile set staging bootstrap.servers=127.0.0.1:9092",
    "profile list": "penstock profile list",
    "profile show": "penstock profile show staging",
    "profile delete": "penstock profile delete staging",
    "console add-user": "echo 'a long password' | penstock console add-user users anna --role editor",
    "completion": "penstock completion bash | head -n 1",
}

SERVERS: dict[str, str] = {
    "up": "penstock up --port $PORT --metrics-port $OTHER_PORT --data-dir data --no-pipelines --no-console",
    "console": "penstock console --port $PORT --state-dir console",
    "broker": "penstock broker --set listeners=PLAINTEXT://127.0.0.1:$PORT --set log.dirs=data",
    "zookeeper": "penstock zookeeper --port $PORT --data-dir zookeeper",
}

ELSEWHERE: dict[str, str] = {
    "cluster start": "penstock cluster start --brokers 3 --data-dir cluster",
    "cluster status": "penstock cluster status --data-dir cluster",
    "cluster stop": "penstock cluster stop --data-dir cluster",
    "store rotate-secret": "penstock store rotate-secret --set zookeeper.connect=127.0.0.1:2181/penstock",
    "store migrate": "penstock store migrate --to zookeeper --connect 127.0.0.1:2181/penstock --set log.dirs=data",
    "pipeline validate": "penstock pipeline validate examples/pipelines/clean-orders.yml",
    "pipeline dry-run": "penstock pipeline dry-run examples/pipelines/clean-orders.yml",
    "pipeline diff": "penstock pipeline diff examples/pipelines/clean-orders.yml",
    "pipeline backfill": (
        "penstock pipeline backfill examples/pipelines/clean-orders.yml --from 2026-11-01 --to 2026-11-02 --suffix .v2"
    ),
    "pipeline compare": "penstock pipeline compare orders.clean orders.clean.v2",
    "pipeline repoint": "penstock pipeline repoint clean-orders --suffix .v2 --dry-run",
    "pipeline test": (
        "penstock pipeline test examples/pipelines/clean-orders.yml examples/pipelines/clean-orders.cases.yml"
    ),
    "pipeline run": "penstock pipeline run examples/pipelines/clean-orders.yml --until-caught-up",
    "pipeline apply": "penstock pipeline apply examples/pipelines/clean-orders.yml",
    "pipeline list": "penstock pipeline list",
    "pipeline status": "penstock pipeline status clean-orders",
    "pipeline logs": "penstock pipeline logs clean-orders",
    "pipeline stop": "penstock pipeline stop clean-orders",
    "pipeline restart": "penstock pipeline restart clean-orders",
    "pipeline delete": "penstock pipeline delete clean-orders --yes",
    "pipeline runner": "penstock pipeline runner --state-dir pipelines",
    "token create": "penstock token create --renewer operator --lifetime 1d -p secure",
    "token list": "penstock token list -p secure",
    "token renew": "penstock token renew Jk3v --for 12h -p secure",
    "token delete": "penstock token delete Jk3v --yes -p secure",
    "log accept-loss": "penstock log accept-loss data --yes",
    "sql": "penstock sql \"select count(*) from topic('orders')\"",
    "dlq show": "penstock dlq show orders.dlq",
    "dlq redrive": "penstock dlq redrive orders.dlq",
}
"""They need a cluster or Spark: tests/cluster and tests/pipelines run their like, and the suite checks every word."""


def example_of(path: str) -> str | None:
    for table in (EXAMPLES, SERVERS, ELSEWHERE):
        if path in table:
            return table[path]
    return None
