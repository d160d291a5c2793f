"""Define the settings: defaults < `fallow.yaml` < `FALLOW_*` < flags. Unknown keys are errors.

Every field has its unit and the reason for its default. `load()` returns the settings in force
together with the source of each value (`fallow config show`).
"""

import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, get_args

import msgspec
import yaml
from pydantic import BaseModel, Field, SecretStr, ValidationError, model_validator

from fallow.demo_marker import MARKER, is_demo_home
from fallow.errors import SettingsError
from fallow.plain_yaml import BoundedLoader, NotPlainError
from fallow.redaction import SECRET_NAME, find_secrets, remember_secrets
from fallow.renamed import read_renames
from fallow.settings.actions import ActionsSettings, NoticesSettings
from fallow.settings.anomalies import AnomaliesSettings
from fallow.settings.capacity import (
    DemandSettings,
    FragmentationSettings,
    PoolsSettings,
    QuotaSettings,
)
from fallow.settings.collectors import (
    ExporterSettings,
    JupyterSettings,
    KubernetesSettings,
    NvmlSettings,
    PrometheusSettings,
)
from fallow.settings.dashboard import DashboardSettings, FinanceSettings
from fallow.settings.datapath import DatapathSettings
from fallow.settings.groups import SettingsGroup, list_secrets
from fallow.settings.idle import IdleSettings, LedgerSettings
from fallow.settings.prices import PriceSettings
from fallow.settings.reliability import ReliabilitySettings, StalledSettings
from fallow.settings.reports import ReportsSettings
from fallow.settings.service import ServiceSettings, WarehouseSettings
from fallow.settings.service_levels import ScalingSettings, ServicesSettings
from fallow.settings.snapshots import SnapshotSettings
from fallow.settings.workloads import (
    PrecisionSettings,
    SizingSettings,
    SpotSettings,
    TopologySettings,
)
from fallow.system.input_files import UnreadableFileError, read_text_input
from fallow.window import format_duration

RENAMED_SETTINGS = read_renames("setting")
"""Settings of before 0.1.0 by their old names, with their new names."""
ENV_PREFIX = "FALLOW_"
ENV_NESTING = "__"


def find_default_home() -> Path:
    """Return the folder of the embedded warehouse where no setting names one.

    `XDG_DATA_HOME` counts where it is an absolute path (XDG Base Directory Specification).
    """
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else Path.home() / ".local" / "share") / "fallow"


