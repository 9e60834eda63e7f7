"""What the cluster counts, as the world sees it: Debian's Prometheus scrapes the exporter, promtool
checks the text, node_exporter reads the sysfs-shaped tree, the dashboards name what exists.

The pages come from tests/unit/tools/exporter/page_writer, which counts as daemons would; one test
asks a real cluster.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.flitnet import paths, record
from tools.flitnet.cluster import Cluster
from tools.flitnet.process import free_port

DASHBOARDS = paths.ROOT / "dashboards"
DEADLINE_S = 30.0  # for something of ours to appear; only a failing test waits so long
NODES = ("n0", "n1")


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def until(what: str, ask: Callable[[], Any]) -> Any:
    """Asks until the answer is true; the last answer or error is in the failure."""
    end = time.monotonic() + DEADLINE_S
    last: Any = None
    while time.monotonic() < end:
        try:
            if last := ask():
                return last
        except (OSError, ValueError, KeyError, IndexError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"{what}: {last!r}")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


@dataclass
class Program:
    popen: subprocess.Popen[str]
    log: Path

    def stop(self) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(15)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait(5)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def run(*argv: str | Path) -> Program:
        log = tmp_path / f"program{len(programs)}.log"
        with log.open("w") as out:
            popen = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=out, text=True)
        programs.append(Program(popen, log))
        return programs[-1]

    yield run
    for program in reversed(programs):
        program.stop()


@dataclass
class Exporter:
    url: str
    run: Path
    program: Program
    writer: Program


@pytest.fixture
def exporter(tmp_path: Path, start: Callable[..., Program]) -> Exporter:
    """A run directory in which somebody counts, and the exporter of it."""
    run = tmp_path / "run"
    run.mkdir()
    names = "\n".join(f'[[node]]\nname = "{node}"' for node in NODES)
    (run / "cluster.toml").write_text(names + "\n")
    writer = start(paths.build_dir() / "tests/unit/tools/exporter/page_writer", run, *NODES)
    until("pages", lambda: "ready" in writer.log.read_text())
    program = start(
        paths.program("flitnet-exporter"), "--run", run, "--listen", "127.0.0.1:0"
    )
    return Exporter(served(program), run, program, writer)


def catalog() -> list[dict[str, Any]]:
    done = subprocess.run(
        [paths.program("flitnet-exporter"), "--catalog"],
        capture_output=True, check=True, timeout=30,
    )  # fmt: skip
    return json.loads(done.stdout)


def exported_names() -> set[str]:
    names = set()
    for metric in catalog():
        names.add(metric["name"])
        if metric["kind"] == "histogram":
            names |= {metric["name"] + end for end in ("_bucket", "_sum", "_count")}
    return names


def served(program: Program) -> str:
    """Where an exporter that was told port 0 answers."""
    port = until("exporter", lambda: re.search(r"port (\d+)", program.log.read_text())).group(1)
    return f"http://127.0.0.1:{port}"


def test_promtool_likes_every_metric(tmp_path: Path, start: Callable[..., Program]) -> None:
    """Of the catalogue, as the exporter writes it."""
    (tmp_path / "cluster.toml").touch()
    writer = paths.build_dir() / "tests/unit/tools/exporter/page_writer"
    subprocess.run([writer, tmp_path], check=True, timeout=30)
    run = [paths.program("flitnet-exporter"), "--run", tmp_path, "--listen", "127.0.0.1:0"]
    text = get(served(start(*run)) + "/metrics")
    families = set(re.findall(r"^# TYPE (flitnet_\w+) ", text, re.MULTILINE))
    assert families == {metric["name"] for metric in catalog()}
    done = subprocess.run(
        [need("promtool"), "check", "metrics"],
        input=text, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    # exposer_* are prometheus-cpp's own.
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("exposer_")]
    assert complaints == []


def test_the_text_is_what_was_counted(exporter: Exporter) -> None:
    text = get(exporter.url + "/metrics")
    labels = 'node="n1",device="flitnet0",port="1"'
    received = "flitnet_device_port_data_received_bytes_total{" + labels + "} 4000"
    assert received in text.splitlines()
    assert "flitnet_power_cap_watts 2.5" in text.splitlines()
    # A program that ended well has had its last word, and keeps it.
    done = 'flitnet_stream_delivered_frames_total{stream="s0",from="n0",to="n0"} 600'
    assert done in text.splitlines()


def test_who_connects_and_asks_nothing_holds_nobody_up(exporter: Exporter) -> None:
    """Not even where they have more connections than there are threads."""
    host, port = exporter.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as silent:
        for _ in range(20):
            silent.enter_context(socket.create_connection((host, int(port))))
        assert "# HELP" in get(exporter.url + "/metrics")


def test_a_killed_process_is_not_exported(exporter: Exporter) -> None:
    assert "flitnet_power_cap_watts" in get(exporter.url + "/metrics")
    exporter.writer.popen.kill()
    exporter.writer.popen.wait(5)
    text = get(exporter.url + "/metrics")
    assert "flitnet_power_cap_watts" not in text
    assert "flitnet_stream_delivered_frames_total" in text


def test_garbage_pages_disturb_nobody(exporter: Exporter) -> None:
    metrics = exporter.run / "metrics"
    page = (metrics / "fabricd.page").read_bytes()
    (metrics / "truncated.page").write_bytes(page[: len(page) // 3])
    (metrics / "zeros.page").write_bytes(bytes(10_000))
    (metrics / "text.page").write_text("no page at all")
    assert "flitnet_power_cap_watts 2.5" in get(exporter.url + "/metrics")
    assert exporter.program.popen.poll() is None


def test_prometheus_scrapes_it(
    exporter: Exporter, start: Callable[..., Program], tmp_path: Path
) -> None:
    prometheus = need("prometheus")
    shutil.copytree(DASHBOARDS / "rules", tmp_path / "rules")
    target = exporter.url.removeprefix("http://")
    config = (DASHBOARDS / "prometheus.yml").read_text().replace("127.0.0.1:9748", target)
    (tmp_path / "prometheus.yml").write_text(config)
    port = free_port()
    start(
        prometheus, f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/tsdb", f"--web.listen-address=127.0.0.1:{port}",
    )  # fmt: skip

    def query(expression: str) -> list[dict[str, Any]]:
        text = urllib.parse.quote(expression)
        answer = json.loads(get(f"http://127.0.0.1:{port}/api/v1/query?query={text}"))
        return answer["data"]["result"]

    until("a scrape", lambda: query('up{job="flitnet"} == 1'))
    words = until(
        "a counter", lambda: query('flitnet_device_port_data_transmitted_bytes_total{node="n0"}')
    )
    assert words[0]["metric"]["device"] == "flitnet0"
    # The recording rules have results, and the p99 is that of 20 us.
    p99 = until("a rule", lambda: query("class:flitnet_latency_seconds:p99 > 0"))
    assert 16e-6 < float(p99[0]["value"][1]) < 33e-6
    until("rates", lambda: query("switch_port:flitnet_flits_per_emulated_second:rate10s > 0"))
    rules = json.loads(get(f"http://127.0.0.1:{port}/api/v1/rules"))
    for rule in rules["data"]["groups"][0]["rules"]:
        assert rule["health"] == "ok", rule
    # Every expression of the dashboard is PromQL that Prometheus takes.
    for expression in dashboard_expressions():
        query(expression)


def test_node_exporter_reads_the_tree(exporter: Exporter, start: Callable[..., Program]) -> None:
    node_exporter = need("prometheus-node-exporter")
    tree = exporter.run / "sys"
    until("the tree", lambda: (tree / "class/infiniband/n1-flitnet0/ports/1/state").exists())
    port = free_port()
    start(
        node_exporter, f"--path.sysfs={tree}", "--collector.disable-defaults",
        "--collector.infiniband", f"--web.listen-address=127.0.0.1:{port}",
    )  # fmt: skip

    def sample(name: str) -> float | None:
        for line in get(f"http://127.0.0.1:{port}/metrics").splitlines():
            if line.startswith(name + "{") and 'device="n1-flitnet0"' in line:
                return float(line.rsplit(" ", 1)[1])
        return None

    # node_exporter turns words into bytes.
    got = until("a count", lambda: sample("node_infiniband_port_data_received_bytes_total"))
    assert got == 4000
    until("counts", lambda: sample("node_infiniband_port_data_transmitted_bytes_total"))
    assert sample("node_infiniband_state_id") == 4
    assert sample("node_infiniband_physical_state_id") == 5
    assert sample("node_infiniband_rate_bytes_per_second") == 50e6
    assert sample("node_infiniband_port_packets_received_total") == 25
    assert sample("node_infiniband_port_transmit_wait_total") == 7
    success = 'node_scrape_collector_success{collector="infiniband"} 1'
    assert success in get(f"http://127.0.0.1:{port}/metrics")


def test_it_ends_cleanly(exporter: Exporter) -> None:
    until("the tree", (exporter.run / "sys/nodes/n0").exists)
    assert exporter.program.stop() == 0
    assert not (exporter.run / "sys").exists()


def test_it_leaves_its_tree_to_who_takes_the_cluster_down(exporter: Exporter) -> None:
    """Thousands of files in a large cluster: `down` removes them with all others, and would not
    wait so long for an exporter."""
    until("the tree", (exporter.run / "sys/nodes/n0").exists)
    (exporter.run / record.ENDING).touch()
    assert exporter.program.stop() == 0
    assert (exporter.run / "sys/class/infiniband/n0-flitnet0/ports/1/state").exists()


def test_bad_usage(tmp_path: Path) -> None:
    def code(*argv: str) -> tuple[int, str]:
        done = subprocess.run(
            [paths.program("flitnet-exporter"), *argv], capture_output=True, text=True, timeout=30
        )
        return done.returncode, done.stderr

    assert code()[0] == 2
    assert code("--no-such-option")[0] == 2
    for address in ("999.1.1.1:1", "127.0.0.1:99999", "127.0.0.1", "localhost:1", "127.0.0.1:"):
        status, text = code("--run", str(tmp_path), "--listen", address)
        assert (status, text.count("\n")) == (2, 1) and address in text
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, text = code("--run", str(tmp_path), "--listen", address)
        assert (status, text.count("\n")) == (1, 1)
        assert f"cannot listen on {address}: another program listens there; choose" in text
    status, text = code("--run", str(tmp_path), "--listen", "192.0.2.1:9748")
    assert status == 1 and text.endswith("192.0.2.1:9748: this host has no such address\n")
    done = subprocess.run(
        [paths.program("flitnet-exporter"), "--run", tmp_path, "--json"],
        capture_output=True, check=True, timeout=30,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"pages": []}


def dashboard_expressions() -> list[str]:
    panels = json.loads((DASHBOARDS / "grafana/flitnet.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_dashboards_name_what_exists() -> None:
    known = exported_names()
    rules = (DASHBOARDS / "rules/flitnet.yml").read_text()
    recorded = set(re.findall(r"record: (\S+)", rules))
    text = "\n".join(dashboard_expressions()) + rules
    used = set(re.findall(r"(?<![\w:])flitnet_\w+(?![\w:])", text))
    assert len(used) > 20
    assert used <= known
    named = set(re.findall(r"\b\w+:flitnet_\w+:\w+", "\n".join(dashboard_expressions())))
    assert named and named <= recorded


def test_prometheus_configuration_is_valid() -> None:
    done = subprocess.run(
        [need("promtool"), "check", "config", DASHBOARDS / "prometheus.yml"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def alerts_at(tmp_path: Path, alert: str, series: dict[str, str], labels: str | None) -> None:
    """After 8 s of these series the alert fires with these labels, or, for None, it does not."""
    expected = [] if labels is None else [{"exp_labels": json.loads(labels)}]
    test = {"alert_rule_test": [{"eval_time": "8s", "alertname": alert, "exp_alerts": expected}]}
    evaluate(tmp_path, series, test)


def evaluate(
    tmp_path: Path, series: dict[str, str], test: dict[str, Any], interval: str = "1s"
) -> None:
    """The rules over these series, a value an interval, are as promtool's `test` says."""
    rules = (DASHBOARDS / "rules/flitnet.yml").read_text()
    # Its texts are not compared: promtool would want each as it reads with its values.
    (tmp_path / "rules.yml").write_text(re.sub(r"\n +annotations: .*", "", rules))
    (tmp_path / "test.yml").write_text(json.dumps({
        "rule_files": ["rules.yml"], "evaluation_interval": interval,
        "tests": [{
            "interval": interval,
            "input_series": [{"series": name, "values": v} for name, v in series.items()],
            **test,
        }],
    }))  # fmt: skip
    done = subprocess.run(
        [need("promtool"), "test", "rules", tmp_path / "test.yml"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("port", "fabric", "fires"),
    [
        ("1+0x8", "1+0x8", False),
        ("0+0x8", "1+0x8", True),  # flitnet link n1 down
        ("1 1 1 stale", "1 1 1 0 0 0 0 0 0", True),  # killed: its own series end
        ("stale", "0 0 1 1 1 1 1 1 1", False),  # it comes up
    ],
)
def test_a_node_that_is_down_raises_an_alert(
    tmp_path: Path, port: str, fabric: str, fires: bool
) -> None:
    series = {
        'flitnet_device_port_up{node="n1",device="flitnet0",port="1"}': port,
        'flitnet_attach_up{node="n1",side="fabric",kind="shm"}': fabric,
        'flitnet_attach_up{node="n0",side="fabric",kind="shm"}': "1+0x8",
    }
    labels = json.dumps({"node": "n1", "severity": "critical"}) if fires else None
    alerts_at(tmp_path, "FlitnetNodeDown", series, labels)


@pytest.mark.parametrize(
    ("clock", "fires"), [("1+1x8", False), ("1 2 3 stale", True)]
)  # fmt: skip
def test_a_fabric_that_is_down_raises_an_alert(tmp_path: Path, clock: str, fires: bool) -> None:
    series = {
        'flitnet_clock_emulated_seconds_total{instance="a:1",job="flitnet"}': clock,
        'up{instance="a:1",job="flitnet"}': "1+0x8",
        # Another cluster runs, and so does a host that joined one.
        'flitnet_clock_emulated_seconds_total{instance="b:1",job="flitnet"}': "1+1x8",
        'up{instance="b:1",job="flitnet"}': "1+0x8",
        'up{instance="c:1",job="flitnet"}': "1+0x8",
    }
    who = {"instance": "a:1", "job": "flitnet", "severity": "critical"}
    labels = json.dumps(who) if fires else None
    alerts_at(tmp_path, "FlitnetFabricDown", series, labels)


def test_a_fabric_that_stays_down_stays_an_alert(tmp_path: Path) -> None:
    """For days, and over a quarter of an hour in which its exporter is not heard either. A host
    that was taken out of service, and joins another's fabric later, raises none."""
    down, who = "1 2 3 stale _x1600 4+1x20", 'job="flitnet"'
    series = {
        f'flitnet_clock_emulated_seconds_total{{instance="a:1",{who}}}': down,
        f'up{{instance="a:1",{who}}}': "1+0x1500 0+0x15 1+0x300",
        f'flitnet_clock_emulated_seconds_total{{instance="b:1",{who}}}': "1 2 3 stale",
        f'up{{instance="b:1",{who}}}': "1+0x600 0+0x900 1+0x300",
    }
    fires = [{"exp_labels": {"instance": "a:1", "job": "flitnet", "severity": "critical"}}]
    evaluate(tmp_path, series, {
        "alert_rule_test": [
            {"eval_time": when, "alertname": "FlitnetFabricDown", "exp_alerts": expected}
            for when, expected in (("1450m", fires), ("1510m", []), ("1590m", fires),
                                   ("1615m", []))
        ],
    }, interval="1m")  # fmt: skip


def test_two_clusters_of_one_prometheus_stay_two(tmp_path: Path) -> None:
    """Their routers, classes and nodes have the same names."""
    series, ports, classes = {}, [], []
    for instance, speed in (("a:1", 1), ("b:1", 3)):
        who = f'instance="{instance}",job="flitnet"'
        latency = f'flitnet_class_latency_seconds_bucket{{{who},class="control",node="n0"'
        series |= {
            f"flitnet_clock_emulated_seconds_total{{{who}}}": "0+1x30",
            f'flitnet_switch_transmitted_flits_total{{{who},switch="0",port="0",vl="0"}}':
                f"0+{100 * speed}x30",
            latency + f',le="{speed}"}}': "0+1x30",
            latency + ',le="+Inf"}': "0+1x30",
            f'flitnet_device_port_up{{{who},node="n0"}}': f"{speed // 2}+0x30",
        }  # fmt: skip
        ports.append({
            "labels": "switch_port:flitnet_flits_per_emulated_second:rate10s"
                      f'{{instance="{instance}",switch="0",port="0"}}',
            "value": 100 * speed,
        })  # fmt: skip
        classes.append({
            "labels": f'class:flitnet_latency_seconds:p99{{instance="{instance}",class="control"}}',
            "value": 0.99 * speed,
        })  # fmt: skip
    down = {"instance": "a:1", "node": "n0", "severity": "critical"}
    evaluate(tmp_path, series, {
        "promql_expr_test": [
            {"expr": found[0]["labels"].partition("{")[0], "eval_time": "20s", "exp_samples": found}
            for found in (ports, classes)
        ],
        "alert_rule_test": [{
            "eval_time": "20s", "alertname": "FlitnetNodeDown",
            "exp_alerts": [{"exp_labels": down}],
        }],
    })  # fmt: skip


def test_no_dashboard_adds_clusters_up() -> None:
    text = "\n".join(dashboard_expressions()) + (DASHBOARDS / "rules/flitnet.yml").read_text()
    adding = re.findall(r"\b(?:sum|min|max|avg|count)\b(?: (?:by|without) \([^)]*\))? ?\(", text)
    assert len(adding) > 8
    assert [one for one in adding if " by (instance" not in one] == []
    assert "on ()" not in text


@pytest.mark.parametrize(("delivered", "fires"), [("30+30x8", True), ("600+0x8", False)])
def test_a_late_stream_raises_an_alert_while_it_runs(
    tmp_path: Path, delivered: str, fires: bool
) -> None:
    who = {"stream": "s0", "from": "n0", "to": "n1"}
    labels = "{" + ",".join(f'{key}="{value}"' for key, value in who.items()) + "}"
    series = {
        "flitnet_stream_deadline_missing_ratio" + labels: "0.05+0x8",
        "flitnet_stream_delivered_frames_total" + labels: delivered,
    }
    expected = json.dumps(who | {"severity": "warning"}) if fires else None
    alerts_at(tmp_path, "FlitnetStreamLate", series, expected)


def test_the_readme_serves_where_prometheus_scrapes() -> None:
    served = re.findall(r"up --metrics ([\d.:]+)", (paths.ROOT / "README.md").read_text())
    assert served
    scraped = (DASHBOARDS / "prometheus.yml").read_text()
    assert all(f'"{address}"' in scraped for address in served)


@pytest.mark.parametrize(
    ("program", "options"),
    [("flitnet-exporter", ["--catalog"]), ("flitnet-trace", ["{}/long.trace", "--json"])],
)
def test_a_full_disk_is_an_error(program: str, options: list[str], tmp_path: Path) -> None:
    """Not only where the last bytes do not fit."""
    (tmp_path / "long.trace").write_text("".join(f"{i} P 0.1 {i}\n" for i in range(9000)))
    options = [option.format(tmp_path) for option in options]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [paths.program(program), *options], stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=30,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"{program}: cannot write\n"


@pytest.mark.parametrize(
    ("program", "argv", "code"),
    [
        ("flitnet-exporter", [], 2),
        ("flitnet-trace", ["/nonexistent"], 2),
        ("flitnet-point", ["/nonexistent"], 2),
        ("flitnet-replay", ["--node", "n0", "--rendezvous", "/nonexistent"], 2),
        ("flitnet-load", ["frob", "--node", "n0", "--to", "n1", "--rendezvous", "/nonexistent"], 2),
        ("flitnet-capture", ["--ring", "/nonexistent", "--write", "-"], 1),
        ("flitnet-sim", ["--config", "/nonexistent"], 2),
        ("fabricd", [], 2),
        ("hcad", ["--run", "/nonexistent", "--node", "n0"], 2),
    ],
)  # fmt: skip
def test_a_complaint_that_nobody_hears_is_no_crash(
    program: str, argv: list[str], code: int
) -> None:
    """The log of a program may be on a full disk."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([paths.program(program), *argv], stderr=full, timeout=30)
    assert done.returncode == code


def test_a_real_cluster_is_exported(cluster2: Cluster) -> None:
    """Every node is up, the clock runs, and the lane counters of the router are there."""

    def series() -> dict[str, list[dict[str, Any]]]:
        done = subprocess.run(
            [paths.program("flitnet-exporter"), "--run", cluster2.run, "--json"],
            capture_output=True, check=True, timeout=30,
        )  # fmt: skip
        found: dict[str, list[dict[str, Any]]] = {}
        for page in json.loads(done.stdout)["pages"]:
            assert page["alive"] and page["skipped"] == 0
            for one in page["series"]:
                found.setdefault(one["name"], []).append(one)
        return found

    def all_up() -> bool:
        return [s["value"] for s in series()["flitnet_device_port_up"]] == [1, 1]

    until("ports up", all_up)
    before = series()["flitnet_clock_emulated_seconds_total"][0]["value"]
    until("time", lambda: series()["flitnet_clock_emulated_seconds_total"][0]["value"] > before)
    found = series()
    lanes = {s["labels"]["vl"] for s in found["flitnet_switch_transmitted_flits_total"]}
    assert lanes == {str(vl) for vl in range(16)}
    named = {metric["name"] for metric in catalog()}
    assert set(found) <= named
    # Nothing in the catalogue is only a promise: what is of daemons is there. Frames are of UDP,
    # streams and loads of programs.
    frames = ("_frames_total",)
    of_programs = ("flitnet_stream_", "flitnet_load_")
    missing = {
        name for name in named - set(found)
        if not name.startswith(of_programs) and not name.endswith(frames)
    }  # fmt: skip
    assert missing == set()


def test_help_names_every_value_of_a_reason() -> None:
    """Of hcad's counters: what a label may hold stands in the text that goes with it."""
    publish = (paths.ROOT / "hca/daemon/publish.cc").read_text()
    catalog = (paths.ROOT / "emu/metrics/catalog.inc").read_text()
    named = re.findall(r'add_reason\(Metric::(\w+), "(\w+)"', publish)
    refusals = r'Metric::(admission_refused), \{node, device, "(\w+)"'
    named += re.findall(refusals, publish)
    assert len(named) > 7
    for metric, value in named:
        help = re.search(rf"METRIC\({metric},(.*?)\)\n(?=METRIC|\n|//)", catalog, re.DOTALL)[1]
        assert re.search(rf"[ (\"]{value}[,.)]", help), (metric, value)
