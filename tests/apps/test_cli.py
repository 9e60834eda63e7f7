"""The command line by itself: help, errors in one line, exit codes; nothing is started here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.flitnet import output

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "demo", "test", "up", "status", "top", "exec", "shell", "replay", "load", "down", "doctor",
    "bench", "soak", "log", "join", "node",
)  # fmt: skip


def flitnet(*argv: str, run: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "flitnet", *argv], capture_output=True, text=True, timeout=60,
        env=dict(os.environ) | {"FLITNET_RUN": str(run)} | env, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, run: Path) -> None:
    done = flitnet(command, "--help", run=run)
    assert done.returncode == 0, done.stderr
    assert f"flitnet {command}" in done.stdout and done.stderr == ""
    assert "default: None" not in done.stdout


def test_what_takes_long_is_imported_for_those_alone_who_need_it(run: Path) -> None:
    """rich takes as long as all else that most commands do, plans and workloads as long as exec."""
    argv = ["/usr/bin/python3", "-I", "-X", "importtime", ROOT / "tools/flitnet/__main__.py"]
    env = dict(os.environ) | {"FLITNET_RUN": str(run)}
    imported = {
        word: subprocess.run(
            [*argv, *word.split()], capture_output=True, text=True, timeout=60, env=env
        )
        for word in ("down", "down --help", "exec n0 -- true")
    }
    assert "| tools.flitnet.workload" not in re.sub(" +", " ", imported["exec n0 -- true"].stderr)
    assert "| typer" in imported["down"].stderr and " rich." not in imported["down"].stderr
    assert " rich." in imported["down --help"].stderr and "╭" in imported["down --help"].stdout


def test_hints_name_the_run_directory_that_was_named(run: Path, tmp_path: Path) -> None:
    named = tmp_path / "a b"
    done = flitnet("--run", str(named), "exec", "n0", "--", "true", run=run)
    hint = f"flitnet --run '{named}' up"
    assert done.stderr == f"flitnet: no cluster in {named}; start one with: {hint}\n"
    done = flitnet("exec", "n0", "--", "true", run=run)
    assert done.stderr == f"flitnet: no cluster in {run}; start one with: flitnet up\n"


def test_help_lists_every_command_and_the_exit_codes(run: Path) -> None:
    done = flitnet("--help", run=run)
    assert done.returncode == 0
    assert all(f" {command} " in done.stdout for command in COMMANDS)
    assert "Exit codes" in done.stdout


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["frob"], "No such command 'frob'"),
        (["demo", "--frob"], "No such option: --frob"),
        (["--run", "", "up"], "--run '': the name of a directory"),
        (["demo", "--load", "3"], "'--load': 3.0 is not in the range"),
        (["demo", "--nodes", "1"], "'--nodes': 1 is not in the range 2<=x<=64"),
        (["demo", "--mix", "80"], "--mix '80': two numbers that make 100"),
        (["demo", "--mix", "80:30"], "--mix '80:30': two numbers that make 100"),
        (["demo", "--clock", "warped"], "--clock 'warped': one of elastic, real, virtual"),
        (["exec", "n0"], "Missing argument"),
        (["replay", "x.mpg", "--from", "n0"], "--to"),
        (["load", "best-effort"], "--rate"),
        (["bench", "coffee"], "bench 'coffee': one of engine, verbs, scale, attach, booksim"),
        (["test", "--only", "luck"], "--only 'luck': one of meson"),
        (["up", "/nonexistent/cluster.toml"], "/nonexistent/cluster.toml: No such file"),
        (["up", "--metrics", "nonsense"], "--metrics nonsense: must be an address and a port"),
        (["up", "--metrics", "127.0.0.1: 9748"], "must be an address and a port"),
        (["up", "--metrics", "[::1]:9748"], "must be an IPv4 address and a port"),
        (["up", "--metrics", "127.0.0.1:0"], "must be an IPv4 address and a port"),
        (["up", "--topology", "file:/dev/null"], "must be a regular file"),
        (["up", "--topology", "tree:9999999x9999999"], "network.topology"),
        (["demo", "--seed", str(1 << 63)], "'--seed': 9223372036854775808 is not in the range"),
        (["load", "control", "--rate", "1M", "--seed", "9" * 30], "'--seed': "),
        (["demo", "--clock", "virtual", "--router", "x"], 'network.router = "x": must be one of'),
        (["demo", "--seconds", "nan"], "'--seconds': nan is no number"),
        (["demo", "--load", "nan"], "'--load': nan is no number"),
        (["demo", "--seconds", "inf"], "'--seconds': inf is not in the range"),
        (["load", "control", "--rate", "1M", "--seconds", "nan"], "'--seconds': nan is no"),
        (["load", "control", "--rate", "1M", "--workload", "x"], "or --workload FILE"),
        (["load", "control", "--rate", "nan"], "--rate 'nan': bits per second"),
        (["replay", "x", "--from", "n0", "--to", "n1", "--seconds", "nan"], "'--seconds': nan"),
        (["capture", "-w", "x", "--seconds", "nan"], "'--seconds': nan is no number"),
        (["soak", "verbs", "--minutes", "nan"], "'--minutes': nan is no number"),
        (["demo", "--json", "/nonexistent/x"], "--json /nonexistent/x: No such file or directory"),
        (["demo", "--json", "/"], "--json /: Is a directory"),
        (["demo", "--json", "-"], "--json -: name a file"),
        (["lab", "run", "mw", "--json", "/nonexistent/x"], "--json /nonexistent/x: No such file"),
        (["bench", "verbs", "--json", "/nonexistent/x"], "--json /nonexistent/x: No such file"),
        (["bench", "engine", "--plot", "/nonexistent/x.svg"], "--plot /nonexistent/x.svg: No such"),
        (["bench", "engine", "--plot", "x.txt"], "--plot x.txt: a name that ends in .svg or .png"),
        (["bench", "booksim", "--plot", "/dev/null"], "--plot /dev/null: File exists"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(argv: list[str], says: str, run: Path) -> None:
    built = os.environ.get("FLITNET_BUILD", str(ROOT / "build"))
    done = flitnet(*argv, run=run, FLITNET_BUILD=built)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("flitnet: ")
    assert says in done.stderr
    assert not run.exists(), "a usage error leaves nothing"


def test_the_check_of_an_output_leaves_what_is_there(run: Path, tmp_path: Path) -> None:
    kept, absent, link = tmp_path / "kept", tmp_path / "absent", tmp_path / "link"
    kept.write_text("kept")
    link.symlink_to(absent)
    for path in (kept, absent, link):
        done = flitnet("demo", "--json", str(path), "--clock", "warped", run=run)
        assert done.returncode == 2 and "--clock 'warped'" in done.stderr
    assert kept.read_text() == "kept" and not absent.exists() and link.is_symlink()


@pytest.mark.parametrize("argv", ["status", "exec n0 -- true", "shell n0", "top"])
def test_without_a_cluster_commands_say_how_to_start_one(argv: str, run: Path) -> None:
    done = flitnet(*argv.split(), run=run)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "flitnet up" in done.stderr


def test_the_version_is_the_projects(run: Path) -> None:
    done = flitnet("--version", run=run)
    assert done.returncode == 0 and done.stdout.startswith("flitnet ")
    assert f"version: '{done.stdout.split()[1]}'" in (ROOT / "meson.build").read_text()


def test_down_without_a_cluster_is_no_error(run: Path) -> None:
    done = flitnet("down", run=run)
    assert done.returncode == 0 and "no cluster" in done.stdout


def test_another_python_on_the_path_does_not_matter(run: Path, tmp_path: Path) -> None:
    false = tmp_path / "bin" / "python3"
    false.parent.mkdir()
    false.write_text("#!/bin/sh\nexit 99\n")
    false.chmod(0o755)
    (tmp_path / "typer.py").write_text("raise SystemExit(98)\n")
    done = flitnet(
        "status", run=run, PATH=f"{false.parent}:{os.environ['PATH']}", PYTHONPATH=str(tmp_path)
    )
    assert done.returncode == 1 and "no cluster" in done.stderr


def test_works_from_another_folder_and_through_a_link(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "flit"
    link.symlink_to(ROOT / "flitnet")
    (tmp_path / "tools").mkdir()  # must not be taken for ours
    done = subprocess.run([link, "down"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_doctor_prints_findings_and_json(run: Path) -> None:
    done = flitnet("doctor", run=run)
    assert "io_uring" in done.stdout and "packages" in done.stdout
    findings = json.loads(flitnet("doctor", "--json", run=run).stdout)
    assert {finding["state"] for finding in findings} <= {"good", "poor", "lacks"}
    assert done.returncode == (1 if any(f["state"] == "lacks" for f in findings) else 0)
    assert flitnet("doctor", "--frob", run=run).returncode == 2


def test_the_run_directory_named_first_changes_nothing(run: Path) -> None:
    for named in (["--run", str(run)], [f"--run={run}"]):
        done = flitnet(*named, "doctor", "--json", run=run)
        assert json.loads(done.stdout), done.stderr
        done = flitnet(*named, "bench", "coffee", "--json", run=run)
        assert "bench 'coffee': one of engine" in done.stderr


def test_doctor_names_a_missing_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tools.flitnet import doctor

    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "packages.txt").write_text("python3\nno-such-package-1  # test\n")
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    found = doctor.packages()
    assert found.state == "lacks" and "no-such-package-1" in found.found
    if os.getuid() == 0:
        # The command that really installs it: `demo` leaves out what is marked.
        assert found.advice == "./flitnet test installs them"
        (tmp_path / "tools" / "packages.txt").write_text("python3\nno-such-package-1\n")
        assert doctor.packages().advice == "./flitnet demo installs them"


def test_package_list_is_what_the_start_script_reads() -> None:
    lines = (ROOT / "tools" / "packages.txt").read_text().splitlines()
    names = [line.partition("#")[0].strip() for line in lines]
    names = [name for name in names if name]
    assert len(names) == len(set(names)) and all(" " not in name for name in names)


def test_missing_packages_without_root_are_one_line(tmp_path: Path) -> None:
    """A copy of the script with one more package, run as nobody: says what to run, exits 1."""
    if os.getuid() != 0:
        pytest.skip("needs root to become nobody")
    (tmp_path / "tools").mkdir()
    script = tmp_path / "flitnet"
    script.write_text((ROOT / "flitnet").read_text())
    script.chmod(0o755)
    (tmp_path / "tools" / "packages.txt").write_text("bash\nno-such-package-1\n")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
        if folder == Path("/tmp"):
            break
    done = subprocess.run(
        [script, "demo"], capture_output=True, text=True, timeout=60, user=65534, group=65534
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "apt-get install --no-install-recommends no-such-package-1" in done.stderr
    (tmp_path / "tools" / "flitnet").mkdir()
    (tmp_path / "tools" / "flitnet" / "__main__.py").write_text("print('doctor came')\n")
    for words in (["doctor"], ["--run", "x", "doctor"], ["--run=x", "doctor"]):
        done = subprocess.run([script, *words], capture_output=True, text=True, timeout=60)
        assert done.stdout == "doctor came\n", "which needs no package"


def test_two_commands_do_not_build_at_once(tmp_path: Path) -> None:
    """The second says that it waits, and goes on when the first has ended, also by a signal."""
    directory = tmp_path / "build"
    first, second = (
        subprocess.Popen(
            [sys.executable, "-B", "-c", HOLDS_A_BUILD, str(directory)], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    )  # fmt: skip
    with first, second:
        for process in (first, second):
            assert process.stdin and process.stdout and process.stderr
        first.stdin.write("go\n")
        first.stdin.flush()
        assert first.stdout.readline() == "mine\n"
        second.stdin.write("go\n")
        second.stdin.flush()
        assert "another command works in" in second.stderr.readline()
        first.kill()
        assert second.stdout.readline() == "mine\n"
        second.stdin.close()
        assert second.wait(30) == 0


HOLDS_A_BUILD = """
import sys
from pathlib import Path
from tools.flitnet import build
sys.stdin.readline()
with build.alone(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.readline()
"""


def test_a_reader_that_goes_away_is_no_traceback(run: Path) -> None:
    """As `flitnet ... | head -1` is: here nobody reads from the beginning."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [ROOT / "flitnet", "down"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60,
        env=dict(os.environ) | {"FLITNET_RUN": str(run)},
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


FULL = "flitnet: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("down >&-", 0, ""),
        ("down >/dev/full", 1, FULL),
        ("--version >/dev/full", 1, FULL),
        ("doctor --help >&-", 0, ""),
        ("doctor --help >/dev/full", 1, FULL),
        ("frob 2>/dev/full", 2, ""),
        ("frob <&- >&- 2>&-", 2, ""),
    ],
)
def test_output_that_nobody_takes(words: str, code: int, says: str, run: Path) -> None:
    """A closed file is for nobody to hear; a full disk is an error, said once."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {ROOT}/flitnet {words}"], capture_output=True, text=True,
        timeout=60, env=dict(os.environ) | {"FLITNET_RUN": str(run)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, says)


def test_interrupted_while_it_starts_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", INTERRUPTED_AT_ITS_START], cwd=ROOT, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "flitnet: interrupted\n")


def test_dpkg_is_asked_again_only_when_something_changed(tmp_path: Path) -> None:
    tree, log = tmp_path / "tree", tmp_path / "log"
    for folder in ("tools/flitnet", "build"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(ROOT / "flitnet", tree)
    packages = tree / "tools/packages.txt"
    packages.write_text("bash\n")
    (tree / "tools/flitnet/__main__.py").write_text("print('as ever')")
    dpkg = tmp_path / "bin/dpkg-query"
    dpkg.parent.mkdir()
    dpkg.write_text(f'#!/bin/sh\necho asked >>{log}\nexec /usr/bin/dpkg-query "$@"\n')
    dpkg.chmod(0o755)

    def times_asked(*argv: str) -> int:
        log.write_text("")
        path = f"{dpkg.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [tree / "flitnet", *argv], env=os.environ | {"PATH": path}, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "as ever\n", "")
        return log.read_text().count("asked")

    assert [times_asked("status") for _ in range(3)] == [1, 0, 0]
    assert [times_asked("lab", "list") for _ in range(2)] == [1, 0], "it wants more"
    packages.write_text("bash\ncoreutils\n")
    assert [times_asked("status") for _ in range(2)] == [1, 0], "another list"
    (tree / "build/.packages.run").write_text("of another host\n")
    assert [times_asked("status") for _ in range(2)] == [1, 0]
    shutil.rmtree(tree / "build")
    assert [times_asked("status") for _ in range(2)] == [1, 1], "nowhere to remember it"


INTERRUPTED_AT_ITS_START = """
import os, runpy, signal, sys

class Impatient:
    def find_spec(self, name, *rest):
        if name == "tools.flitnet.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Impatient())
sys.argv = ["flitnet", "status"]
runpy.run_path("tools/flitnet/__main__.py", run_name="__main__")
"""


def test_an_error_names_the_link_and_not_where_it_leads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`replay` on a full disk said of the user's clip that there is no space left on its device."""
    link = tmp_path / "none" / "clip"
    with pytest.raises(OSError) as failed:
        link.symlink_to(ROOT / "README.md")
    assert output.say_os(failed.value, 1) == 1
    assert capsys.readouterr().err == f"flitnet: {link}: No such file or directory\n"
