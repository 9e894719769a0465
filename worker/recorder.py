"""What the GPUs of one attempt did meanwhile: a CSV file on this machine, and its summary.

The file is for the drive (`gpu/<task>.<attempt>.csv`), tidy: one line per GPU and sample. It is
also all that a recorder needs to go on after the agent was restarted.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludwig.model import GpuSummary
from ludwig.worker.reading import Reading

__all__ = ["COLUMNS", "Recorder"]

COLUMNS = (
    "seconds",
    "gpu",
    "uuid",
    "utilization",
    "memory_used",
    "memory_own",
    "temperature",
    "power",
)
"""Seconds since the attempt started, index, percent, bytes, degrees Celsius, watts.

`memory_used` is what the whole GPU holds, `memory_own` what the attempt's own processes do. A cell
is empty when the GPU did not tell.
"""
HEADER = ",".join(COLUMNS) + "\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU at one moment, as a line of the file."""

    seconds: float
    gpu: int
    uuid: str
    utilization: float | None
    memory_used: int | None
    memory_own: int | None
    temperature: float | None
    power: float | None

    def line(self) -> str:
        values = (
            f"{self.seconds:.2f}",
            self.gpu,
            self.uuid,
            as_cell(self.utilization),
            as_cell(self.memory_used),
            as_cell(self.memory_own),
            as_cell(self.temperature),
            as_cell(self.power),
        )
        return ",".join(map(str, values)) + "\n"


class Recorder:
    """Records the GPUs of one attempt. Made anew on the same file, it goes on where it stopped.

    Never raises for the file's sake: a full disk costs samples, not the task.
    """

    def __init__(self, path: Path, gpus: Sequence[str]) -> None:
        self.path = path
        self._gpus = tuple(gpus)
        self._totals = Totals()
        self._make_own()
        self._resume()

    def sample(self, readings: Iterable[Reading], pids: Collection[int], seconds: float) -> None:
        """Record what was read `seconds` after the attempt started, whose processes are `pids`."""
        rows = [as_row(r, pids, seconds) for r in readings if r.uuid in self._gpus]
        if not rows:
            return
        self._totals.add(rows)
        self._append("".join(row.line() for row in rows))

    def summary(self) -> GpuSummary:
        """So far. Over all samples and GPUs, except `power_mean` and `energy`: of all together.

        Memory is what the whole GPU held, since that is known for every driver. Power that was not
        measured, and the time before the first sample, add no energy; a pause of the recording
        counts with the power before and after it.
        """
        return self._totals.summary(self._gpus)

    def _make_own(self) -> None:
        """The job may write to the folder too: a link or file of its is not ours to follow.

        Once there is a file of the agent's own, the folder's sticky bit protects it.
        """
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                facts = self.path.lstat()
                if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid():
                    return
                self.path.unlink()
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))

    def _resume(self) -> None:
        try:
            text = self.path.read_text()
            whole, _, broken_off = text.rpartition("\n")
            if broken_off:
                with self.path.open("r+") as file:
                    file.truncate(len(text.encode()) - len(broken_off.encode()))
        except FileNotFoundError:
            whole = ""
        except (OSError, UnicodeDecodeError):
            return
        if not whole:
            self._append(HEADER)
        rows = [row for row in map(parse, csv.reader(io.StringIO(whole))) if row]
        start = 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or rows[end].seconds != rows[start].seconds:
                self._totals.add(rows[start:end])
                start = end

    def _append(self, text: str) -> None:
        try:
            with self.path.open("a", encoding="ascii", errors="replace") as file:
                file.write(text)
        except OSError:
            return


class Totals:
    """Sums over samples, so that a long attempt needs no more memory than a short one."""

    def __init__(self) -> None:
        self._samples = 0
        self._utilization = Mean()
        self._memory = Mean()
        self._power = Mean()
        self._temperature_max = 0.0
        self._energy = 0.0
        self._before: dict[str, Row] = {}

    def add(self, rows: Sequence[Row]) -> None:
        """Add the GPUs of one sample."""
        self._samples += 1
        for row in rows:
            self._utilization.add(row.utilization)
            self._memory.add(row.memory_used)
            self._temperature_max = max(self._temperature_max, row.temperature or 0.0)
            self._energy += joules(self._before.get(row.uuid), row)
            self._before[row.uuid] = row
        measured = [row.power for row in rows if row.power is not None]
        self._power.add(sum(measured) if measured else None)

    def summary(self, gpus: tuple[str, ...]) -> GpuSummary:
        return GpuSummary(
            gpus=gpus,
            samples=self._samples,
            utilization_mean=self._utilization.mean,
            utilization_max=self._utilization.max,
            memory_mean=self._memory.mean,
            memory_max=int(self._memory.max),
            temperature_max=self._temperature_max,
            power_mean=self._power.mean,
            energy=round(self._energy, 3),
        )


class Mean:
    """Mean and maximum of what was measured."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0
        self.max = 0.0

    def add(self, value: float | None) -> None:
        if value is not None:
            self._sum += value
            self._count += 1
            self.max = max(self.max, value)

    @property
    def mean(self) -> float:
        return round(self._sum / self._count, 3) if self._count else 0.0


def joules(before: Row | None, now: Row) -> float:
    """The energy between two samples of a GPU, by the trapezoid rule."""
    if before is None or before.power is None or now.power is None:
        return 0.0
    return (before.power + now.power) / 2 * max(0.0, now.seconds - before.seconds)


def as_row(reading: Reading, pids: Collection[int], seconds: float) -> Row:
    # Rounded as in the file: going on from the file then gives the same sums.
    seconds = round(seconds, 2)
    if reading.error:
        return Row(seconds, reading.index, reading.uuid, None, None, None, None, None)
    own = sum(process.memory for process in reading.processes if process.pid in pids)
    return Row(
        seconds,
        reading.index,
        reading.uuid,
        reading.utilization,
        reading.memory_used,
        own,
        reading.temperature,
        reading.power,
    )


def as_cell(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


def parse(cells: list[str]) -> Row | None:
    """A line of the file; None for the header, and for what is not one of ours."""
    try:
        seconds, gpu, uuid, utilization, used, own, temperature, power = cells
        return Row(
            float(seconds),
            int(gpu),
            uuid,
            float(utilization) if utilization else None,
            int(used) if used else None,
            int(own) if own else None,
            float(temperature) if temperature else None,
            float(power) if power else None,
        )
    except ValueError:
        return None
