"""REST as a program uses it: everything the pages do, errors in words, and hostile input from the OpenAPI itself."""

from __future__ import annotations

import json

import pyarrow
import schemathesis
from confluent_kafka import Consumer
from console_world import TOKEN, Console
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import checks

from penstock.console.data.messages import partition_for
from penstock.protocol.columnar import choose_partitions

EXAMPLES = 5
CHECKS = [checks.not_a_server_error, checks.status_code_conformance, checks.response_schema_conformance]


def test_a_topic_from_its_creation_to_its_end(console: Console, name: str) -> None:
    with console.client() as friend:
        topic = f"{console.local}/topics/{name}"
        wanted = {"name": name, "partitions": 3, "configs": {"retention.ms": "60000"}}
        made = friend.post(f"{console.local}/topics", json=wanted)
        assert made.status_code == 201 and made.json()["partitions"] == 3
        assert friend.post(f"{console.local}/topics", json={"name": name}).status_code == 409
        for number in range(20):
            message = {"key": f"k{number}", "value": {"n": number}, "headers": [["h", "x"]]}
            written = friend.post(f"{topic}/messages", json=message)
            assert written.status_code == 201
        found = friend.get(f"{topic}/messages", params={"limit": 5}).json()
        assert [json.loads(row["value"]["text"])["n"] for row in found] == [19, 18, 17, 16, 15]
        oldest = friend.get(f"{topic}/messages", params={"start": "oldest", "expression": "value.n in (3, 4)"}).json()
        assert sorted(json.loads(row["value"]["text"])["n"] for row in oldest) == [3, 4]
        one = friend.get(f"{topic}/messages/{found[0]['partition']}/{found[0]['offset']}").json()
        assert one["key"]["text"] == "k19" and one["headers"][0]["name"] == "h"
        assert friend.get(f"{topic}/messages", params={"key": "k7"}).json()[0]["key"]["text"] == "k7"
        assert len(friend.get(f"{topic}/messages", params={"header": "h=x", "limit": 50}).json()) == 20
        assert friend.post(f"{topic}/partitions", json={"partitions": 4}).status_code == 204
        assert friend.patch(f"{topic}/configs", json={"changes": {"retention.ms": None}}).status_code == 204
        wrong = friend.patch(f"{topic}/configs", json={"changes": {"retention.msx": "1"}})
        assert wrong.status_code == 404 and "retention.ms" in wrong.json()["hint"]
        assert friend.delete(f"{topic}/messages").status_code == 204
        assert friend.get(f"{topic}/messages").json() == []
        described = friend.get(topic).json()
        assert len(described["partitions"]) == 4 and sum(row["records"] for row in described["partitions"]) == 0
        assert friend.delete(topic).status_code == 204
        assert friend.get(topic).status_code == 404


def test_the_same_key_goes_where_other_clients_put_it() -> None:
    keys = [f"key-{'x' * (number % 5)}{number}".encode() for number in range(50)]
    chosen = choose_partitions(pyarrow.array(keys, pyarrow.binary()), 7)
    assert [partition_for(key, list(range(7))) for key in keys] == [int(one) for one in chosen]


def test_a_filter_that_is_none_is_told_with_its_position(console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name})
        wrong = ("value.amount >", "__import__('os')", "value.__class__", "'a' * 10 ** 10", "not " * 500, "(" * 300)
        for words in wrong:
            answer = friend.get(f"{console.local}/topics/{name}/messages", params={"expression": words})
            assert answer.status_code == 400 and "position" in answer.json()["error"], words
        large = {"expression": "str(1) * 999999999 == value"}
        huge = friend.get(f"{console.local}/topics/{name}/messages", params=large)
        assert huge.status_code == 200


