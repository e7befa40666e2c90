"""Writes metrics as OpenMetrics or as Prometheus' plain text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Literal, NamedTuple

from penstock.admin.admin_requests import Histogram

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


class _Family(NamedTuple):
    """A metric family. Each sample is the text after the family's name."""

    name: str
    kind: Literal["gauge", "counter", "histogram", "info"]
    about: str
    unit: str
    samples: list[str]


class MetricsText:
    """Collects metric families and renders them in either format."""

    def __init__(self) -> None:
        self._families: list[_Family] = []

    def gauge(self, name: str, about: str, values: Iterable[tuple[Labels, float]], unit: str = "") -> None:
        """Add a value that goes up and down."""
        samples = [f"{_labels(labels)} {_number(value)}" for labels, value in values]
        self._families.append(_Family(name, "gauge", about, unit, samples))

    def counter(self, name: str, about: str, values: Iterable[tuple[Labels, float]], unit: str = "") -> None:
        """Add a value that only grows. ``name`` is without ``_total``."""
        samples = [f"_total{_labels(labels)} {_number(value)}" for labels, value in values]
        self._families.append(_Family(name, "counter", about, unit, samples))

    def info(self, name: str, about: str, labels: Labels) -> None:
        """Add constant labels. ``name`` is without ``_info``."""
        self._families.append(_Family(name, "info", about, "", [f"_info{_labels(labels)} 1"]))

    def histogram(self, name: str, about: str, values: Histogram, unit: str = "") -> None:
        """Add counts of values up to each bound."""
        count, samples = 0, []
        for bound, number in zip([*values.bounds, float("inf")], values.counts, strict=True):
            count += number
            samples.append(f'_bucket{{le="{_bound(bound)}"}} {count}')
        samples += [f"_count {count}", f"_sum {_number(values.sum)}"]
        self._families.append(_Family(name, "histogram", about, unit, samples))

    def open_metrics(self) -> bytes:
        """Render OpenMetrics, in which family names omit the suffixes of their samples."""
        lines: list[str] = []
        for name, kind, about, unit, samples in self._families:
            lines.append(f"# TYPE {name} {kind}")
            if unit:
                lines.append(f"# UNIT {name} {unit}")
            lines.append(f"# HELP {name} {_escaped(about)}")
            lines += [f"{name}{sample}" for sample in samples]
        return ("\n".join([*lines, "# EOF"]) + "\n").encode()

    def plain(self) -> bytes:
        """Render Prometheus' text format, in which family names include the suffix, and info is a gauge."""
        lines: list[str] = []
        for name, kind, about, _, samples in self._families:
            suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
            help_text = about.replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"# HELP {name}{suffix} {help_text}")
            lines.append(f"# TYPE {name}{suffix} {'gauge' if kind == 'info' else kind}")
            lines += [f"{name}{sample}" for sample in samples]
        return ("\n".join(lines) + "\n").encode()


def wants_open_metrics(accept: str) -> bool:
    """Whether this ``Accept`` header prefers OpenMetrics. The default is plain text."""
    weights: dict[str, float] = {}
    for each in accept.split(","):
        media, *parameters = (part.strip().lower() for part in each.split(";"))
        weight = next((part.partition("=")[2] for part in parameters if part.startswith("q=")), "1")
        with suppress(ValueError):
            weights[media] = max(weights.get(media, 0.0), float(weight))
    asked = weights.get("application/openmetrics-text", 0.0)
    return asked > 0 and asked >= weights.get("text/plain", 0.0)


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _bound(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value))
