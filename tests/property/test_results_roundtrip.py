"""What tasks write is what people read: any values, any index."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ludwig.client.results import read_results
from ludwig.client.results_cache import ResultsCache
from ludwig.client.results_parse import parse
from ludwig.client.results_read import Source, read_files
from ludwig.drives.folder import FolderDrive
from tests.labdrive import LabDrive

# Text that CSV can tell from numbers, truth values and missing ones.
words = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=8
).map(lambda text: f"w{text}")
floats = st.floats(allow_nan=True, allow_infinity=True, width=64)
whole = st.integers(-(2**63), 2**63 - 1)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": whole,
    "float": floats.map(lambda x: x + 0.0),
    "str": words,
    "bool": st.booleans(),
}
DTYPES = {"int": np.dtype("int64"), "float": np.dtype("float64"), "bool": np.dtype("bool")}


@st.composite
def series(draw: st.DrawFn, kind: str, index: str) -> pd.Series:
    values = draw(st.lists(KINDS[kind], min_size=1, max_size=6))
    size = len(values)
    labels: Any
    if index == "range":
        labels = pd.RangeIndex(size)
    elif index == "int":
        labels = pd.Index(draw(st.permutations(range(0, 7 * size, 7))), name="step")
    elif index == "float":
        labels = pd.Index([i / 3 for i in range(size)], name="time")
    else:
        labels = pd.Index([f'row {i}, "it\'s"' for i in range(size)], name="row")
    dtype = DTYPES.get(kind, "str")
    return pd.Series(values, index=labels, dtype=dtype, name="value")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_series_read_back_equal(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    index = data.draw(st.sampled_from(["range", "int", "float", "str"]))
    runs = data.draw(st.lists(series(kind, index), min_size=1, max_size=4))
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "drive").mkdir()
        lab = LabDrive(FolderDrive(Path(scratch) / "drive"))
        job = lab.submit([{"kind": kind}], reps=len(runs))
        for task, run in enumerate(runs, start=1):
            lab.finish(job, task, {"value.csv": run})
        frame = read_results(lab.drive, lab.project, cache=False)
    expected = pd.concat([run.rename_axis(run.index.name or "index").reset_index() for run in runs])
    name = runs[0].index.name or "index"
    ours = frame[[name, "value"]]
    if kind == "float" and all(_is_whole(run) for run in runs):
        expected["value"] = expected["value"].astype(ours["value"].dtype)
    pd.testing.assert_frame_equal(ours, expected.reset_index(drop=True), check_exact=True)


def _is_whole(run: pd.Series) -> bool:
    """A column of nothing but, say, `1e22` may be written as whole numbers."""
    return bool(np.isfinite(run).all() and (run == run.round()).all())


contents = st.lists(
    st.lists(st.sampled_from(["1", "2.5", "", "nan", "cat", "True", "False", "7e3", '"a,b"', "-"]),
             min_size=0, max_size=4),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(contents)
def test_the_cache_gives_back_what_was_parsed(columns: list[list[str]]) -> None:
    files = [(bytes([i]) * 16, _csv(values)) for i, values in enumerate(columns)]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "drive").mkdir()
        for i, (_, data) in enumerate(files):
            (root / "drive" / f"{i}.csv").write_bytes(data)
        drive = FolderDrive(root / "drive")
        sources = [Source(f"{i}.csv", len(d), key, "") for i, (key, d) in enumerate(files)]
        first = read_files(drive, sources, ResultsCache("d", "p", folder=root))
        for path in (root / "drive").iterdir():
            path.unlink()
        second = read_files(drive, sources, ResultsCache("d", "p", folder=root))
    assert not second.missing
    alone = {key: parse([(key, data)])[0][0] for key, data in files}
    for key, _ in files:
        expected = _rows(alone[key], 0)
        pd.testing.assert_frame_equal(_rows(*first.places[key]), expected, check_dtype=False)
        pd.testing.assert_frame_equal(_rows(*second.places[key]), expected, check_dtype=False)


def _csv(values: list[str]) -> bytes:
    return "".join(["step,x\n", *(f"{n},{v}\n" for n, v in enumerate(values))]).encode()


def _rows(block: Any, number: int) -> pd.DataFrame:
    part = slice(block.ends[number], block.ends[number + 1])
    columns = zip(block.names, block.columns, strict=True)
    return pd.DataFrame({name: pd.Series(column[part]) for name, column in columns})
