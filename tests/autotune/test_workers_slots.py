import os

import pytest

from autotune.errors import WorkersError
from autotune.workers.probes import common_environment
from autotune.workers.slots import Machine, plan_cluster_slots, plan_slots, this_machine
from tests.autotune.workers_processes import spec
from tests.factories import make_environment

MACHINE = Machine(cores=(0, 4, 1, 5, 2, 6, 3), num_gpus=2)


def shapes(plans):
    return [(plan.name, plan.device, plan.num_threads, plan.cores) for plan in plans]


def test_cpu_slots_get_equal_cores_of_their_own():
    assert shapes(plan_slots("cpu", None, MACHINE)) == [
        ("cpu-0", "cpu", 3, (0, 1, 4)),
        ("cpu-1", "cpu", 3, (2, 5, 6)),
    ]


def test_a_machine_with_one_core_gets_one_cpu_slot():
    plans = plan_slots("cpu", None, Machine(cores=(7,), num_gpus=0))
    assert shapes(plans) == [("cpu-0", "cpu", 1, (7,))]


def test_cuda_slots_get_a_gpu_each():
    assert shapes(plan_slots("cuda", None, MACHINE)) == [
        ("cuda-0", "cuda:0", 3, (0, 1, 4)),
        ("cuda-1", "cuda:1", 3, (2, 5, 6)),
    ]


def test_a_gpus_cores_do_not_depend_on_how_many_gpus_are_used():
    assert plan_slots("cuda", 1, MACHINE) == plan_slots("cuda", 2, MACHINE)[:1]


def test_gpus_without_a_core_each_share_all():
    plans = plan_slots("cuda", None, Machine(cores=(0,), num_gpus=2))
    assert [(plan.num_threads, plan.cores) for plan in plans] == [(1, ()), (1, ())]


@pytest.mark.parametrize(
    ("kind", "count", "reason"),
    [
        (
            "cpu",
            8,
            "asked for 8 slots, but there are 7 usable CPU cores, and a CPU slot needs one; "
            "--slots 7 at most",
        ),
        ("cpu", 0, "asked for 0 slots"),
        ("cuda", 3, "asked for 3 slots, but there are 2 visible GPUs, and a CUDA slot needs one"),
        ("tpu", 1, "device 'tpu' is not known; choose cpu or cuda"),
    ],
)
def test_what_a_machine_does_not_have_is_refused_with_what_it_has(kind, count, reason):
    with pytest.raises(WorkersError, match=reason):
        plan_slots(kind, count, MACHINE)


def test_no_gpu_is_told_as_such():
    with pytest.raises(WorkersError, match=r"there is no visible GPU.*; use --device cpu"):
        plan_slots("cuda", None, Machine(cores=(0,), num_gpus=0))


def test_one_core_is_told_as_one():
    with pytest.raises(
        WorkersError, match=r"there is 1 usable CPU core, and .* --slots 1 at most"
    ):
        plan_slots("cpu", 2, Machine(cores=(0,), num_gpus=0))


def test_this_machine_has_the_cores_of_this_process_and_the_gpus_that_it_sees(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine = this_machine()
    assert set(machine.cores) == os.sched_getaffinity(0)
    assert machine.num_gpus == 0


def test_a_slot_places_a_trial():
    plan = plan_slots("cuda", None, MACHINE)[1]
    placed = plan.place(spec("done", seed=3))
    assert (placed.device, placed.num_threads, placed.cores) == ("cuda:1", 3, (2, 5, 6))
    assert placed.seed == 3


def test_cpu_slots_of_a_cluster_get_as_many_threads_as_fit_its_machines():
    nodes = [{"CPU": 8.0}, {"CPU": 3.0}]
    plans = plan_cluster_slots("cpu", 3, nodes)
    assert [(plan.num_threads, plan.cores) for plan in plans] == [(3, ())] * 3


def test_cuda_slots_of_a_cluster_are_all_its_gpus():
    nodes = [{"CPU": 16.0, "GPU": 2.0}, {"CPU": 32.0}, {"CPU": 6.0, "GPU": 1.0}]
    plans = plan_cluster_slots("cuda", None, nodes)
    assert [(plan.device, plan.num_threads) for plan in plans] == [("cuda:0", 6)] * 3


@pytest.mark.parametrize(
    ("kind", "count", "reason"),
    [
        ("cpu", 9, "asked for 9 slots, but there are 8 CPUs in the cluster"),
        ("cuda", 1, "there is no GPU in the cluster; use --device cpu"),
        ("cuda", None, "there is no GPU in the cluster; use --device cpu"),
    ],
)
def test_what_a_cluster_does_not_have_is_refused_with_what_it_has(kind, count, reason):
    with pytest.raises(WorkersError, match=reason):
        plan_cluster_slots(kind, count, [{"CPU": 8.0}])


def test_slots_that_differ_are_named_with_how():
    ours, theirs = make_environment(torch="2.9.0"), make_environment(torch="2.8.0")
    with pytest.raises(WorkersError, match=r"a and c .* torch: 2\.9\.0 / 2\.8\.0"):
        common_environment({"a": ours, "b": ours, "c": theirs})


@pytest.mark.parametrize(
    ("kind", "devices"), [("cpu", ["cpu", "cpu"]), ("cuda", ["cuda:0", "cuda:2"])]
)
def test_a_slot_of_several_devices_has_them_for_itself(kind, devices):
    machine = Machine(cores=tuple(range(8)), num_gpus=4)
    plans = plan_slots(kind, None, machine, num_devices=2)
    assert [plan.device for plan in plans] == devices
    assert [plan.cores for plan in plans] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert {plan.num_devices for plan in plans} == {2}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_trial_of_more_devices_than_there_are_is_refused(kind):
    machine = Machine(cores=(0, 1), num_gpus=2)
    with pytest.raises(WorkersError, match=r"no group of 3 .* take fewer --trial-devices"):
        plan_slots(kind, None, machine, num_devices=3)


def test_a_trials_devices_are_on_one_node_of_a_cluster():
    nodes = [{"CPU": 8, "GPU": 3}, {"CPU": 8, "GPU": 1}]
    plans = plan_cluster_slots("cuda", None, nodes, num_devices=2)
    assert len(plans) == 1 and plans[0].num_devices == 2
