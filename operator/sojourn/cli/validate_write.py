"""Verdicts as text for people, JSON and YAML for programs, SARIF and GitHub's lines for CI."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import yaml

from sojourn.cli.validate import Judged, Output
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import MEANING, Reason

REASONS_PAGE = "docs/reference/verdicts.md"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Verdict.REJECT: "error", Verdict.WARN: "warning", Verdict.NOTE: "note"}


def written(judged: Sequence[Judged], output: Output) -> str:
    """The verdicts in one of the forms."""
    match output:
        case Output.JSON:
            return json.dumps(data(judged), indent=2, ensure_ascii=False)
        case Output.YAML:
            return yaml.safe_dump(data(judged), sort_keys=False, allow_unicode=True, width=100)
        case Output.SARIF:
            return json.dumps(sarif(judged), indent=2, ensure_ascii=False)
        case Output.GITHUB:
            return "\n".join(_annotation(one, f) for one in judged for f in one.review.findings)
    return text(judged)


def text(judged: Sequence[Judged]) -> str:
    """For people: each object with its findings, then the count."""
    if not judged:
        return "No InferenceService, ServingProfile or guarded Deployment found."
    lines: list[str] = []
    for one in judged:
        document = one.document
        lines.append(
            f"{one.verdict:<8} {document.kind} {document.namespace}/{document.name}  "
            f"({document.file}:{document.line_of('')})"
        )
        for finding in one.review.findings:
            line = document.line_of(finding.field)
            lines.append(f"  {finding.verdict} {finding.reason}  {finding.field} (line {line})")
            lines.append(f"    {finding.message}")
        if one.review.bypassed:
            lines.append(f"  admitted by bypass: {one.review.bypassed}")
    lines.append(summary(judged))
    return "\n".join(lines)


def summary(judged: Sequence[Judged]) -> str:
    """One line: how many objects, and what becomes of them."""
    count = Counter(one.verdict for one in judged)
    told = {"REJECT": "rejected", "BYPASSED": "bypassed", "WARN": "with warnings", "OK": "good"}
    parts = [f"{count[name]} {words}" for name, words in told.items() if count[name]]
    objects = "1 object" if len(judged) == 1 else f"{len(judged)} objects"
    return f"{objects}: {', '.join(parts)}"


def data(judged: Sequence[Judged]) -> dict[str, Any]:
    """For programs."""
    return {
        "objects": [
            {
                "file": one.document.file,
                "line": one.document.line_of(""),
                "kind": one.document.kind,
                "namespace": one.document.namespace,
                "name": one.document.name,
                "verdict": one.verdict,
                **({"bypass": one.review.bypassed} if one.review.bypassed else {}),
                "findings": [_finding(one, finding) for finding in one.review.findings],
            }
            for one in judged
        ],
        "summary": dict(Counter(one.verdict for one in judged)),
    }


def sarif(judged: Sequence[Judged]) -> dict[str, Any]:
    """SARIF 2.1.0: one run, one rule for each reason that occurs."""
    reasons = sorted({finding.reason for one in judged for finding in one.review.findings})
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "sojourn", "rules": [_rule(r) for r in reasons]}},
                "results": [_result(one, f) for one in judged for f in one.review.findings],
            }
        ],
    }


def _finding(one: Judged, finding: Finding) -> dict[str, Any]:
    return {
        "reason": str(finding.reason),
        "verdict": str(finding.verdict),
        "field": finding.field,
        "line": one.document.line_of(finding.field),
        "message": finding.message,
        "numbers": {name: _plain(value) for name, value in finding.numbers},
    }


def _plain(value: float) -> float | str:
    """A number as JSON can hold it: it has no infinity."""
    return float(value) if abs(value) < float("inf") else "unbounded"


def _rule(reason: Reason) -> dict[str, Any]:
    return {
        "id": str(reason),
        "shortDescription": {"text": MEANING[reason]},
        "helpUri": f"https://github.com/sojourn-dev/sojourn/blob/main/{REASONS_PAGE}",
    }


def _result(one: Judged, finding: Finding) -> dict[str, Any]:
    document = one.document
    level = "note" if one.review.bypassed else _LEVELS[finding.verdict]
    return {
        "ruleId": str(finding.reason),
        "level": level,
        "message": {"text": finding.message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": document.file},
                    "region": {"startLine": document.line_of(finding.field)},
                },
                "logicalLocations": [
                    {
                        "fullyQualifiedName": f"{document.kind} {document.namespace}/"
                        f"{document.name} {finding.field}"
                    }
                ],
            }
        ],
    }


def _annotation(one: Judged, finding: Finding) -> str:
    """A line that GitHub shows beside the code."""
    level = {"error": "error", "warning": "warning"}.get(_LEVELS[finding.verdict], "notice")
    if one.review.bypassed:
        level = "notice"
    place = one.document
    title = f"{finding.reason}: {place.kind} {place.namespace}/{place.name}"
    properties = f"file={_escaped(place.file, ':,')},line={place.line_of(finding.field)}"
    return f"::{level} {properties},title={_escaped(title, ':,')}::{_escaped(finding.message)}"


def _escaped(plain: str, more: str = "") -> str:
    for sign in "%\r\n" + more:
        plain = plain.replace(sign, f"%{ord(sign):02X}")
    return plain
