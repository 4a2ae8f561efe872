"""The house's order, executed: imports run downwards, and each library has its door."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ["search_spaces", "trials", "autotune"]  # each may import only those before it
TRIALS_WITH_TORCH = {
    f"trials/{name}.py"
    for name in (
        *("adapters", "applying", "blocks", "byte_gpt", "checkpointing", "contract", "deepseek"),
        *("engines", "handed", "through_deepspeed", "through_lightning", "through_torch"),
        *("through_transformers", "through_trial"),
        *("verifying",),
        *("description", "evaluation", "fake_ledger", "fsdp", "huggingface", "language"),
        *("low_bit", "memory", "optimizers", "pretrained", "profiling", "ranks", "rehearsal"),
        *("runner", "samples", "techniques", "trace_task", "tracing", "training", "transformer"),
        *("trial", "vision", "warm_up", "workload", "zero"),
    )
}
DOORS = {
    "torch": TRIALS_WITH_TORCH,
    "transformers": {
        *("trials/pretrained.py", "trials/deepseek.py", "trials/through_transformers.py"),
    },
    "lightning": {"trials/through_lightning.py"},
    "accelerate": {"trials/through_accelerate.py"},
    "huggingface_hub": {"trials/pretrained.py", "trials/deepseek.py"},
    "sklearn": set(),
    "bitsandbytes": {"trials/low_bit.py"},
    "peft": {"trials/adapters.py"},
    "pynvml": {"trials/nvml.py"},
    "deepspeed": {"trials/zero.py"},
    "torchao": {"trials/low_bit.py"},
    "optuna": {"autotune/optimizer/"},
    "optuna_dashboard": {"autotune/optimizer/dashboard.py"},
    "ray": {f"autotune/workers/ray_{name}.py" for name in ("actor", "bootstrap", "slots")},
    "sqlalchemy": {"autotune/store/"},
    "alembic": {"autotune/store/"},
    "moocore": {"autotune/front.py"},
    "numpy": {"autotune/front.py", "autotune/optimizer/", "autotune/prices/quotes.py"},
    "pydantic": {"autotune/settings.py"},
    "platformdirs": {"autotune/settings.py"},
    "typer": {"autotune/cli/"},
    "yaml": {"autotune/exports/yaml_text.py"},
    "plotly": {"autotune/report/plots.py"},
    "rich": {"autotune/cli/"},
    "mlflow": {"autotune/tracking/mlflow.py"},
    "wandb": {"autotune/tracking/wandb.py"},
}
# Inside autotune: each may import only its own line and those before it.
ORDER = [
    {"errors", "figures", "playbook", "rates", "records"},
    {
        "settings",
        "objective",
        "front",
        "reuse",
        "baselines",
        "summary",
        "spending",
        "stopping",
        "worth",
        "dominance",
    }
    | {"prices"},
    {"reruns", "refusals", "events"},
    {"verdicts"},
    {"documents", "needs", "predict"},
    {"exports", "report", "tracking"},
    {"store", "workers"},
    {"optimizer", "forecast", "workplace"},
    {"quality", "ledger", "confirming"},
    {"soundness"},
    {"tuner"},
    {"inspection", "planning", "checks", "physics"},
    {"technique_checks"},
    {"doctor", "session"},
    {"estimating", "verifying"},
    {"playing"},
    {"cli"},
]
MODULES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} imports relatively"
            yield node.module


def is_through_door(name, doors):
    return any(name.startswith(door) if door.endswith("/") else name == door for door in doors)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_downwards_and_through_doors(path):
    name = name_of(path)
    above = LAYERS[LAYERS.index(name.partition("/")[0]) + 1 :]
    for package in {module.partition(".")[0] for module in imported_modules(path)}:
        assert package not in above, f"{name} imports {package}, a layer above it"
        doors = DOORS.get(package, {name})
        assert is_through_door(name, doors), f"{name} imports {package} past its door"


def test_search_spaces_need_the_standard_library_alone():
    import sys

    for path in (ROOT / "search_spaces").rglob("*.py"):
        packages = {module.partition(".")[0] for module in imported_modules(path)}
        assert packages <= sys.stdlib_module_names | {"search_spaces"}, name_of(path)


def test_trials_need_no_service_library():
    for path in (ROOT / "trials").rglob("*.py"):
        packages = {module.partition(".")[0] for module in imported_modules(path)}
        assert not packages & {"optuna", "ray", "sqlalchemy", "typer", "rich", "numpy"}


@pytest.mark.parametrize("path", sorted((ROOT / "autotune").rglob("*.py")), ids=name_of)
def test_the_service_is_layered_within(path):
    rank = {part: index for index, parts in enumerate(ORDER) for part in parts}
    parts = path.relative_to(ROOT / "autotune").parts
    own = parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for module in imported_modules(path):
        package, _, rest = module.partition(".")
        part = rest.partition(".")[0]
        if package == "autotune" and part:
            assert rank[part] <= rank[own], f"{name_of(path)} imports {module}, above it"


def test_every_door_exists():
    for doors in DOORS.values():
        assert all((ROOT / door).exists() for door in doors)


def test_every_part_of_the_service_has_a_rank():
    ranked = {part for parts in ORDER for part in parts}
    found = {path.name.removesuffix(".py") for path in (ROOT / "autotune").iterdir()}
    assert found - {"__init__", "__pycache__", "py.typed"} == ranked
