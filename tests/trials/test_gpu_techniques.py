"""Every technique on a GPU: it trains, and takes the bytes that it is said to take."""

import uuid

import pytest

from search_spaces import TrainingConfig, refusal
from tests.benchmarks.technique_list import LORA_RANK, techniques
from trials.gpt_sizes import SIZES
from trials.measurement import Outcome
from trials.nvml import num_gpus
from trials.spec import Task, TrialSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(num_gpus() == 0, reason="no NVIDIA GPU on this machine"),
]
MODEL = "byte-gpt:5m"
TECHNIQUES = {technique.name: technique for technique in techniques(SIZES["5m"].num_blocks)}
SECONDS = 300.0
"""For a trial: torch compiles, DeepSpeed starts."""
ADAPTERS = (f"LoRA {LORA_RANK}", f"QLoRA {LORA_RANK}, 8-bit", f"QLoRA {LORA_RANK}, 4-bit")
STATE_ON_DEVICE = {
    **dict.fromkeys(["fp32", "tf32", "bf16", "fp16", "compile", "step in backward"], (8, 8.1)),
    **dict.fromkeys(["checkpoint every block", "activations on host"], (8, 8.1)),
    "8-bit AdamW": (2, 2.3),
    "4-bit AdamW": (1, 1.2),
    "paged AdamW": (0, 1.5),
    "paged 8-bit AdamW": (0, 0.5),
    "state on host (torchao)": (0, 0.1),
    "bf16, ckpt, 8-bit": (2, 2.3),
    **dict.fromkeys(["ZeRO-1", "ZeRO-2"], (12, 12.2)),
    "ZeRO-3": (8, 8.2),
    **dict.fromkeys(["ZeRO-1, host", "ZeRO-2, host", "ZeRO-3, host", "ZeRO-3, disk"], (0, 0.2)),
    **dict.fromkeys(["FSDP-2", "FSDP-3"], (8, 8.1)),
    "FSDP-3, host": (0, 0.1),
    **dict.fromkeys(ADAPTERS, (0.5, 0.8)),
}
"""Bytes per parameter: two moments of 4, 1 or half a byte, and the fp32 copy that ZeRO keeps,
at stage 3 only of what it offloads.

Tensors under 4,096 elements stay in 32 bits, and pages begin at 100,000; adapters of this rank
have 8 % of the parameters.
"""
STATE_ELSEWHERE = {
    "paged AdamW": (6.5, 8),
    "paged 8-bit AdamW": (1.6, 2),
    "state on host (torchao)": (7.8, 8.1),
    **dict.fromkeys(["ZeRO-1, host", "ZeRO-2, host", "ZeRO-3, host"], (12, 12.2)),
    "ZeRO-3, disk": (11.5, 12.5),
    "FSDP-3, host": (8, 8.1),
}
PARAMETERS_ON_DEVICE = {
    **dict.fromkeys(["fp32", "bf16", "8-bit AdamW", "ZeRO-3", "FSDP-2", "FSDP-3"], (4, 4.1)),
    **dict.fromkeys(["ZeRO-3, host", "FSDP-3, host"], (0, 0.2)),
    ADAPTERS[0]: (4.2, 4.5),
    ADAPTERS[1]: (1.2, 1.7),
    ADAPTERS[2]: (0.7, 1.2),
}


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    return str(tmp_path_factory.mktemp("disk"))


@pytest.fixture(scope="module")
def model(host):
    return found_by(host, Task.DESCRIBE).facts


@pytest.fixture(scope="module")
def rules_facts(host, model, disk):
    return model.rules_facts(found_by(host, Task.ENVIRONMENT, nvme_path=disk).environment)


def found_by(host, task, **fields):
    one = {"workload": MODEL, "device": "cuda:0", "trial_id": uuid.uuid4().hex}
    return host.run(TrialSpec(task=task, **one, **fields))


