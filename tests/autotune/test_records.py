from dataclasses import replace

from search_spaces import SearchSpace
from tests.factories import GIB, make_environment, make_facts, make_study_record


def record_on(host_bytes):
    record = make_study_record(facts=make_facts(num_trainable=3 * 10**9))
    space = SearchSpace.of({"zero_stage": [1], "offload_target": ["none", "cpu"]})
    return replace(record, spec=replace(record.spec, space=space, host_memory_bytes=host_bytes))


def reasons(record):
    return {e.reason for e in record.spec.space.exclusions(record.device_facts)}


def test_a_study_leaves_out_what_its_host_cannot_hold():
    (reason,) = reasons(record_on(16 * GIB))
    assert "at least 33.5 GiB" in reason
    assert reasons(record_on(64 * GIB)) == set()


def test_a_study_of_before_hosts_were_asked_leaves_out_nothing_for_them():
    assert reasons(record_on(None)) == set()


def test_the_memory_of_a_host_is_no_part_of_an_environments_identity():
    one, other = make_environment(), make_environment(host_memory_bytes=GIB)
    assert one.hash == other.hash and one.differences(other) == []
