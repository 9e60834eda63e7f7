"""schema.json is a valid JSON Schema, and `fabricd --check` judges as it does."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import pytest

from tools.flitnet import config, part, paths
from tools.flitnet.errors import UsageError

SCHEMA = json.loads((paths.ROOT / "emu/config/schema.json").read_text())


def check(path: Path) -> tuple[int, str]:
    done = subprocess.run(
        [paths.program("fabricd"), "--check", path], capture_output=True, text=True, timeout=30
    )
    return done.returncode, done.stderr


def schema_accepts(text: str) -> bool:
    return jsonschema.Draft7Validator(SCHEMA).is_valid(tomllib.loads(text))


def test_schema_is_valid() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for section in SCHEMA["properties"].values():
        keys = section.get("properties") or section["items"]["properties"]
        for key, rule in keys.items():
            if "default" in rule:
                jsonschema.validate(rule["default"], rule)
            assert rule["description"], key


GOOD = [
    "",
    "[network]\nlink_mbps = 1600\nflit_bits = 32\n",
    '[network]\ntopology = "mesh"\nk = 5\n',
    '[qos]\nscheduler = "two_level"\nqos_vlarb_high = "4:64,5:32"\n',
    '[network]\nrouter = "tr"\ncrossbar = "full"\nengine = "general"\nvc_buf_size = 300\n',
    '[qos]\nscheduler = "fgfq"\nblock_flits = 5\ncounters = "overflow"\n',
    "[controls]\npower_cap_w = 21\nadmission = false\n",
    '[attach]\nlisten = "255.249.19.9:65535"\nfabric = "10.0.0.1:1"\n',
    '[[node]]\nname = "alpha"\nip = "10.0.0.1"\n[[node]]\nname = "beta"\n',
]
BAD = [
    "[network]\nlink_mbps = 0\n",
    "[network]\nlink_mbps = 1.5\n",
    "[network]\nflit_bits = 100\n",
    "[network]\nunknown = 1\n",
    "[nowhere]\n",
    '[clock]\nmode = "warped"\n',
    "[controls]\npower_rt_share = -0.1\n",
    "[qos]\nqos_sl2vl = [1, 2, 3]\n",
    '[qos]\nqos_vlarb_low = "0:64,"\n',
    '[network]\nrouter = "quick"\n',
    "[qos]\nblock_flits = 0\n",
    '[[node]]\nname = "../evil"\n',
    '[[node]]\nip = "10.0.0.1"\n',
    '[[node]]\nname = "a"\nip = "999.1.1.1"\n',
    '[[node]]\nname = "a"\nip = "1.2.3"\n',
    'node = "n0"\n',
    "attach = 3\n",
    '[attach]\nlisten = "999.0.0.1:4791"\n',
    '[attach]\nlisten = "127.0.0.1:65536"\n',
    '[attach]\nlisten = "127.0.0.1:0"\n',
    '[attach]\nfabric = "127.0.0.1:0"\n',
]


@pytest.mark.parametrize("text", GOOD)
def test_both_accept(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    assert schema_accepts(text)
    assert check(tmp_path / "c.toml") == (0, "")


@pytest.mark.parametrize("text", BAD)
def test_both_refuse_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    assert not schema_accepts(text)
    code, error = check(tmp_path / "c.toml")
    assert code == 2
    assert error.count("\n") == 1 and "c.toml:" in error


def test_what_is_read_before_the_start_is_of_its_type(tmp_path: Path) -> None:
    for text, said in ("attach = 3\n", "a table"), ("[attach]\nfabric = 5\n", "IPv4:port"):
        (tmp_path / "c.toml").write_text(text)
        with pytest.raises(UsageError, match=said):
            part.chosen(config.read(tmp_path / "c.toml"), "n0", fabric=True)


def test_ethdev_needs_a_device(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[attach]\nkind = "ethdev"\n')
    code, error = check(tmp_path / "c.toml")
    assert code == 2 and 'attach.ethdev = "": must be a device' in error


def test_what_the_network_cannot_tell_is_refused_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[network]\ntopology = "tree:2x2"\nrouter = "vct"\nvc_buf_size = 40\n'
        '[controls]\ncongestion = "vct1"\nnotice = "message"\n'
    )
    code, error = check(tmp_path / "c.toml")
    assert code == 2 and error.count("\n") == 1, error
    assert 'c.toml: controls.notice = "message": a router has no node that could send' in error


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.toml").write_bytes(bytes(range(256)))
    for path in (tmp_path / "missing.toml", tmp_path / "empty", tmp_path / "binary.toml"):
        code, error = check(path)
        assert code == 2 and error.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "network = 3\n", "qos = 3\n", "a = 3\n", "[[network]]\nk = 4\n", "node = [3]\n",
        "[network.k]\nx = 3\n", "[network]\nk = 2020-01-01\n", "[network]\nlink_mbps = nan\n",
        "[network]\nnodes = -1\n[[node]]\n[[node]]\n", "[network]\nk = 1e300\ntopology = 'mesh'\n",
        "[network]\nnodes = 100\n" + "[[node]]\n" * 100, "[network]\nk = [[1]]\n",
    ],
    ids=range(12),
)  # fmt: skip
def test_a_malformed_file_is_named_also_beside_flags(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    for flags in ([], ["--topology", "mesh:2x2"], ["--scheduler", "rr"]):
        done = subprocess.run(
            [paths.ROOT / "flitnet", "--run", tmp_path / "r", "up", file, *flags],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if flags and done.returncode == 0:  # the flag mends the file
            subprocess.run([paths.ROOT / "flitnet", "--run", tmp_path / "r", "down"], timeout=60)
            continue
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr[-500:]


def test_what_flags_leave_of_a_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[[node]]\nname = "ä😀"\n[network]\nlink_mbps = 100\n', encoding="utf-8")
    tables = tomllib.loads(config.with_network(file, {"qos.scheduler": "rr"}))
    assert tables == {
        "node": [{"name": "ä😀"}], "network": {"link_mbps": 100}, "qos": {"scheduler": "rr"},
    }  # fmt: skip


COMMENTED = """# of ours

