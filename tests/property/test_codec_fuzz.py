"""Any bytes at all go into the decoder; any parameters at all come back as they went in."""

import math
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ludwig import codec, errors, model

settings.register_profile("codec", max_examples=80, deadline=None)
fast = settings(settings.get_profile("codec"))

KINDS = sorted(
    (
        kind
        for kind in vars(model).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and issubclass(kind, model.Record)
        and kind.__struct_fields__
    ),
    key=lambda kind: kind.__name__,
)
kinds = st.sampled_from(KINDS)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)

scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**53 - 2)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.binary(max_size=20)
)
keys = st.text(max_size=8) | st.integers() | st.booleans() | st.tuples(st.integers(), st.text())
keys = keys | st.sampled_from(["!tuple", "!dict", "!", "!int", "on", "null", "~", "<<", "="])
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=15,
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
params = st.dictionaries(names, values, max_size=5)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        typed = {(type(k), k): v for k, v in other.items()}
        return len(one) == len(other) and all(
            (type(k), k) in typed and same(v, typed[type(k), k]) for k, v in one.items()
        )
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@fast
@given(kinds, st.binary(max_size=300))
def test_any_bytes_decode_or_are_malformed(kind: type[model.Record], data: bytes) -> None:
    try:
        assert isinstance(codec.decode(kind, data, "here"), kind)
    except errors.Malformed as error:
        assert error.path == "here"


@fast
@given(kinds, st.data())
def test_any_json_decodes_or_is_malformed(kind: type[model.Record], data: st.DataObject) -> None:
    fields = st.sampled_from([*kind.__struct_fields__, "unknown"])
    record = data.draw(st.dictionaries(fields, json_values))
    try:
        plain = msgspec.json.encode(record)
    except (ValueError, msgspec.MsgspecError):
        return
    try:
        decoded = codec.decode(kind, plain, "here")
    except errors.Malformed:
        return
    assert codec.decode(kind, codec.encode(decoded), "here") == decoded


VALID = codec.encode(
    model.Claim(
        host="hoff",
        boot="b",
        beat=3,
        nonce="12345678",
        failures=(model.Failure(attempt=1, host="hoff", why="no"),),
    )
)


@fast
@given(st.integers(0, len(VALID) - 1), st.integers(0, 255), st.booleans())
def test_a_damaged_record_decodes_or_is_malformed(at: int, byte: int, cut: bool) -> None:
    damaged = VALID[:at] if cut else VALID[:at] + bytes([byte]) + VALID[at + 1 :]
    try:
        codec.decode(model.Claim, damaged, "here")
    except errors.Malformed as error:
        assert error.path == "here"
    else:
        assert not cut or at == len(VALID) - 1, "cut short, and accepted"


@fast
@given(st.lists(st.sampled_from([VALID, b"rubbish\n", b"\n", b"{}\n"]), max_size=6), st.data())
def test_lines_can_be_read_in_any_pieces(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(lines)
    expected, _, _ = codec.decode_lines(model.Claim, whole, "here")
    got: list[model.Claim] = []
    offset = end = 0
    while end < len(whole):
        end = data.draw(st.integers(end + 1, len(whole)))
        records, used, _ = codec.decode_lines(model.Claim, whole[offset:end], "here")
        got += records
        offset += used
    assert got == expected


@fast
@given(params)
@example({"!tuple": [1]})
@example({"a": {"!int": "5"}})
@example({"a": {1: 2, "1": 3, (1, "x"): [()]}})
@example({"a": 10**3000})
def test_parameters_come_back_as_they_went_in(given_params: dict[str, Any]) -> None:
    encoded = codec.encode_params({"param_001": given_params})
    back = codec.decode_params(encoded, "here")
    assert same(back, {"param_001": given_params})


@fast
@given(st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=5), json_values)))
@example({"p": {"!dict": [[[1], 2]]}})
@example({"p": {"a": {"!tuple": "abc"}}})
@example({"p": {"a": {"!float": 10**400}}})
@example({"p": {"a": {"!int": 1.5}}})
@example({"p": {"!tuple": []}})
@example({"p": {"a": {"!bytes": "zz"}}})
def test_any_parameters_decode_or_are_malformed(named: dict[str, dict[str, Any]]) -> None:
    try:
        plain = msgspec.json.encode(named)
    except (ValueError, msgspec.MsgspecError):
        return
    try:
        decoded = codec.decode_params(plain, "here")
    except errors.Malformed as error:
        assert error.path == "here"
        return
    assert all(isinstance(params, dict) for params in decoded.values())


