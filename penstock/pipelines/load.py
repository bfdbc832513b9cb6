"""A pipeline from a file of any form: YAML, SQL or Python."""

from __future__ import annotations

from pathlib import Path

from penstock.pipelines import spec_python, spec_sql, spec_yaml
from penstock.pipelines.spec import PipelineSpec, SpecError

_FORMS = {
    ".yml": spec_yaml.load_file,
    ".yaml": spec_yaml.load_file,
    ".sql": spec_sql.load_file,
    ".py": spec_python.load_file,
}


def load(path: Path) -> PipelineSpec:
    """Checked, but without asking any cluster."""
    if not path.is_file():
        raise SpecError(f"there is no file {path}")
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise SpecError(f"{path.name} is none of {', '.join(_FORMS)}", place=str(path))
    try:
        return form(path)
    except UnicodeDecodeError:
        raise SpecError("this is no text in UTF-8", place=str(path)) from None


def is_spark_declarative(path: Path) -> bool:
    """Spark's own pipeline files have a fixed name."""
    return path.name in ("spark-pipeline.yml", "spark-pipeline.yaml")
