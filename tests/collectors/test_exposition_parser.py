"""The exposition format: everything valid is read, everything else is refused and counted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collectors.exposition import parse_labels, parse_samples, parse_tail, read

GOOD = [
    (b"a 5\n", "a", {}, 5.0, None),
    (b'a{b="c"} 5\n', "a", {"b": "c"}, 5.0, None),
    (b'a{b="c",} 5\n', "a", {"b": "c"}, 5.0, None),
    (b'a { b = "c" , d="e" } 5\n', "a", {"b": "c", "d": "e"}, 5.0, None),
    (b'a{b="x y}{\\"z\\\\\\n"} 5\n', "a", {"b": 'x y}{"z\\\n'}, 5.0, None),
    (b'a{gpu="0", UUID="G"} 5\n', "a", {"gpu": "0", "UUID": "G"}, 5.0, None),
    (b"a 1.5e+06\r\n", "a", {}, 1.5e6, None),
    (b"a +Inf\n", "a", {}, math.inf, None),
    (b"a -Inf\n", "a", {}, -math.inf, None),
    (b"a 5 1395066363000\n", "a", {}, 5.0, 1395066363000000),
    (b"a 5 1395066363.25\n", "a", {}, 5.0, 1395066363250000),
    (b'a_total 5 # {trace_id="x"} 0.67\n', "a_total", {}, 5.0, None),
    (b"a  5  \n", "a", {}, 5.0, None),
    (b"# HELP a b\n# TYPE a gauge\n\n a\t5\n# EOF\n", "a", {}, 5.0, None),
    ('a{b="ü"} 5\n'.encode(), "a", {"b": "ü"}, 5.0, None),
    (b'{"my.metric",b="c"} 5\n', "my.metric", {"b": "c"}, 5.0, None),
    (b"a:b_c 9223372036854775794\n", "a:b_c", {}, 9223372036854775808.0, None),
]


@pytest.mark.parametrize(("text", "name", "labels", "value", "stamp"), GOOD)
def test_valid_lines(
    text: bytes, name: str, labels: dict[str, str], value: float, stamp: int | None
) -> None:
    assert list(parse_samples(text)) == [(name, labels, value, stamp)]
    assert read(text).rejected == 0


def test_not_a_number_is_a_value() -> None:
    ((_, _, value, _),) = parse_samples(b"a NaN\n")
    assert math.isnan(value)


BAD = [
    b"<html><body>502</body></html>\n",
    b'a{b="c" 5\n',
    b'a{b="c"}\n',
    b"a{b=c} 5\n",
    b"a{b} 5\n",
    b"a five\n",
    b"a 1_000\n",
    b"a 0x10\n",
    b"a 5 soon\n",
    b"a 5 1 2\n",
    b"a 5 99999999999999999999\n",
    b"a 5 -12\n",
    b"5\n",
    b"\xff\xfe\x00\x01\n",
    b'a{b="\xff"} 5\n',
    b'a{"x"} 5\n',
    b"{} 5\n",
]


@pytest.mark.parametrize("text", BAD)
def test_garbage_is_refused_and_its_neighbours_are_read(text: bytes) -> None:
    found = read(b"before 1\n" + text + b"after 2\n")
    assert [line.name for line in found.lines] == ["before", "after"]
    assert found.rejected == 1
    assert not found.cut


def test_half_a_scrape_refuses_its_last_line() -> None:
    whole = b'a{gpu="0"} 11\na{gpu="1"} 123\n'
    half = read(whole[:-2])
    assert [line.value for line in half.lines] == [11.0]  # 12 might have been 123
    assert (half.rejected, half.cut) == (1, True)
    assert [line.value for line in read(whole[:-1], whole=True).lines] == [11.0, 123.0]


def test_an_empty_text_is_empty() -> None:
    assert (read(b"").lines, read(b"").rejected, read(b"").cut) == ([], 0, False)


def test_quantifiers_do_not_backtrack() -> None:
    hostile = b'a{b="' + b"x" * 200_000 + b"\n"
    assert read(hostile).rejected == 1
    assert read(b"a{" + b'b="c",' * 20_000 + b"\n").rejected == 1


def test_what_stands_after_the_labels() -> None:
    assert parse_tail(b"5") == (5.0, None)
    assert parse_tail(b"5 1395066363000") == (5.0, 1395066363000000)
    assert parse_tail(b"five") is None


def test_broken_labels_raise() -> None:
    with pytest.raises(ValueError, match="labels"):
        parse_labels(b'a="b" c="d"')


_name = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", fullmatch=True).filter(
    lambda name: not name.endswith(("_total", "_created", "_bucket", "_sum", "_count", "_info"))
)
_label = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: not name.startswith("__")  # reserved: the reference parser refuses some
)
_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)
_value = st.floats() | st.integers(-(2**70), 2**70).map(float)
_sample = st.tuples(
    _name,
    st.dictionaries(_label, _text, max_size=5),
    _value,
    st.none() | st.integers(10**11, 10**13),
)


def written(name: str, labels: dict[str, str], value: float, stamp: int | None) -> str:
    escaped = {
        key: text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for key, text in labels.items()
    }
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    head = f"{name}{{{inside}}}" if labels else name
    return f"{head} {value!r}{'' if stamp is None else f' {stamp}'}\n"


def alike(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@given(st.lists(_sample, max_size=8))
def test_we_read_what_the_reference_parser_reads(
    drawn: list[tuple[str, dict[str, str], float, int | None]],
) -> None:
    text = "".join(written(*sample) for sample in drawn)
    theirs = [s for family in text_string_to_metric_families(text) for s in family.samples]
    ours = list(parse_samples(text.encode()))
    assert read(text.encode()).rejected == 0
    assert len(ours) == len(theirs) == len(drawn)
    # The reference parser groups by name; compare what belongs to each in order.
    ours.sort(key=lambda sample: sample[0])
    theirs.sort(key=lambda sample: sample.name)
    for (name, labels, value, stamp), their in zip(ours, theirs, strict=True):
        assert (name, labels) == (their.name, their.labels)
        assert alike(value, float(their.value))
        if their.timestamp is None:
            assert stamp is None
        else:
            assert stamp == pytest.approx(float(their.timestamp) * 1e6, abs=1000)


@given(st.binary(max_size=400))
def test_no_bytes_make_the_parser_fail(body: bytes) -> None:
    found = read(body)
    assert len(found.lines) + found.rejected <= found.total


@given(st.lists(_sample, min_size=1, max_size=4), st.data())
def test_no_damage_makes_the_parser_fail(
    drawn: list[tuple[str, dict[str, str], float, int | None]], data: st.DataObject
) -> None:
    body = bytearray("".join(written(*sample) for sample in drawn).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
    read(bytes(body))
