"""tools/examples: each language says hello to the others, through two nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.apps.test_rdma_cm import address, assert_good, run_pair
from tools.flitnet import paths
from tools.flitnet.cluster import Cluster

PORTS = iter(range(19400, 19450))
EXAMPLES = paths.ROOT / "tools" / "examples"
DEBIAN_PYTHON = "/usr/bin/python3"  # python3-pyverbs is built for it
CARGO_S = 600


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    program = tmp_path_factory.mktemp("c") / "hello"
    argv = ["cc", "-Wall", "-Werror", "-o", str(program), str(EXAMPLES / "hello.c")]
    subprocess.run([*argv, "-lrdmacm", "-libverbs"], check=True)
    return [str(program)]


@pytest.fixture(scope="module")
def python() -> list[str]:
    if subprocess.run([DEBIAN_PYTHON, "-c", "import pyverbs.cmid"]).returncode != 0:
        pytest.skip("pyverbs is missing: apt-get install python3-pyverbs")
    return [DEBIAN_PYTHON, str(EXAMPLES / "hello.py")]


# rdma-sys makes its bindings with it; with version 16 its bindgen fails.
LIBCLANG = Path("/usr/lib/llvm-14/lib")


@pytest.fixture(scope="module")
def rust() -> list[str]:
    """Built beside the project's own objects, so that it is built once."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing")
    if not list(LIBCLANG.glob("libclang.so*")) and not list(LIBCLANG.glob("libclang-14*")):
        pytest.skip("libclang is missing: apt-get install libclang1-14 libclang-common-14-dev")
    target = paths.build_dir() / "examples-rust"
    env = dict(os.environ, CARGO_TARGET_DIR=str(target), LIBCLANG_PATH=str(LIBCLANG))
    manifest = ["--locked", "--manifest-path", str(EXAMPLES / "rust" / "Cargo.toml")]
    fetched = subprocess.run(["cargo", "fetch", *manifest], env=env, capture_output=True, text=True)
    if fetched.returncode != 0:
        pytest.skip(f"no crates to be had: {fetched.stderr.strip().splitlines()[-1]}")
    argv = ["cargo", "build", "--offline", *manifest]
    built = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=CARGO_S)
    assert built.returncode == 0, built.stderr
    return [str(target / "debug" / "hello")]


def hello(cluster: Cluster, server: list[str], client: list[str]) -> tuple[str, str]:
    """What the server and the client heard."""
    port = str(next(PORTS))
    pair = run_pair(
        cluster, [*server, "server", port], [*client, "client", address(cluster, "n0"), port]
    )
    assert_good(pair)
    return pair[1], pair[0].stdout


def test_c(cluster2: Cluster, c: list[str]) -> None:
    assert hello(cluster2, c, c) == ("heard: hello from C\n", "heard: hello to you, from C\n")


def test_python(cluster2: Cluster, python: list[str], c: list[str]) -> None:
    assert hello(cluster2, python, python) == (
        "heard: hello from Python\n", "heard: hello to you, from Python\n",
    )  # fmt: skip
    assert hello(cluster2, c, python)[0] == "heard: hello from Python\n"


def test_rust(cluster2: Cluster, rust: list[str], c: list[str]) -> None:
    assert hello(cluster2, rust, rust) == (
        "heard: hello from Rust\n", "heard: hello to you, from Rust\n",
    )  # fmt: skip
    assert hello(cluster2, c, rust)[0] == "heard: hello from Rust\n"
