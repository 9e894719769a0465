"""Many files at once give what `pd.read_csv` gives file by file."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from ludwig.client.results_parse import Block, parse

SETS = {
    "numbers": [b"step,x\n0,1\n1,2\n", b"step,x\n0,1.5\n1,\n", b"step,x\n5,nan\n"],
    "no newline at the end": [b"step,x\n0,1\n1,2", b"step,x\n0,3"],
    "words": [b"step,x\n0,cat\n1,\n", b"step,x\n0,dog\n"],
    "words and numbers": [b"step,x\n0,cat\n1,7\n", b"step,x\n0,1\n1,2\n"],
    "truth": [b"step,x\n0,True\n1,False\n", b"step,x\n0,True\n"],
    "truth and numbers": [b"step,x\n0,True\n", b"step,x\n0,1\n"],
    "truth and nothing": [b"step,x\n0,True\n1,\n", b"step,x\n0,False\n"],
    "quotes": [b'step,x\n0,"a\nb"\n', b'step,x\n0,"c,d"\n1,e\n'],
    "windows": [b"step,x\r\n0,1\r\n", b"step,x\n0,2\n"],
    "blank lines": [b"step,x\n\n0,1\n\n", b"step,x\n0,2\n"],
    "large": [b"step,x\n0,9223372036854775808\n", b"step,x\n0,1\n"],
    "infinite": [b"step,x\n0,inf\n1,-inf\n", b"step,x\n0,1\n"],
    "two headers": [b"step,x\n0,1\n", b"step,y\n0,1\n", b"step,x\n3,4\n"],
    "unicode": ["step,größe\n0,ä\n".encode(), "step,größe\n0,ö\n".encode()],
    "short lines": [b"step,x,y\n0,1\n", b"step,x,y\n0,1,2\n"],
}


def rows(blocks: list[Block], key: bytes) -> pd.DataFrame:
    for block in blocks:
        if key in block.keys:
            i = block.keys.index(key)
            part = slice(block.ends[i], block.ends[i + 1])
            columns = zip(block.names, block.columns, strict=True)
            return pd.DataFrame({name: pd.Series(column[part]) for name, column in columns})
    raise KeyError(key)


@pytest.mark.parametrize("files", SETS.values(), ids=SETS.keys())
def test_the_same_as_one_by_one(files: list[bytes]) -> None:
    blocks, failed = parse([(str(i).encode(), data) for i, data in enumerate(files)])
    assert not failed
    ours = [rows(blocks, str(i).encode()) for i in range(len(files))]
    alone = [pd.read_csv(io.BytesIO(data)) for data in files]
    for one, other in zip(ours, alone, strict=True):
        pd.testing.assert_frame_equal(one, other, check_dtype=False)
    expected = pd.concat(alone, ignore_index=True)
    pd.testing.assert_frame_equal(pd.concat(ours, ignore_index=True), expected, check_dtype=False)


def test_what_cannot_be_parsed_is_named_and_takes_no_other_with_it() -> None:
    good = b"step,x\n0,1\n"
    bad = {b"empty": b"", b"ragged": b"step,x\n0,1\n1,2,3\n", b"binary": b"step,x\n\xff\xfe,1\n"}
    bad[b"shifted"] = b"step,x\n0,1,2\n1,2,3\n"
    blocks, failed = parse([(b"one", good), *bad.items(), (b"two", good)])
    assert failed.keys() == bad.keys()
    assert len(rows(blocks, b"one")) == len(rows(blocks, b"two")) == 1


def test_files_with_a_header_only() -> None:
    blocks, failed = parse([(b"a", b"step,x\n"), (b"b", b"step,x\n"), (b"c", b"step,x\n1,2\n")])
    assert not failed
    assert [len(rows(blocks, key)) for key in (b"a", b"b", b"c")] == [0, 0, 1]
