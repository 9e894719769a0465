"""Ludwig: a work queue for labs with a file server, a few GPU machines and no scheduler.

Owns the public names. They load on first use, so that `import ludwig`, which every agent and
every job does, stays light: neither pandas nor an SSH library is imported here.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = ["Client", "__version__", "grid", "results"]

# Public name -> the module it is in, and its name there (None: the module itself).
_LAZY: dict[str, tuple[str, str | None]] = {
    "Client": ("ludwig.client", "Client"),
    "grid": ("ludwig.client.sweep", "grid"),
    "results": ("ludwig.results", None),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name, attribute = _LAZY[name]
    module = import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
