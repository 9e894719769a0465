"""What has a `close` can be used in a `with` statement."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

__all__ = ["Closing"]


class Closing(Protocol):
    """For classes that inherit it: leaving the `with` block closes, whatever happened in it."""

    def close(self) -> None:
        """Let go of everything. May be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
