"""Answers into arrays: every spelling of a number that Prometheus has, and no other."""

import math

import numpy as np
import pytest

from collectors.prometheus.decode import Matrix, decode_matrix, decode_names, decode_vector
from fallow.errors import SourceError


def answer(*series: str, kind: str = "matrix") -> bytes:
    joined = ",".join(f'{{"metric":{{"n":"{i}"}},"values":{v}}}' for i, v in enumerate(series))
    body = f'{{"status":"success","data":{{"resultType":"{kind}","result":[{joined}]}}}}'
    return body.encode()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0.0),
        ("-0", 0.0),
        ("0.982", 0.982),
        ("-1.5", -1.5),
        ("1e-07", 1e-07),
        ("9.223372036854776e+18", 9.223372036854776e18),
        ("1.797e+308", 1.797e308),
        ("140737488355328", 140737488355328.0),
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("NaN", math.nan),
    ],
)
def test_a_number_in_any_spelling_beside_others(text: str, value: float) -> None:
    found = decode_matrix(
        answer(f'[[1763640000.131,"{text}"],[1763640060,"7e+02"]]', '[[1.5,"3"]]')
    )
    np.testing.assert_array_equal(found.values, [value, 700.0, 3.0])
    assert found.lengths.tolist() == [2, 1]
    assert found.ts.dtype == "datetime64[us]"
    assert found.ts.astype(np.int64).tolist() == [1763640000131000, 1763640060000000, 1500000]
    assert found.labels == [b'{"n":"0"}', b'{"n":"1"}']


@pytest.mark.parametrize("body", [answer(), answer("[]"), answer("[]", "[]")])
def test_nothing_is_no_sample_and_no_error(body: bytes) -> None:
    found = decode_matrix(body)
    assert len(found.values) == len(found.ts) == int(found.lengths.sum()) == 0


def test_labels_keep_commas_brackets_and_quotes() -> None:
    nasty = rb'{"pod":"a,b]}\"[","n":"\u00e9"}'
    body = answer('[[1,"2"]]').replace(b'{"n":"0"}', nasty)
    assert decode_matrix(body).labels == [nasty]
    assert decode_matrix(body).values.tolist() == [2.0]


def test_spaces_between_tokens_do_not_matter() -> None:
    found = decode_matrix(answer('[ [1, "2"],\n [3, "4"] ]'))
    assert (found.values.tolist(), found.lengths.tolist()) == ([2.0, 4.0], [2])


def test_a_large_answer_keeps_every_value_and_where_it_belongs() -> None:
    series, count = 500, 400
    values = np.random.default_rng(1).random((series, count))
    texts = [
        "[" + ",".join(f'[{1763640000 + 60 * i}.131,"{v!r}"]' for i, v in enumerate(line)) + "]"
        for line in values.tolist()
    ]
    found = decode_matrix(answer(*texts))
    np.testing.assert_array_equal(found.values.reshape(series, count), values)
    assert set(found.lengths.tolist()) == {count}


def test_parts_join_in_order() -> None:
    first, second = decode_matrix(answer('[[1,"2"]]')), decode_matrix(answer('[[3,"4"],[5,"6"]]'))
    joined = Matrix.joined([first, second])
    assert joined.values.tolist() == [2.0, 4.0, 6.0]
    assert joined.lengths.tolist() == [1, 2]
    assert len(Matrix.joined([]).values) == 0


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (answer('[[1,"abc"]]'), "no number"),
        (answer('[[1,"2",3]]'), "pairs of numbers"),
        (answer('[[1,""]]'), "no number"),
        (answer("[1,2"), "another form"),
        (answer(kind="vector"), "a vector, not a matrix"),
        (b'{"data":{"resultType":"matrix","result":null}}', "another form"),
        (b'{"data":[]}', "another form"),
        (b'{"data":{"result":["\xff"]}}', "another form"),
        (b"", "another form"),
    ],
)
def test_what_is_no_matrix_is_refused_in_words(body: bytes, word: str) -> None:
    with pytest.raises(SourceError, match=word):
        decode_matrix(body)


def test_vectors_and_names() -> None:
    body = b'{"data":{"result":[{"metric":{"a":"b"},"value":[1.5,"+Inf"]}]}}'
    assert decode_vector(body) == [({"a": "b"}, math.inf)]
    assert decode_names(b'{"data":["up","x"]}') == ["up", "x"]
    with pytest.raises(SourceError, match="another form"):
        decode_names(b'{"data":{"result":[]}}')
    with pytest.raises(SourceError, match="no number"):
        decode_vector(b'{"data":{"result":[{"metric":{},"value":[1,"zero"]}]}}')
