import pytest

from ipybox.errors import MissingVariableError
from ipybox.support.placeholders import substitute, variables

ENV = {"TOKEN": "s3cret", "HOST": "example.org", "EMPTY": "", "NESTED": "${TOKEN}"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("${TOKEN}", "s3cret", id="whole_string"),
        pytest.param("Bearer ${TOKEN}!", "Bearer s3cret!", id="within_a_string"),
        pytest.param("https://${HOST}/${TOKEN}", "https://example.org/s3cret", id="several"),
        pytest.param("${EMPTY}", "", id="empty_value"),
        pytest.param("${NESTED}", "${TOKEN}", id="values_are_not_searched_again"),
        pytest.param("$TOKEN {TOKEN} $ {TOKEN} ${} ${1A} ${A-B}", None, id="other_text_is_left_alone"),
        pytest.param(["a", ["${TOKEN}"]], ["a", ["s3cret"]], id="lists"),
        pytest.param({"env": {"X": "${TOKEN}"}}, {"env": {"X": "s3cret"}}, id="dict_values"),
        pytest.param({"${TOKEN}": 1}, None, id="keys_are_left_alone"),
        pytest.param([1, 2.5, True, None], None, id="other_types_are_left_alone"),
    ],
)
def test_placeholders_are_replaced_by_the_values_of_their_variables(value: object, expected: object):
    assert substitute(value, ENV) == (value if expected is None else expected)


def test_the_original_is_not_changed():
    params = {"args": ["${TOKEN}"]}

    substitute(params, ENV)

    assert params == {"args": ["${TOKEN}"]}


def test_one_error_names_all_missing_variables_once_and_where_to_set_them():
    params = {"args": ["${A}", "${TOKEN}"], "env": {"X": "${B}${A}"}}

    with pytest.raises(MissingVariableError, match=r"\$\{A\}, \$\{B\}: .*environment .*\.env") as error:
        substitute(params, ENV)

    assert "s3cret" not in str(error.value)


def test_variables_are_listed_once_in_order_of_appearance():
    assert variables({"a": ["${B} ${A}"], "b": "${B}"}) == ["B", "A"]
