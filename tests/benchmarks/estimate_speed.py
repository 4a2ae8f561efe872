"""How long ``autotune estimate`` takes, and how much memory, as seen from outside.

``python -m tests.benchmarks.estimate_speed [REPEATS]`` runs the command on 1,152 configs of
``byte-gpt``, and on llama3_8b from its config file for a GPU; n, median, least and most seconds,
how many times as long as a bare ``import torch`` run in turn with it, and memory in all processes.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.processes import tree_pss_bytes

ROOT = Path(__file__).parents[2]
LLAMA = ROOT / "tests" / "assets" / "models" / "llama3_8b.json"
SPACE = """global_batch_size = 32
[knobs]
amp_dtype = ["fp32", "bf16", "fp16"]
checkpoint_interval = [0, 1, 2, 4]
checkpoint_deepest = [1, 2, 3, 4]
micro_batch_size = [1, 2, 4, 8, 16, 32]
optimizer = ["adamw", "lion"]
optimizer_bits = [32, 8]
"""
IMPORT = [sys.executable, "-c", "import torch"]
GIB = 2**30


def main(repeats: int) -> None:
    """Measure both, and what importing torch takes."""
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "space.toml"
        space.write_text(SPACE)
        measure("byte-gpt", ["--space", str(space), "--device", "cpu"], folder, repeats)
        llama = ["--workload", f"huggingface:{LLAMA}", "--device", "cuda"]
        measure("llama3_8b", llama, folder, repeats)


def measure(name: str, arguments: Sequence[str], folder: str, repeats: int) -> None:
    """Run the command so often, an import of torch before each, and print what was seen."""
    command = [sys.executable, "-m", "autotune.cli", "estimate", "--output", "json", *arguments]
    answer = Path(folder) / "answer.json"
    imports, commands, peaks = [], [], []
    for _ in range(repeats):
        imports.append(watched(IMPORT, answer)[0])
        seconds, peak = watched(command, answer)
        commands.append(seconds)
        peaks.append(peak)
    document = json.loads(answer.read_text())
    ratio = statistics.median(commands) / statistics.median(imports)
    print(
        f"{name}: {len(document['configs'])} configs, "
        f"{statistics.median(commands):.1f} s, from {min(commands):.1f} to {max(commands):.1f}, "
        f"{ratio:.1f} times an import of torch ({statistics.median(imports):.1f} s), "
        f"traces {document['traces_seconds']:.1f} s, {max(peaks) / GIB:.2f} GiB in all processes, "
        f"n = {repeats}"
    )


def watched(command: Sequence[str], output: Path) -> tuple[float, int]:
    """Run a command; returns its seconds and the most memory that it and its children had."""
    started, peak = time.perf_counter(), 0
    with output.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file)
        while process.poll() is None:
            peak = max(peak, tree_pss_bytes(process.pid))
            time.sleep(0.05)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return seconds, peak


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
