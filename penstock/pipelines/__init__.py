"""Data pipelines: declared in YAML, SQL or Python, run on Spark, exactly once.

    from penstock.pipelines import Pipeline

    pipeline = Pipeline("orders-clean")
    pipeline.source("orders", topic="orders", format={"type": "json", "schema": "id STRING, amount DOUBLE"})

    @pipeline.view
    def clean(orders):
        return orders.where("amount > 0")

    pipeline.sink("out", clean, topic="orders.clean", key="id")

Nothing here starts Spark or opens a connection; `execution.run` and the command line do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.pipelines.spec import PipelineSpec, SpecError
    from penstock.pipelines.spec_python import Pipeline

__all__ = ["Pipeline", "PipelineSpec", "SpecError"]


def __getattr__(name: str) -> Any:
    """Loaded when asked for: Spark's workers import `penstock.pipelines.spark` in every process and need none of it."""
    if name == "Pipeline":
        from penstock.pipelines.spec_python import Pipeline

        return Pipeline
    if name in ("PipelineSpec", "SpecError"):
        from penstock.pipelines import spec

        return getattr(spec, name)
    raise AttributeError(name)
