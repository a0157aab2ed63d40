"""The rules of the house: who may import what, what may not be written, and that the set-up files agree with each other."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest
from hypothesis import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
ROOMS = ("envs", "policies", "engine", "tune")
SOURCES = sorted(path for folder in (*ROOMS, "parley") for path in (ROOT / folder).glob("**/*.py"))
HEAVY = ("ray", "torch", "matplotlib")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "parley" else ("parley", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = [module_name(path) for path in SOURCES]


@cache
def parsed(path: Path) -> ast.Module:
    """A file's tree, which all rules read."""
    return ast.parse(path.read_text(encoding="utf-8"))


def of_files(problems: Callable[[Path], Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The problems of all sources that have any, by file."""
    found = {str(path.relative_to(ROOT)): problems(path) for path in SOURCES}
    return {path: several for path, several in found.items() if several}


def below(*packages: str) -> list[str]:
    return [name for name in MODULES if any(name == package or name.startswith(package + ".") for package in packages)]


def without_ray() -> list[str]:
    """The modules that the contract keeps off Ray, with the patterns of their packages."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (kept,) = [contract for contract in contracts if contract.get("forbidden_modules") == ["ray"]]
    # A star stands for one name, as import-linter reads it.
    patterns = [name.replace(".", r"\.").replace("*", r"[^.]+") + r"(\..+)?" for name in kept["source_modules"]]
    return [name for name in MODULES if any(re.fullmatch(pattern, name) for pattern in patterns)]


def imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").split(".")[0])
    return roots


def loaded_by(modules: list[str], forbidden: tuple[str, ...]) -> list[str]:
    """Which of the forbidden packages a fresh interpreter has loaded after importing the modules."""
    lines = [f"import {name}" for name in modules]
    code = "\n".join(["import sys", *lines, f"print(*[name for name in {forbidden!r} if name in sys.modules])"])
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every call of a plain or dotted name in a piece of code: line number, name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


def undocumented(classes: Sequence[ast.ClassDef]) -> list[str]:
    """Public methods of public classes without a docstring, those left out that override a documented one of ours."""
    called: defaultdict[str, list[ast.ClassDef]] = defaultdict(list)
    for each in classes:
        called[each.name].append(each)

    def is_said(owner: ast.ClassDef, method: str, below: tuple[str, ...]) -> bool:
        own = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == method]
        if any(map(ast.get_docstring, own)):
            return True
        plain = [base.value if isinstance(base, ast.Subscript) else base for base in owner.bases]
        names = {ast.unparse(base).rpartition(".")[2] for base in plain} - set(below)
        return any(is_said(base, method, (*below, name)) for name in names for base in called[name])

    return [
        f"{owner.name}.{node.name}"
        for owner in classes
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and not owner.name.startswith("_") and not node.name.startswith("_")
        if not is_said(owner, node.name, (owner.name,))
    ]


def test_a_public_method_says_what_it_does_unless_a_base_class_of_ours_has_said_it() -> None:
    others = [path for room in ("benchmarks", "examples") for path in (ROOT / room).rglob("*.py")]
    trees = [parsed(path) for path in [*SOURCES, *others]]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len(classes) > 300
    assert undocumented(classes) == []


def test_a_method_without_words_is_found_where_no_base_class_has_any() -> None:
    code = """
class Base:
    def said(self): "Words."
    def unsaid(self): pass
class Other(packages.Base[int]):
    def said(self): pass
    def unsaid(self): pass
    def own(self): pass
    def _private(self): pass
class Base:
    def own(self): pass
"""
    classes = [node for node in ast.parse(code).body if isinstance(node, ast.ClassDef)]
    assert undocumented(classes) == ["Base.unsaid", "Other.unsaid", "Other.own", "Base.own"]


def test_envs_import_only_what_a_world_needs() -> None:
    # Extras install them: for Chinese text alone (`envs/corpora/pairs/tokens.py`), for `envs/core/storage/conditional.py`, and
    # for `envs/negotiation/pettingzoo_env.py`.
    extras = {"jieba", "obstore", "pettingzoo"}
    allowed = set(sys.stdlib_module_names) | extras | {"parley", "gymnasium", "numpy", "pyarrow", "tokenizers", "yaml"}
    strays = {str(path): imported_roots(path) - allowed for path in sorted((ROOT / "envs").rglob("*.py"))}
    assert {path: roots for path, roots in strays.items() if roots} == {}


def test_envs_load_neither_torch_nor_ray() -> None:
    assert loaded_by(below("parley.envs"), HEAVY) == []


def test_pure_rings_and_policies_work_without_ray() -> None:
    assert loaded_by(without_ray(), ("ray",)) == []


def test_no_files_import_each_other_in_a_circle_but_for_types() -> None:
    graph = grimp.build_graph("parley", exclude_type_checking_imports=True)
    # A circle is named by the error.
    assert list(
        TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).static_order()
    )


