"""The house rules: who may import whom, no pickle, help that is instant."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"utils", "data", "model", "training", "nas", "hpo", "report", "export"}
# Everything that belongs to the scripts: the verbs, pipeline, tools.
UNKNOWN_TO_PACKAGES = {"pipeline", "tools"} | {path.stem for path in ROOT.glob("*.py")}
OURS = PACKAGES | UNKNOWN_TO_PACKAGES | {"benchmarks", "tests"}
# What each part may import of ours, itself included.
LAW = {
    "utils": {"utils"},
    "data": {"data", "utils"},
    "model": {"model", "utils"},
    "training": {"training", "model", "utils"},
    "nas": {"nas", "model", "training", "utils"},
    "hpo": {"hpo", "utils"},
    "report": {"report", "utils"},
    "export": {"export", "model", "data", "utils"},
}


# The law: a feature brings its lines by taking others away.
MOST = {
    **{"lines": 28_000, "files": 190, "test lines": 28_000},
    **{"pipeline lines": 5_200, "pipeline files": 24},
}
MOST_OF_FILE, MOST_OF_FUNCTION = 500, 80
# Of modules of ours from search.py on.
LONGEST_CHAIN = 14


def test_the_house_stays_small():
    product = [
        path
        for path in sources(ROOT)
        if path.relative_to(ROOT).parts[0] not in ("tests", "benchmarks", "docs")
    ]
    length = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in product}
    tests = sum(len(path.read_text("utf-8").splitlines()) for path in sources(ROOT / "tests"))
    pipeline = [length[path] for path in sources(ROOT / "pipeline")]
    now = {
        **{"lines": sum(length.values()), "files": len(product), "test lines": tests},
        **{"pipeline lines": sum(pipeline), "pipeline files": len(pipeline)},
    }
    assert {name: count for name, count in now.items() if count > MOST[name]} == {}
    assert [path.name for path, lines in length.items() if lines > MOST_OF_FILE] == []
    long = [
        f"{path.name}: {node.name}"
        for path in product
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_OF_FUNCTION
    ]
    assert long == []


def sources(folder: Path) -> list[Path]:
    """All Python files of ours below a folder; environments, runs and the site are not ours."""
    made = {"runs", "site"}
    ours = [path for path in folder.iterdir() if path.name[0] != "." and path.name not in made]
    below = (file for path in ours if path.is_dir() for file in path.rglob("*.py"))
    return sorted([*(path for path in ours if path.suffix == ".py"), *below])


def imported_modules(path: Path, everywhere: bool = True) -> Iterator[str]:
    """Dotted names of all modules that a file imports, relative ones made absolute.

    Not `everywhere` are those that are imported with it: not in functions, nor for types alone.
    """
    package = path.relative_to(ROOT).parent.parts
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """The top-level names of ours that a file imports."""
    return {name.split(".")[0] for name in imported_modules(path)} & OURS


@pytest.mark.parametrize("package", sorted(LAW))
def test_a_package_imports_only_what_the_law_allows(package):
    assert sources(ROOT / package), f"{package}/ holds no Python file"
    broken = {
        str(path.relative_to(ROOT)): sorted(ours(path) - LAW[package])
        for path in sources(ROOT / package)
    }
    assert {path: names for path, names in broken.items() if names} == {}


def test_the_schema_imports_configs_and_registries_only():
    allowed = {"utils", "model.blocks", "hpo", "nas.costs.config", "nas.search.config"}
    allowed |= {"nas.derivation", "nas.baselines", *(f"{package}.config" for package in PACKAGES)}
    experiment = ("experiment", "experiment_sweep")
    for name in experiment:
        for module in imported_modules(ROOT / f"pipeline/{name}.py"):
            if module.split(".")[0] in PACKAGES:
                assert any(module == each or module.startswith(each + ".") for each in allowed), (
                    f"{name} imports {module}"
                )
            assert module.split(".")[0] not in {"tools", "torch"}
            others = {"pipeline", *(f"pipeline.{each}" for each in (*experiment, "cli"))}
            if module.split(".")[0] == "pipeline":
                assert module in others or module.rpartition(".")[0] in others, module


def test_the_law_has_eyes(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "model").mkdir()
    guilty = tmp_path / "model" / "x.py"
    guilty.write_text("def f():\n    from nas.tau import g\n    import data.corpora\n")
    assert ours(guilty) == {"nas", "data"}
    guilty.write_text("from . import config\nfrom .blocks import BLOCKS\n")
    assert ours(guilty) == {"model"}


# Foreign checkpoints are pickles: read as plain tensors, and written by the test of that.
PICKLES = {
    "benchmarks/from_adaptive_span.py": {("torch", "load")},
    "tests/benchmarks/test_from_adaptive_span.py": {("torch", "save")},
}


def test_nothing_of_ours_unpickles():
    forbidden_modules = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    for path in sources(ROOT):
        where = path.relative_to(ROOT)
        tops = {name.split(".")[0] for name in imported_modules(path)}
        assert not tops & forbidden_modules, where
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = (node.value.id, node.attr)
                forbidden = {("torch", "load"), ("torch", "save")}
                assert called not in forbidden - PICKLES.get(where.as_posix(), set()), where
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                assert "weights_only=True" in ast.unparse(node), where
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), where
                assert node.value.value is False, where


# Without a seed these draw other numbers in every process.
NEED_A_SEED = {"default_rng", "RandomState", "SeedSequence", "Random", "seed"}
SEEDED_BY_KEYWORD = {"TPESampler", "RandomSampler", "NSGAIISampler", "GPSampler"}
GLOBAL_GENERATORS = ("random", "numpy.random", "np.random")
NO_DRAWS = {
    "getstate",
    "setstate",
    "get_state",
    "set_state",
    "Generator",
    "PCG64",
    "SFC64",
    "Philox",
    "BitGenerator",
}


def unseeded_draws(path: Path) -> Iterator[str]:
    """Calls in a file that draw by luck: from a generator without a seed, or from a global one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        owner, _, name = ast.unparse(call.func).rpartition(".")
        seeded = {keyword.arg for keyword in call.keywords} & {"seed", None}
        by_luck = (name in NEED_A_SEED and not call.args and not seeded) or (
            name in SEEDED_BY_KEYWORD and not seeded
        )
        is_global = owner in GLOBAL_GENERATORS and owner.split(".")[0] in modules
        if by_luck or (is_global and name not in NEED_A_SEED | NO_DRAWS):
            yield f"{path.name}:{call.lineno}: {ast.unparse(call)}"


