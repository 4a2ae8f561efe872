"""DeepSeek's first mixture of experts, put together from parts that transformers has.

Its checkpoints (``"model_type": "deepseek"``) come with code of their own, which is never run
here. The model is Llama's attention with the experts of DeepSeek-V2: softmax over all experts,
the weights of the chosen ones as they are, and experts that every token visits
(arXiv:2401.06066, section 3).
"""

from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

MODEL_TYPE = "deepseek"


@strict
class DeepseekConfig(LlamaConfig):  # type: ignore[misc]
    """Llama's config, and how many experts of what width there are in which layers."""

    model_type = MODEL_TYPE
    attribute_map = {"num_experts": "n_routed_experts"}  # noqa: RUF012
    n_routed_experts: int = 64
    n_shared_experts: int = 2
    num_experts_per_tok: int = 6
    moe_intermediate_size: int = 1408
    first_k_dense_replace: int = 1
    moe_layer_freq: int = 1
    routed_scaling_factor: float = 1.0
    topk_method: str = "greedy"
    n_group: int | None = None
    topk_group: int | None = None


class DeepseekForCausalLM(LlamaForCausalLM):  # type: ignore[misc]
    """Llama with experts in place of the feed-forward of all but the first layers."""

    config_class = DeepseekConfig

    def __init__(self, config: DeepseekConfig) -> None:
        """Make the layers."""
        super().__init__(config)
        for index, layer in enumerate(self.model.layers):
            is_sparse = index % config.moe_layer_freq == 0
            if index >= config.first_k_dense_replace and is_sparse:
                layer.mlp = _experts(config)
        self.post_init()


def _experts(config: DeepseekConfig) -> nn.Module:
    """Return a layer's experts; Llama's ``post_init`` draws none of those tensors."""
    experts = DeepseekV2Moe(config)
    for parameter in [*experts.experts.parameters(), *experts.gate.parameters()]:
        nn.init.normal_(parameter, std=config.initializer_range)
    made: nn.Module = experts
    return made


def register_deepseek() -> None:
    """Let transformers build it and read its weights, unless it knows the type itself."""
    if MODEL_TYPE in CONFIG_MAPPING:
        return
    AutoConfig.register(MODEL_TYPE, DeepseekConfig)
    AutoModelForCausalLM.register(DeepseekConfig, DeepseekForCausalLM)
    register_checkpoint_conversion_mapping(
        MODEL_TYPE, get_checkpoint_conversion_mapping("qwen2_moe")
    )
