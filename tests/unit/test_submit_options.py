"""What `ludwig submit` makes of a command line and of a package's params.py."""

from pathlib import Path

import pytest

from ludwig.client.cli.submit import what_to_run
from ludwig.client.cli.values import parse_grid, parse_pairs, parse_set, parse_value
from ludwig.client.package import find_package, load_package
from ludwig.errors import ParameterError, UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0.1", 0.1),
        ("1e-3", 0.001),
        ("-2", -2),
        ("adam", "adam"),
        ("'1'", "1"),
        ("(1, 2)", (1, 2)),
        ("[1]", [1]),
        ("true", True),
        ("False", False),
        ("none", None),
        ("null", None),
        ("", ""),
        ("data/x.txt", "data/x.txt"),
        ("__import__('os')", "__import__('os')"),
    ],
)
def test_values(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value and type(found) is type(value)


def test_grids_split_at_commas_outside_of_brackets_and_quotes() -> None:
    assert parse_grid(["lr=0.1,0.2", "sizes=(1,2),(3,4)", "text='a,b',c", "one=x"]) == {
        "lr": [0.1, 0.2],
        "sizes": [(1, 2), (3, 4)],
        "text": ["a,b", "c"],
        "one": ["x"],
    }


@pytest.mark.parametrize("given", [["lr"], ["=1"], ["lr=1", "lr=2"]])
def test_pairs_that_make_no_sense(given: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_pairs(given, "--set")


def test_a_grid_needs_values() -> None:
    with pytest.raises(UsageError, match="give it values"):
        parse_grid(["lr="])


@pytest.fixture
def package(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A package with its own name: Python imports a name once."""
    folder = tmp_path / f"pkg_{abs(hash(request.node.name))}"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "job.py").write_text("def main(param2val): return []\n")
    (folder / "params.py").write_text(
        "param2requests = {'lr': [0.1, 0.2]}\n"
        "param2default = {'lr': 0.5, 'hidden': 64, 'epochs': 100}\n"
        "param2debug = {'epochs': 1}\n"
    )
    return folder


def test_a_package_is_found_and_its_requests_are_expanded(package: Path) -> None:
    sources, entry, points = what_to_run(
        package.parent, [], None, grids={}, fixed={"hidden": 8}, debug=False
    )
    assert sources == [Path(package.name)]
    assert entry == f"{package.name}/job.py"
    assert points == [
        {"lr": 0.1, "hidden": 8, "epochs": 100},
        {"lr": 0.2, "hidden": 8, "epochs": 100},
    ]


def test_minimal_is_one_configuration(package: Path) -> None:
    found = load_package(package)
    assert found.configurations({}, {}, debug=True) == [{"lr": 0.5, "hidden": 64, "epochs": 1}]
    assert len(found.configurations({"lr": [1, 2]}, {}, debug=True)) == 2


def test_the_command_line_wins_over_requests(package: Path) -> None:
    points = load_package(package).configurations({"hidden": [1, 2]}, {"lr": 0.9})
    assert [(one["lr"], one["hidden"]) for one in points] == [(0.9, 1), (0.9, 2)]


def test_a_parameter_that_the_package_does_not_know(package: Path) -> None:
    with pytest.raises(ParameterError, match=r"'hiden' is not in param2default .*did you mean"):
        load_package(package).configurations({}, {"hiden": 1})


def test_a_package_that_cannot_be_imported(package: Path) -> None:
    (package / "params.py").write_text("import nothing_like_this\n")
    with pytest.raises(UsageError, match="cannot be imported: ModuleNotFoundError"):
        load_package(package)


def test_requests_are_lists(package: Path) -> None:
    (package / "params.py").write_text("param2requests = {'lr': 0.1}\n")
    with pytest.raises(UsageError, match="must be a list of values"):
        load_package(package)


def test_several_packages(package: Path) -> None:
    other = package.parent / "other"
    other.mkdir()
    for name in ("job.py", "params.py"):
        (other / name).write_text("")
    with pytest.raises(UsageError, match=r"several packages .* Name one"):
        find_package(package.parent)


def test_a_project_with_src_and_run_py(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("")
    nothing = {"grids": {}, "fixed": {}, "debug": False}
    assert what_to_run(tmp_path, [], None, **nothing) == ([Path()], "run.py", [{}])  # type: ignore[arg-type]
    (tmp_path / "src").mkdir()
    assert what_to_run(tmp_path, [], None, **nothing)[0] == [Path("src")]  # type: ignore[arg-type]
    (tmp_path / "code").mkdir()
    found = what_to_run(
        tmp_path,
        [Path("code")],
        "go.py",
        grids=parse_grid(["a=1,2"]),
        fixed=parse_set(["b=x"]),
        debug=False,
    )
    assert found == ([Path("code")], "go.py", [{"b": "x", "a": 1}, {"b": "x", "a": 2}])


def test_nothing_to_submit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Name the folder with your code"):
        what_to_run(tmp_path, [], None, grids={}, fixed={}, debug=False)
    with pytest.raises(UsageError, match="both by --grid and by --set"):
        what_to_run(tmp_path, [], None, grids={"a": [1]}, fixed={"a": 1}, debug=False)
    (tmp_path / "src").mkdir()
    with pytest.raises(UsageError, match="--minimal needs"):
        what_to_run(tmp_path, [], None, grids={}, fixed={}, debug=True)
