"""The deployment files are valid by the rules of the programs that read them."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from lightmeter.cli import _root
from lightmeter.service.metrics import Metrics

DEPLOY = Path(__file__).resolve().parents[3] / ".deploy"
CHART = DEPLOY / "helm" / "lightmeter"
BIN = Path(sys.executable).parent


def run(*command, **options):
    """Run a program of this environment or of the machine; skip if it is not installed."""
    program = shutil.which(command[0], path=BIN) or shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run([program, *map(str, command[1:])], capture_output=True, text=True, check=False, **options)


def check_schema(*arguments):
    """Run the program check-jsonschema in this process, as its imports take seconds; all files must be valid."""
    checked = CliRunner().invoke(pytest.importorskip("check_jsonschema").main, [*map(str, arguments)])
    assert checked.exit_code == 0, checked.output


@cache
def compose():
    """The parsed compose file."""
    return yaml.safe_load((DEPLOY / "compose.yml").read_text())


def settle(text):
    """Replace `${NAME:-value}` in a text of the compose file by the value."""
    return re.sub(r"\$\{\w+(?::[-?]([^}]*))?\}", lambda found: found[1] or "", text)


def commands():
    """The arguments of every `lightmeter` command in the deployment files, by where they stand."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    found = {"Dockerfile": json.loads(re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)[-1])}
    for name, service in compose()["services"].items():
        if service["image"].startswith("lightmeter"):
            found[f"compose {name}"] = [settle(argument) for argument in service["command"]]
    for unit in sorted({*(DEPLOY / "systemd").glob("*.service")} - {*(DEPLOY / "systemd").glob("*prefect*")}):
        for number, line in enumerate(re.findall(r"^ExecStart\w*=(.*)$", unit.read_text(), re.MULTILINE)):
            program, *arguments = shlex.split(line.replace("$NIGHT_OPTIONS", "photos.csv --out out --budget 500"))
            assert program == "/opt/lightmeter/bin/lightmeter"
            found[f"{unit.name} {number}"] = arguments
    return found


def accept(arguments):
    """Let the command line parse arguments; raise if it does not accept them."""
    context = click.Context(_root)
    command = _root.get_command(context, arguments[0])
    assert command is not None
    command.make_context(arguments[0], list(arguments[1:]), parent=context)


def test_the_dockerfile_follows_the_rules_of_hadolint():
    """The Dockerfile has no finding of hadolint."""
    result = run("hadolint", DEPLOY / "Dockerfile")
    assert (result.returncode, result.stdout) == (0, "")


def test_the_compose_file_has_the_published_schema():
    """The compose files are valid by the schema of the compose specification."""
    assert len(list(DEPLOY.glob("compose*.yml"))) == 2
    files = sorted(DEPLOY.glob("compose*.yml"))
    check_schema("--builtin-schema", "vendor.compose-spec", *files)


@pytest.mark.parametrize(
    ("place", "arguments"), commands().items(), ids=lambda value: value if type(value) is str else ""
)
def test_the_command_line_accepts_every_command(place, arguments):
    """No deployment file names a command or an option that does not exist."""
    accept(arguments)


def test_the_night_of_systemd_may_be_cut_short():
    """An interrupted run is not a failed unit, and is told to stop by the signal after which it stores its answers."""
    unit = (DEPLOY / "systemd" / "lightmeter-night.service").read_text()
    assert "KillSignal=SIGINT" in unit
    assert "SuccessExitStatus=130" in unit


def test_prefect_starts_again_and_keeps_its_leases():
    """A server or worker of Prefect that ends is started again, and the server has a lease storage that exists."""
    server, worker = (
        (DEPLOY / "systemd" / f"lightmeter-prefect{name}.service").read_text() for name in ("", "-worker")
    )
    for unit in (server, worker):
        assert "Restart=always" in unit
    module = re.search(r"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE=(\S+)", server)[1]
    assert importlib.import_module(module).ConcurrencyLeaseStorage is not None


