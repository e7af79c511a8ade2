"""The two shapes in which experience travels: single steps and minibatches."""

from typing import Any
from typing import NamedTuple


class Step(NamedTuple):
    """One true environment step of each of `N` environments, in the env's units.

    What a memory stores. `terminated` says that the episode is over because the
    task is; `truncated` that it was cut off (a time limit) and would go on.

    Attributes:
        observation: `[N, ...]` (or a dict of such arrays), the env's own dtype.
        action: `[N]` or `[N, A]`, as the env received it.
        reward: `[N]` float.
        terminated: `[N]` bool.
        truncated: `[N]` bool.
        next_observation: `[N, ...]`; at the end of an episode the *final*
            observation, never the first one of the next episode.
        action_mask: `[N, A]` bool or `None`: actions allowed in `observation`.
        next_action_mask: likewise in `next_observation`.
    """

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_observation: Any
    action_mask: Any = None
    next_action_mask: Any = None


class Transition(NamedTuple):
    """A minibatch of (possibly n-step) transitions, as `train_step` receives it.

    There is no `done`: `discount` carries termination, n-step and gamma. It is
    `0` where the episode terminated and `gamma ** n` elsewhere, *also* where it
    was truncated.

    Attributes:
        observation: `[B, ...]` (or a dict of such tensors).
        action: `[B]` int for discrete actions, counted from 0; `[B, A]` float
            in `[-1, 1]` for continuous ones.
        reward: `[B]` float, the discounted sum of the n rewards.
        discount: `[B]` float, weight of the value of `next_observation`.
        next_observation: `[B, ...]`, the observation n steps later.
        next_action_mask: `[B, A]` bool or `None`.
        weight: `[B]` float or `None`: importance weights of a prioritised memory.
        index: `[B]` int or `None`: rows of the memory, for new priorities.
    """

    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any
    next_action_mask: Any = None
    weight: Any = None
    index: Any = None
