"""The house keeps its rules: every rule on the real tree, and every rule on a made-up violation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tidy import rules
from tests.tidy.rules import Tree

ROOT = Path(__file__).resolve().parents[2]
TREE = Tree(ROOT)


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_rule(rule) -> None:
    assert len(TREE.cpp) > 10, "the rule must see the tree"
    violations = rule(TREE)
    assert not violations, "\n" + "\n".join(violations)


def test_every_room_of_the_table_exists() -> None:
    missing = [room for room in rules.ALLOWED if not (ROOT / room).is_dir()]
    assert not missing


def test_the_table_has_no_cycle() -> None:
    def expand(names: tuple[str, ...]) -> list[str]:
        return [r for n in names for r in rules.ALLOWED if r == n or r.startswith(n + "/")]

    order: list[str] = []
    rooms = dict(rules.ALLOWED)
    while rooms:
        ready = [room for room, names in rooms.items() if set(expand(names)) <= set(order)]
        assert ready, f"rooms that include each other: {sorted(rooms)}"
        order += ready
        for room in ready:
            del rooms[room]


# One violation per rule: files of a made-up tree, and what the rule must say about them.
LONG_BODY = "void grow(int a) {\n" + "  a++;\n" * 69 + "}\n"
LINK = "-> elsewhere"
VIOLATIONS = [
    ("include_direction", {"hca/host/a.cc": '#include "fabric/router/b.h"\n'}, "a.cc:1: hca/host"),
    ("include_direction", {"emu/lane/a.h": '#include "emu/config/b.h"\n'}, "emu/lane may not"),
    ("include_direction", {"fabric/link/a.h": '#include "hca/wire/b.h"\n'}, "fabric/link may"),
    ("include_direction", {"emu/attic/a.h": ""}, "not a room"),
    ("include_paths", {"emu/base/a.cc": '#include "b.h"\n', "emu/base/b.h": ""}, '"b.h" is not'),
    ("include_paths", {"emu/base/a.cc": "#include <emu/base/b.h>\n"}, "use quotes"),
    ("third_party", {"hca/host/a.cc": "#include <rte_mbuf.h>\n"}, "<rte_mbuf.h> may stand"),
    ("third_party", {"fabric/daemon/loop.cc": "#include <rte_eal.h>\n"}, "loop.cc:1"),
    ("third_party", {"tools/replay/a.cc": "#include <libavformat/avformat.h>\n"}, "tools/trace/"),
    ("room_papers", {"emu/base/a.h": "", "emu/base/meson.build": ""}, "has no README.md"),
    ("banned_calls", {"tools/load/a.cc": 'int x = system("ls");\n'}, "a.cc:1: system()"),
    ("banned_calls", {"emu/lane/a.cc": "\nusleep(3);\n"}, "a.cc:2: a library does not wait"),
    ("banned_calls", {"tools/load/a.cc": 'fmt::print(stderr, "no");\n'}, "throws where stderr"),
    ("banned_calls", {"tools/flitnet/a.py": "run('ls', shell=True)\n"}, "no shell strings"),
    ("one_namespace", {"emu/base/a.h": "namespace hca {\n}\n"}, "namespace hca in emu"),
    ("file_headers", {"emu/base/a.h": "#pragma once\n"}, "no sentence"),
    ("line_length", {"emu/base/a.cc": "x" * 101 + "\n"}, "101 columns"),
    ("file_length", {"emu/base/a.cc": "\n" * 500}, "500 lines"),
    ("function_length", {"emu/base/a.cc": LONG_BODY}, "a.cc:grow: 71 lines"),
    ("function_length", {"a.py": "def f():\n" + "    x = 1\n" * 70}, "a.py:f: 71 lines"),
    ("machine_paths", {"README.md": "cd /" + "work/main\n"}, "README.md:1"),
    ("symbolic_links", {"build": LINK}, "build: a symbolic link"),
    ("documented_paths", {"README.md": "see `emu/base/gone.h`\n"}, "emu/base/gone.h is not there"),
    ("defined_twice", {
        "hca/host/a.h": "namespace hca {\nstruct A {\n};\n}  // namespace hca\n",
        "hca/verbs/a.h": "namespace hca {\nnamespace {\nstruct A {\n};\n}  // namespace\n"
                         "class A : B {\n};\n}  // namespace hca\n",
    }, "hca/verbs/a.h:6: hca::A is in hca/host/a.h"),
    ("imported_twice", {"a.py": "from a import b\nfrom c import d as b\n"}, "a.py:2: b is"),
    ("formatting", {"emu/base/a.cc": "int  x;\n"}, "a.cc:1: not formatted"),
]


def plant(root: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text == LINK:
            path.symlink_to(root)
        else:
            path.write_text(text)
    shutil.copy(ROOT / ".clang-format", root)
    return Tree(root, {}, {})


@pytest.mark.parametrize(
    ("rule", "files", "says"), VIOLATIONS, ids=[f"{v[0]}-{i}" for i, v in enumerate(VIOLATIONS)]
)
def test_violation_is_found(tmp_path: Path, rule: str, files: dict, says: str) -> None:
    found = getattr(rules, rule)(plant(tmp_path, files))
    assert len(found) == 1 and says in found[0], found


def test_every_rule_has_a_made_up_violation() -> None:
    assert {rule.__name__ for rule in rules.RULES} == {violation[0] for violation in VIOLATIONS}


def test_good_code_passes(tmp_path: Path) -> None:
    end = "}  // namespace emu\n"
    header = "// Says what it is for.\n#pragma once\n\nnamespace emu {\nint f();\n" + end
    body = '#include "emu/base/a.h"\n\nnamespace emu {\nint f() { return 1; }\n' + end
    test = "#include <rte_mbuf.h>\n"
    files = {"emu/base/a.h": header, "emu/base/a.cc": body, "emu/base/README.md": "",
             "emu/base/meson.build": "", "tests/unit/fabric/port/a_test.cc": test}  # fmt: skip
    tree = plant(tmp_path, files)
    assert [line for rule in rules.RULES for line in rule(tree)] == []


def test_without_git_what_gitignore_names_is_not_of_the_tree(tmp_path: Path) -> None:
    ours = [".ci/a.py", "emu/base/a.py", "emu/build.py", "tools/build/a.py"]
    others = ["build/python/a.py", "build-asan/a.py", ".venv/a.py", ".cache/a.py",
              "emu/__pycache__/a.py", "emu/base/a.pyc"]  # fmt: skip
    tree = plant(tmp_path, dict.fromkeys(ours + others, ""))
    shutil.copy(ROOT / ".gitignore", tmp_path)
    assert tree.python == ours
    assert set(tree.files) == {*ours, ".clang-format", ".gitignore"}


def test_an_exception_that_is_not_needed_fails(tmp_path: Path) -> None:
    tree = plant(tmp_path, {"emu/base/a.cc": "int x;\n"})
    tree.long_files = {"emu/base/a.cc": 600}
    assert "short enough" in rules.file_length(tree)[0]


def test_functions_are_measured(tmp_path: Path) -> None:
    code = """namespace emu {
struct S {
  int twice(int x) const {
    auto f = [&](int y) {
      return y;
    };
    return f(x) * 2;
  }
};
template <class T>
Result<T> S::make(
    int a) {
  for (int i = 0; i < a; i++) {
  }
  return {};
}
}
"""
    (tmp_path / "a.cc").write_text(code)
    found = list(rules.cpp_functions(rules.strip(Tree(tmp_path), "a.cc")))
    assert found == [("twice", 6), ("S::make", 7)]
