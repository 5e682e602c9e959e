"""The operator's settings: one mounted YAML file; nothing here comes from a custom resource."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from sojourn.errors import InvalidObject, UnitError
from sojourn.facts.policy import Policy
from sojourn.observe.settings import PrometheusSettings, ScrapeSettings
from sojourn.units import parse_duration_s


def _seconds(value: object) -> object:
    if isinstance(value, float):  # a default, in seconds already
        return value
    try:
        return parse_duration_s(value)
    except UnitError as exc:
        raise ValueError(str(exc)) from exc


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Prometheus(_Part):
    """Where Prometheus is and how it scrapes."""

    url: str
    timeout: Seconds = 10.0
    bearer_token_file: Path | None = None
    username: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    verify: bool = True
    headers: dict[str, str] = {}
    parameters: dict[str, str] = {}
    scrape_interval: Seconds = 15.0
    window: Seconds = 60.0
    latency_window: Seconds = 120.0
    matchers: list[str] = []
    namespace_label: str = "namespace"
    pod_label: str = "pod"
    replica_labels: list[str] | None = None
    min_coverage_percent: int = Field(80, ge=1, le=100)
    custom_queries: bool = True

    def source(self) -> PrometheusSettings:
        """Settings of the door.

        Raises:
            ValueError: the address is no address, or carries credentials.
        """
        return PrometheusSettings(
            url=self.url,
            timeout_s=self.timeout,
            bearer_token_file=self.bearer_token_file,
            username=self.username,
            password_file=self.password_file,
            ca_file=self.ca_file,
            client_cert_file=self.client_cert_file,
            client_key_file=self.client_key_file,
            verify=self.verify,
            headers=tuple(self.headers.items()),
            parameters=tuple(self.parameters.items()),
        )

    def scrape(self) -> ScrapeSettings:
        """What may be assumed about its series."""
        settings = ScrapeSettings(
            window_s=self.window,
            latency_window_s=self.latency_window,
            scrape_interval_s=self.scrape_interval,
            namespace_label=self.namespace_label,
            pod_label=self.pod_label,
            matchers=tuple(self.matchers),
            min_coverage=self.min_coverage_percent / 100,
            custom_queries=self.custom_queries,
        )
        if self.replica_labels is None:
            return settings
        return replace(settings, replica_labels=tuple(self.replica_labels))


class LeaseOptions(_Part):
    """The lease of the tick loop."""

    name: str = "sojourn"
    duration: Seconds = 15.0
    retry: Seconds = 3.0


class Thresholds(_Part):
    """The decision table's thresholds and the max-batch loop's patience."""

    low_utilization_percent: int = Field(50, ge=1, le=99)
    high_utilization_percent: int = Field(85, ge=1, le=99)
    batch_tolerance_percent: int = Field(25, ge=0, le=1000)
    batch_patience: Seconds = 600.0
    batch_interval: Seconds = 1800.0
    quiet: Seconds = 60.0


class GpuPool(StrEnum):
    """Whether nodes with GPUs come when pods wait for them."""

    AUTOSCALED = "Autoscaled"
    FIXED = "Fixed"


class Scope(_Part):
    """Which namespaces this release owns; none listed means all."""

    namespaces: list[str] = []


class UnreadableQuota(StrEnum):
    """What follows when a namespace's quotas cannot be read."""

    IGNORE = "Ignore"
    HOLD = "Hold"


class Capacity(_Part):
    """What the cluster has room for."""

    unreadable_quota: Annotated[UnreadableQuota, Field(strict=False)] = UnreadableQuota.IGNORE
    gpu_pool: Annotated[GpuPool, Field(strict=False)] = GpuPool.AUTOSCALED
    """Fixed: no more replicas are asked for than the GPUs there are take."""


class CertificateSource(StrEnum):
    """Who makes the webhook's certificate."""

    BUILT_IN = "BuiltIn"
    MOUNTED = "Mounted"


class Webhook(_Part):
    """The admission server."""

    enabled: bool = True
    port: int = Field(9443, ge=1, le=65535)
    address: str | None = None
    service: str = "sojourn-webhook"
    secret: str = "sojourn-webhook-tls"
    configuration: str = "sojourn-validating"
    certificates: Annotated[CertificateSource, Field(strict=False)] = CertificateSource.BUILT_IN
    folder: Path = Path("/etc/sojourn/tls")
    """Mounted: where tls.crt and tls.key are."""
    certificate_life: Seconds = 31_536_000.0
    renew_before: Seconds = 7_776_000.0
    overlap: Seconds = 600.0
    check: Seconds = 60.0
    probe: Seconds = 300.0
    drain: Seconds = 5.0
    """How long admission is still answered after the process was told to stop."""

    @model_validator(mode="after")
    def _room_to_rotate(self) -> Self:
        if self.certificate_life < self.renew_before + 3 * self.overlap:
            raise ValueError("certificateLife must exceed renewBefore and three times overlap")
        if self.overlap < self.check:
            raise ValueError("overlap must not be below check: processes look once a check")
        return self


class Settings(_Part):
    """The whole file."""

    prometheus: Prometheus
    tick: Seconds = 15.0
    resync: Seconds = 600.0
    lease: LeaseOptions = LeaseOptions()
    thresholds: Thresholds = Thresholds()
    scope: Scope = Scope()
    capacity: Capacity = Capacity()
    webhook: Webhook = Webhook()
    health_port: int = Field(8081, ge=0, le=65535)
    metrics_port: int = Field(9090, ge=0, le=65535)

    def policy(self) -> Policy:
        """The thresholds as decide knows them.

        Raises:
            ModelDomainError: thresholds out of order.
        """
        t = self.thresholds
        return Policy(
            low_utilisation=t.low_utilization_percent / 100,
            high_utilisation=t.high_utilization_percent / 100,
            batch_tolerance=t.batch_tolerance_percent / 100,
            batch_patience_s=t.batch_patience,
            batch_interval_s=t.batch_interval,
            quiet_s=t.quiet,
            rate_window_s=self.prometheus.scrape().rate_window_s,
            tick_s=self.tick,
            free_queries=self.prometheus.custom_queries,
            hold_without_quota=self.capacity.unreadable_quota is UnreadableQuota.HOLD,
            fixed_gpus=self.capacity.gpu_pool is GpuPool.FIXED,
        )


def load(path: Path) -> Settings:
    """Settings of a file.

    Raises:
        InvalidObject: the file cannot be read, or a field is wrong; every problem is listed.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as exc:
        raise InvalidObject([(str(path), str(exc))]) from exc
    try:
        settings = Settings.model_validate(content)
        settings.prometheus.source()
        settings.policy()
    except ValidationError as exc:
        problems = [(".".join(map(str, e["loc"])), e["msg"]) for e in exc.errors()]
        raise InvalidObject(problems) from exc
    except ValueError as exc:
        raise InvalidObject([(str(path), str(exc))]) from exc
    return settings


def own_namespace() -> str:
    """Namespace this process runs in: the pod's, else ``sojourn-system``."""
    return os.environ.get("POD_NAMESPACE") or "sojourn-system"


def own_name() -> str:
    """Name of this process in the lease and in events."""
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"
