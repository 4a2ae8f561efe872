"""Facts of LoRA that trials and exports must agree in."""

ALPHA_PER_RANK = 2
"""LoRA scales its update by alpha / rank; twice the rank is what most recipes take."""
DEFAULT_RANK = 8
"""Of peft, axolotl, LLaMA-Factory and torchtune, where a file does not say."""
