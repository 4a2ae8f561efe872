"""The settings of each optimizer, for trials that build one and for exports that name one."""

from dataclasses import dataclass

from search_spaces.config import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRule:
    """How an optimizer is set, whatever the bits of its state.

    Attributes:
        relative_rate: Its learning rate to AdamW's.
        weight_decay: What torch, bitsandbytes and torchao take unless told otherwise.
        betas: Likewise; None for a rule that has none.
        momentum: None for a rule that has none.
    """

    relative_rate: float
    weight_decay: float
    betas: tuple[float, float] | None = None
    momentum: float | None = None


UPDATE_RULES = {
    Optimizer.ADAMW: UpdateRule(relative_rate=1.0, weight_decay=0.01, betas=(0.9, 0.999)),
    Optimizer.LION: UpdateRule(relative_rate=0.2, weight_decay=0.0, betas=(0.9, 0.99)),
    Optimizer.SGD: UpdateRule(relative_rate=10.0, weight_decay=0.0, momentum=0.9),
}
"""Lion's authors advise a learning rate 3 to 10 times lower (Chen et al. 2023, section 5); SGD,
whose step is not normalised, takes about ten times more."""

ADAM_EPSILON = 1e-8
