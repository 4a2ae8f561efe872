"""Predictions against real trials, and what must hold of them whatever the numbers."""

import random
import statistics
import time
import uuid
from dataclasses import replace

import pytest

from autotune.predict.predictor import Job, Predictor
from autotune.predict.speed import USUAL_GPU, speed_of
from search_spaces import SearchSpace, TrainingConfig
from tests.autotune.predict.traces import HOST_BYTES, traced
from tests.trials.model_configs import written
from trials.host import TrialHost
from trials.spec import TimingPolicy, TrialSpec

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's import
MIB = 2**20
SPACE = SearchSpace.of(
    {
        "amp_dtype": ["fp32", "bf16"],
        "checkpoint_interval": [0, 1, 2],
        "micro_batch_size": [1, 2, 4, 8],
        "optimizer_bits": [32, 8],
        "optimizer_in_backward": ["off", "on"],
    },
    global_batch_size=8,
)


@pytest.fixture(scope="module")
def trace():
    lora = {"lora_rank": 4}
    return traced("byte-gpt", {}, {"amp_dtype": "bf16"}, lora, {**lora, "amp_dtype": "bf16"})


def predictor(trace, kind="cpu", **job):
    return Predictor(trace, Job(device_kind=kind, speed=speed_of(kind, ""), num_blocks=4, **job))


def predicted(trace, kind="cpu", num_ranks=1, **knobs):
    config = TrainingConfig.from_mapping(knobs)
    return predictor(trace, kind, num_ranks=num_ranks).predict([config])[0]


def peak(trace, **knobs):
    return predicted(trace, **knobs).peak_device_bytes.mean


def test_a_larger_micro_batch_takes_more(trace):
    for knobs in ({}, {"amp_dtype": "bf16"}, {"checkpoint_interval": 1}, {"lora_rank": 4}):
        peaks = [peak(trace, micro_batch_size=2**power, **knobs) for power in range(8)]
        assert peaks == sorted(peaks) and peaks[-1] > 2 * peaks[0]


def test_a_prediction_says_for_what_causes_it_may_be_off(trace):
    full, half = predicted(trace), predicted(trace, amp_dtype="bf16", checkpoint_interval=1)
    assert (full.step_errors[0], full.step_errors[1], full.step_errors[4]) == (0.8, 0.0, 0.0)
    assert (half.step_errors[0], half.step_errors[1], half.step_errors[4]) == (0.8, 0.8, 0.2)
    assert full.peak_errors[2] == 0.0 < half.peak_errors[2] < 0.1
    assert full.peak_errors[3] == 0.0 < predicted(trace, zero_stage=2).peak_errors[3]


def test_each_technique_takes_less_of_what_it_is_for(trace):
    plain = predicted(trace, micro_batch_size=16)
    fewer = predicted(trace, micro_batch_size=16, checkpoint_interval=1)
    assert fewer.memory["activations"] < plain.memory["activations"] / 4
    some = predicted(trace, micro_batch_size=16, checkpoint_interval=1, checkpoint_deepest=2)
    between = (fewer.memory["activations"], plain.memory["activations"])
    assert between[0] < some.memory["activations"] < between[1]
    lora = predicted(trace, micro_batch_size=16, lora_rank=4)
    assert lora.memory["gradients"] < plain.memory["gradients"] / 5
    packed = predicted(trace, micro_batch_size=16, lora_rank=4, weight_bits=4)
    assert packed.memory["parameters"] < lora.memory["parameters"] / 3


@pytest.mark.parametrize("interval", [0, 1])
def test_packed_weights_leave_no_copies_in_16_bits_on_a_gpu(trace, interval):
    """As autocast does of frozen ones in 32 bits: 2 bytes of each, a block's when recomputed."""
    knobs = {"amp_dtype": "bf16", "checkpoint_interval": interval, "lora_rank": 4}
    whole, packed = (
        predicted(trace, "cuda", micro_batch_size=1, weight_bits=bits, **knobs) for bits in (32, 4)
    )
    graph = trace.graph(is_low_precision=True, lora_rank=4)
    elements = sum(size * count for size, count in graph.adapted)
    copies = 2 * elements / (1 if interval == 0 else 4)
    unpacked = elements // 64 + 2 * max(size for size, _ in graph.adapted)  # and its scales
    saved = whole.memory["parameters"] - packed.memory["parameters"]
    more = whole.peak_device_bytes.mean - packed.peak_device_bytes.mean - saved
    assert more == pytest.approx(copies - unpacked, rel=0.01)


def test_gradients_are_kept_while_accumulating_and_freed_in_the_backward(trace):
    whole = predicted(trace, micro_batch_size=8)
    split = predicted(trace, micro_batch_size=8, accumulation_steps=4)
    freed = predicted(trace, micro_batch_size=8, optimizer_in_backward="on")
    assert split.peak_device_bytes.mean > whole.peak_device_bytes.mean
    assert freed.memory["gradients"] == 0
    assert split.step_seconds.mean > 3 * whole.step_seconds.mean


