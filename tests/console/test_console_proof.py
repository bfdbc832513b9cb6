"""The proof of the console's size and speed in small: the same questions and pages, without its figures."""

from __future__ import annotations

from console_world import TOKEN, Console, in_a_loop

from penstock.testing import console_proof
from penstock.testing.console_visitor import Visitor


def test_every_question_of_the_proof_finds_what_was_written(console: Console) -> None:
    count = 20_000
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": "proof", "partitions": 4}).raise_for_status()
        console_proof.write_records(console.broker.bootstrap, "proof", count, 4)
        for what, question, expected in console_proof.questions(count):
            params = {**question, "start": "oldest", "limit": 1000}
            found = friend.get(f"{console.local}/topics/proof/messages", params=params).json()
            assert len(found) == expected, what


def test_lists_come_in_pages_of_the_server_from_one_look(console: Console) -> None:
    console_proof.fill(console.broker.bootstrap, 60, 1, 3)
    with console.client() as friend:
        while friend.get(f"{console.local}/topics", params={"search": "many-", "size": 25}).json()["total"] < 60:
            pass  # the console looks at its cluster by itself
        pages = [
            friend.get(f"{console.local}/topics", params={"search": "many-", "size": 25, "page": page}).json()
            for page in (1, 2, 3)
        ]
    assert [len(page["rows"]) for page in pages] == [25, 25, 10]
    assert len({row["name"] for page in pages for row in page["rows"]}) == 60


def test_open_pages_are_brought_up_to_date_without_a_browser(console: Console) -> None:
    async def visit() -> None:
        async with Visitor(console.address, {"authorization": f"Bearer {TOKEN}"}, "/c/local/brokers") as visitor:
            await visitor.until(lambda: visitor.heading == "Brokers")
            before = visitor.updates
            await visitor.until(lambda: visitor.updates > before)

    in_a_loop(visit())
