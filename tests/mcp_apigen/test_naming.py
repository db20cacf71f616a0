import keyword
from hashlib import sha256
from itertools import permutations
from unicodedata import normalize

import pytest

from ipybox.mcp_apigen.render.naming import class_name, field_names, member_names, module_names, package_name

BAD_PACKAGE_NAMES = [
    "", "..", ".", "/abs", "a/b", "a\\b", "-dash", "1abc", "class", "None", " space", "__init__", "__pycache__",
    "a.b/c", "a\n", "a\0", "ﬁx", "$(x)", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_PACKAGE_NAMES, ids=ascii)
def test_bad_package_name_is_refused_and_named(name: str) -> None:
    with pytest.raises(ValueError, match="server name") as caught:
        package_name(name)
    assert repr(name) in str(caught.value)


def test_a_package_name_that_is_too_long_is_refused_and_its_beginning_named() -> None:
    with pytest.raises(ValueError, match=r"^server name '(abcd){10}'\.\.\. is too long: use at most 80 characters$"):
        package_name("abcd" * 20 + "e")
    assert package_name("abcd" * 20) == "abcd" * 20


@pytest.mark.parametrize("name", ["github", "_x", "my_server2", "größe", "match"])
def test_identifiers_are_package_names(name: str) -> None:
    assert package_name(name) == name


@pytest.mark.parametrize("name", ["brave-search", "brave.search", "brave search"])
def test_names_that_servers_usually_have_become_identifiers(name: str) -> None:
    assert package_name(name) == "brave_search"


def names(*tools: str, known: dict[str, str] | None = None) -> dict[str, str]:
    return dict(zip(tools, module_names(tools, known or {}), strict=True))


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (["search_issues", "getUser", "run"], ["search_issues", "getuser", "run"]),
        (["2fa", "", "..", "../x"], ["tool_2fa", "tool_e3b0c4", "tool_5ec1f7", "x"]),
        (["class", "import"], ["class_", "import_"]),
        (["__init__", "__main__", "_private"], ["init", "main", "private"]),
        (["run", "Params", "Result", "CLIENT", "ToolRunner"], ["run", "params", "result", "client", "toolrunner"]),
        (["con", "NUL", "com1"], ["con_", "nul_", "com1_"]),
        (["größe", "GRÖSSE", "ﬁx", "Ⅷ"], ["grösse_d353a2", "grösse_c9da0c", "fix", "viii"]),
        (["查询", "删除 文件", "日本語", "поиск", "ابحث"], ["查询", "删除_文件", "日本語", "поиск", "ابحث"]),
        (["cafe\u0301", "e\u0308\u0301"], ["café", "ë\u0301"]),
        (["\u0301x", "٣tools", "·"], ["tool_\u0301x", "tool_٣tools", "tool_·"]),
        (["a\0b", "tool\u202e", "a/b\\c", "\ud800x"], ["a_b", "tool_", "a_b_c", "x"]),
        (["🚀"], ["tool"]),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_modules_have_the_names_of_their_tools(tools: list[str], expected: list[str]) -> None:
    assert module_names(tools, {}) == expected


COLLISIONS = [
    ["get_user", "get.user", "get-user", "GET_USER"],
    ["get.user", "get-user"],
    ["getUser", "GETUSER", "getuser"],
    ["🚀", "🛸", "", "---"],
    ["größe", "grösse", "GRÖSSE", "gro\u0308sse"],
    ["ﬁx", "fix", "FIX"],
    ["class", "class_"],
    ["x" * 300, "x" * 301, "x" * 80],
    ["查" * 100, "查" * 101],
    ["\ud800", "\ud801"],
    ["a_b", "a.b", f"a_b_{sha256(b'a.b').hexdigest()[:6]}", f"a_b_{sha256(b'a.b').hexdigest()[:7]}"],
]


@pytest.mark.parametrize("tools", COLLISIONS, ids=lambda tools: ascii(tools)[:40])
def test_tools_of_one_name_get_modules_that_depend_on_nothing_else(tools: list[str]) -> None:
    together = names(*tools)
    assert len({name.casefold() for name in together.values()}) == len(tools)
    assert all(module.isidentifier() and normalize("NFKC", module) == module for module in together.values())
    assert all(len(f".{module}.schema.old99.json".encode()) <= 255 for module in together.values())
    for order in permutations(tools):
        assert names(*order) == together


