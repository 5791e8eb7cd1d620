"""The notebook: plain JSON without outputs, and its code runs on the tiny experiment."""

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs/parnas.ipynb"


def test_the_file_is_plain_and_holds_no_output() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    content = json.loads(text)
    assert text == json.dumps(content, indent=1) + "\n"
    nbformat.validate(content)
    cells = content["cells"]
    assert [cell["id"] for cell in cells] == [f"cell-{at:02}" for at, _ in enumerate(cells, 1)]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_its_code_runs(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = experiment_file.read_text().replace("[interleaved, par, random]", "[interleaved]")
    experiment_file.write_text(tiny)
    monkeypatch.setenv("CONFIG", str(experiment_file))
    monkeypatch.setenv("RUN", str(tmp_path / "run"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # Where Jupyter starts it.
    NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": ROOT / "docs"}},
    ).execute()
    outputs = {
        cell["id"]: json.dumps(cell["outputs"])
        for cell in notebook.cells
        if cell["cell_type"] == "code"
    }
    found = " ".join(outputs.values())
    for sign in ("image/gif", "attention", "interleaved", "srcdoc", "import "):
        assert sign in found
    assert (tmp_path / "run/report.html").exists()
