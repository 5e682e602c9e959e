"""Admission checks on the query of the arrival rate: what wakes a service, whose requests count.

The query is read as text, its strings left out of the search for names: enough to see which series
it selects, not whether Prometheus would take it.
"""

from __future__ import annotations

import re

from sojourn.decide.proposal import Proposal
from sojourn.facts.finding import Finding, Verdict
from sojourn.facts.reasons import Reason

QUERY_FIELD = "spec.metrics.arrivalRateQuery"
_STRING = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`'
_LABELS = rf"\{{(?:{_STRING}|[^}}\"'`])*\}}"
_SELECTOR = re.compile(rf"([A-Za-z_:][\w:]*)?\s*({_LABELS})|([A-Za-z_:][\w:]*)\s*\[")
_MATCHER = re.compile(rf"([A-Za-z_]\w*)\s*(=~|=|!=|!~)\s*({_STRING})", re.DOTALL)
_NAME_MATCHER = re.compile(r"__name__\s*=~?\s*[\"'`]([^\"'`]*)")
_WHOSE = re.compile(
    r"namespace|model|pod|service|svc|name|cluster|route|backend|deployment|workload|app|target",
    re.IGNORECASE,
)
_FROM_PODS = re.compile(r"(?:\w+_)?(?:vllm|sglang|trtllm|llamacpp)[:_]|tgi_|nv_inference_")
_ANYBODY = re.compile(r"^(?:\.\*|\.\+)?$")


def zero_replicas_without_wake(proposal: Proposal) -> Finding | None:
    """A floor of 0 needs a signal that exists without pods."""
    declaration = proposal.service.declaration
    if declaration.scaling.min_replicas > 0:
        return None
    query = declaration.metrics.arrival_rate_query
    names = _names(query) if query else []
    from_pods = [name for name in names if _FROM_PODS.match(name)]
    if query and (not names or len(from_pods) < len(names)):
        return None
    what = f": {from_pods[0]} is exported by pods alone" if from_pods else ""
    message = (
        f"minReplicas 0 needs a wake source that exists without pods{what}: give "
        f"{QUERY_FIELD} a gateway's counter, or set minReplicas to 1."
    )
    return Finding(Reason.MIN_REPLICAS_ZERO, Verdict.REJECT, "spec.scaling.minReplicas", message)


def query_counts_everybody(proposal: Proposal) -> Finding | None:
    """A query that matches no namespace, model or pod: one model's spike scales every model."""
    query = proposal.service.declaration.metrics.arrival_rate_query
    if not query or "{{" in query:
        return None
    loose = [name for name, labels in _selectors(query) if not _tells_whose(labels)]
    if not loose:
        return None
    message = (
        f"{loose[0]} is selected with no namespace and no model or pod matcher: everybody's "
        'requests count as this service\'s. Add a matcher such as {namespace="{{namespace}}"}.'
    )
    return Finding(Reason.QUERY_COUNTS_EVERYBODY, Verdict.WARN, QUERY_FIELD, message)


def _selectors(query: str) -> list[tuple[str, str]]:
    """Name and matchers of every selector with a range or with matchers."""
    found = []
    for match in _SELECTOR.finditer(query):
        name, labels = match.group(1) or match.group(3) or "", match.group(2) or ""
        named = _NAME_MATCHER.search(labels)
        found.append((name or (named.group(1) if named else labels), labels))
    return found


def _names(query: str) -> list[str]:
    return [name for name, _ in _selectors(query)]


def _tells_whose(labels: str) -> bool:
    for label, operator, value in _MATCHER.findall(labels):
        chosen = operator in ("=", "=~") and not _ANYBODY.match(value[1:-1])
        if chosen and label != "__name__" and _WHOSE.search(label):
            return True
    return False