@pytest.mark.parametrize("sharding", ["deepspeed", "fsdp"])
def test_more_devices_share_what_is_sharded(trace, sharding):
    one, eight = (
        predicted(trace, "cuda", ranks, zero_stage=3, sharding=sharding, micro_batch_size=4)
        for ranks in (1, 8)
    )
    for kind in ("parameters", "optimizer_state", "gradients"):
        assert eight.memory[kind] == pytest.approx(one.memory[kind] / 8, rel=0.01)


def test_what_is_offloaded_from_a_gpu_is_on_the_host(trace):
    for target, copies in (("cpu", 2), ("paged", 0)):
        here, away = (
            predicted(trace, "cuda", micro_batch_size=4, offload_target=t)
            for t in ("none", target)
        )
        assert away.memory["optimizer_state"] == 0
        moved = here.memory["optimizer_state"] + copies * here.memory["gradients"]
        assert away.peak_host_bytes - HOST_BYTES == pytest.approx(moved, rel=0.001)


def test_a_gpus_host_holds_the_model_while_it_is_built_unless_more_is_offloaded_to_it(trace):
    whole = 4 * sum(size * count for size, count in trace.graphs[0].trained)
    here = predicted(trace, "cuda", micro_batch_size=4)
    assert here.peak_host_bytes - HOST_BYTES == whole
    assert predicted(trace, micro_batch_size=4).peak_host_bytes == HOST_BYTES
    packed = predicted(trace, "cuda", micro_batch_size=4, lora_rank=4, weight_bits=4)
    assert packed.peak_host_bytes == HOST_BYTES
    knobs = {"zero_stage": 3, "offload_target": "cpu"}  # weights, copies, state, gradients: 20
    alone, shared = (predicted(trace, "cuda", ranks, **knobs) for ranks in (1, 8))
    assert alone.peak_host_bytes - HOST_BYTES == pytest.approx(5 * whole, rel=0.001)
    assert shared.peak_host_bytes - HOST_BYTES == whole


def test_the_peak_is_that_of_the_fullest_phase(trace):
    found = predicted(trace, micro_batch_size=8)
    assert set(found.phases) == {"forward", "backward", "step"}
    assert found.phases[found.phase] == max(found.phases.values())
    assert found.peak_device_bytes.mean == pytest.approx(found.phases[found.phase])


def test_activations_on_the_host_leave_the_gpu(trace):
    away = predicted(trace, "cuda", micro_batch_size=64, activation_offload="cpu")
    here = predicted(trace, "cuda", micro_batch_size=64)
    assert away.memory["activations"] == 0
    assert away.peak_device_bytes.mean < 0.6 * here.peak_device_bytes.mean
    assert away.peak_host_bytes > here.peak_host_bytes + 60 * MIB
    assert away.step_seconds.mean > here.step_seconds.mean


def test_a_gpu_that_is_not_known_is_taken_for_the_usual_one():
    assert speed_of("cuda", "NVIDIA Something") == USUAL_GPU
    assert speed_of("cuda", "NVIDIA H200 NVL").memory_bytes == 141 * 2**30


def test_thousands_of_configs_a_second(trace):
    configs = list(SPACE.combinations()) * 40
    started = time.process_time()
    found = predictor(trace).predict(configs, 20 * MIB)
    assert len(found) / (time.process_time() - started) > 1000


def measured(host, reference, configs):
    timing = TimingPolicy(min_steps=2, max_steps=3, max_seconds=0.3)
    asked = TrialSpec(workload=reference, timing=timing, deadline_seconds=250)
    trials = []
    for config in configs:
        spec = replace(asked, config=config, trial_id=uuid.uuid4().hex)
        trials.append((config, host.run(spec)))
    return trials


@pytest.fixture(scope="module")
def host():
    host = TrialHost(preload=["trials.preload_transformers"])
    yield host
    host.close()


@pytest.fixture(scope="module", params=["byte-gpt", "llama"])
def trials(request, host, tmp_path_factory):
    """A predictor that learnt from three real trials, and eight others."""
    reference = request.param
    if reference == "llama":
        sizes = {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 512}
        path = written(tmp_path_factory.mktemp("model"), **sizes)
        reference = f"huggingface:{path}"
    device = host.run(TrialSpec(workload="", task="environment")).environment.device_facts()
    sample = random.Random(7).sample(SPACE.configs(device), 11)
    predicts = predictor(traced(reference, {}, {"amp_dtype": "bf16"}))
    run = measured(host, reference, sample)
    assert [m.reason for _, m in run] == 11 * [""]
    predicts.learn(run[:3])
    return predicts, run[3:]


@pytest.mark.slow
def test_weights_and_state_are_exact(trials):
    predicts, run = trials
    for config, real in run:
        (found,) = predicts.predict([config])
        for kind in ("parameters", "optimizer_state"):
            assert found.memory[kind] == real.memory.by_kind[kind], (kind, str(config))


@pytest.mark.slow
def test_peaks_are_near_after_three_trials(trials):
    predicts, run = trials
    off = []
    for config, real in run:
        (found,) = predicts.predict([config])
        off.append(abs(found.peak_device_bytes.mean / real.memory.peak_device_bytes - 1))
    assert statistics.median(off) < 0.08 and max(off) < 0.25, off
