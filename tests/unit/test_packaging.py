"""What is installed, under which names, and how light it stays."""

import ast
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import ludwig
from tests import staged

PYPROJECT = tomllib.loads((staged.ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
HEAVY = ("asyncssh", "cryptography", "matplotlib", "numpy", "pandas", "smbprotocol", "typer")


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=staged.ROOT.anchor,  # Not the repository: the installed package is meant.
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_folder_with_python_files_is_listed() -> None:
    folders = {staged.staged_path(source).parent for source in staged.source_files()}
    assert sorted(".".join(folder.parts) for folder in folders) == sorted(SETUPTOOLS["packages"])


def test_every_package_says_what_it_is() -> None:
    folders = {source.parent for source in staged.source_files()}
    for folder in folders:
        init = staged.ROOT / folder / "__init__.py"
        assert init.exists(), f"{folder} has no __init__.py"
        assert ast.get_docstring(ast.parse(init.read_text())), f"{init} has no docstring"


def test_every_listed_package_can_be_imported() -> None:
    names = SETUPTOOLS["packages"]
    python("import importlib\n" + "\n".join(f"importlib.import_module({n!r})" for n in names))


def test_the_public_names_are_pinned() -> None:
    assert ludwig.__all__ == ["Client", "__version__", "grid", "results"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = ludwig.nonsense
    assert set(ludwig.__all__) <= set(dir(ludwig))


@pytest.mark.parametrize("module", ["ludwig", "ludwig.worker"])
def test_import_stays_light(module: str) -> None:
    loaded = python(f"import sys, {module}; print(*sys.modules)").split()
    assert set(loaded).isdisjoint(HEAVY)


def test_no_bare_import_of_a_folder() -> None:
    """`import client` works in the repository's root, and nowhere else."""
    folders = ("ludwig", "client", "worker", "tests", "benchmarks")
    sources = [path for folder in folders for path in staged.walk(staged.ROOT / folder)]
    bare = [
        f"{path.relative_to(staged.ROOT)}: {name}"
        for path in sources
        for name in imported(ast.parse(path.read_text()))
        if name.split(".")[0] in ("client", "worker")
    ]
    assert bare == []


def imported(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module or "")
    return names


def test_the_staged_tree_has_every_file() -> None:
    places = [staged.staged_path(source) for source in staged.source_files()]
    assert len(set(places)) == len(places)
    assert {place.parts[0] for place in places} == {"ludwig", "ludwigcluster"}


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    """Built from a copy, without the network: what `pip install` puts on a machine."""
    names = wheel_names(tmp_path)
    expected = {str(staged.staged_path(source)) for source in staged.source_files()}
    assert {name for name in names if name.endswith(".py")} == expected
    assert {"ludwig/py.typed", "ludwigcluster/py.typed"} <= names
    if (staged.ROOT / "ludwig/PROTOCOL.md").exists():
        assert "ludwig/PROTOCOL.md" in names


def wheel_names(folder: Path) -> set[str]:
    repository = folder / "repository"
    for source in (*staged.source_files(), *data_files()):
        copy = repository / source
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((staged.ROOT / source).read_bytes())
    code = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = repository.glob("*.whl")
    assert wheel.name.startswith(f"ludwigcluster-{ludwig.__version__}-")
    return set(zipfile.ZipFile(wheel).namelist())


def data_files() -> list[Path]:
    names = ["pyproject.toml", "README.md", "LICENSE", "ludwig/PROTOCOL.md", "ludwig/py.typed"]
    names.append("client/ludwigcluster/py.typed")
    return [Path(name) for name in names if (staged.ROOT / name).exists()]
