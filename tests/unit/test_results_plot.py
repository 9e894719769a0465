"""Pictures: what is drawn and what the legend says. How they look, people have to judge."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ludwig import errors
from ludwig.client.plot import plot_results, save_plot
from ludwig.client.plot_words import short


def frame(
    configurations: list[dict[str, Any]], *, reps: int = 2, points: int = 20, word: bool = False
) -> pd.DataFrame:
    rows = []
    for number, params in enumerate(configurations):
        for rep in range(reps):
            for step in range(points):
                names = {"param_name": f"param_{number}", "job_name": f"job_{number}_num{rep}"}
                at = f"w{step}" if word else step
                rows.append({**params, **names, "step": at, "loss": number + rep / 2 + step})
    made = pd.DataFrame(rows)
    for name in configurations[0]:
        made[name] = pd.Series([row[name] for row in rows], dtype=object)
    files = {"loss.csv": ["loss"]}
    made.attrs = {"params": list(configurations[0]), "index": ["step"], "files": files}
    return made


def legend(figure: Any) -> list[str]:
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def test_mean_and_band_over_replications() -> None:
    figure = plot_results(frame([{"lr": 0.1}, {"lr": 0.2}]))
    (axis,) = figure.axes
    assert [line.get_ydata()[0] for line in axis.lines] == [0.25, 1.25]
    assert len({line.get_color() for line in axis.lines}) == 2
    assert len(axis.collections) == 2
    assert axis.get_title(loc="left") == "loss" and axis.get_xlabel() == "step"


def test_the_legend_names_only_what_differs() -> None:
    same = {"optimizer": "adam", "sizes": (1, 2)}
    assert legend(plot_results(frame([{"lr": 0.1, **same}, {"lr": 0.2, **same}]))) == ["0.1", "0.2"]
    two = [{"lr": lr, "depth": d, **same} for lr in (0.1, 0.2) for d in (None, 3)]
    assert legend(plot_results(frame(two)))[:2] == ["lr=0.1, depth=None", "lr=0.1, depth=3"]
    assert legend(plot_results(frame([{"lr": 0.1}]))) == []


@pytest.mark.parametrize("count", [1, 3, 12, 60])
@pytest.mark.parametrize("reps", [1, 3])
@pytest.mark.parametrize("points", [1, 2, 50])
def test_any_number_of_anything(tmp_path: Path, count: int, reps: int, points: int) -> None:
    configurations = [{"lr": i / 10, "text": "x" * 100 + str(i)} for i in range(count)]
    path = save_plot(frame(configurations, reps=reps, points=points), tmp_path / "out.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_every_configuration_of_twelve_has_a_colour_of_its_own() -> None:
    figure = plot_results(frame([{"lr": i} for i in range(12)]))
    assert len({str(line.get_color()) for line in figure.axes[0].lines}) == 12
    assert len(legend(figure)) == 12


def test_an_index_of_words_and_labels_that_would_be_the_same() -> None:
    long = [{"text": "a" * 40 + middle + "b" * 40} for middle in ("x", "y")]
    figure = plot_results(frame(long, word=True))
    assert len(set(legend(figure))) == 2
    assert figure.axes[0].get_xlabel() == "row"


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    empty = pd.DataFrame({"param_name": [], "job_name": []})
    with pytest.raises(errors.UsageError, match="nothing to draw"):
        plot_results(empty)
    with pytest.raises(errors.UsageError, match="no values 'acc'"):
        plot_results(frame([{"lr": 1}]), columns=["acc"])
    with pytest.raises(errors.UsageError, match="not supported"):
        save_plot(frame([{"lr": 1}]), tmp_path / "out.xyz")


def test_missing_values_leave_no_gap_in_others() -> None:
    some = frame([{"lr": 1}, {"lr": 2}])
    some.loc[some["param_name"] == "param_1", "loss"] = np.nan
    assert len(plot_results(some).axes[0].lines) == 2


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys, ludwig.client.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_short_values() -> None:
    assert short(0.1) == "0.1" and short(1e-5) == "1e-05" and short((1, "a")) == "(1, a)"
    assert len(short("/a/long/path" * 20)) <= 28
