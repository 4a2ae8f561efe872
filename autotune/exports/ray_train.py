"""A config as the arguments of a Ray Train trainer, in YAML, and read back from them."""

from collections.abc import Mapping
from typing import Any

from autotune.exports.base import Exported, Handover, commented
from autotune.exports.findings import Findings
from autotune.exports.yaml_text import to_yaml
from search_spaces import KNOBS, OffloadTarget

LOOP = "train_loop_config"
NOTE = (
    "TorchTrainer(loop, train_loop_config=..., scaling_config=ScalingConfig(**...), "
    "run_config=RunConfig(**...)): your loop does what train_loop_config says, for instance by "
    "autotune.apply"
)


def export_ray_train(handover: Handover) -> Exported:
    """See Exporter. One section for each argument of ``ray.train.torch.TorchTrainer``."""
    threads = max(1, handover.study.environment.num_threads)
    resources = {"CPU": threads, **({"GPU": 1} if handover.is_on_cuda else {})}
    document = {
        "scaling_config": {
            "num_workers": handover.num_devices,
            "use_gpu": handover.is_on_cuda,
            "resources_per_worker": resources,
        },
        "run_config": {"name": f"{handover.trial.study}-{handover.trial.number}"},
        LOOP: _loop(handover),
    }
    return Exported(text=commented(handover, (NOTE,)) + to_yaml(document), notes=(NOTE,))


def is_ray_train(document: Mapping[str, Any]) -> bool:
    """Return whether a document holds arguments of a Ray Train trainer."""
    return isinstance(document.get("scaling_config"), Mapping) and LOOP in document


def read_ray_train(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs of a document; other words of the loop are somebody else's."""
    loop = findings.block(document, LOOP)
    return {**findings.own, **{name: value for name, value in loop.items() if name in KNOBS}}


def _loop(handover: Handover) -> dict[str, Any]:
    values: dict[str, Any] = {
        **handover.config.as_dict(),
        "num_devices": handover.num_devices,
        "global_batch_size": handover.global_batch_size,
        "learning_rate": handover.learning_rate,
        "steps": handover.steps,
    }
    if handover.config.offload_target == OffloadTarget.NVME:
        values["nvme_path"] = handover.study.spec.nvme_path
    return {name: value for name, value in values.items() if value is not None}
