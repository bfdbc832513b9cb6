"""REST of pipelines: look, check, try, apply, start, stop, reset, delete; their dead letters."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from penstock.console.data import letters, pipelines
from penstock.console.rest import models
from penstock.console.rest.app import Asker, new_router

router = new_router("pipelines")

Pipeline = Annotated[str, Path(min_length=1, max_length=200)]


@router.get("/pipelines")
def list_pipelines(viewer: Asker) -> list[dict[str, Any]]:
    """A row for each query of each pipeline."""
    return pipelines.pipelines(viewer)


@router.post("/pipelines", status_code=201)
def apply_pipeline(viewer: Asker, body: models.SpecApply) -> dict[str, Any]:
    """Store a pipeline, in YAML. 409 says who changed it meanwhile, and when."""
    return pipelines.apply(viewer, body.text, body.expected)


@router.post("/pipelines/check")
def check_pipeline(viewer: Asker, body: models.SpecText) -> dict[str, Any]:
    """Is it a pipeline? Nothing is stored."""
    return pipelines.check(viewer, body.text)


@router.post("/pipelines/dry-run")
def dry_run_pipeline(viewer: Asker, body: models.SpecText) -> dict[str, Any]:
    """What each sink would get of the newest records; nothing is written."""
    return pipelines.dry_run(viewer, body.text)


@router.get("/pipelines/{name}")
def get_pipeline(viewer: Asker, name: Pipeline) -> dict[str, Any]:
    return pipelines.pipeline(viewer, name)


@router.get("/pipelines/{name}/flow")
def pipeline_flow(viewer: Asker, name: Pipeline) -> dict[str, Any]:
    """Its graph, with states and rows per second as of the last look."""
    return pipelines.flow(viewer, name)


@router.get("/pipelines/{name}/log")
def pipeline_log(
    viewer: Asker, name: Pipeline, count: Annotated[int, Query(ge=1, le=10_000)] = 200
) -> list[dict[str, Any]]:
    return pipelines.log_lines(viewer, name, count)


@router.post("/pipelines/{name}/state")
def change_pipeline(viewer: Asker, name: Pipeline, body: models.Desired) -> dict[str, Any]:
    """Start, stop, or restart what runs."""
    return pipelines.change(viewer, name, body.desired)


@router.post("/pipelines/{name}/reset")
def reset_pipeline(viewer: Asker, name: Pipeline, body: models.PipelineReset) -> dict[str, Any]:
    """Forget what was read and start over."""
    return pipelines.reset(viewer, name, backfill=body.backfill)


@router.delete("/pipelines/{name}", status_code=204)
def delete_pipeline(viewer: Asker, name: Pipeline) -> None:
    pipelines.delete(viewer, name)


@router.get("/pipelines/{name}/letters")
def pipeline_letters(
    viewer: Asker, name: Pipeline, limit: Annotated[int, Query(ge=1, le=letters.MOST_SHOWN)] = 100
) -> dict[str, Any]:
    """What it could not use, and why."""
    return letters.letters(viewer, name, limit)


@router.post("/pipelines/{name}/letters/redrive")
def redrive_letters(viewer: Asker, name: Pipeline, body: models.Redrive) -> dict[str, Any]:
    """Write dead letters back to where they came from, each once."""
    return letters.redrive(viewer, name, reason=body.reason, skip=body.skip, dry_run=body.dry_run)