def test_every_package_of_a_system_but_verbs_pages_and_training_stands_in_the_contract() -> None:
    kept = set(without_ray())
    packages = {name for name in MODULES if re.fullmatch(r"parley\.engine\.(?!core|demo|responders)\w+\.\w+", name)}
    folders = {name for name in packages if (ROOT / Path(*name.split(".")[1:])).is_dir()}
    assert {name for name in folders if name.split(".")[-1] not in {"verbs", "page", "rl", "hardening"}} <= kept
    assert len(kept & folders) > 12


@pytest.mark.skipif("parley.engine.core.cli.main" not in MODULES, reason="the command line is not there")
def test_command_line_starts_without_heavy_imports() -> None:
    assert loaded_by(["parley.engine.core.cli.main"], (*HEAVY, "pandas", "scipy", "nltk")) == []


def test_jobs_and_settings_are_told_without_heavy_imports() -> None:
    settings = [name for name in MODULES if name.split(".")[-1] == "settings"]
    assert "parley.engine.negotiation.attacks.settings" in settings
    verbs = [name for name in MODULES if fnmatch(name, "parley.engine.*.verbs.*")]
    assert len(verbs) > 60
    assert loaded_by([*verbs, *settings], HEAVY) == []


def test_tune_of_ray_never_takes_the_name_of_our_room() -> None:
    plain = r"^\s*from ray import .*\btune\b(?!\s+as ray_tune)|^\s*import ray\.tune(?!\s+as ray_tune)"
    pattern = re.compile(plain, re.MULTILINE)
    assert [str(path) for path in SOURCES if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_files_are_named_and_typed_in_the_house_way() -> None:
    def problems(path: Path) -> list[str]:
        unnamed = ["its name says nothing"] * (path.stem in {"utils", "util", "helpers", "common", "misc"})
        unsaid = ["a module says what belongs in it"] * (not ast.get_docstring(parsed(path)))
        typed = path.name == "__init__.py" or "from __future__ import annotations" in path.read_text(encoding="utf-8")
        return unnamed + unsaid + ["no annotations of the future"] * (not typed)

    assert of_files(problems) == {}


def test_files_keep_off_global_randomness_salted_hashes_and_pickles() -> None:
    forbidden = re.compile(
        r"hash|(np|numpy)\.random\.(seed|rand|randn|randint|random|choice|shuffle|permutation|uniform|normal)"
        r"|random\.\w+|torch\.(save|load|manual_seed|seed)|(cloud)?pickle\.\w+|joblib\.\w+|yaml\.(load|unsafe_load)|eval|exec"
    )

    def problems(path: Path) -> list[tuple[int, str]]:
        found = [(line, name) for line, name in calls(parsed(path)) if forbidden.fullmatch(name)]
        # A seed inside torch's fork of its generator is gone with the block.
        blocks = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.With)] if found else []
        forks = [block for block in blocks if "torch.random.fork_rng" in ast.unparse(block.items[0])]
        fenced = {(line, name) for fork in forks for line, name in calls(fork) if name == "torch.manual_seed"}
        return [call for call in found if call not in fenced]

    assert of_files(problems) == {}


