"""The rendered definitions, without an API server; tests/integration has one."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sojourn.api import crd
from sojourn.facts.reasons import MEANING, Reason

DEFINITIONS = {d["spec"]["names"]["kind"]: d for d in crd.definitions()}
SERVICE = DEFINITIONS["InferenceService"]


def schema(kind: str) -> dict[str, Any]:
    (version,) = DEFINITIONS[kind]["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def nodes(node: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield at, node
    for name, field in node.get("properties", {}).items():
        yield from nodes(field, f"{at}.{name}")
    for name in ("items", "additionalProperties"):
        if name in node:
            yield from nodes(node[name], f"{at}[]")


EVERY_NODE = [
    pytest.param(path, node, id=f"{kind}{path}")
    for kind in DEFINITIONS
    for path, node in nodes(schema(kind))
]
EVERY_RULE = [
    pytest.param(rule, id=f"{path}: {rule['message'][:30]}")
    for kind in DEFINITIONS
    for path, node in nodes(schema(kind))
    for rule in node.get("x-kubernetes-validations", ())
]


@pytest.mark.parametrize(("path", "node"), EVERY_NODE)
def test_every_node_is_structural_bounded_and_described(path: str, node: dict[str, Any]) -> None:
    is_item = path.endswith("[]") or path == ".metadata"
    assert "type" in node or node.get("x-kubernetes-int-or-string") is True
    assert node.get("description") or is_item
    assert not {"$ref", "title", "examples", "allOf"} & set(node)
    assert node.get("additionalProperties") is not False
    assert "x-kubernetes-preserve-unknown-fields" not in node
    if node.get("type") == "array":
        assert node["x-kubernetes-list-type"] in ("atomic", "map")
        assert "maxItems" in node
    if "additionalProperties" in node:
        assert "maxProperties" in node
    if node.get("type") == "string" and path not in (".apiVersion", ".kind"):
        assert "maxLength" in node or "enum" in node


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_a_rule_asks_for_the_form_of_a_text_before_it_parses_it(rule: dict[str, str]) -> None:
    """``quantity('1e999999999')`` keeps an API server busy for half a minute."""
    text = rule["rule"]
    for parser in ("quantity(string(self", "duration(self"):
        if parser in text:
            assert ".matches(" in text[: text.index(parser)]


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_a_rule_says_what_to_do(rule: dict[str, str]) -> None:
    assert re.search(
        r"expected|set |keep one|raise|lower|give|remove|needs|must not|counts|delete|use ",
        rule["message"],
    )


def test_fields_with_a_default_say_it_and_required_ones_say_so() -> None:
    for path, node in nodes(schema("InferenceService")["properties"]["spec"]):
        for name, field in node.get("properties", {}).items():
            required = name in node.get("required", ())
            assert required == ("Required." in field["description"]), f"{path}.{name}"
            assert required or "efault" in field["description"], f"{path}.{name}"


def test_columns_are_those_of_the_specification_and_wide_ones_have_priority() -> None:
    columns = SERVICE["spec"]["versions"][0]["additionalPrinterColumns"]
    usual = [c["name"].upper() for c in columns if "priority" not in c]
    wide = [c["name"].upper() for c in columns if c.get("priority") == 1]
    assert " ".join(usual) == ("MODEL GPU SLO RATE UTIL P99 REPLICAS BATCH READY LIMITED-BY AGE")
    assert " ".join(wide) == "DESIRED MIN MAX REGIME ROW"


@pytest.mark.parametrize(
    ("kind", "short"), [("InferenceService", "infsvc"), ("ServingProfile", "sprof")]
)
def test_names_do_not_collide_with_kserve(kind: str, short: str) -> None:
    spec = DEFINITIONS[kind]["spec"]
    assert spec["names"]["shortNames"] == [short]
    assert spec["names"]["categories"] == ["sojourn"]
    assert spec["versions"][0]["subresources"] == {"status": {}}


def test_list_maps_and_atomic_lists_are_declared_for_server_side_apply() -> None:
    status = schema("InferenceService")["properties"]["status"]["properties"]
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    points = schema("ServingProfile")["properties"]["spec"]["properties"]["points"]
    assert points["x-kubernetes-list-map-keys"] == ["batch"]


def test_the_default_of_an_object_repeats_the_defaults_of_its_fields() -> None:
    spec = schema("InferenceService")["properties"]["spec"]["properties"]
    for name in ("engine", "traffic"):
        fields = spec[name]["properties"].items()
        assert spec[name]["default"] == {f: s["default"] for f, s in fields if "default" in s}


def test_every_reason_has_a_meaning_of_one_line() -> None:
    assert set(MEANING) == set(Reason)
    for meaning in MEANING.values():
        assert meaning.endswith(".")
        assert "\n" not in meaning