@pytest.fixture
def train(run, rules_facts, disk):
    """Train under a technique, unless it cannot be tried on this GPU."""

    def trained(name, workload=MODEL, batch=8, **fields):
        knobs = {"micro_batch_size": batch, **TECHNIQUES[name].knobs}
        config = TrainingConfig().with_knobs(knobs)
        why = refusal(config, rules_facts)
        if why is not None:
            pytest.skip(why)
        usual = {"device": "cuda:0", "nvme_path": disk, "deadline_seconds": SECONDS}
        found = run(workload, config=config, **usual, **fields)
        assert found.outcome == Outcome.COMPLETED, found.reason
        return found

    return trained


@pytest.fixture
def bytes_each(train, model):
    """Return the bytes per parameter of a kind, on the device and elsewhere."""

    def each(name, kind):
        memory = train(name).memory
        away = sum(memory.elsewhere.get(kind, {}).values())
        return memory.by_kind[kind] / model.num_parameters, away / model.num_parameters

    return each


@pytest.mark.parametrize("name", TECHNIQUES)
def test_every_technique_trains(train, name):
    memory = train(name).memory
    assert 0 < memory.peak_device_bytes <= memory.peak_reserved_bytes
    assert memory.allocator_retries == 0


@pytest.mark.parametrize("name", [name for name in TECHNIQUES if "LoRA" not in name])
def test_every_technique_learns_as_plain_fp32_does(train, name):
    losses = [
        train(one, task=Task.QUALITY, quality_samples=160).quality.value for one in (name, "fp32")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.parametrize(("name", "bounds"), STATE_ON_DEVICE.items())
def test_state_takes_its_bytes_on_the_device(bytes_each, name, bounds):
    assert bounds[0] <= bytes_each(name, "optimizer_state")[0] <= bounds[1]


@pytest.mark.parametrize(("name", "bounds"), STATE_ELSEWHERE.items())
def test_state_that_leaves_is_found_elsewhere(bytes_each, name, bounds):
    assert bounds[0] <= bytes_each(name, "optimizer_state")[1] <= bounds[1]


@pytest.mark.parametrize(("name", "bounds"), PARAMETERS_ON_DEVICE.items())
def test_parameters_take_their_bytes_on_the_device(bytes_each, name, bounds):
    assert bounds[0] <= bytes_each(name, "parameters")[0] <= bounds[1]


def test_a_step_in_the_backward_pass_leaves_no_gradient(bytes_each):
    assert bytes_each("step in backward", "gradients")[0] == 0


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint every block",
        "activations on host",
        "8-bit AdamW",
        "state on host (torchao)",
        "step in backward",
        "ZeRO-3, host",
        "bf16, ckpt, 8-bit",
    ],
)
def test_what_saves_memory_lowers_the_peak_on_the_device(train, name):
    peaks = [train(n, "byte-gpt:25m").memory.peak_device_bytes for n in (name, "fp32")]
    assert peaks[0] < 0.95 * peaks[1]


@pytest.mark.parametrize("name", ["tf32", "bf16"])
def test_tensor_cores_are_used(train, name):
    times = [train(n, "byte-gpt:85m").timing.mean_seconds for n in (name, "fp32")]
    assert times[0] < 0.8 * times[1]


def test_the_time_of_compiling_is_apart(train):
    timing = train("compile").timing
    assert timing.warm_up_seconds > 10 * timing.mean_seconds


@pytest.mark.skipif(num_gpus() < 2, reason="one NVIDIA GPU on this machine; NCCL needs two")
@pytest.mark.parametrize(
    ("name", "state", "parameters"),
    [
        *(("fp32", 8, 4), ("ZeRO-1", 6, 4), ("ZeRO-2", 6, 4), ("ZeRO-3", 4, 2)),
        *(("FSDP-2", 4, 2), ("FSDP-3", 4, 2)),
    ],
)
def test_two_gpus_share_what_a_technique_shards(train, model, name, state, parameters):
    found = train(name, num_ranks=2, num_devices=2)
    kinds = found.memory.by_kind
    assert found.num_ranks == 2
    assert found.timing.samples_per_step == 16
    assert kinds["optimizer_state"] == pytest.approx(state * model.num_parameters, rel=0.05)
    assert kinds["parameters"] == pytest.approx(parameters * model.num_parameters, rel=0.05)