def test_text_is_read_and_written_as_utf8_whatever_the_locale() -> None:
    names = {"read_text", "write_text", "open", "NamedTemporaryFile"}
    # Methods of ours called `read_text` and `open` take other arguments.
    pattern = re.compile(
        r"(^|\.)(read_text\((errors=[^,]*)?\)|write_text\(|open\(('[rwax+t]+'|[^()]*, '[rwax+t]+'))"
        r"|NamedTemporaryFile\('[wra]|[(,] ?text=True"
    )

    def problems(path: Path) -> list[str]:
        nodes = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        # A whole call takes long to write out, and few can match.
        may = [node for node in nodes if vars(node.func).get("attr", vars(node.func).get("id")) in names]
        may += [node for node in nodes if any(word.arg == "text" for word in node.keywords)]
        found = [ast.unparse(node) for node in may]
        return [call for call in found if "encoding=" not in call and pattern.search(call)]

    assert of_files(problems) == {}


def test_every_folder_of_code_is_a_package_of_the_wheel() -> None:
    patterns = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    folders = {path.parent for path in SOURCES}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []
    names = {module_name(folder / "__init__.py") for folder in folders}
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert {pattern.split(".")[0] for pattern in patterns} == {"parley"}
    assert {path.name: str(path.readlink()) for path in (ROOT / "parley").iterdir() if path.is_symlink()} == {
        room: f"../{room}" for room in ROOMS
    }


def test_every_other_file_in_the_rooms_travels_in_the_wheel() -> None:
    data = PROJECT["tool"]["setuptools"]["package-data"]
    folders = {package: [(ROOT / package.replace(".", "/")).resolve()] for package in data if package != "*"}
    folders["*"] = [*{path.parent for path in SOURCES}]
    declared = {
        path
        for package, patterns in data.items()
        for folder in folders[package]
        for name in patterns
        for path in folder.glob(name)
    }
    files = [path for folder in (*ROOMS, "parley") for path in (ROOT / folder).glob("**/*") if path.is_file()]
    assert {path for path in files if path.suffix not in {".py", ".pyc"}} == declared


def test_type_checkers_read_the_types_of_every_room() -> None:
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]
    assert (ROOT / "parley" / "py.typed").is_file()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in entries}


def requirements() -> list[Requirement]:
    project = PROJECT["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    return [Requirement(line) for line in project["dependencies"] + extras]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_each_requirement_has_a_pin_within_its_range(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_sources_import_only_declared_packages() -> None:
    declared = {requirement.name.lower() for requirement in requirements()} | {"yaml", "markupsafe", "sklearn"}
    roots = {root for path in SOURCES for root in imported_roots(path)}
    assert {root.lower() for root in roots - set(sys.stdlib_module_names) - {"parley"}} <= declared


def tracked_texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_no_file_names_a_folder_of_one_machine() -> None:
    pattern = re.compile(r"(?<![\w.~}])/(work|opt|root|home|Users|mnt)/\w")
    assert [name for name, text in tracked_texts() if pattern.search(text)] == []


def test_a_class_name_is_used_once() -> None:
    names = [node.name for path in SOURCES for node in parsed(path).body if isinstance(node, ast.ClassDef)]
    assert sorted(name for name, count in Counter(names).items() if count > 1) == []


def test_no_test_fails_because_the_machine_is_busy_or_by_chance() -> None:
    assert settings().deadline is None
    assert settings().derandomize
    own = [found for _, text in tracked_texts() for found in re.findall(r"suppress_health_check=\[([A-Z].*?)\]", text)]
    assert len(own) > 4
    assert all("HealthCheck.too_slow" in each for each in own), "a test's own list takes the place of ours"
