"""A table of a TOML file, checked and turned into a dataclass whose fields say what they are.

Owns the kinds of values and the wording of configuration errors; `config.py` says which keys there
are. A field is declared with `key(kind, about=…, env=…)`, so that documentation, `--help`, checking
and environment variables all come from one place. Reads no file but the one it is told to.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from ludwig.errors import ConfigError, NameNotAllowed

__all__ = ["Kind", "build", "key", "kind_of", "read_toml", "shown_default", "unknown_key"]


class Kind(NamedTuple):
    """What a value may be. `check` gets it and the folder relative paths start from."""

    words: str
    check: Callable[[Any, Path], Any]
    """Returns the value to use, or raises ValueError or NameNotAllowed with the reason."""
    parse: Callable[[str], Any] = str
    """From the text of an environment variable to what TOML would have given."""


def key(
    kind: Kind,
    *,
    about: str,
    env: str,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    shown: str | None = None,
) -> Any:
    """A dataclass field that is a key of the file. `shown` is its default in words."""
    metadata = {"kind": kind, "about": about, "env": env, "shown": shown}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def kind_of(item: Field[Any]) -> Kind | None:
    """None for a field that is not a key of the file."""
    kind = item.metadata.get("kind")
    return kind if isinstance(kind, Kind) else None


def shown_default(item: Field[Any]) -> str:
    """How documentation shows what is used when a key is missing; "" for a required one."""
    if item.metadata["shown"] is not None:
        return str(item.metadata["shown"])
    if item.default is MISSING or item.default is None:
        return ""
    if isinstance(item.default, bool):
        return str(item.default).lower()
    return f'"{item.default}"' if isinstance(item.default, (str, Path)) else str(item.default)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a file, or `ConfigError` with its name and the line that is wrong."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}).") from error
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file.") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}.") from error


def unknown_key(
    file: Path, section: str, name: str, known: Iterable[str], elsewhere: Mapping[str, str]
) -> ConfigError:
    """Names the nearest known key; `elsewhere` says where a key that is only misplaced belongs."""
    known = sorted(known)
    place = f"{file}: {f'[{section}] ' if section else ''}{name}"
    if name in elsewhere:
        return ConfigError(f"{place}: this key belongs under {elsewhere[name]}.")
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"the keys are {', '.join(known)}."
    return ConfigError(f"{place}: there is no such key; {hint}")


def build(
    cls: Callable[..., Any],
    table: object,
    *,
    file: Path | None,
    section: str,
    environ: Mapping[str, str],
    sections: Iterable[str] = (),
    elsewhere: Mapping[str, str] | None = None,
    env_name: Callable[[str], str] = str,
) -> dict[str, Any]:
    """The checked keyword arguments for `cls` from one table; the environment comes first.

    `sections` are keys of the table that the caller looks at itself.
    """
    place = f"{file}: " if file else ""
    header = f"[{section}] " if section else ""
    if not isinstance(table, dict):
        raise ConfigError(f"{place}[{section}] must be a table, not {_show(table)}.")
    known = {item.name: item for item in fields(cls) if kind_of(item)}  # type: ignore[arg-type]
    for name in table:
        if name not in known and name not in sections:
            raise unknown_key(file or Path(), section, name, {*known, *sections}, elsewhere or {})
    values: dict[str, Any] = {}
    for name, item in known.items():
        kind: Kind = item.metadata["kind"]
        variable = env_name(item.metadata["env"])
        if environ.get(variable):
            where, value, folder = f"environment variable {variable}", environ[variable], Path.cwd()
            try:
                value = kind.parse(value)
            except ValueError:
                raise ConfigError(f"{where}: {_show(value)} is not {kind.words}.") from None
        elif name in table:
            where, value = f"{place}{header}{name}", table[name]
            folder = file.parent if file else Path.cwd()
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(
                f"{place}{header}{name} is missing: {item.metadata['about']} "
                f"(or set {variable} in the environment)."
            )
        else:
            continue
        try:
            values[name] = kind.check(value, folder)
        except (ValueError, NameNotAllowed) as error:
            raise ConfigError(f"{where} = {_show(value)}: {error}") from error
    return values


def _show(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        value = re.sub(r"(?<=://)[^/@]*@", "…@", value)  # A password does not go into a message.
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def expand(text: str, folder: Path) -> Path:
    """`~` and `$VARIABLE` replaced; a relative path starts at `folder`."""
    if not text or "\0" in text:
        raise ValueError("must be a path.")
    expanded = os.path.expandvars(text)
    if "$" in expanded and "$" in text:
        raise ValueError("names an environment variable that is not set.")
    try:
        path = Path(expanded).expanduser()
    except RuntimeError as error:
        raise ValueError("the home folder '~' is not known here.") from error
    return Path(os.path.normpath(folder.absolute() / path))


def _text(value: object, _: Path) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("must be text in quotes, and not empty.")
    return value


def _path(value: object, folder: Path) -> Path:
    return expand(_text(value, folder), folder)


def _program(value: object, folder: Path) -> Path:
    text = _text(value, folder)
    bare = os.sep not in text and "/" not in text and not text.startswith(("~", "$"))
    return Path(text) if bare else expand(text, folder)


def _flag(value: object, _: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false.")
    return value


def _parse_flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError


def _names(value: object, folder: Path) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError('must be a list of names: ["ana", "ben"].')
    return tuple(_text(item, folder) for item in value)


def _parse_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _within(value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"must be from {low:g} to {high:g}.")


def number(low: float, high: float) -> Kind:
    """A number with or without a fraction."""

    def check(value: object, _: Path) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("must be a number.")
        _within(value, low, high)
        return float(value)

    return Kind(f"a number from {low:g} to {high:g}", check, float)


def whole(low: int, high: int) -> Kind:
    """A whole number."""

    def check(value: object, _: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("must be a whole number.")
        _within(value, low, high)
        return value

    return Kind(f"a whole number from {low} to {high}", check, int)


def word_or_whole(word: str, low: int, high: int) -> Kind:
    """One certain word, or a whole number."""

    def check(value: object, folder: Path) -> str | int:
        if value == word:
            return word
        if isinstance(value, str):
            raise ValueError(f'must be "{word}" or a whole number.')
        result: int = whole(low, high).check(value, folder)
        return result

    return Kind(
        f'"{word}" or a whole number', check, lambda text: int(text) if text.isdigit() else text
    )


def checked(words: str, check: Callable[[str], str]) -> Kind:
    """Text that a function accepts, or refuses with NameNotAllowed or ValueError."""
    return Kind(words, lambda value, folder: check(_text(value, folder)))


TEXT = Kind("text", _text)
PATH = Kind("a path", _path)
PROGRAM = Kind("a program", _program)
FLAG = Kind("true or false", _flag, _parse_flag)
NAMES = Kind("a list of names (comma-separated in the environment)", _names, _parse_names)
