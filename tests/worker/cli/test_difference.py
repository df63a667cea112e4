"""Which fields of a state changed."""

from __future__ import annotations

import pytest

from outcrop.stores import CorruptRow
from outcrop.worker.cli.difference import Change, FieldChange, differences, raw_json
from outcrop.worker.cli.terminal import to_json


def test_added_removed_and_changed_fields() -> None:
    assert differences('{"a":1,"b":2,"c":[1]}', '{"d":null,"c":[1,2],"a":1}') == (
        FieldChange("b", Change.REMOVED, 2, None),
        FieldChange("c", Change.CHANGED, [1], [1, 2]),
        FieldChange("d", Change.ADDED, None, None),
    )


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("1", "true"), ("0", "false"), ("null", "0")])
def test_values_of_another_json_type_differ(one: str, other: str) -> None:
    assert len(differences(f'{{"a":{one}}}', f'{{"a":{other}}}')) == 1


def test_the_order_of_keys_does_not_count() -> None:
    assert differences('{"a":{"x":1,"y":2}}', '{"a":{"y":2,"x":1}}') == ()


def test_a_state_that_is_no_object_changes_as_a_whole() -> None:
    assert differences("[1]", "[1]") == ()
    assert differences("[1]", '{"a":1}') == (FieldChange(None, Change.CHANGED, [1], {"a": 1}),)


def test_a_shown_state_loses_no_digit() -> None:
    text = '{"n":123456789012345678901234567890.10}'
    assert to_json(raw_json(text)) == text


def test_a_state_that_is_no_json_is_refused() -> None:
    with pytest.raises(CorruptRow):
        raw_json("{")
