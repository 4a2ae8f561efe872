"""Knobs from an Accelerate YAML, and what is wrong with one."""

from collections.abc import Mapping
from typing import Any

from autotune.errors import SettingsError
from autotune.exports.accelerate_fsdp import read_fsdp
from autotune.exports.deepspeed_reading import AUTO, read_deepspeed
from autotune.exports.documents_beside import document_beside
from autotune.exports.findings import Findings
from search_spaces import OffloadTarget

KNOWN_KEYS = {
    *("compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug"),
    *("num_processes", "machine_rank", "num_machines", "gpu_ids", "main_process_ip"),
    *("main_process_port", "rdzv_backend", "same_network", "main_training_function"),
    *("enable_cpu_affinity", "fp8_config", "deepspeed_config", "fsdp_config"),
    *("parallelism_config", "megatron_lm_config", "mpirun_config", "downcast_bf16"),
    *("tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "command_file", "commands"),
    *("tpu_vm", "tpu_env", "dynamo_config"),
}
"""Of accelerate's ``ClusterConfig``, which refuses others. A test holds them to it."""
OLDER_KEYS = {"fp16": "mixed_precision", "dynamo_backend": "dynamo_config"}
"""That accelerate still reads, and what stands for each."""
FILE_KEY = "deepspeed_config_file"
KEYS_OF_A_FILE = {
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "mixed_precision"),
    *("offload_optimizer_device", "offload_param_device", "offload_param_nvme_path"),
    *("offload_optimizer_nvme_path", "zero3_save_16bit_model"),
}
"""What accelerate refuses beside ``deepspeed_config_file``, which says it all."""
DEFAULT_STAGE = 2
PRECISIONS = {"no": "fp32", "bf16": "bf16", "fp16": "fp16"}


def is_accelerate(document: Mapping[str, Any]) -> bool:
    """Return whether a document is accelerate's."""
    return "distributed_type" in document or "compute_environment" in document


def read_accelerate(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs of a document; what is wrong goes to the findings.

    What accelerate has no key for is from our own comment, where we wrote the file.
    """
    _tell_keys(document, findings)
    knobs: dict[str, object] = {**findings.own, "amp_dtype": _amp_dtype(document, findings)}
    knobs["compile"] = _is_compiled(document, findings)
    kind = str(document.get("distributed_type", "NO"))
    if kind == "FSDP":
        return {**knobs, **read_fsdp(document, findings)}
    if kind in ("MEGATRON_LM", "XLA", "TPU"):
        findings.fault(f"distributed_type {kind} is no knob here; DEEPSPEED, FSDP, MULTI_GPU are")
    if kind != "DEEPSPEED":
        return {**knobs, "zero_stage": 0, "offload_target": str(OffloadTarget.NONE)}
    plugin = findings.with_numbers(
        findings.block(document, "deepspeed_config"), "deepspeed_config."
    )
    if FILE_KEY in plugin:
        return {**knobs, **_of_file(document, plugin, findings)}
    if knobs["amp_dtype"] in ("bf16", "fp16"):
        findings.note("with DeepSpeed, mixed_precision keeps weights in 16 bits; trials do not")
    return {**knobs, **_of_inline(plugin, findings)}


def _tell_keys(document: Mapping[str, Any], findings: Findings) -> None:
    unknown = sorted(document.keys() - KNOWN_KEYS - OLDER_KEYS.keys())
    if unknown:
        findings.fault(f"accelerate knows no key {', '.join(map(repr, unknown))}")
    for key in sorted(OLDER_KEYS.keys() & document.keys()):
        findings.note(f"{key} is deprecated: {OLDER_KEYS[key]}")
    for key in ("mixed_precision", "distributed_type"):
        if document.get(key, "") is False:
            findings.fault(f"{key}: YAML takes an unquoted no for false; write 'no'")


def _amp_dtype(document: Mapping[str, Any], findings: Findings) -> str:
    said = document.get("mixed_precision")
    if said is None:
        said = "fp16" if findings.switch(document, "fp16") else "no"
    if said is not False and str(said) not in PRECISIONS:
        findings.fault(f"mixed_precision {said!r} is none of {', '.join(PRECISIONS)}")
    own = findings.own.get("amp_dtype")
    is_tf32 = own == "tf32" and said == "no"
    return "tf32" if is_tf32 else PRECISIONS.get(str(said), "fp32")


def _is_compiled(document: Mapping[str, Any], findings: Findings) -> bool:
    options = {**document, **findings.block(document, "dynamo_config")}
    backend = options.get("dynamo_backend", "NO")
    if not isinstance(backend, str):
        findings.fault(f"dynamo_backend={backend!r}: must be a name, such as 'INDUCTOR' or 'NO'")
    return str(backend).upper() != "NO"


def _of_file(
    document: Mapping[str, Any], plugin: Mapping[str, Any], findings: Findings
) -> dict[str, object]:
    both = sorted(KEYS_OF_A_FILE & (plugin.keys() | ({"mixed_precision"} & document.keys())))
    if both:
        findings.fault(f"{FILE_KEY} and {', '.join(both)}: accelerate takes one or the other")
    try:
        return read_deepspeed(document_beside(findings.path, str(plugin[FILE_KEY])), findings)
    except SettingsError as error:
        findings.fault(f"deepspeed_config.{FILE_KEY}: {error}")
        return {}


def _of_inline(plugin: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    target = plugin.get("offload_optimizer_device", OffloadTarget.NONE)
    knobs = {"zero_stage": plugin.get("zero_stage", DEFAULT_STAGE), "offload_target": str(target)}
    steps = plugin.get("gradient_accumulation_steps", AUTO)
    if steps == AUTO:
        findings.note("gradient_accumulation_steps is left to the script, here to the batch")
        return knobs
    return {**knobs, "accumulation_steps": steps}
