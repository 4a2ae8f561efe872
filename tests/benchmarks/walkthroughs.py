"""Two published walk-throughs, held against predictions of the same steps.

    python -m tests.benchmarks.walkthroughs [--output table|json]

A 13B model is said to go from 65 GB to 18-25 GB on one card of 80 GB, and training a 7B model to
become 45 % cheaper. Both are Llama 2, at the sequence length of ``SEQUENCE`` and one sample at a
time; the device is the A100 that ``estimate`` assumes. Nothing is trained.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.figures import shown_number
from autotune.playbook import Step
from autotune.playing import Walked, predict_path
from autotune.settings import Settings
from autotune.store.sql import SqlStore

GB = 10**9
SEQUENCE = 1024
CARD_BYTES = 80 * GB
BYTES_PER_PARAMETER = 16
"""fp32 weights 4, gradients 4 and AdamW 8; the 2 + 2 + 4 + 4 + 4 of mixed precision likewise."""
START_GB, END_GB = 65, (18, 25)
CHEAPER = 0.45
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
SIZES = {
    "7B": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
    "13B": {
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
    },
}


def predicted(size: str, held: Mapping[str, object] | None = None) -> Walked:
    """Return the path of one model, every step of it but those of knobs that are held."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'empty.db'}"  # so that no trial corrects anything
        SqlStore.open(store).close()
        path = Path(folder) / f"llama2-{size}.json"
        path.write_text(json.dumps({**LLAMA, **SIZES[size]}))
        settings = Settings.load(
            {
                "workload": f"huggingface:{path}?sequence={SEQUENCE}",
                "store": store,
                "device": "cuda",
                "global_batch": 1,
                "local": True,
                "deadline": 600.0,
            }
        )
        return predict_path(settings, held or {})


def judged_13b(walked: Walked) -> list[str]:
    """Return what of the 13B walk-through can be right, each figure with the number for it."""
    least = BYTES_PER_PARAMETER * walked.facts.num_parameters / GB
    share = START_GB * GB / walked.facts.num_parameters
    ends = [
        step for step in walked.steps if _peak(step) is not None and _peak_gb(step) <= END_GB[1]
    ]
    names = ", ".join(f"{step.name} at {_peak_gb(step):.1f} GB" for step in ends)
    return [
        f"{START_GB} GB at the start cannot be right for training all weights with AdamW: "
        f"{BYTES_PER_PARAMETER} bytes per parameter alone are {least:.0f} GB, and {START_GB} GB "
        f"are {share:.1f} bytes per parameter",
        f"{END_GB[0]}-{END_GB[1]} GB at the end: "
        + (f"undercut by {names}, which trains adapters alone" if ends else "no step reaches it")
        + "; full training does not, since fp32 weights alone are "
        + f"{4 * walked.facts.num_parameters / GB:.0f} GB",
    ]


def judged_7b(walked: Walked) -> list[str]:
    """Return what of the 7B walk-through can be right."""
    first = walked.steps[0].reading
    assert first is not None and first.usd_per_million_samples
    cheaper = {
        step.name: 1 - step.reading.usd_per_million_samples / first.usd_per_million_samples
        for step in walked.steps[1:]
        if step.reading is not None and step.reading.usd_per_million_samples
    }
    said = ", ".join(f"{name} {share:+.0%}" for name, share in cheaper.items())
    reached = [name for name, share in cheaper.items() if share >= CHEAPER]
    verdict = f"reached by {reached[0]}" if reached else "no step reaches it"
    return [f"{CHEAPER:.0%} cheaper: {verdict}; money saved against the start: {said}"]


def _peak(step: Step) -> int | None:
    return None if step.reading is None else step.reading.peak_bytes


def _peak_gb(step: Step) -> float:
    peak = _peak(step)
    assert peak is not None
    return peak / GB


def _document(size: str, walked: Walked, verdicts: list[str]) -> dict[str, Any]:
    return {
        "model": size,
        "parameters": walked.facts.num_parameters,
        "device": walked.environment.device_name,
        "prices": walked.rates.label,
        "steps": [
            {
                "step": step.name,
                "status": str(step.status),
                "reason": step.why,
                "peak_gb": None if _peak(step) is None else round(_peak_gb(step), 2),
                "usd_per_million_samples": None
                if step.reading is None
                else step.reading.usd_per_million_samples,
                "fits_80_gb": None if _peak(step) is None else _peak(step) <= CARD_BYTES,
            }
            for step in walked.steps
        ],
        "verdicts": verdicts,
    }


def main() -> None:
    """Predict both, and say which published figures cannot be right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", choices=["table", "json"], default="table")
    output = parser.parse_args().output
    documents = []
    for size, judged in (("13B", judged_13b), ("7B", judged_7b)):
        walked = predicted(size)
        documents.append(_document(size, walked, judged(walked)))
    if output == "json":
        sys.stdout.write(json.dumps(documents, indent=2) + "\n")
        return
    for document in documents:
        sys.stdout.write(f"{document['model']} on {document['device']}, predicted\n")
        for step in document["steps"]:
            peak, money = step["peak_gb"], step["usd_per_million_samples"]
            sizes = "-" if peak is None else f"{peak:.1f} GB, ${shown_number(money)}/M samples"
            why = f" ({step['reason']})" if step["reason"] else ""
            sys.stdout.write(f"  {step['step']}: {sizes}, {step['status']}{why}\n")
        sys.stdout.write("".join(f"  {line}\n" for line in document["verdicts"]))


if __name__ == "__main__":
    main()
