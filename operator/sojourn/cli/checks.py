"""The doctor's checks, in the order in which one trouble explains the next."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from sojourn.act.kube import Request
from sojourn.api.resources import GROUP, INFERENCE_SERVICE, SERVING_PROFILE, VERSION
from sojourn.cli import checks_prometheus
from sojourn.cli.checks_services import services
from sojourn.cli.cluster import Answer, Cluster, operator_settings
from sojourn.cli.outcome import Outcome, Scope, fail, ok, skip

__all__ = ["Outcome", "Scope", "examine"]

_STALE_S = 60.0
_INSTALL = "install it: helm install sojourn charts/sojourn, or kubectl apply -k deploy/base"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

NEEDED = (
    ("list", GROUP, INFERENCE_SERVICE.plural),
    ("watch", GROUP, SERVING_PROFILE.plural),
    ("patch", GROUP, f"{INFERENCE_SERVICE.plural}/status"),
    ("list", "apps", "deployments"),
    ("list", "", "pods"),
    ("patch", "apps", "deployments/scale"),
    ("patch", "apps", "deployments"),
    ("list", "autoscaling", "horizontalpodautoscalers"),
)
"""What the operator must be allowed in every namespace it serves: verb, group, resource."""


async def examine(cluster: Cluster, scope: Scope) -> list[Outcome]:
    """Every check's outcome. What cannot be looked at is skipped, and says so.

    Raises:
        ClusterUnavailable: the API server does not answer at all.
    """
    outcomes: list[Outcome] = []
    for check in CHECKS:
        outcomes += await check(cluster, scope)
        if outcomes[-1].fatal:
            break
    return outcomes


async def api_server(cluster: Cluster, _: Scope) -> list[Outcome]:
    """The API server answers us."""
    answer = await cluster.ask("/version")
    if answer.body is None:
        return [fail("API server", answer.why, "log in again, or check the kubeconfig", fatal=True)]
    return [ok("API server", f"answers, {answer.body.get('gitVersion', 'version unknown')}")]


async def definitions(cluster: Cluster, _: Scope) -> list[Outcome]:
    """Our CRDs are served in the version this program speaks."""
    answer = await cluster.ask(f"/apis/{GROUP}/{VERSION}")
    served = {r.get("name") for r in (answer.body or {}).get("resources") or ()}
    missing = [r.plural for r in (INFERENCE_SERVICE, SERVING_PROFILE) if r.plural not in served]
    if missing:
        text = f"{', '.join(missing)} of {GROUP}/{VERSION} not served"
        remedy = f"{_INSTALL}; the CRDs alone: kubectl apply --server-side -k crds"
        return [fail("CRDs", text, remedy, fatal=True)]
    return [ok("CRDs", f"{GROUP}/{VERSION} is served")]


async def operator(cluster: Cluster, scope: Scope) -> list[Outcome]:
    """Somebody holds the lease and renews it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{scope.system}/leases/sojourn"
    answer = await cluster.ask(path)
    if answer.forbidden:
        return [skip("operator", f"its lease in {scope.system} may not be read")]
    spec = (answer.body or {}).get("spec") or {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        text = f"nobody holds the lease {scope.system}/sojourn: the operator does not run"
        return [fail("operator", text, f"{_INSTALL}; elsewhere: --system NAMESPACE")]
    age_s = time.time() - datetime.fromisoformat(str(renewed)).timestamp()
    if age_s > _STALE_S:
        text = f"{holder} last renewed the lease {age_s:.0f} s ago: it has stopped deciding"
        remedy = f"kubectl -n {scope.system} logs deploy/sojourn --previous"
        return [fail("operator", text, remedy)]
    return [ok("operator", f"{holder} decides, lease renewed {max(0.0, age_s):.0f} s ago")]


async def permissions(cluster: Cluster, scope: Scope) -> list[Outcome]:
    """The operator's account may do what it needs."""
    account = f"system:serviceaccount:{scope.system}:sojourn"
    denied = []
    for verb, group, resource in NEEDED:
        allowed = await _may(cluster, account, (verb, group, resource), scope.namespace)
        if allowed is None:
            text = "asking what the operator may do is not allowed to us"
            return [skip("permissions", f"{text}: needs create on subjectaccessreviews")]
        if not allowed:
            denied.append(f"{verb} {resource}{'.' + group if group else ''}")
    if denied:
        remedy = "apply the roles again: kubectl apply -f deploy/base/rbac.yaml"
        return [fail("permissions", f"{account} may not {', '.join(denied)}", remedy)]
    return [ok("permissions", f"{account} may do the {len(NEEDED)} things it needs")]


async def _may(
    cluster: Cluster, user: str, what: tuple[str, str, str], namespace: str | None
) -> bool | None:
    verb, group, resource = what
    name, _, part = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": name, "subresource": part}
    if namespace is not None:
        attributes["namespace"] = namespace
    body: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    answer = await cluster.send(Request("POST", _REVIEWS, body))
    if answer.body is None:
        return None
    return bool((answer.body.get("status") or {}).get("allowed"))


async def webhook(cluster: Cluster, scope: Scope) -> list[Outcome]:
    """A known-bad object, tried as a dry run, is refused by our webhook."""
    configured = await cluster.ask(f"{_CONFIGURATIONS}/sojourn-validating")
    if configured.missing:
        text = "the configuration sojourn-validating is not there: nothing is refused"
        return [fail("webhook", text, _INSTALL)]
    hooks = (configured.body or {}).get("webhooks") or ()
    if hooks and not all((hook.get("clientConfig") or {}).get("caBundle") for hook in hooks):
        text = "its caBundle is empty: the API server cannot trust the operator"
        return [fail("webhook", text, f"kubectl -n {scope.system} logs deploy/sojourn")]
    from sojourn.controller.gate import KNOWN_BAD  # noqa: PLC0415

    path = f"/apis/{GROUP}/{VERSION}/namespaces/{scope.system}/{INFERENCE_SERVICE.plural}"
    tried = await cluster.send(Request("POST", path, KNOWN_BAD, query=(("dryRun", "All"),)))
    return [_judged_dry_run(tried, scope.system)]


def _judged_dry_run(tried: Answer, system: str) -> Outcome:
    """What the answer to a known-bad object tells of the webhook."""
    if tried.body is not None:
        text = "a known-bad object was admitted (dry run): the webhook is not asked"
        return fail("webhook", text, "apply deploy/base/webhook.yaml again")
    if "denied the request" in tried.why and "Unstable" in tried.why:
        return ok("webhook", "refuses a known-bad object (dry run)")
    if tried.forbidden and "denied the request" not in tried.why:
        needed = f"needs create on inferenceservices in {system}"
        return skip("webhook", f"a dry run is not allowed to us: {needed}")
    remedy = f"kubectl -n {system} get endpoints sojourn-webhook; logs deploy/sojourn"
    return fail("webhook", f"cannot be reached by the API server: {tried.why}", remedy)


async def prometheus(cluster: Cluster, scope: Scope) -> list[Outcome]:
    """Prometheus answers and knows the engines' metrics."""
    settings = None if scope.prometheus else await operator_settings(cluster, scope.system)
    url = scope.prometheus or str(((settings or {}).get("prometheus") or {}).get("url") or "")
    if not url:
        text = f"no ConfigMap of {scope.system} with the operator's settings can be read"
        return [skip("Prometheus", f"{text}: give --prometheus URL")]
    return await checks_prometheus.examine(cluster, scope, url)


Check = Callable[[Cluster, Scope], Awaitable[list[Outcome]]]

CHECKS: tuple[Check, ...] = (
    api_server,
    definitions,
    operator,
    permissions,
    webhook,
    prometheus,
    services,  # last: what is wrong above explains much of what is wrong here
)
