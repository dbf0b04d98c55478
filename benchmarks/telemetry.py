"""What an append costs with telemetry and without: medians of rounds that take turns, so that all see the same machine.

python -m benchmarks.telemetry --folder /dev/shm
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from mnemolog import MemoryStore
from mnemolog.observability.otel import OpenTelemetry
from mnemolog.observability.telemetry import Telemetry

ROUNDS, APPENDS = 30, 300


def sdk() -> Telemetry:
    return OpenTelemetry(meters=MeterProvider([InMemoryMetricReader()]), tracers=TracerProvider())


WAYS: dict[str, Callable[[], Telemetry | None]] = {
    "without": lambda: None,
    "without, again": lambda: None,
    "with the API alone": OpenTelemetry,
    "with an SDK": sdk,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where to make the stores")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        stores = {
            name: MemoryStore.open(Path(folder) / name, model=None, telemetry=make()) for name, make in WAYS.items()
        }
        took: dict[str, list[float]] = {name: [] for name in WAYS}
        for store in stores.values():
            store.start_session("s")
        for _ in range(ROUNDS):
            for name, store in stores.items():
                for number in range(APPENDS):
                    began = perf_counter()
                    store.record("s", "user", f"turn {number}")
                    took[name].append(perf_counter() - began)
        for name, store in stores.items():
            store.close()
            print(f"{name:20} p50 {median(took[name]) * 1e6:7.1f} us of {len(took[name]):,} appends")


if __name__ == "__main__":
    main()