@pytest.mark.parametrize("tools", COLLISIONS, ids=lambda tools: ascii(tools)[:40])
def test_a_module_never_belongs_to_another_tool_in_whichever_order_tools_come_and_go(tools: list[str]) -> None:
    for order in permutations(tools):
        known: dict[str, str] = {}
        # One more each time, then one at a time, then all.
        for listed in [*(order[: size + 1] for size in range(len(order))), *((tool,) for tool in order), order]:
            found = {module: tool for tool, module in names(*listed, known=known).items()}
            assert all(known.get(module, tool) == tool for module, tool in found.items())
            known |= found
        assert len(known) == len(tools)


def test_a_tool_does_not_take_the_module_of_a_tool_that_is_gone() -> None:
    assert names("get_user", known={"get_user": "get.user"})["get_user"].startswith("get_user_")
    assert names("get.user", "get_user", known={"get_user": "get.user"})["get.user"] == "get_user"


@pytest.mark.parametrize(
    ("wire_names", "expected"),
    [
        (["query", "perPage", "größe", "match"], ["query", "perPage", "größe", "match"]),
        (["from", "class", "None"], ["from_", "class_", "None_"]),
        (["max-results", "$id", "2fa", "_id"], ["max_results", "id", "field_2fa", "id_2"]),
        (["_id", "id"], ["id_2", "id"]),
        (["from", "from_"], ["from__2", "from_"]),
        (["schema", "json", "copy", "validate", "dict"], ["schema_", "json_", "copy_", "validate_", "dict_"]),
        (["model_config", "model_dump", "model_x"], ["model_config_", "model_dump_", "model_x"]),
        (
            ["self", "str", "list", "Any", "Default", "UNSET", "Params"],
            ["self_", "str_", "list_", "Any_", "Default_", "UNSET_", "Params_"],
        ),
        (["", "-", "\0", "日本", "a\nb"], ["field", "field_2", "field_3", "日本", "a_b"]),
        (["__class__", "__init__"], ["class_", "init"]),
        (["ﬁ", "fi"], ["fi_2", "fi"]),
        (["\u202eevil", "\ud800"], ["evil", "field"]),
        (["x" * 80, "x" * 81, "y" * 81], ["x" * 80, f"{'x' * 80}_2", "y" * 80]),
        (["-X-", "a-ä"], ["X", "a_ä"]),
        # Bengali numerators are letters or digits for regular expressions, and no part of identifiers.
        (["A\u09f4b", "X\u09f4X", "a_\u09f4"], ["Ab", "XX", "a"]),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_field_names(wire_names: list[str], expected: list[str]) -> None:
    assert list(field_names(wire_names).values()) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["asc", "DESC", "created-at"], ["asc", "DESC", "created_at"]),
        (["name", "value", "mro", "title", "count"], ["name", "value", "mro_", "title", "count"]),
        (["", " ", "+1", "-1", "2fa"], ["empty", "empty_2", "value_1", "value_1_2", "value_2fa"]),
        (["a b", "a_b"], ["a_b_2", "a_b"]),
        (["__x__", "_y", "None", "class", "_missing_"], ["x", "y", "None_", "class_", "missing"]),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_member_names(values: list[str], expected: list[str]) -> None:
    assert list(member_names(values).values()) == expected


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("sort", "Sort"),
        ("order_by", "OrderBy"),
        ("fieldFilters item", "FieldFiltersItem"),
        ("any", "Any_"),
        ("List", "List"),
        ("exception", "Exception_"),
        ("2fa", "Model2fa"),
        ("2FA", "Model2FA"),
        ("2fä", "Model2f"),
        ("", "Model"),
        ("none", "None_"),
        ("'); import os", "ImportOs"),
        ("\ud800", "Model"),
    ],
    ids=ascii,
)
def test_class_names(hint: str, expected: str) -> None:
    name = class_name(hint, {})
    assert name == expected
    assert name.isidentifier()
    assert not keyword.iskeyword(name)


def test_taken_class_names_get_the_prefix_then_a_number() -> None:
    assert class_name("filter", {}, "Result") == "Filter"
    taken = {"Filter": 1}
    assert class_name("filter", taken, "Result") == "ResultFilter"
    assert class_name("filter", taken, "Result") == "ResultFilter2"
    assert class_name("filter", taken) == "Filter2"
