"""The operator's rights, once, for kustomize and the chart: what it needs and why, no wildcards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

GROUP = "serving.sojourn.dev"
READ = ("get", "list", "watch")
LABELS = {"app.kubernetes.io/name": "sojourn"}


@dataclass(frozen=True)
class Names:
    """Names that differ between kustomize and the chart; text, templates included."""

    namespace: str
    account: str
    cluster_role: str
    role: str
    lease: str
    secret: str
    configuration: str


@dataclass(frozen=True)
class Right:
    """One rule of a role and its reason."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()

    def as_rule(self) -> dict[str, Any]:
        """The rule as RBAC has it."""
        rule: dict[str, Any] = {"apiGroups": [self.group], "resources": list(self.resources)}
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule | {"verbs": list(self.verbs)}


def cluster_rights(names: Names) -> tuple[Right, ...]:
    """Rights in every namespace."""
    return (
        Right(GROUP, ("inferenceservices", "servingprofiles"), READ, "what users declare"),
        Right(
            GROUP,
            ("inferenceservices/status", "servingprofiles/status"),
            ("get", "patch"),
            "the status, by server-side apply",
        ),
        Right("apps", ("deployments", "statefulsets", "replicasets"), READ, "targets and rollouts"),
        Right(
            "apps",
            ("deployments", "statefulsets"),
            ("patch",),
            "max batch: one environment variable, by server-side apply",
        ),
        Right(
            "apps",
            ("deployments/scale", "statefulsets/scale"),
            ("get", "patch"),
            "replicas",
        ),
        Right(
            "leaderworkerset.x-k8s.io",
            ("leaderworkersets",),
            (*READ, "patch"),
            "targets whose replica is a group of pods; max batch of them",
        ),
        Right(
            "leaderworkerset.x-k8s.io",
            ("leaderworkersets/scale",),
            ("get", "patch"),
            "replicas of them",
        ),
        Right(
            "resource.k8s.io",
            ("resourceslices", "resourceclaims"),
            READ,
            "GPUs that drivers of dynamic resource allocation offer, and those taken",
        ),
        Right(
            "",
            ("pods", "nodes", "resourcequotas", "namespaces"),
            READ,
            "readiness, GPUs, quota, and the namespace's admission label",
        ),
        Right(
            "autoscaling",
            ("horizontalpodautoscalers",),
            READ,
            "who else scales a target",
        ),
        Right(
            "apiextensions.k8s.io",
            ("customresourcedefinitions",),
            READ,
            "which kinds are served",
        ),
        Right("events.k8s.io", ("events",), ("create", "patch"), "what was done and why"),
        Right(
            "admissionregistration.k8s.io",
            ("validatingwebhookconfigurations",),
            ("get", "patch"),
            "the CA of our own webhook, and of the optional guard",
            (names.configuration, f"{names.configuration}-guard"),
        ),
    )


def own_rights(names: Names) -> tuple[Right, ...]:
    """Rights in the operator's own namespace."""
    return (
        Right(
            "coordination.k8s.io",
            ("leases",),
            ("get", "patch"),
            "one process acts",
            (names.lease,),
        ),
        # RBAC cannot limit a creation to a name: the object has none yet when it is judged.
        Right("coordination.k8s.io", ("leases",), ("create",), "the first start"),
        Right(
            "",
            ("secrets",),
            ("get", "patch"),
            "the webhook's certificate",
            (names.secret,),
        ),
        Right("", ("secrets",), ("create",), "the first start"),
        Right(
            GROUP,
            ("inferenceservices",),
            ("create",),
            "a known-bad object, tried as a dry run: is our webhook asked?",
        ),
    )


def render(names: Names) -> str:
    """Roles and bindings of the operator, and the roles of people who use our kinds, as YAML."""
    own = {"name": names.role, "namespace": names.namespace}
    everywhere = {"name": names.cluster_role}
    documents = (
        _role("ClusterRole", everywhere, cluster_rights(names)),
        _binding("ClusterRole", everywhere, names),
        _role("Role", own, own_rights(names)),
        _binding("Role", own, names),
        _people(f"{names.cluster_role}-view", ("view",), READ, "may read our kinds"),
        _people(
            f"{names.cluster_role}-edit",
            ("edit", "admin"),
            ("create", "delete", "deletecollection", "patch", "update"),
            "may change our kinds",
        ),
    )
    return "".join(f"---\n{document}" for document in documents)


def _role(
    kind: str, metadata: dict[str, Any], rights: tuple[Right, ...], labels: tuple[str, ...] = ()
) -> str:
    head = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {**metadata, "labels": {**LABELS, **dict.fromkeys(labels, "true")}},
    }
    rules = (f"# {right.why}\n{dump([right.as_rule()])}" for right in rights)
    return f"{dump(head)}rules:\n{''.join(rules)}"


def _binding(kind: str, metadata: dict[str, Any], names: Names) -> str:
    account = {"kind": "ServiceAccount", "name": names.account, "namespace": names.namespace}
    return dump(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": f"{kind}Binding",
            "metadata": {**metadata, "labels": dict(LABELS)},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": kind,
                "name": metadata["name"],
            },
            "subjects": [account],
        }
    )


def _people(name: str, into: tuple[str, ...], verbs: tuple[str, ...], why: str) -> str:
    """A role that joins Kubernetes' own roles of those names."""
    labels = tuple(f"rbac.authorization.k8s.io/aggregate-to-{role}" for role in into)
    right = Right(GROUP, ("inferenceservices", "servingprofiles"), verbs, why)
    return _role("ClusterRole", {"name": name}, (right,), labels)


def dump(content: Any) -> str:
    """YAML in the order of the content."""
    text: str = yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True)
    return text