@pytest.mark.parametrize(
    "value",
    [10**5000, "\udcff", object(), {"a": {1, 2}}, [len]],
    ids=["huge", "surrogate", "object", "set", "function"],
)
def test_what_cannot_be_sent_is_refused_by_name(value: object) -> None:
    for send in (codec.params_hash, codec.to_yaml, lambda p: codec.encode_params({"p": p})):
        with pytest.raises(errors.ParameterError, match="learning_rate"):
            send({"learning_rate": value})


@fast
@given(params)
@example({"a": 10**3000})
def test_yaml_comes_back_as_it_went_in(given_params: dict[str, Any]) -> None:
    text = codec.to_yaml(given_params)
    assert same(codec.from_yaml(text, "here"), given_params)
    assert same(codec.from_yaml(text.encode(), "here"), given_params)


@fast
@given(params)
def test_yaml_can_be_read_without_ludwig(given_params: dict[str, Any]) -> None:
    assert same(yaml.load(codec.to_yaml(given_params), Loader=yaml.FullLoader), given_params)


@fast
@given(st.text(max_size=80) | st.binary(max_size=80))
@example("!!bool maybe")
@example("a: !!bool maybe")
@example("a: !!int ''")
@example("a: !!float ''")
@example("a: !!timestamp x")
@example("a: 2026-13-45")
@example("a: &x [*x]")
@example("a: !!python/object/apply:os.system [ls]")
@example("? [1]\n: 2")
@example("? !!python/tuple [1]\n: 2")
@example("<<: 1")
@example("[" * 10_000)
@example("- " * 10_000)
@example("{a: " * 1000)
def test_any_yaml_is_read_or_malformed(text: str | bytes) -> None:
    try:
        found = codec.from_yaml(text, "here")
    except errors.Malformed as error:
        assert error.path == "here"
    else:
        assert all(isinstance(key, str) for key in found)


@fast
@given(params, st.randoms())
def test_the_hash_does_not_depend_on_the_order_of_keys(
    given_params: dict[str, Any], random: Any
) -> None:
    items = list(given_params.items())
    random.shuffle(items)
    assert codec.params_hash(dict(items)) == codec.params_hash(given_params)


@fast
@given(params, params)
def test_different_parameters_have_different_hashes(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    equal = codec.params_hash(one) == codec.params_hash(two)
    if same(without_reserved(one), without_reserved(two)):
        assert equal
    elif one != two:
        assert not equal


def without_reserved(given_params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given_params.items() if key not in codec.RESERVED}


@fast
@given(params)
def test_what_ludwig_adds_does_not_count(given_params: dict[str, Any]) -> None:
    plain = without_reserved(given_params)
    added = {**plain, "param_name": "param_007", "job_name": None, "save_path": "x"}
    assert codec.params_hash(added) == codec.params_hash(plain)


@fast
@given(st.integers())
@example(2**53)
@example(10**20)
@example(-(2**60))
def test_equal_numbers_are_equal(number: int) -> None:
    if abs(number) < 10**300 and int(float(number)) == number:
        assert codec.params_hash({"a": number}) == codec.params_hash({"a": float(number)})
    assert codec.params_hash({"a": number}) != codec.params_hash({"a": number + 1})


@pytest.mark.parametrize(
    ("one", "two"), [(1, True), (0, False), ((1,), [1]), ("1", 1), (None, "null"), (b"a", "a")]
)
def test_these_are_told_apart(one: object, two: object) -> None:
    assert codec.params_hash({"a": one}) != codec.params_hash({"a": two})
    assert codec.params_hash({"a": {"b": [one]}}) != codec.params_hash({"a": {"b": [two]}})


def test_the_hash_is_the_same_in_every_version() -> None:
    """It is on every drive: should this fail, nothing would be found again."""
    fixed = {"lr": 0.1, "layers": (64, 64), "name": "é", "on": True, "deep": {1: [None, 2.0]}}
    expected = "f3cc0e13c9278692d45cb1ae3b5592363f0160603b64923649913581759ca8a1"
    assert codec.params_hash(fixed) == expected
