"""What is known of a run: plain numbers, from which the checks read."""

from dataclasses import dataclass
from dataclasses import field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Layer:
    """A layer's outputs over a minibatch.

    Attributes:
        name: of the layer.
        activation: its name, `"linear"` for none.
        is_output: whether its network ends in it.
        dead: share of units that are 0 for every row (ReLU only).
        saturated: share of outputs at the ends of their range (tanh, sigmoid).
    """

    name: str
    activation: str
    is_output: bool
    dead: float
    saturated: float


@dataclass(frozen=True)
class Inputs:
    """What the first layer with a kernel receives.

    Attributes:
        layer: its name.
        largest: largest magnitude of all features.
        smallest: largest magnitude of the smallest feature that is not constant.
    """

    layer: str
    largest: float
    smallest: float


@dataclass(frozen=True)
class Network:
    """One online network.

    Attributes:
        loss: float, or `None` where `train_step` applies no gradient to it.
        gradients: norm by variable, `None` where no gradient arrives.
        weights: norm by variable.
        updates: change per gradient step over weight norm, by kernel; empty at first.
        drift: distance from the first record over the weight norm then, per
            gradient step.
        layers: in the order of their calls.
        inputs: or `None` where they are no floats, or normalised.
        learning_rate: of its optimizer.
        clipping: `(name, threshold)` of its optimizer, or `None`.
    """

    loss: float | None
    gradients: dict[str, float | None]
    weights: dict[str, float]
    updates: dict[str, float]
    drift: float
    layers: tuple[Layer, ...]
    inputs: Inputs | None
    learning_rate: float
    clipping: tuple[str, float] | None

    @property
    def gradient_norm(self) -> float:
        """Norm of the whole gradient."""
        return float(np.sqrt(sum(g * g for g in self.gradients.values() if g)))

    @property
    def update_ratio(self) -> float | None:
        """Median over the kernels of change per gradient step over weight norm."""
        return float(np.median(list(self.updates.values()))) if self.updates else None

    @property
    def slowest_update(self) -> float | None:
        """Likewise, of the kernel that changes least."""
        return min(self.updates.values()) if self.updates else None


@dataclass(frozen=True)
class Target:
    """A target network.

    Attributes:
        name: its attribute, and
        online: that of the network that it follows.
        shared: whether the two share variables.
        distance: of the two, over the norm of the online network.
        moved: whether it has changed since the first record.
        online_moved: whether the online network has.
        equal: whether it equals the online network now and an execution before.
        used: whether any loss depends on it; `None` where that was not tried.
        online_used_by: a network whose loss depends on `online` in its place.
    """

    name: str
    online: str
    shared: bool
    distance: float
    moved: bool
    online_moved: bool
    equal: bool
    used: bool | None
    online_used_by: str | None


@dataclass(frozen=True)
class Values:
    """Q-values over a minibatch.

    Attributes:
        network: which says them.
        mean: over states, of the greedy action.
        largest: magnitude.
        spread: over states, of the greedy action (standard deviation).
        by_action: discrete: best minus worst action, mean over states. Continuous: norm
            of dQ/da, mean over states.
    """

    network: str
    mean: float
    largest: float
    spread: float
    by_action: float


@dataclass(frozen=True)
class Acting:
    """Actions for a minibatch of observations.

    Attributes:
        policy: attribute of the network that acts.
        activation: what it ends in, `None` where unknown.
        largest: greatest magnitude of a greedy action (continuous).
        at_bound: share of greedy actions at a bound (continuous).
        greedy_share: share of the commonest greedy action (discrete).
        tried_share: share of the commonest action that exploration tries; `None` where
            unknown.
        histogram: share of greedy actions, by action or in equal parts of [-1, 1].
        exploration: the rule's own numbers at the start of learning, now, and
            at the end.
    """

    policy: str
    activation: str | None
    largest: float
    at_bound: float
    greedy_share: float
    tried_share: float | None
    histogram: tuple[float, ...]
    exploration: tuple[dict[str, float], dict[str, float], dict[str, float]]


@dataclass(frozen=True)
class Data:
    """What the memory holds, from samples so far.

    Attributes:
        steps: number of steps in the memory.
        rows: number of rows seen.
        reward_low: smallest, and
        reward_high: largest reward.
        reward_size: mean magnitude.
        terminations: number of rows that end the task.
        unchanged: share of rows whose next observation is the observation.
        varied: whether observations differ between rows.
        episode_ended: whether any episode has ended.
    """

    steps: int
    rows: int
    reward_low: float
    reward_high: float
    reward_size: float
    terminations: int
    unchanged: float
    varied: bool
    episode_ended: bool

    @property
    def reward_largest(self) -> float:
        """Largest magnitude of a reward."""
        return max(abs(self.reward_low), abs(self.reward_high))

    @property
    def reward_range(self) -> float:
        """Difference of the largest and the smallest reward."""
        return self.reward_high - self.reward_low


@dataclass(frozen=True)
class Record:
    """One measurement."""

    step: int
    gradient_steps: int
    networks: dict[str, Network]
    targets: tuple[Target, ...]
    values: tuple[Values, ...]
    acting: Acting | None
    data: Data | None
    evaluations: tuple[tuple[float, float], ...] = ()  # (return, length), greedy
    logs: dict[str, float] = field(default_factory=dict)


@dataclass
class Setup:
    """What does not change while a run lasts.

    Attributes:
        actions: `"discrete"` or `"continuous"`, and
        num_actions: how many there are, or dimensions.
        gamma: discount per step.
        tau: of the target rule, or `None`.
        period: of the target rule, or `None`.
        start_step: env step at which the run began.
        end_step: env step at which the run is to end.
        steps_at_start: in the memory when the first gradient step is taken, or `None`
            if the agent had learned before.
        uint8: whether the observations are pixels.
        networks: the online networks by attribute.
        value_networks: attributes of those that say values.
    """

    actions: str
    num_actions: int
    gamma: float
    tau: float | None
    period: int | None
    start_step: int
    end_step: int
    steps_at_start: int | None
    uint8: bool
    networks: dict[str, Any]
    value_networks: tuple[str, ...] = ()


@dataclass
class History:
    """All that is known of a run; what a check receives."""

    setup: Setup
    records: list[Record] = field(default_factory=list)

    @property
    def last(self) -> Record:
        """The newest record."""
        return self.records[-1]

    def latest(self, count: int) -> list[Record]:
        """The newest records, if there are so many since learning began."""
        learned = [record for record in self.records if record.gradient_steps > 0]
        return learned[-count:] if len(learned) >= count else []
