"""REST of whole clusters: overview, figures, search, brokers, moves, transactions, doctor."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from penstock.console.data import brokers, overview, transactions
from penstock.console.rest import models
from penstock.console.rest.app import ERRORS, PREFIX, Asker, PageQuery, new_router

top = APIRouter(prefix=PREFIX, tags=["console"], responses=ERRORS)
router = new_router("cluster")

Node = Annotated[int, Path(ge=0, le=2**31 - 1)]
TransactionalId = Annotated[str, Query(min_length=1, max_length=1000, alias="id")]


@top.get("/clusters")
def list_clusters(request: Request) -> list[dict[str, Any]]:
    """The clusters that this console shows."""
    return [
        {"name": name, "bootstrap": cluster.session.bootstrap, "error": cluster.error}
        for name, cluster in request.app.state.context.clusters.items()
    ]


@top.get("/me")
def me(request: Request) -> dict[str, str]:
    """Who is asking, and as what."""
    user = request.state.login.user
    return {"name": user.name, "role": user.role}


@router.get("/overview")
def get_overview(viewer: Asker) -> dict[str, Any]:
    return overview.overview(viewer)


@router.get("/figures")
def get_figures(
    viewer: Asker,
    name: Annotated[list[str], Query(max_length=50, description="in, out, lag, topic:NAME:in, group:NAME:lag, …")],
    seconds: Annotated[int, Query(ge=10, le=7 * 86400)] = 3600,
) -> dict[str, list[tuple[int, float]]]:
    """Figures over time: (ms since 1970, value)."""
    return overview.figures(viewer, name, seconds)


@router.get("/search")
def search(viewer: Asker, text: Annotated[str, Query(max_length=249)] = "") -> list[dict[str, str]]:
    """Topics, groups, pipelines and brokers whose names hold a text."""
    return overview.find(viewer, text)


@router.get("/doctor")
def get_doctor(viewer: Asker) -> list[dict[str, Any]]:
    """Findings of an experienced operator, and what to do about them."""
    return overview.doctor(viewer)


@router.get("/brokers")
def list_brokers(viewer: Asker) -> list[dict[str, Any]]:
    return brokers.brokers(viewer)


@router.get("/brokers/{node}")
def get_broker(viewer: Asker, node: Node) -> dict[str, Any]:
    return brokers.broker(viewer, node)


@router.get("/brokers/{node}/configs")
def broker_configs(viewer: Asker, node: Node) -> list[dict[str, Any]]:
    return brokers.broker_configs(viewer, node)


@router.patch("/brokers/{node}/configs", status_code=204)
def change_broker_configs(viewer: Asker, node: Node, body: models.Changes) -> None:
    brokers.configure(viewer, node, body.changes)


@router.get("/partitions/unusual")
def unusual_partitions(viewer: Asker) -> list[dict[str, Any]]:
    """Partitions that move, miss replicas, or have no leader."""
    return brokers.unusual(viewer)


@router.post("/partitions/plan")
def plan_moves(viewer: Asker, body: models.PlanWanted) -> list[dict[str, Any]]:
    """An even spread over brokers with as few moves as possible; nothing is moved."""
    return brokers.plan(viewer, body.topics, body.brokers)


@router.post("/partitions/moves", status_code=204)
def start_moves(viewer: Asker, body: models.Moves) -> None:
    brokers.reassign(viewer, [move.model_dump() for move in body.moves], body.throttle)


@router.delete("/partitions/moves")
def cancel_moves(viewer: Asker) -> dict[str, int]:
    return {"cancelled": brokers.cancel_moves(viewer)}


@router.post("/partitions/unthrottle", status_code=204)
def unthrottle(viewer: Asker, body: models.Topics) -> None:
    """Take away the limits that moves of these topics were started with."""
    brokers.unthrottle(viewer, body.topics)


@router.post("/partitions/elect")
def elect(viewer: Asker, body: models.Election) -> list[dict[str, Any]]:
    """Leadership back to the preferred replicas."""
    return brokers.elect(viewer, body.topic, body.partitions)


@router.get("/transactions")
def list_transactions(viewer: Asker, query: PageQuery, only_open: bool = False) -> dict[str, Any]:
    return transactions.transaction_page(viewer, query, only_open=only_open).as_json()


@router.get("/transaction")
def get_transaction(viewer: Asker, transactional_id: TransactionalId) -> dict[str, Any]:
    return transactions.transaction(viewer, transactional_id)


@router.post("/transaction/abort")
def abort_transaction(viewer: Asker, body: models.TransactionEnd) -> dict[str, bool]:
    """End an open one; what a pipeline has decided on is committed instead."""
    is_aborted = transactions.abort(viewer, body.id)
    return {"aborted": is_aborted, "committed": not is_aborted}


@router.get("/transactions/hanging")
def hanging_transactions(
    viewer: Asker, seconds: Annotated[float, Query(ge=0, le=31_536_000)] = 900.0
) -> list[dict[str, Any]]:
    """Open on a partition for so long, and no coordinator will end them."""
    return transactions.hanging(viewer, seconds)


@router.post("/transactions/hanging/abort", status_code=204)
def abort_hanging_transaction(viewer: Asker, body: models.HangingEnd) -> None:
    transactions.abort_hanging(viewer, body.topic, body.partition, body.producer_id)
