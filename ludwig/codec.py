"""Bytes to types and back, and parameters to JSON, YAML and a hash.

Every file from the drive is hostile until it went through `decode`: size, nesting, encoding and
types are checked, and what does not fit is a `Malformed` that names the file. Nothing here
unpickles, and the YAML loader knows tuples and nothing else beyond plain YAML.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import yaml

from ludwig import errors, model

__all__ = [
    "RESERVED",
    "decode",
    "decode_lines",
    "decode_params",
    "encode",
    "encode_params",
    "from_plain",
    "from_yaml",
    "params_hash",
    "sha256",
    "to_plain",
    "to_yaml",
]

T = TypeVar("T", bound=msgspec.Struct)

MAX_BYTES = 512 * 1024 * 1024
MAX_YAML_BYTES = 4 * 1024 * 1024
MAX_YAML_NODES = 1_000_000
MAX_DEPTH = 64
MAX_INT_BITS = 10_000

RESERVED = frozenset({"param_name", "job_name", "project_path", "save_path"})
"""Keys that Ludwig adds to a param2val, so nobody else may."""

_encoder = msgspec.json.Encoder()
_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def encode(record: msgspec.Struct) -> bytes:
    """One line of JSON, ending in a newline.

    Whatever is written can be read: a `why` that is too long or not Unicode is cut to fit, and
    anything else that no reader would accept is a `Malformed` here, not there.
    """
    kind = type(record)
    try:
        data = _encoder.encode(_fit(record)) + b"\n"
    except UnicodeEncodeError as error:
        raise errors.Malformed(
            kind.__name__, f"not valid Unicode: {error.object!r:.200}"
        ) from error
    decode(kind, data, kind.__name__)
    return data


def _fit(record: msgspec.Struct) -> msgspec.Struct:
    """The record with every `why` in it short enough, and such that UTF-8 can say it."""
    changed: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name == "why":
            limit = model.SHORT_LIMIT if isinstance(record, model.Claim) else model.TEXT_LIMIT
            fitting = value.encode("utf-8", "replace").decode()
            fitting = fitting if len(fitting) <= limit else fitting[: limit - 1] + "…"
        elif name == "failures":
            fitting = tuple(_fit(failure) for failure in value)
        elif name == "done" and value is not None:
            fitting = _fit(value)
        else:
            continue
        if fitting != value:
            changed[name] = fitting
    return msgspec.structs.replace(record, **changed) if changed else record


def decode(kind: type[T], data: bytes, path: str) -> T:
    """The record in a file, or `Malformed`. `path` is for the message."""
    if not data.strip(b"\0\n "):
        raise errors.Malformed(path, "it is empty")
    if len(data) > MAX_BYTES:
        raise errors.Malformed(path, f"it is larger than {MAX_BYTES:,} bytes")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        record: T = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise errors.Malformed(path, f"not a valid {kind.__name__}: {error}") from error
    version = getattr(record, "version", model.VERSION)
    if version != model.VERSION:
        raise errors.Malformed(
            path, f"written in format {version}; this Ludwig reads format {model.VERSION}"
        )
    return record


def decode_lines(kind: type[T], data: bytes, path: str) -> tuple[list[T], int, list[str]]:
    """The records of a file of lines that may still be growing.

    Returns them with the number of bytes consumed (read on from there) and what was wrong with the
    lines passed over. A last line without its end, or with a NUL in it, is "not yet".
    """
    records: list[T] = []
    problems: list[str] = []
    used = 0
    while (end := data.find(b"\n", used)) >= 0:
        line = data[used:end]
        if b"\0" in line:
            break
        used = end + 1
        if line.strip():
            try:
                records.append(decode(kind, line, path))
            except errors.Malformed as error:
                problems.append(error.reason)
    return records, used, problems


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- parameters ------------------------------------------------------------------------------


def to_plain(value: Any, *, where: str = "a parameter", depth: int = 0) -> Any:
    """A value as JSON can hold it; what JSON cannot say is a one-key object with a '!'.

    None, bool, int, float, str, bytes, list, tuple and dict, nested; numpy scalars as what they
    stand for. Anything else is a `ParameterError` that names the place.
    """
    if depth > MAX_DEPTH:
        raise errors.ParameterError(f"{where} is nested more than {MAX_DEPTH} deep.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(str(value), where)
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:  # Python itself refuses to print such numbers
            raise errors.ParameterError(f"{where} is a number of more than {MAX_INT_BITS} bits.")
        return int(value) if -(2**53) <= value <= 2**53 else {"!int": hex(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"!float": repr(float(value))}
    if isinstance(value, bytes):
        return {"!bytes": value.hex()}
    if isinstance(value, tuple):
        return {"!tuple": _plain_items(value, where, depth)}
    if isinstance(value, list):
        return _plain_items(value, where, depth)
    if isinstance(value, Mapping):
        return _plain_mapping(value, where, depth)
    if type(value).__module__.split(".")[0] == "numpy" and getattr(value, "ndim", None) == 0:
        return to_plain(value.item(), where=where, depth=depth + 1)
    raise errors.ParameterError(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}. Use numbers, strings, "
        "None, lists, tuples and dicts, and build the object in your own code from them."
    )


def _plain_text(value: str, where: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise errors.ParameterError(f"{where} is not valid Unicode: {error.reason}.") from error
    return value


def _plain_items(values: list[Any] | tuple[Any, ...], where: str, depth: int) -> list[Any]:
    return [
        to_plain(item, where=f"{where}[{index}]", depth=depth + 1)
        for index, item in enumerate(values)
    ]


def _plain_mapping(value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
    if all(isinstance(key, str) and not key.startswith("!") for key in value):
        return {
            key: to_plain(item, where=f"{where}[{key!r}]", depth=depth + 1)
            for key, item in value.items()
        }
    keys = [to_plain(key, where=f"a key of {where}", depth=depth + 1) for key in value]
    items = [to_plain(v, where=f"{where}[{k!r}]", depth=depth + 1) for k, v in value.items()]
    return {"!dict": [list(pair) for pair in zip(keys, items, strict=True)]}


def from_plain(value: Any, depth: int = 0) -> Any:
    """The reverse of `to_plain`. `Malformed` for what it could not have written."""
    if depth > 2 * MAX_DEPTH:
        raise errors.Malformed("parameters", "nested too deep")
    if isinstance(value, list):
        return [from_plain(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        key, inner = next(iter(value.items()))
        if key.startswith("!"):
            return _from_tag(key, inner, depth)
    return {key: from_plain(item, depth + 1) for key, item in value.items()}


def _from_tag(tag: str, inner: Any, depth: int) -> Any:
    try:
        if tag == "!tuple" and isinstance(inner, list):
            return tuple(from_plain(item, depth + 1) for item in inner)
        if tag == "!dict" and isinstance(inner, list):
            return {from_plain(k, depth + 1): from_plain(v, depth + 1) for k, v in inner}
        if tag == "!int" and isinstance(inner, str):
            return int(inner, 16)
        if tag == "!float" and isinstance(inner, str):
            return float(inner)
        if tag == "!bytes" and isinstance(inner, str):
            return bytes.fromhex(inner)
    except (TypeError, ValueError) as error:
        raise errors.Malformed("parameters", f"bad {tag}: {error}") from error
    raise errors.Malformed("parameters", f"{tag!r} does not say a value")


def encode_params(named: Mapping[str, Mapping[str, Any]]) -> bytes:
    """`params.json`: every configuration of a job by its param_name."""
    plain = {name: to_plain(params, where=name) for name, params in named.items()}
    return msgspec.json.encode(plain) + b"\n"


def decode_params(data: bytes, path: str) -> dict[str, dict[str, Any]]:
    """The reverse of `encode_params`."""
    try:
        plain = msgspec.json.decode(data, type=dict[str, dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.Malformed(path, str(error)) from error
    try:
        return {name: _from_plain_mapping(params) for name, params in plain.items()}
    except errors.Malformed as error:
        raise errors.Malformed(path, error.reason) from error


def _from_plain_mapping(plain: dict[str, Any]) -> dict[str, Any]:
    params = from_plain(plain)
    if not isinstance(params, dict) or not all(isinstance(key, str) for key in params):
        raise errors.Malformed("parameters", "a configuration is not a mapping of names")
    return params


def params_hash(params: Mapping[str, Any]) -> str:
    """The same for configurations that Python calls equal, whatever the order of their keys.

    Keys that Ludwig adds do not count. 1 and 1.0 are equal; a tuple and a list are not; True
    and 1 are told apart, since nobody means one by the other.
    """
    plain = {k: _canonical(to_plain(v, where=k)) for k, v in params.items() if k not in RESERVED}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode())


def _canonical(plain: Any) -> Any:
    if isinstance(plain, float) and plain.is_integer():
        return to_plain(int(plain))
    if isinstance(plain, list):
        return [_canonical(item) for item in plain]
    if isinstance(plain, dict):
        if "!dict" in plain:
            pairs = [_canonical(pair) for pair in plain["!dict"]]
            return {"!dict": sorted(pairs, key=lambda pair: json.dumps(pair, sort_keys=True))}
        return {key: _canonical(item) for key, item in plain.items()}
    return plain


# --- YAML ------------------------------------------------------------------------------------

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _TupleLoader(_Loader):  # type: ignore[misc]
    """Plain YAML and !!python/tuple."""


class _TupleDumper(_Dumper):  # type: ignore[misc]
    """Tuples as !!python/tuple, no anchors, so that people and `yaml.FullLoader` can read it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _load_tuple(loader: Any, node: Any) -> tuple[Any, ...]:
    return tuple(loader.construct_sequence(node, deep=True))