[attach]
key_file = "my.key"  # beside this

[qos]

scheduler = "rr"
[network]
link_mbps = 0 # none
nodes = 2
"""


@pytest.mark.parametrize(("flags", "line"), [
    ([], "my.toml:10: network.link_mbps = 0: "),
    (["--crossbar", "full"], "my.toml:10: network.link_mbps = 0: "),
    (["--scheduler", "fifo"], 'cluster.toml: qos.scheduler = "fifo": '),
    (["--topology", "mesh:9x9"], "my.toml:10: network.link_mbps = 0: "),
], ids=range(4))  # fmt: skip
def test_the_users_own_line_is_named(tmp_path: Path, flags: list[str], line: str) -> None:
    """Also where daemons get another text than the user's, without comments and blank lines."""
    file = tmp_path / "my.toml"
    file.write_text(COMMENTED if "fifo" not in flags else COMMENTED.replace("= 0", "= 400"))
    done = subprocess.run(
        [paths.ROOT / "flitnet", "--run", tmp_path / "r", "up", file, *flags],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith(f"flitnet: {line}"), done.stderr


def refused(file: config.ClusterFile) -> str:
    with pytest.raises(UsageError) as error:
        config.check(file)
    return str(error.value)


def test_what_a_topologys_file_has_is_no_line_of_the_users(tmp_path: Path) -> None:
    network = '[[switch]]\nname = "s"\nports = 4\n[[node]]\nat = "s:0"\n[[node]]\nat = "s:1"\n'
    (tmp_path / "net.toml").write_text(network)
    file = tmp_path / "my.toml"
    file.write_text('\n\n[network]\n\ntopology = "file:net.toml" # beside\n"a \\"b" = 1\n')
    assert refused(config.read(file)).startswith('my.toml:6: network.a "b: unknown key')


@pytest.mark.parametrize(("text", "says"), [
    ('\n[[node]]\nname = "a"\n\n[[node]]\n\nname = "b"\nip = "1"\n', "my.toml:8: node.ip = "),
    ("\nnetwork = { link_mbps = 0 }\n", "my.toml:2: network.link_mbps = 0"),
    ("\n\nnetwork.link_mbps = 0\n", "my.toml:3: network.link_mbps = 0"),
    ("\n\n[no.where]\n", "my.toml:3: no"),
    ("\n[ 'network' ] # of ours\n\n'link_mbps' = 0\n", "my.toml:4: network.link_mbps = 0"),
], ids=range(5))  # fmt: skip
def test_lines_are_found_however_they_are_written(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "my.toml"
    file.write_text(text)
    for choices in ({}, {"crossbar": "full"}):
        assert refused(config.with_flags(file, choices)).startswith(says)


def test_flags_have_no_line() -> None:
    what = refused(config.with_flags(None, {"topology": "single:99"}))
    assert what.startswith('cluster.toml: network.topology = "single:99": must be ')


def test_keys_that_need_quotes_have_them() -> None:
    tables = {"a b": {"c.d": 1, 'e"\n': [2]}, "node": [{"": "x"}]}
    assert tomllib.loads(config.to_toml(tables)) == tables


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    """As some editors put it in front of UTF-8."""
    file = tmp_path / "marked.toml"
    file.write_bytes(b"\xef\xbb\xbf[network]\nnodes = 3\n")
    assert check(file) == (0, "")
    config.check(read := config.read(file))
    assert read.node_names == ("n0", "n1", "n2")
    assert tomllib.loads(config.with_network(file, {"k": "5"}))["network"]["nodes"] == 3


def test_a_key_file_is_beside_its_cluster_file(tmp_path: Path) -> None:
    """The run directory has a copy of the file, which daemons read from anywhere."""
    file = tmp_path / "c.toml"
    file.write_text('[attach]\nkind = "udp"\nkey_file = "my.key"\n')
    read = tomllib.loads(config.read(file).text)["attach"]
    assert read == {"kind": "udp", "key_file": str(tmp_path / "my.key")}
    file.write_text(text := '[attach]\nkey_file = "/etc/my.key"  # as it is\n')
    assert config.read(file).text == text
