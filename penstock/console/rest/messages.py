"""REST of messages: a page, one, its bytes, a tail as server-sent events, producing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Depends, Path, Query
from fastapi.responses import Response, StreamingResponse

from penstock.client.errors import ClientError
from penstock.console.data import downloads, formats, messages
from penstock.console.data.viewer import Viewer
from penstock.console.rest import models
from penstock.console.rest.app import Asker, new_router
from penstock.console.rest.topics import Topic
from penstock.console.search.wanted import Wanted
from penstock.operate.errors import UserError

router = new_router("messages")

MOST_TAILS = 8
_tails: Counter[str] = Counter()
Partition = Annotated[int, Path(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Path(ge=0, le=2**63 - 1)]
Words = Annotated[str, Query(max_length=2000)]


def wanted(
    start: Annotated[str, Query(max_length=100, description="newest, oldest, an offset, or a time such as 2h.")] = (
        "newest"
    ),
    partition: Annotated[list[models.Partition] | None, Query(max_length=1000)] = None,
    limit: Annotated[int, Query(ge=1, le=messages.MOST_SHOWN)] = 50,
    key: Words = "",
    value: Words = "",
    header: Words = "",
    expression: Annotated[str, Query(max_length=2000, description="As of `penstock consume --filter`.")] = "",
    exact: Annotated[bool, Query(description="key, value and header are whole ones, not parts.")] = False,
) -> Wanted:
    return Wanted(start, tuple(partition or ()), limit, key, value, header, expression, exact)


What = Annotated[Wanted, Depends(wanted)]


@router.get("/topics/{topic}/messages")
def list_messages(viewer: Asker, topic: Topic, what: What) -> list[dict[str, Any]]:
    return messages.messages(viewer, topic, what)


@router.get(
    "/topics/{topic}/messages.jsonl",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/jsonl": {}}}},
)
def download_messages(viewer: Asker, topic: Topic, what: What) -> StreamingResponse:
    """All that a search finds, as a file of JSON lines; `limit` does not count here."""
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(topic, safe='')}.jsonl"}
    return StreamingResponse(downloads.download(viewer, topic, what), media_type="application/jsonl", headers=headers)


@router.post("/topics/{topic}/messages", status_code=201)
def produce(viewer: Asker, topic: Topic, body: models.NewMessage) -> dict[str, int]:
    return messages.produce(
        viewer, topic, body.model_dump(exclude={"partition", "encode"}), body.partition, encoded=body.encode
    )


@router.get("/topics/{topic}/formats")
def list_formats(viewer: Asker, topic: Topic) -> dict[str, Any]:
    """How keys and values are read: kind, schema, registry."""
    return formats.of_topic(viewer, topic)


@router.put("/topics/{topic}/formats/{part}")
def choose_format(viewer: Asker, topic: Topic, part: Literal["key", "value"], body: models.Format) -> dict[str, Any]:
    formats.choose(viewer, topic, part, body.kind, body.schema_text, body.registry)
    return formats.of_topic(viewer, topic)


@router.get("/topics/{topic}/messages/{partition}/{offset}")
def get_message(viewer: Asker, topic: Topic, partition: Partition, offset: Offset) -> dict[str, Any]:
    return messages.message(viewer, topic, partition, offset)


@router.get(
    "/topics/{topic}/messages/{partition}/{offset}/value",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def download_value(viewer: Asker, topic: Topic, partition: Partition, offset: Offset) -> Response:
    """The bytes of a value, as a file."""
    record = messages.raw_message(viewer, topic, partition, offset)
    name = f"{topic}-{partition}-{offset}.bin"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(record.value or b"", media_type="application/octet-stream", headers=headers)


@router.get(
    "/topics/{topic}/tail",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def tail(
    viewer: Asker,
    topic: Topic,
    what: What,
    seconds: Annotated[int, Query(ge=1, le=3600, description="It ends after so long.")] = 3600,
) -> StreamingResponse:
    """Messages as they come: an event `message` each, `error` at an end that was not asked for."""
    if _tails[viewer.user.name] >= MOST_TAILS:
        raise UserError(f"{MOST_TAILS} tails of {viewer.user.name} are open already", "close one first")
    stop = threading.Event()
    portions = messages.tail(viewer, topic, what, stop)
    first = await asyncio.to_thread(next, portions, None)  # what is wrong with the question is told as its answer
    return StreamingResponse(_events(viewer, portions, first or [], stop, seconds), media_type="text/event-stream")


async def _events(
    viewer: Viewer,
    portions: Iterator[list[dict[str, Any]]],
    rows: list[dict[str, Any]],
    stop: threading.Event,
    seconds: int,
) -> AsyncIterator[str]:
    _tails[viewer.user.name] += 1
    ends = asyncio.get_running_loop().time() + seconds
    try:
        found: list[dict[str, Any]] | None = rows
        while found is not None and asyncio.get_running_loop().time() < ends:
            for row in found:
                yield f"event: message\ndata: {json.dumps(row)}\n\n"
            if not found:
                yield ": nothing new\n\n"
            found = await asyncio.to_thread(next, portions, None)
    except (UserError, ClientError) as error:
        yield f"event: error\ndata: {json.dumps({'error': str(error)})}\n\n"
    finally:
        stop.set()
        _tails[viewer.user.name] -= 1