def _dump_tuple(dumper: Any, value: tuple[Any, ...]) -> Any:
    return dumper.represent_sequence("tag:yaml.org,2002:python/tuple", value)


_TupleLoader.add_constructor("tag:yaml.org,2002:python/tuple", _load_tuple)
_TupleDumper.add_representer(tuple, _dump_tuple)


def to_yaml(params: Mapping[str, Any]) -> str:
    """`param2val.yaml`: readable with `yaml.FullLoader`, tuples kept, keys sorted."""
    return str(
        yaml.dump(
            from_plain(to_plain(params)),
            Dumper=_TupleDumper,
            default_flow_style=False,
            allow_unicode=True,
            sort_keys=True,
        )
    )


def from_yaml(text: bytes | str, path: str) -> dict[str, Any]:
    """A param2val.yaml of ours or of the old system. `Malformed` for anything but a mapping."""
    if len(text) > MAX_YAML_BYTES:
        raise errors.Malformed(path, f"larger than {MAX_YAML_BYTES:,} bytes")
    try:
        _check_growth(text, path)
        value = yaml.load(text, Loader=_TupleLoader)  # noqa: S506 – a safe loader plus tuples
    except errors.Malformed:
        raise
    except Exception as error:  # `!!bool maybe` is a KeyError, `!!int ''` an IndexError …
        raise errors.Malformed(path, f"not valid YAML: {error}") from error
    if not isinstance(value, dict):
        raise errors.Malformed(path, f"a {type(value).__name__} where a mapping should be")
    if not all(isinstance(key, str) for key in value):
        raise errors.Malformed(path, "a parameter whose name is not a string")
    return value


def _check_growth(text: bytes | str, path: str) -> None:
    """A few lines of nested aliases grow to gigabytes; deep nesting overflows the C stack.

    Some aliases must be: PyYAML writes them where one object is the value of two parameters.
    """
    anchored: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    size = 0
    for event in _events(text):
        if isinstance(event, yaml.AliasEvent):
            # One that is inside of what it stands for has no end, and no size here.
            size += anchored.get(event.anchor or "", MAX_YAML_NODES)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            open_nodes.append((event.anchor, size))
            size += 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                anchored[anchor] = size - before
        elif isinstance(event, yaml.ScalarEvent):
            size += 1
            if event.anchor is not None:
                anchored[event.anchor] = 1
        if len(open_nodes) > MAX_DEPTH:
            raise errors.Malformed(path, "nested too deep")
        if size >= MAX_YAML_NODES:
            raise errors.Malformed(path, f"more than {MAX_YAML_NODES:,} values")


def _events(text: bytes | str) -> Iterator[Any]:
    return iter(yaml.parse(text, Loader=_Loader))
