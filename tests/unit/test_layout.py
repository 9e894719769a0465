"""What files are called, and what may become part of a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludwig import layout
from ludwig.errors import NameNotAllowed

numbers = st.integers(1, 10**12)
hosts = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,10}[A-Za-z0-9])?", fullmatch=True)


@given(numbers, numbers)
def test_names_are_read_as_they_are_written(task: int, attempt: int) -> None:
    assert layout.parse_task(layout.task_name(task)) == task
    assert layout.parse_attempt(layout.attempt_name(task, attempt)) == (task, attempt)
    files = layout.project_files("trees")
    assert layout.parse_job(files.job(task).folder.rpartition("/")[2]) == task
    assert layout.parse_plan(files.plan(task).rpartition("/")[2]) == task
    assert layout.parse_stop(files.job(1).stop(task).rpartition("/")[2]) == task


@given(hosts.filter(lambda host: not layout._WINDOWS_DEVICE.fullmatch(host)), numbers)
def test_names_with_hosts_are_read_as_they_are_written(host: str, counter: int) -> None:
    files = layout.job_files("trees", 1)
    assert layout.parse_beat(layout.beat_path(host, counter).rpartition("/")[2]) == (host, counter)
    assert layout.parse_refusal(files.refused_by(host).rpartition("/")[2]) == host
    events = files.events_of(host, "2026-b00t").rpartition("/")[2]
    assert layout.parse_events(events) == (host, "2026-b00t")


@given(st.text(max_size=30))
def test_any_name_is_read_or_passed_over(name: str) -> None:
    """And what is read can be spelled: a listing never leads to an error later on."""
    files = layout.job_files("trees", 1)
    for spell in (name, f"{name}.json", f"{name}.jsonl", f"{name}.00000001.json"):
        if found := layout.parse_beat(spell):
            assert layout.beat_path(*found).endswith("/" + spell)
        if parsed := layout.parse_events(spell):
            assert files.events_of(*parsed).endswith("/" + spell)
        if host := layout.parse_refusal(spell):
            assert files.refused_by(host).endswith("/" + spell)
        if attempt := layout.parse_attempt(spell):
            assert layout.attempt_name(*attempt) == spell


GOOD = ["trees", "tree_transitions", "Größe", "a b", "2026-11", "x" * 200, "名前"]
BAD = [
    "",
    ".",
    "..",
    ".hidden",
    "trailing.",
    "trailing ",
    " leading",
    "a/b",
    "a\\b",
    "a:b",
    "a*b",
    "what?",
    'say"so',
    "<tag>",
    "a|b",
    "nul",
    "CON",
    "com1.txt",
    "lpt¹",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "a\u202eb",
    "a\u200bb",
    "e\u0301",
    "\ud800",
    "x" * 201,
    "é" * 101,
]


@pytest.mark.parametrize("name", GOOD)
def test_good_project_names(name: str) -> None:
    assert layout.check_project(name) == name


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_bad_project_names(name: str) -> None:
    with pytest.raises(NameNotAllowed):
        layout.check_project(name)
    with pytest.raises(NameNotAllowed):
        layout.project_files("trees").run("param_001", name)


@pytest.mark.parametrize("name", [*BAD, "a b", "größe", "-a", "a-", "a..b", "x" * 64], ids=ascii)
def test_bad_host_names(name: str) -> None:
    with pytest.raises(NameNotAllowed):
        layout.check_host(name)


@pytest.mark.parametrize("name", ["hoff", "gpu-01", "Node_2", "hoff.lab.example", "a", "7"])
def test_good_host_names(name: str) -> None:
    assert layout.check_host(name) == name


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "a b", "x" * 65, "é"])
def test_bad_boots(name: str) -> None:
    with pytest.raises(NameNotAllowed):
        layout.job_files("trees", 1).events_of("hoff", name)


@pytest.mark.parametrize("path", ["run.py", "package/job.py", ".config/x", "a/.b/c", "..a"])
def test_good_relative_paths(path: str) -> None:
    assert layout.check_relative(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/.", "a\\..\\b", "c:/x", "a/..."],
)
def test_bad_relative_paths(path: str) -> None:
    with pytest.raises(NameNotAllowed):
        layout.check_relative(path)


@pytest.mark.parametrize("name", ["param_001", "param_1", "param_1234"])
def test_names_of_configurations(name: str) -> None:
    assert layout.parse_param(name) == int(name[6:])


@pytest.mark.parametrize("name", ["param_", "param_0", "param_x", "001", "param_-1", "param_1.5"])
def test_what_is_no_name_of_a_configuration(name: str) -> None:
    assert layout.parse_param(name) is None


@pytest.mark.parametrize("sha256", ["", "d" * 63, "D" * 64, "../" + "d" * 61, "d" * 64 + "\n"])
def test_a_source_is_called_by_its_hash_alone(sha256: str) -> None:
    with pytest.raises(NameNotAllowed):
        layout.inbox.source(sha256)
