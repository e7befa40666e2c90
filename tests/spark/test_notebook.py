"""The notebook in ``examples/`` runs from top to bottom with a real broker, and its saved output is current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from support.sparks import PYTHON_PATH, SparkBroker

NOTEBOOK = Path(__file__).parents[2] / "examples" / "from_queue_to_chart.ipynb"


def _shown(notebook: Any) -> list[list[str]]:
    """The output of cells: their text, and for each picture only that it exists."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells if cell.cell_type == "code"]
    return [[_text(output["data"]) for output in each if "data" in output] for each in outputs]


def _text(data: dict[str, Any]) -> str:
    return "a picture" if "image/png" in data else str(data["text/plain"])


# The kernel's own event loops, sockets and executors are ended by its shutdown, or with the process.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_from_a_queue_to_a_chart(broker: SparkBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PHPMQ", broker.addresses["phpmq"])
    monkeypatch.setenv("PENSTOCK_FLIGHT", broker.endpoint.rpartition("/")[2])
    monkeypatch.setenv("PYTHONPATH", PYTHON_PATH)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    stored, run = (nbformat.reads(NOTEBOOK.read_text(), as_version=4) for _ in range(2))  # type: ignore[no-untyped-call]
    NotebookClient(run, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = _shown(run)
    assert shown == _shown(stored)
    assert sum(each == ["a picture"] or "a picture" in each for each in shown) == 2
