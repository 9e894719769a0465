"""What `main(param2val)` may return, what becomes of it, and what is said about the rest."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ludwig.worker.returned import NotSavable, save

STEPS = pd.Index([0, 10, 20], name="step")
LOSS = pd.Series([1.0, 0.5, 0.25], index=STEPS, name="loss")
FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", None]}, index=STEPS)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("returned", "files"),
    [
        (None, {}),
        ([], {}),
        ({}, {}),
        ((), {}),
        ([LOSS], {"loss": LOSS.to_frame()}),
        (LOSS, {"loss": LOSS.to_frame()}),
        ([LOSS, LOSS.rename("acc 2")], {"loss": LOSS.to_frame(), "acc 2": LOSS.to_frame("acc 2")}),
        (FRAME, {"results": FRAME}),
        ({"train": FRAME, "test": LOSS}, {"train": FRAME, "test": LOSS.to_frame()}),
        ({"test": LOSS.rename(None)}, {"test": LOSS.to_frame("test")}),
        ([LOSS.iloc[:0]], {"loss": LOSS.iloc[:0].to_frame()}),
        (
            {"n": 3, "f": np.float32(0.5), "text": "a,b\nc", "flag": True, "i": np.int64(7)},
            {"results": pd.DataFrame({"n": [3], "f": 0.5, "text": "a,b\nc", "flag": True, "i": 7})},
        ),
        ({"array": np.array(2.5)}, {"results": pd.DataFrame({"array": [2.5]})}),
    ],
    ids=str,
)
def test_saved(tmp_path: Path, returned: Any, files: dict[str, pd.DataFrame]) -> None:
    save(returned, str(tmp_path))
    assert names(tmp_path) == sorted(f"{name}.csv" for name in files)
    for name, frame in files.items():
        got = pd.read_csv(tmp_path / f"{name}.csv", index_col=0)
        pd.testing.assert_frame_equal(got, frame, check_dtype=False, check_index_type=False)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (42, "an object of type int"),
        ("text", "an object of type str"),
        (np.zeros(3), "an object of type ndarray"),
        (pd.Series, "an object of type type"),
        ([1.0], "a list with an object of type float in it"),
        ([FRAME], "a list with a DataFrame in it, which has no name"),
        ([LOSS.rename(None)], "a Series without a name"),
        (LOSS.rename(None), "a Series without a name"),
        ([LOSS.rename(3)], "a result named 3. Names must be strings"),
        ([LOSS, LOSS], "two results named 'loss' and 'loss'"),
        ([LOSS, LOSS.rename("Loss")], "two results named 'loss' and 'Loss'"),
        ({"a": LOSS, "b": 1}, "a dict that mixes tables and single values"),
        ({"a": [1, 2]}, "a dict in which 'a' is an object of type list"),
        ({1: 2}, "a dict with the key 1"),
        ({1: LOSS}, "a result named 1"),
        ({"../x": LOSS}, "it holds '/'"),
        ({"a:b": LOSS}, "it holds ':'"),
        ({"a\nb": LOSS}, "it holds '\\\\n'"),
        ({"": LOSS}, "is empty"),
        ({".hidden": LOSS}, "begins or ends"),
        ({"x.": LOSS}, "begins or ends"),
        ({"nul": LOSS}, "a device on Windows"),
        ({"COM1.x": LOSS}, "a device on Windows"),
        ({"x" * 300: LOSS}, "too long"),
    ],
)
def test_refused_and_nothing_written(tmp_path: Path, returned: Any, reason: str) -> None:
    with pytest.raises(NotSavable, match=reason):
        save(returned, str(tmp_path))
    assert names(tmp_path) == []