class Settings(SettingsGroup):
    """Everything that may stand in `fallow.yaml`."""

    cluster: str = Field(
        "default",
        min_length=1,
        max_length=253,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$",
        description="name of the cluster",
    )
    home: Path = Field(
        default_factory=find_default_home, description="folder of the embedded warehouse"
    )
    warehouse: WarehouseSettings = WarehouseSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    exporters: ExporterSettings = ExporterSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    jupyter: JupyterSettings = JupyterSettings()
    nvml: NvmlSettings = NvmlSettings()
    prices: PriceSettings = PriceSettings()
    idle: IdleSettings = IdleSettings()
    ledger: LedgerSettings = LedgerSettings()
    fragmentation: FragmentationSettings = FragmentationSettings()
    pools: PoolsSettings = PoolsSettings()
    quota: QuotaSettings = QuotaSettings()
    sizing: SizingSettings = SizingSettings()
    spot: SpotSettings = SpotSettings()
    precision: PrecisionSettings = PrecisionSettings()
    demand: DemandSettings = DemandSettings()
    anomalies: AnomaliesSettings = AnomaliesSettings()
    topology: TopologySettings = TopologySettings()
    stalled: StalledSettings = StalledSettings()
    reliability: ReliabilitySettings = ReliabilitySettings()
    datapath: DatapathSettings = DatapathSettings()
    services: ServicesSettings = ServicesSettings()
    scaling: ScalingSettings = ScalingSettings()
    service: ServiceSettings = ServiceSettings()
    actions: ActionsSettings = ActionsSettings()
    notices: NoticesSettings = NoticesSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    dashboard: DashboardSettings = DashboardSettings()
    finance: FinanceSettings = FinanceSettings()
    reports: ReportsSettings = ReportsSettings()
    plugins: dict[str, dict[str, Any]] = Field(
        {},
        description="settings of other packages' plugins by name; a collector or a price source of "
        "theirs runs where it is named here",
    )

    @model_validator(mode="after")
    def _remember_secrets(self) -> Self:
        """Let no text that Fallow writes have a secret of settings that were in force."""
        remember_secrets(list_secrets(self))
        remember_secrets(_list_raw_secrets(self.plugins))
        pair = self.prometheus.username, self.prometheus.password.get_secret_value()
        remember_secrets(find_secrets(":".join(pair) + "@"))  # its header has both, in Base64
        return self

    @model_validator(mode="after")
    def _agree(self) -> Self:
        """Refuse idle settings that call idle what the ledger calls low or startup."""
        if self.idle.threshold > self.ledger.idle_threshold:
            raise ValueError(
                f"idle.threshold {self.idle.threshold:g} is above ledger.idle_threshold "
                f"{self.ledger.idle_threshold:g}: raise both, the ledger would call it low"
            )
        if self.idle.startup_grace < self.ledger.startup:
            raise ValueError(
                f"idle.startup_grace {format_duration(self.idle.startup_grace.total_seconds())} is "
                f"shorter than ledger.startup "
                f"{format_duration(self.ledger.startup.total_seconds())}: raise it, a pod that "
                "starts is not idle"
            )
        return self

    @model_validator(mode="after")
    def _check_destinations(self) -> Self:
        """Refuse reports to destinations that do not exist."""
        channels, stores = set(self.notices.channels), set(self.reports.stores)
        if both := sorted(channels & stores):
            raise ValueError(f"reports.stores and notices.channels both have {', '.join(both)}")
        for schedule in self.reports.schedules:
            if unknown := sorted(set(schedule.to) - channels - stores):
                legal = ", ".join(sorted(channels | stores)) or "none is defined"
                raise ValueError(
                    f"reports.schedules: {schedule.name} goes to {', '.join(unknown)}; "
                    f"notices.channels and reports.stores have: {legal}"
                )
        return self


class Loaded(msgspec.Struct, frozen=True):
    """The settings in force and, by dotted key, the source of each value."""

    settings: Settings
    origin: dict[str, str]


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """Merge defaults, file, environment and flags (dotted keys), and validate.

    `file` defaults to `FALLOW_CONFIG`, else `./fallow.yaml` where it exists. A demo home has its
    own file in place of these two and of the environment.

    Raises:
        SettingsError: an unknown key (the legal ones are named), or a value that is not legal.
    """
    environ = os.environ if environ is None else environ
    flags = flags or {}
    home = flags.get("home") or environ.get("FALLOW_HOME")
    if isinstance(home, str | Path) and home and is_demo_home(Path(home)):
        flags = {**flags, "home": home}
        file, environ = file or Path(home) / MARKER, {}
    layers: list[tuple[str, dict[str, Any]]] = []
    path = file or (Path(environ["FALLOW_CONFIG"]) if environ.get("FALLOW_CONFIG") else None)
    if path is None and Path("fallow.yaml").is_file():
        path = Path("fallow.yaml")
    if path is not None:
        layers.append((str(path), _read_file(path)))
    for key, value in sorted(environ.items()):
        if key.startswith(ENV_PREFIX) and key not in _RESERVED:
            dotted = key.removeprefix(ENV_PREFIX).lower().replace(ENV_NESTING, ".")
            layers.append((key, _nest(dotted, _parse_scalar(value))))
    for dotted, value in flags.items():
        if value is not None:
            flag = "--" + dotted.rpartition(".")[2].replace("_", "-")
            layers.append((flag, _nest(dotted, value)))
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for where, layer in layers:
        _merge(merged, layer)
        origin.update(dict.fromkeys(_list_leaves(layer), where))
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        # They are in no form that is known; the parser's own text quotes what it was given.
        remember_secrets(_list_raw_secrets(merged))
        raise _explain(error, origin) from None
    everything = dict.fromkeys(_list_leaves(settings.model_dump()), "default")
    return Loaded(settings, {**everything, **origin})