def test_systemd_accepts_the_units(tmp_path):
    """The systemd units have no finding of systemd-analyze."""
    for unit in (DEPLOY / "systemd").iterdir():
        text = unit.read_text().replace("/opt/lightmeter/bin", str(BIN))
        name = unit.name.replace("@.", "@1.")
        (tmp_path / name).write_text(text.replace("User=lightmeter", "User=root"))
    result = run("systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir()))
    assert [line for line in result.stderr.splitlines() if str(tmp_path) in line] == []
    assert result.returncode == 0, result.stderr


def test_dashboard_and_alerts_name_metrics_that_exist():
    """Every metric in a panel of Grafana and in an alert is one that services and workers report."""
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "lightmeter.json").read_text())
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for text in expressions for name in re.findall(r"\b(?:lightmeter|process)_\w+", text)}
    known = set(re.findall(r"^# TYPE (\w+)", Metrics().as_text().decode(), re.MULTILINE))
    assert len(named) > 10
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in named} - known == set()


def test_the_panels_of_the_dashboard_do_not_overlap():
    """No two panels of the dashboard cover the same cell of Grafana's grid of 24 columns."""
    panels = json.loads((DEPLOY / "grafana" / "dashboards" / "lightmeter.json").read_text())["panels"]
    cells = [
        (column, row)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24


def test_targets_of_prometheus_are_services_of_the_compose_file():
    """Prometheus scrapes and alerts hosts that the compose file starts."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    static = [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
    hosts = {
        host.partition(":")[0] for job in static for group in job.get("static_configs", ()) for host in group["targets"]
    }
    hosts |= {name for job in static for found in job.get("dns_sd_configs", ()) for name in found["names"]}
    assert hosts == {"service-1", "service-2", "worker", "alertmanager"}
    assert hosts <= compose()["services"].keys()


def test_prometheus_accepts_its_files():
    """The configuration and the alert rules have no finding of promtool."""
    for check in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
        result = run("promtool", "check", check[0], DEPLOY / "prometheus" / check[1])
        assert result.returncode == 0, result.stdout + result.stderr


def test_caddy_accepts_its_file():
    """The configuration of the proxy is valid."""
    result = run("caddy", "validate", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile")
    assert result.returncode == 0, result.stderr


def chart_values(**changes):
    """The default values of the chart, with some sections changed."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    return values | {name: values[name] | change for name, change in changes.items()}


VALUES = {
    "default": chart_values(),
    "everything": chart_values(
        keda={"enabled": True},
        ingress={"enabled": True, "host": "analysis.example.org", "tlsSecret": "tls", "className": "nginx"},
        podMonitor={"enabled": True},
        worker={"options": ["--backends", "tags,colors"]},
    )
    | {"providerSecrets": ["openai"], "publicUrl": "https://analysis.example.org", "otlpEndpoint": "http://otel:4318"},
}


@pytest.mark.filterwarnings("ignore:The metaschema specified:DeprecationWarning")  # it is the program's own
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_values_of_the_chart_have_its_schema(values, tmp_path):
    """Values that the templates read are values that the chart's schema allows."""
    (tmp_path / "values.json").write_text(json.dumps(values))
    check_schema("--schemafile", CHART / "values.schema.json", tmp_path / "values.json")


@pytest.mark.sweep
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_chart_renders_valid_objects(values, tmp_path):
    """Go's template engine renders objects that Kubernetes' schemas allow, with commands that exist."""
    environment = {"HOME": str(tmp_path), "GOCACHE": str(tmp_path / "go"), "GOTOOLCHAIN": "local", "PATH": "/usr/bin"}
    context = {
        "Values": values,
        "Release": {"Name": "night", "Service": "Helm"},
        "Chart": yaml.safe_load((CHART / "Chart.yaml").read_text()) | {"AppVersion": "0.1.0"},
    }
    source = Path(__file__).with_name("helm_template.go")
    result = run("go", "run", source, CHART / "templates", input=json.dumps(context), env=environment)
    assert result.returncode == 0, result.stderr
    objects = [document for document in yaml.safe_load_all(result.stdout) if document]
    kinds = [document["kind"] for document in objects]
    assert kinds.count("Deployment") == 2
    assert ("ScaledObject" in kinds) == values["keda"]["enabled"]
    for document in objects:
        if document["kind"] not in {"ScaledObject", "PodMonitor"}:  # defined by their operators
            (tmp_path / "object.yaml").write_text(yaml.safe_dump(document))
            checked = run("kubernetes-validate", "--kubernetes-version", "1.33", "--strict", tmp_path / "object.yaml")
            assert checked.returncode == 0, f"{document['kind']}: {checked.stdout}{checked.stderr}"
        if document["kind"] in {"Deployment", "Job"}:
            pod = document["spec"]["template"]["spec"]
            accept(pod["containers"][0]["args"])
            assert pod["securityContext"]["runAsNonRoot"] is True
