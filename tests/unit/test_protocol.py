"""PROTOCOL.md and the code say the same."""

import inspect
import re
from pathlib import Path

import msgspec
import pytest

import ludwig
from ludwig import codec, layout, model
from ludwig.drives import write_format
from ludwig.drives.folder import FolderDrive

TEXT = (Path(ludwig.__file__).parent / "PROTOCOL.md").read_text()
EXAMPLES = dict(
    re.findall(r"^Example of `([\w.]+)`(?:(?!```).)*?:\n```\w+\n(.*?)\n```", TEXT, re.S | re.M)
)
RECORDS = {
    name: kind
    for name, kind in vars(model).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_fields__
}
FILES = {
    "Format",
    "Plan",
    "Job",
    "Claim",
    "Event",
    "Done",
    "Stop",
    "Refusal",
    "Beat",
    "Ticket",
    "TaskTable",
}

SAMPLE = {
    "host": "hebb",
    "boot": "k3x9",
    "counter": 4712,
    "task": 7,
    "attempt": 2,
    "bucket": 0,
    "run": 0,
    "stamp": "2026-11-18-10-00-00",
    "param_name": "param_001",
    "job_name": "2026-11-18-10-00-00_hoff_num1",
    "sha256": "d" * 64,
    "project": "trees",
    "job": 17,
}
SPECIAL = {("ProjectFiles", "plan"): {"number": 42}, ("ProjectFiles", "job"): {"number": 17}}
HOSTS = {"chunk_of": "hoff", "table_of": "hoff", "refused_by": "pitts"}


def spelled(owner: object, kind: str) -> dict[str, str]:
    """Every path that an object of layout.py can spell, for the sample values."""
    found = {}
    for name, value in inspect.getmembers(owner):
        if name.startswith("_") or name in ("project", "number", "folders"):
            continue
        if isinstance(value, str):
            found[f"{kind}.{name}"] = value
        elif callable(value):
            wanted = inspect.signature(value).parameters
            given = SPECIAL.get((kind, name)) or {key: SAMPLE[key] for key in wanted}
            if name in HOSTS:
                given = {"host": HOSTS[name]}
            made = value(**given)
            found[f"{kind}.{name}"] = made if isinstance(made, str) else made.folder
    return found


PATHS = {
    "FORMAT": layout.FORMAT,
    "NODES": layout.NODES,
    "beat_path": layout.beat_path("hebb", 4712),
    "stop": layout.job_files("trees", 17).stop(),
    **spelled(layout.job_files("trees", 17), "JobFiles"),
    **spelled(layout.project_files("trees"), "ProjectFiles"),
    **spelled(layout.inbox, "InboxFiles"),
}
NAMED = set(re.findall(r"^\| [^|]+ \| `([^`]+)` \|", TEXT, re.M))


@pytest.mark.parametrize("kind", sorted(PATHS))
def test_every_path_of_the_layout_is_in_the_tables(kind: str) -> None:
    path = PATHS[kind]
    assert any(named == path or named.startswith(path + "/") for named in NAMED), path


def test_every_path_in_the_tables_is_of_the_layout() -> None:
    assert set(PATHS.values()) >= NAMED


def test_the_folders_that_must_exist_are_named() -> None:
    for folder in layout.job_files("trees", 17).folders([7]):
        assert re.search(rf"[`/]{folder.rpartition('/')[2]}`", TEXT), folder


def test_there_is_an_example_of_every_kind_of_file() -> None:
    assert set(EXAMPLES) == {*FILES, "params.json", "param2val.yaml"}


@pytest.mark.parametrize("kind", sorted(FILES))
def test_every_example_is_what_the_codec_writes(kind: str, tmp_path: Path) -> None:
    example = f"{EXAMPLES[kind]}\n".encode()
    record = codec.decode(RECORDS[kind], example, "PROTOCOL.md")
    if kind == "Format":
        write_format(FolderDrive(tmp_path))
        assert (tmp_path / layout.FORMAT).read_bytes() == example
    else:
        assert codec.encode(record) == example


def test_the_parameter_examples_are_what_the_codec_writes() -> None:
    example = f"{EXAMPLES['params.json']}\n".encode()
    named = codec.decode_params(example, "PROTOCOL.md")
    assert codec.encode_params(named) == example
    assert named["param_001"]["layers"] == (64, 64)
    yaml = EXAMPLES["param2val.yaml"] + "\n"
    assert codec.to_yaml(codec.from_yaml(yaml, "PROTOCOL.md")) == yaml


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_every_field_is_mentioned(kind: str) -> None:
    for field in RECORDS[kind].__struct_fields__:
        assert re.search(rf"\b{field}\b", TEXT), f"{kind}.{field}"


def test_every_word_for_a_state_is_mentioned() -> None:
    events = msgspec.structs.fields(model.Event)[0].type.__args__
    outcomes = model.Outcome.__args__  # type: ignore[attr-defined]
    for word in (*events, *outcomes):
        assert f"`{word}`" in TEXT, word


def test_numbers_in_the_text_are_those_of_the_code() -> None:
    assert f"tried {model.ATTEMPT_LIMIT} times" in TEXT
    assert f"version {model.VERSION}\n" in TEXT.splitlines(keepends=True)[0]
    assert f"{model.SHORT_LIMIT:,} characters" in TEXT
    assert f"{model.TEXT_LIMIT:,} (" in TEXT
