"""Reference pages in Markdown, made from the schemas and the enumeration of reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sojourn.facts.reasons import MEANING, Reason


def kind_page(definition: Mapping[str, Any], example: str) -> str:
    """The page of one custom resource: example, columns, every field of spec and status."""
    spec = definition["spec"]
    names, version = spec["names"], spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    properties = schema["properties"]
    lines = [
        f"# {names['kind']}",
        "",
        f"{schema['description']}",
        "",
        f"`{spec['group']}/{version['name']}`, namespaced. Short name `{names['shortNames'][0]}`,"
        f" full name `{definition['metadata']['name']}`.",
        "",
        "```yaml",
        example.rstrip(),
        "```",
        "",
        "## Spec",
        "",
        *_table(properties["spec"], "spec"),
        "",
        "## Rules over several fields",
        "",
        "The API server holds them too, so they hold while the webhook is down.",
        "",
        "| where | rule |",
        "|---|---|",
        *(
            f"| `{path}` | {_cell(message)} |"
            for path, message in _rules(properties["spec"], "spec")
        ),
        "",
        "## Status",
        "",
        *_table(properties["status"], "status"),
        "",
        "## Columns of `kubectl get`",
        "",
        "| column | from | shown |",
        "|---|---|---|",
        *(
            f"| {column['name'].upper()} | `{_cell(column['jsonPath'])}` |"
            f" {'with `-o wide`' if column.get('priority') else 'always'} |"
            for column in version["additionalPrinterColumns"]
        ),
    ]
    return "\n".join(lines) + "\n"


def reasons_page() -> str:
    """The page of every reason."""
    lines = [
        "# Reasons",
        "",
        "One enumeration for conditions, events, admission findings and metric labels.",
        "",
        "| reason | meaning |",
        "|---|---|",
        *(f'| <a id="{reason.lower()}"></a>`{reason}` | {MEANING[reason]} |' for reason in Reason),
    ]
    return "\n".join(lines) + "\n"


def _table(schema: Mapping[str, Any], at: str) -> list[str]:
    rows = [
        f"| `{path}` | {_kind(field)} | {_limits(field)} | {_cell(field.get('description', ''))} |"
        for path, field in _fields(schema, at)
    ]
    return ["| field | type | values | meaning |", "|---|---|---|---|", *rows]


def _fields(schema: Mapping[str, Any], at: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every field below ``schema``, parents first."""
    for name, field in schema.get("properties", {}).items():
        path = f"{at}.{name}"
        yield path, field
        yield from _fields(field, path)
        if "properties" in field.get("items", {}):
            yield from _fields(field["items"], f"{path}[]")
        if "properties" in (field.get("additionalProperties") or {}):
            yield from _fields(field["additionalProperties"], f"{path}.*")


def _rules(schema: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
    fields = ((at, schema), *_fields(schema, at))
    for path, field in fields:
        if "properties" in field:
            for rule in field.get("x-kubernetes-validations", ()):
                yield path + rule.get("fieldPath", ""), rule["message"]


def _kind(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or quantity"
    if field.get("type") == "array":
        return f"list of {_kind(field['items'])}s"
    if "additionalProperties" in field:
        return f"map of {_kind(field['additionalProperties'])}s"
    if "duration(self)" in str(field.get("x-kubernetes-validations", "")):
        return "duration"
    return str(field.get("type", ""))


def _limits(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"at least {low}" if low is not None else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