_SECRET_GROUPS = ("headers", "channels")
_RESERVED = {"FALLOW_CONFIG", "FALLOW_DEBUG"}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = yaml.load(read_text_input(path, "the settings file"), BoundedLoader)  # noqa: S506  (a SafeLoader)
    except UnreadableFileError as error:
        raise SettingsError(error.message, hint=error.hint) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number or a date that is none
        # The parser's own text quotes the line, which may have a password.
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        problem = re.sub("'.{2,}'", "...", problem)  # the name of an alias or of a tag
        plain = "plain " * isinstance(error, NotPlainError)
        raise SettingsError(f"{path} is not {plain}YAML: {problem}{line}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(f"{path} holds a {type(data).__name__}, not a mapping of settings")
    return data


def _parse_scalar(text: str) -> object:
    if text[:1] in "[{":
        try:
            return yaml.load(text, BoundedLoader)  # noqa: S506  (a SafeLoader)
        except (yaml.YAMLError, ValueError):
            return text
    return text


def _nest(dotted: str, value: object) -> dict[str, Any]:
    head, _, rest = dotted.partition(".")
    return {head: _nest(rest, value) if rest else value}


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _list_raw_secrets(value: object, *, secret: bool = False) -> Iterator[str]:
    """Yield the texts, of any shape, below names of secrets, and the secrets of other texts."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            is_secret = secret or bool(SECRET_NAME.fullmatch(str(name)) or name in _SECRET_GROUPS)
            yield from _list_raw_secrets(name, secret=secret)
            yield from _list_raw_secrets(part, secret=is_secret)
    elif isinstance(value, list):
        for part in value:
            yield from _list_raw_secrets(part, secret=secret)
    else:
        yield from list_secrets(SecretStr(str(value)) if secret else str(value))


def _list_leaves(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    out: list[str] = []
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            out += _list_leaves(value, f"{prefix}{key}.")
        else:
            out.append(f"{prefix}{key}")
    return out


def _explain(error: ValidationError, origin: Mapping[str, str]) -> SettingsError:
    first = error.errors()[0]
    path = [str(p) for p in first["loc"]]
    dotted = ".".join(path)
    near = (
        w
        for k, w in origin.items()
        if f"{k}.".startswith(f"{dotted}.") or dotted.startswith(f"{k}.")
    )
    where = next(near, None)
    stands = f" (from {where})" if where else ""
    if first["type"] == "extra_forbidden" and dotted in RENAMED_SETTINGS:
        return SettingsError(
            f"setting {dotted!r}{stands} is called {RENAMED_SETTINGS[dotted]} since 0.1.0"
        )
    if first["type"] == "extra_forbidden":
        legal = sorted(_find_section(path[:-1]).model_fields)
        return SettingsError(
            f"unknown setting {dotted!r}{stands}", hint=f"legal here: {', '.join(legal)}"
        )
    message = first["msg"].removeprefix("Value error, ")
    if not path:  # it is about a combination of groups, and names them
        return SettingsError(message)
    return SettingsError(f"setting {dotted!r}{stands}: {message}", hint=_format_legal_range(path))


_BOUNDS = (("ge", "from"), ("gt", "above"), ("le", "up to"), ("lt", "below"))


def _format_legal_range(path: list[str]) -> str | None:
    """Return both ends of the legal range of a setting, where it has any."""
    field = _find_section(path[:-1]).model_fields.get(path[-1]) if path else None
    ends = []
    for name, word in _BOUNDS:
        for bound in field.metadata if field else ():
            end = getattr(bound, name, None)
            if end is not None:
                length = isinstance(end, timedelta)
                ends.append(f"{word} {format_duration(end.total_seconds()) if length else end}")
    return f"legal: {' '.join(ends)}" if ends else None


def _find_section(path: list[str]) -> type[BaseModel]:
    model: type[BaseModel] = Settings
    for name in path:
        if name not in model.model_fields:  # an index of a list
            continue
        annotation = model.model_fields[name].annotation
        for kind in (annotation, *get_args(annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                model = kind
    return model
