"""Which keys DeepSpeed knows, and where. A test holds them to the installed DeepSpeed."""

TOP_LEVEL_BLOCKS = ("aio", "activation_checkpointing", "bf16", "fp16", "optimizer", "scheduler")
"""Blocks that people misplace inside others."""

STAGE3_KEYS = {
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "gather_16bit_weights_on_model_save",
    "module_granularity_threshold",
    "use_all_reduce_for_fetch_params",
    "allgather_sequential",
}
"""Read with ``stage3_`` before them, and without."""

ZERO_KEYS = {
    *STAGE3_KEYS,
    *(f"stage3_{key}" for key in STAGE3_KEYS),
    "stage",
    "contiguous_gradients",
    "reduce_scatter",
    "reduce_bucket_size",
    "use_multi_rank_bucket_allreduce",
    "allgather_partitions",
    "allgather_bucket_size",
    "overlap_comm",
    "compute_grad_norm",
    "load_from_fp32_weights",
    "elastic_checkpoint",
    "offload_param",
    "offload_optimizer",
    "zenflow",
    "sub_group_size",
    "cpu_offload_param",
    "cpu_offload_use_pin_memory",
    "cpu_offload",
    "stage3_gather_fp16_weights_on_model_save",
    "ignore_unused_parameters",
    "legacy_stage1",
    "round_robin_gradients",
    "parameter_alignment",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_gradients",
    "memory_efficient_linear",
    "pipeline_loading_checkpoint",
    "override_module_apply",
    "log_trace_cache_warnings",
    "enable_sanity_checks",
    "save_muon_momentum_buffer_in_memory",
    "leaf_module",
}
BLOCK_KEYS = {
    "zero_optimization": ZERO_KEYS,
    "zero_optimization.offload_param": {
        *("device", "nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory")
    },
    "zero_optimization.offload_optimizer": {
        *("device", "nvme_path", "buffer_count", "pin_memory", "pipeline_read", "pipeline_write"),
        *("fast_init", "ratio", "super_offload", "cpuadam_cores_perc"),
    },
    "fp16": {
        *("enabled", "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window"),
        *("hysteresis", "consecutive_hysteresis", "min_loss_scale"),
        "fp16_master_weights_and_grads",
    },
    "bf16": {
        *("enabled", "immediate_grad_update", "check_grad_overflow"),
        *("bf16_master_weights_and_grads", "bf16_optimizer_states"),
    },
}
"""Blocks in which DeepSpeed refuses a key that it does not know."""

DEPRECATED_KEYS = {
    "cpu_offload": "offload_optimizer",
    "cpu_offload_param": "offload_param",
    "cpu_offload_use_pin_memory": "pin_memory in offload_optimizer and offload_param",
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
}
"""Of ``zero_optimization``, and what stands for each today."""

POSITIVE_KEYS = ("reduce_bucket_size",)
"""Of ``zero_optimization``; older DeepSpeed took 0 too."""