def test_a_tail_sends_what_is_written_as_events(console: Console, name: str) -> None:
    with console.client() as friend, console.client() as writer:
        friend.post(f"{console.local}/topics", json={"name": name})
        with friend.stream("GET", f"{console.local}/topics/{name}/tail", params={"seconds": 60}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            writer.post(f"{console.local}/topics/{name}/messages", json={"value": "hello"})
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    assert json.loads(line[5:])["value"]["text"] == "hello"
                    break


def test_a_tail_ends_with_its_topic(console: Console, name: str) -> None:
    with console.client() as friend, console.client() as other:
        friend.post(f"{console.local}/topics", json={"name": name})
        with friend.stream("GET", f"{console.local}/topics/{name}/tail", params={"seconds": 120}) as stream:
            lines = stream.iter_lines()
            next(lines)
            other.delete(f"{console.local}/topics/{name}")
            assert any(line == "event: error" for line in lines)


def test_a_group_is_seen_planned_and_reset(console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
        for _ in range(5):
            friend.post(f"{console.local}/topics/{name}/messages", json={"value": "x"})
        group = f"{name}/a group with ünusual signs?"
        where = {"bootstrap.servers": console.broker.bootstrap, "group.id": group}
        consumer = Consumer({**where, "auto.offset.reset": "earliest"})
        consumer.subscribe([name])
        while len(consumer.consume(5, 10)) == 0:
            pass
        consumer.commit(asynchronous=False)
        refused = friend.post(f"{console.local}/group/reset", json={"name": group, "to": "earliest"})
        assert refused.status_code == 409 and "consumers" in refused.json()["hint"]
        consumer.close()
        plan = friend.post(f"{console.local}/group/plan", json={"name": group, "to": "earliest"}).json()
        assert plan[0]["to"] == 0 and plan[0]["from"] == 5
        assert friend.post(f"{console.local}/group/reset", json={"name": group, "to": "2"}).status_code == 200
        seen = friend.get(f"{console.local}/group", params={"name": group}).json()
        assert seen["lag"] == 3 and seen["members"] == []
        assert friend.get(f"{console.local}/group/rebalances", params={"name": group}).json()["rows"]
        assert friend.delete(f"{console.local}/group", params={"name": group}).status_code == 204
        assert friend.get(f"{console.local}/group", params={"name": group}).status_code == 404


def test_lists_come_in_pages(console: Console) -> None:
    with console.client() as friend:
        for number in range(7):
            friend.post(f"{console.local}/topics", json={"name": f"paged-{number}", "partitions": number + 1})
        friend.get(f"{console.local}/topics/paged-6")
        seen: list[str] = []
        while len(seen) < 7:  # the console looks at its cluster by itself; the pages are of its last look
            query = {"search": "paged-", "size": 3, "sort": "partitions", "descending": True}
            pages = [friend.get(f"{console.local}/topics", params={**query, "page": page}).json() for page in (1, 2, 3)]
            seen = [row["name"] for page in pages for row in page["rows"]]
        assert seen == [f"paged-{number}" for number in range(6, -1, -1)]
        assert pages[0]["total"] == 7


def test_changes_stand_in_the_audit_log(console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name})
        friend.post(f"{console.local}/topics", json={"name": "not a name!"})
    lines = [json.loads(line) for line in (console.state_dir / "audit.jsonl").read_text().splitlines()]
    made = next(line for line in lines if line["target"] == name)
    assert made["user"] == "local" and made["action"] == "topic.create" and made["ok"] is True
    refused = next(line for line in lines if line["target"] == "not a name!")
    assert refused["ok"] is False and refused["why"]


def test_figures_are_there_for_charts(console: Console) -> None:
    with console.client() as friend:
        points: list[list[float]] = []
        while not points:
            points = friend.get(f"{console.local}/figures", params={"name": ["in"], "seconds": 600}).json()["in"]
        assert points[-1][0] > 0


def test_other_parts_answer(console: Console) -> None:
    with console.client() as friend:
        brokers = friend.get(f"{console.local}/brokers").json()
        assert brokers[0]["controller"] and brokers[0]["folders"]
        assert friend.get(f"{console.local}/brokers/{brokers[0]['id']}/configs").status_code == 200
        assert friend.get(f"{console.local}/brokers/999/configs").status_code == 404
        assert {row["check"] for row in friend.get(f"{console.local}/doctor").json()} >= {"replicas", "disk"}
        opened = friend.get(f"{console.local}/transactions", params={"only_open": True}).json()
        assert opened["rows"] == []
        assert friend.get(f"{console.local}/partitions/unusual").json() == []
        assert friend.get(f"{console.local}/pipelines").status_code == 200
        assert friend.get(f"{console.api}/clusters/nowhere/overview").status_code == 404


def test_no_hostile_input_breaks_it(console: Console) -> None:
    """Requests made up from the OpenAPI description, good and bad: never a 500, never another shape than described."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    schema = schemathesis.openapi.from_url(f"{console.api}/openapi.json", headers=headers)
    seen = 0
    for result in schema.exclude(path_regex="/tail$").get_all_operations():
        operation = result.ok()

        @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy())
        def send(case: schemathesis.Case) -> None:
            if isinstance(case.body, dict):
                many = case.body.get("partitions", 0)
                assume(not isinstance(many, int) or many < 20)  # a good request, but a long one
            case.call_and_validate(headers=headers, checks=CHECKS)

        send()
        seen += 1
    assert seen > 30
