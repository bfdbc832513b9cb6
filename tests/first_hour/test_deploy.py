"""What lies under deploy/ is checked with the tools of those who read it: systemd, Kubernetes' schemas, promtool."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.base.metrics import METRICS, PREFIX
from penstock.base.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
sys.path.append(str(ROOT / "scripts"))


@pytest.mark.parametrize("name", ["penstock.service", "penstock@.service"])
def test_systemd_takes_the_unit_without_a_word(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    text = (DEPLOY / "systemd" / name).read_text()
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/penstock/bin/penstock", sys.executable))
    seen = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    # An unknown key is only a warning to systemd: its output must be empty, not just its exit code 0.
    said = [line for line in seen.stderr.splitlines() if line.startswith((name, str(unit), "penstock"))]
    assert said == []


@pytest.mark.parametrize("name", sorted(path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")))
def test_kubernetes_takes_the_manifests(name: str) -> None:
    import kubernetes_validate

    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))
    assert documents
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_a_wrong_manifest_is_noticed() -> None:
    import kubernetes_validate

    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"porst": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, kubernetes_validate.latest_version(), strict=True)


def _properties_of_the_config_map() -> str:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "20-penstock.yaml").read_text())
    config_map: dict[str, Any] = next(document for document in documents if document["kind"] == "ConfigMap")
    return str(config_map["data"]["server.properties"])


def test_the_settings_that_are_deployed_are_settings(tmp_path: Path) -> None:
    for text in (_properties_of_the_config_map(), (DEPLOY / "systemd" / "server.properties").read_text()):
        file = tmp_path / "server.properties"
        file.write_text(text)
        Settings.load(file, {})


def test_the_container_starts_with_settings_that_exist() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text().replace("\\\n", " ")
    found = re.search(r"^CMD (\[.*\])$", text, re.M)
    assert found is not None
    words = json.loads(found[1])
    assert words[0] == "broker"
    Settings.load(None, dict(pair.split("=", 1) for pair in words[2::2]))


def test_the_compose_file_names_the_container_file() -> None:
    service = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())["services"]["penstock"]
    context = DEPLOY / "container" / service["build"]["context"]
    assert (context / service["build"]["dockerfile"]).is_file()
    assert shlex.join(service["healthcheck"]["test"])


def test_prometheus_takes_the_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not on this machine (Debian: prometheus)")
    rules = DEPLOY / "prometheus" / "penstock-rules.yaml"
    subprocess.run(["promtool", "check", "rules", str(rules)], check=True, capture_output=True)


def test_rules_and_dashboard_ask_for_metrics_that_exist() -> None:
    known = {f"{PREFIX}{metric.name}" + ("_total" if metric.kind == "counter" else "") for metric in METRICS}
    asked = set()
    for path in (DEPLOY / "prometheus" / "penstock-rules.yaml", DEPLOY / "grafana" / "penstock.json"):
        asked |= set(re.findall(r"\bpenstock_\w+", path.read_text()))
    assert {name.removesuffix("_bucket") for name in asked} - known == set()


def test_the_dashboard_is_what_its_table_renders() -> None:
    import render_dashboard

    assert (DEPLOY / "grafana" / "penstock.json").read_text() == render_dashboard.render()
