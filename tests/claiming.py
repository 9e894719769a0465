"""The order in which a node would claim what is left of a job."""

from __future__ import annotations

from ludwig.shares import Shares
from ludwig.view import JobView

__all__ = ["claimable"]


def claimable(view: JobView, host: str) -> list[int]:
    """As if the node got every task it tries; the view is left as it was."""
    before, order = dict(view.claims), []
    for task in Shares(view).claimable(host, balance=view.job.balance):
        order.append(task)
        view.claims[task] = 1
    view.claims.clear()
    view.claims.update(before)
    return order
