"""Pure, batched RL maths: arrays in, arrays out."""

from keras_rl2x.ops.averaging import polyak_average
from keras_rl2x.ops.multistep import n_step_return
from keras_rl2x.ops.policy_gradient import deterministic_policy_loss
from keras_rl2x.ops.value_learning import double_q_learning_value
from keras_rl2x.ops.value_learning import mask_values
from keras_rl2x.ops.value_learning import q_learning_value
from keras_rl2x.ops.value_learning import select
from keras_rl2x.ops.value_learning import td_target

__all__ = [
    "deterministic_policy_loss",
    "double_q_learning_value",
    "mask_values",
    "n_step_return",
    "polyak_average",
    "q_learning_value",
    "select",
    "td_target",
]
