"""The page's section about data and machine, with the YAML folded away, and the run's files."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from urllib.parse import quote

from report import html
from report.retraining import retrained_folders
from report.run_files import REMEDY, read_json, seed_folders
from utils.files import MAX_BYTES, read_regular
from utils.strict_yaml import YamlError, read_text, read_yaml

_FACTS = {  # dotted key of the experiment: what the page calls it
    "data.corpus": "corpus",
    "model.slots": "slots",
    "model.d_model": "d_model",
    "search.steps": "search steps",
    "search.epochs": "search epochs",
    "search.estimator": "estimator",
    "search.alpha.data": "alpha's data",
    "derive.method": "derivation",
    "retrain.steps": "retraining steps",
    "retrain.epochs": "retraining epochs",
}
_MACHINE = ("corpus", "processor", "device", "threads", "torch", "python")
_HASHES = {"corpus_digest": "corpus hash", "commit": "commit"}
_SHORT = 12  # characters of a hash
_FILES = {  # pattern in the run folder: what it holds
    "search/seed-*/pi.csv": "pi over the steps, thinned, as a long table",
    "search/seed-*/pi.npz": "pi, alpha and tau of every step",
    "search/seed-*/metrics.jsonl": "losses of the search",
    "search/seed-*/figures": "the figures of this page",
    "search/figures": "the figures of several searches",
    "architecture.json": "the chosen layout",
    "architectures/*.json": "a layout",
    "architectures/*.csv": "the layouts that were scored or trained for it",
    "retrain/*/seed-*/result.json": "result of a retraining",
    "retrain/*/seed-*/metrics.jsonl": "losses of a retraining",
    "model": "the chosen model, to carry away",
    "comparison.csv": "the comparison as a table",
    "comparison.json": "the comparison with every seed and the verdict",
}


def provenance_section(run_folder: Path) -> html.Section | None:
    """What was searched, on what: facts of the experiment and of the machine; None of neither."""
    folders = [
        *seed_folders(run_folder / "search"),
        *(seed for layout in retrained_folders(run_folder) for seed in seed_folders(layout)),
    ]
    facts, texts = dict[str, str](), ""
    readers = {"experiment.yaml": _experiment_facts, "environment.json": _environment_facts}
    for name, read in readers.items():
        path = next((folder / name for folder in folders if (folder / name).exists()), None)
        if path is not None:
            facts |= read(path)
            title = path.relative_to(run_folder).as_posix()
            content = read_regular(path, MAX_BYTES, REMEDY).decode("utf-8", "replace")
            texts += html.collapsible(title, content)
    if not texts:
        return None
    return html.Section("machine", "Data and machine", html.facts(facts) + texts)


def _environment_facts(path: Path) -> dict[str, str]:
    known = read_json(path)
    facts = {key: str(known[key]) for key in _MACHINE if known.get(key) not in (None, "")}
    hashes = {words: str(known[key]) for key, words in _HASHES.items() if known.get(key)}
    return facts | {words: short_hash(value) for words, value in hashes.items()}


def short_hash(value: str) -> str:
    """The beginning of a hash, with what follows its digits, such as `-changed`."""
    digits, dash, more = value.partition("-")
    return f"{digits[:_SHORT]}{dash}{more[:_SHORT]}"


def _experiment_facts(path: Path) -> dict[str, str]:
    try:
        document = read_yaml(read_text(path))
    except YamlError as error:
        raise ValueError(f"{path}: not YAML ({error}); delete it") from error
    if document.problems:
        raise ValueError(f"{path}: {document.problems[0].text}; delete it")
    content = document.value
    facts = {}
    for dotted, name in _FACTS.items():
        value = content
        for key in dotted.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str | int | float):
            facts[name] = str(value)
    return facts


def files_section(run_folder: Path) -> html.Section | None:
    """Links to what the run left; None where there is nothing yet."""
    links = ""
    for pattern, meaning in _FILES.items():
        for path in sorted(run_folder.glob(pattern)):
            name = path.relative_to(run_folder).as_posix()
            links += (
                f'<li><a href="{escape(quote(name))}">{escape(name)}</a> {escape(meaning)}</li>'
            )
    return html.Section("files", "Files", f'<ul class="files">{links}</ul>') if links else None
