"""docker-compose.yml and the dashboards beside it, checked without a Docker engine."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
SECRETS = {"POSTGRES_PASSWORD", "QDRANT_API_KEY", "FALKORDB_PASSWORD", "BRAID_KEY_PEPPER", "GRAFANA_ADMIN_PASSWORD"}

ENDS = {"migrate"}  # does its work and stops

each_service = pytest.mark.parametrize("name", SERVICES)
each_server = pytest.mark.parametrize("name", sorted(SERVICES.keys() - ENDS))


def test_the_file_follows_the_compose_schema() -> None:
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text("utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(COMPOSE)] == []


@each_service
def test_every_image_is_pinned_to_a_version(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+[a-z0-9.-]*", SERVICES[name]["image"])


@each_server
def test_every_server_says_whether_it_is_healthy(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


@each_service
def test_every_service_is_reachable_from_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@each_service
def test_a_service_waits_until_what_it_needs_is_healthy_or_done(name: str) -> None:
    needs = SERVICES[name].get("depends_on", {})
    ready = {need: "service_completed_successfully" if need in ENDS else "service_healthy" for need in needs}
    assert needs == {need: {"condition": condition} for need, condition in ready.items()}


def test_only_the_migration_holds_the_password_of_the_owner() -> None:
    assert [n for n, s in SERVICES.items() if "BRAID_POSTGRES_ADMIN_URL" in s.get("environment", {})] == ["migrate"]


def test_no_secret_is_in_the_file_or_has_a_default() -> None:
    secret = re.compile(r"PASSWORD|API_KEY|PEPPER|AUTH|_URL|REDIS_ARGS")
    values = {k: v for service in SERVICES.values() for k, v in service.get("environment", {}).items()}
    literal = {k: re.sub(r"\$\{[A-Z_]+:\?[^}]+\}", "", v) for k, v in values.items() if secret.search(k)}
    plain = {"http://qdrant:6333", "redis://falkordb:6379", "postgresql://braid:@postgres:5432/braid"}
    plain |= {"postgresql://postgres:@postgres:5432/braid"}
    assert set(literal.values()) == {"", "--requirepass  --appendonly yes"} | plain


def test_every_secret_is_asked_for_and_explained_in_the_example() -> None:
    asked = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))
    lines = [line for line in (ROOT / ".env.example").read_text().splitlines() if not line.startswith("#")]
    assert asked == SECRETS
    assert sorted(lines) == sorted(f"{name}=" for name in SECRETS)


def test_every_mounted_file_and_volume_exists() -> None:
    sources = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])]
    missing = [s for s in sources if not (ROOT / s).exists() and s not in COMPOSE["volumes"]]
    assert missing == []


def test_prometheus_scrapes_the_port_that_braid_listens_on() -> None:
    scrape = yaml.safe_load((ROOT / "dashboards/prometheus.yml").read_text())["scrape_configs"][0]
    assert scrape["metrics_path"] == "/metrics"
    assert scrape["static_configs"] == [{"targets": ["braid:8080"]}]