def test_nothing_draws_without_a_seed():
    assert [draw for path in sources(ROOT) for draw in unseeded_draws(path)] == []


def test_a_draw_by_luck_is_seen(tmp_path):
    for code, by_luck in (
        ("import random\nrandom.shuffle(x)", True),
        ("import random\nrandom.Random()", True),
        ("import random\nrandom.Random(3).shuffle(x)", False),
        ("import numpy as np\nnp.random.normal(size=3)", True),
        ("import numpy as np\nnp.random.default_rng()", True),
        ("import numpy as np\nnp.random.default_rng(3).normal()", False),
        ("import torch\ntorch.Generator().seed()", True),
        ("from optuna.samplers import RandomSampler\nRandomSampler()", True),
        ("import optuna\noptuna.samplers.TPESampler(seed=3)", False),
        ("random = rng(3)\nrandom.choice(x)", False),
    ):
        (tmp_path / "x.py").write_text(code)
        assert bool(list(unseeded_draws(tmp_path / "x.py"))) == by_luck, code


def test_the_longest_chain_of_imports_of_a_search_is_short():
    start, length = ROOT / "search.py", dict[Path, int]()

    def chain(path: Path) -> int:
        if path not in length:
            length[path] = 0  # a circle ends here
            names = {name.replace(".", "/") for name in imported_modules(path, path == start)}
            files = {ROOT / f"{name}{end}" for name in names for end in (".py", "/__init__.py")}
            length[path] = 1 + max((chain(file) for file in files if file.exists()), default=0)
        return length[path]

    assert chain(start) <= LONGEST_CHAIN


def test_a_saved_model_needs_few_modules_of_ours():
    code = "import sys; from model import load_model; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert len([name for name in done.stdout.split() if name.split(".")[0] in OURS]) <= 30


def test_what_goes_on_with_a_text_loads_few_modules(undisturbed: Path) -> None:
    (model,) = undisturbed.glob("retrain/*/seed-0/model")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tools.generate", model, "--tokens", "1"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert len([name for name in imported if name.split(".")[0] in OURS]) <= 60


def test_the_lock_is_exact_and_brings_no_accelerator_packages():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 20
    for pin in pins:
        assert "==" in pin.split(";")[0], pin
        assert not pin.startswith(("torch", "nvidia", "cuda", "triton")), pin
        assert "://" not in pin, pin
        assert " @ " not in pin, pin


def test_names_of_tests_are_short(request: pytest.FixtureRequest) -> None:
    """One of 64 MB, escaped, went through every process of xdist: 7 GB and two minutes."""
    longest = max((item.nodeid for item in request.session.items), key=len)
    assert len(longest) < 1000, longest[:1000]
