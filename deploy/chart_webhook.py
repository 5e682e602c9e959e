"""The chart's webhook configurations, made of those for kustomize."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml


@dataclass(frozen=True)
class _Change:
    """One line of the base and the template that takes its place; ``{0}`` is its indentation."""

    line: str
    template: str


_FULLNAME = '{{ include "sojourn.fullname" . }}'
_CHANGES = (
    _Change(r"name: sojourn-validating", f"{{0}}name: {_FULLNAME}-validating"),
    _Change(r"name: sojourn-validating-guard", f"{{0}}name: {_FULLNAME}-validating-guard"),
    _Change(r"name: sojourn-webhook", f"{{0}}name: {_FULLNAME}-webhook"),
    _Change(r"namespace: sojourn-system", "{0}namespace: {{ .Release.Namespace }}"),
    _Change(
        r"kubernetes\.io/metadata\.name: sojourn-system",
        "{0}kubernetes.io/metadata.name: {{ .Release.Namespace }}",
    ),
    _Change(
        r"- sojourn-system",
        "{0}- {{ .Release.Namespace }}\n"
        "{0}{{- range .Values.webhook.excludedNamespaces }}\n"
        "{0}- {{ . }}\n"
        "{0}{{- end }}",
    ),
    _Change(r"failurePolicy: Fail", "{0}failurePolicy: {{ .Values.webhook.failurePolicy }}"),
    _Change(r"timeoutSeconds: 5", "{0}timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}"),
    _Change(
        r"app\.kubernetes\.io/name: sojourn",
        '{0}{{- include "sojourn.labels" . | nindent 4 }}\n'
        "  {{- if .Values.certManager.enabled }}\n"
        "  annotations:\n"
        "    cert-manager.io/inject-ca-from:"
        f" {{{{ .Release.Namespace }}}}/{_FULLNAME}-webhook-tls\n"
        "  {{- end }}",
    ),
)


class _Plain(yaml.SafeDumper):
    """Repeats what the base refers to by an alias."""

    def ignore_aliases(self, _data: object) -> bool:
        """Never an alias: a template cannot carry one."""
        return True


def chart_webhook(base: str, condition: str) -> str:
    """The template of ``base``, a ValidatingWebhookConfiguration as YAML text.

    Args:
        condition: under which the chart renders it, such as ``.Values.webhook.enabled``.

    Raises:
        ValueError: a name of the base is left that the chart would have to replace.
    """
    plain = yaml.dump(yaml.safe_load(base), Dumper=_Plain, sort_keys=False, width=100)
    lines = [_templated(line) for line in plain.splitlines()]
    for line in lines:
        if re.search(r"sojourn-(system|webhook|validating)", line):
            raise ValueError(f"no template for {line.strip()!r}: add it to the changes")
    body = "\n".join(lines)
    return f"{{{{- if {condition} }}}}\n{body}\n{{{{- end }}}}\n"


def _templated(line: str) -> str:
    for change in _CHANGES:
        if match := re.fullmatch(rf"(\s*(?:- )?){change.line}", line):
            return change.template.replace("{0}", match.group(1))
    return line
