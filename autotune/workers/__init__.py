"""Where trials run: in this process's hosts, or on Ray slots."""

from autotune.workers.base import Finished, Workers, WorkersRequest

__all__ = ["Finished", "Workers", "WorkersRequest", "open_workers"]


def open_workers(request: WorkersRequest, *, is_local: bool) -> Workers:
    """Open slots to run trials on.

    Open them in a thread that outlives them: Linux ends a local cluster with that thread.

    Args:
        request: What is asked for.
        is_local: Whether to do without Ray.

    Raises:
        WorkersError: They cannot be had; the message says what there is instead.
    """
    # Imported here, so that whoever needs no workers waits for neither Ray nor a trial host.
    if not is_local:
        from autotune.workers.ray_bootstrap import open_ray_workers

        return open_ray_workers(request)
    from autotune.workers.local import LocalWorkers
    from autotune.workers.slots import plan_slots, this_machine

    plans = plan_slots(request.device_kind, request.num_slots, this_machine(), request.num_devices)
    return LocalWorkers(plans, request)
