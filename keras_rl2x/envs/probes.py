"""Probe environments: tiny tasks of which every value is known exactly.

Each probe checks one thing that an agent can get wrong without a crash. Train
with random behaviour, read the values at `observations()` and compare them with
`expected`; the docstring says which fault shows as which wrong value. The final
observation of an episode is, wherever possible, one that also occurs *inside*
episodes, so that looking beyond an end becomes visible as a number.

All probes raise when they are stepped before `reset` or after an end, and when
an action is not in the action space. Their `info` is always empty.
"""

from typing import Any
from typing import ClassVar
from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces


class Outcome(NamedTuple):
    """What an action leads to: the next state, the reward and the two flags."""

    state: int
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


def end(state: int, reward: float = 0.0) -> Outcome:
    """Returns a termination with `state` as the final observation."""
    return Outcome(state, reward, terminated=True)


class TableProbe(gymnasium.Env):
    """An environment with a few states, written down as a table of outcomes.

    A subclass sets `table` and `expected`, or overrides `outcome` where a table
    is not enough. The observation is the state, one-hot, so that any dense
    network can represent the values exactly.

    Attributes:
        table: `table[state][action]`, an `Outcome`. A state that only ends an
            episode has an empty row.
        num_actions: int, number of actions.
        first_action: int, the number of the first action.
        starts: tuple of int, states in which an episode starts, all equally likely.
        time_limit: int or `None`, the step on which an episode is truncated.
        gamma: float, the discount for which `expected` holds.
        expected: dict from state to the values of its actions, in their order.
        tolerance: float, how far a trained value may be from `expected`.

    Args:
        continuous: bool, whether the action is a number in `[-1, 1]` that has no
            effect, for agents with continuous actions. The expected value then
            holds for every action. Only for probes with a single action.
            Defaults to `False`.
    """

    metadata: ClassVar[dict] = {"render_modes": []}

    table: ClassVar[tuple] = ()
    num_actions: ClassVar[int] = 1
    first_action: ClassVar[int] = 0
    starts: ClassVar[tuple] = (0,)
    time_limit: ClassVar[int | None] = None
    gamma: ClassVar[float] = 0.9
    expected: ClassVar[dict] = {}
    tolerance: ClassVar[float] = 0.05

    def __init__(self, continuous: bool = False):
        if continuous and self.num_actions > 1:
            raise ValueError(
                "`continuous=True` needs a probe with a single action, whose choice "
                f"has no effect. Received: {type(self).__name__} with "
                f"{self.num_actions} actions."
            )
        self.continuous = continuous
        if continuous:
            self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        else:
            self.action_space = spaces.Discrete(
                self.num_actions, start=self.first_action
            )
        self.rows = self.observations()
        self.observation_space = spaces.Box(-1.0, 1.0, self.rows.shape[1:], np.float32)
        self.state: int | None = None  # `None` outside of an episode
        self.steps = 0

    def observations(self) -> np.ndarray:
        """Returns the observations of all states, `[num_states, ...]`."""
        return np.eye(len(self.table), dtype=np.float32)

    def observe(self, state: int) -> np.ndarray:
        """Returns the observation of one state, as an array of its own."""
        return self.rows[state].copy()

    def outcome(self, state: int, action: Any) -> Outcome:
        """Returns what `action` leads to in `state`."""
        column = 0 if self.num_actions == 1 else int(action) - self.first_action
        return self.table[state][column]

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        """Starts an episode. See `gymnasium.Env.reset`."""
        super().reset(seed=seed)
        self.state = self.starts[self.np_random.integers(len(self.starts))]
        self.steps = 0
        return self.observe(self.state), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes one step. See `gymnasium.Env.step`.

        Raises:
            RuntimeError: before `reset` or after the end of an episode.
            ValueError: if the action is not in the action space.
        """
        if self.state is None:
            raise RuntimeError(
                "`step` was called before `reset` or after the end of an episode."
            )
        if not self.action_space.contains(action):
            raise ValueError(
                f"The action must be in {self.action_space}. Received: {action!r} "
                f"of type {type(action).__name__}."
            )
        state, reward, terminated, truncated = self.outcome(self.state, action)
        self.steps += 1
        truncated = truncated or self.steps == self.time_limit
        self.state = None if terminated or truncated else state
        return self.observe(state), reward, terminated, truncated, {}


class OneStateProbe(TableProbe):
    """Is a reward learned, and nothing beyond a termination?

    One state, one step, reward 1: Q = 1.

    10, or a climb towards it: looks beyond `terminated`. The initial value: the
    loss or the optimizer is not applied.
    """

    table = ((end(0, 1.0),),)
    expected = {0: (1.0,)}


class ObservationProbe(TableProbe):
    """Does the observation reach the network, paired with its own reward?

    The observation is -1 or +1 and is the reward of the only step; the final
    observation is the other one: Q(-1) = -1, Q(+1) = 1.

    Both 0: no observation reaches the network, or rows are mixed up. Signs
    swapped: observation and next observation are swapped. (-0.526, 0.526):
    looks beyond `terminated`.
    """

    table = ((end(1, -1.0),), (end(0, 1.0),))
    starts = (0, 1)
    expected = {0: (-1.0,), 1: (1.0,)}

    def observations(self) -> np.ndarray:
        """Returns the observations of both states, -1 and +1."""
        return np.array([[-1.0], [1.0]], np.float32)


class DiscountProbe(TableProbe):
    """Is the next value discounted, once?

    0 → 1 without a reward, then an end with reward 1: Q = 0.9, 1.

    (1, 1): no discount. (0.81, 1): discounted twice. (0, 1): no next value.
    (4.74, 5.26): looks beyond `terminated`. (1, 0): reward stored a step early.
    """

    table = ((Outcome(1),), (end(0, 1.0),))
    expected = {0: (0.9,), 1: (1.0,)}


class ActionProbe(TableProbe):
    """Does each action get its own reward?

    One state, one step, reward -1 or +1 for the two actions: Q = (-1, 1).

    (0, 0): actions are not stored or not gathered. (1, -1): swapped. (1, 1): the
    loss is on the best action in place of the taken one.
    """

    table = ((end(0, -1.0), end(0, 1.0)),)
    num_actions = 2
    expected = {0: (-1.0, 1.0)}


class XorProbe(ObservationProbe):
    """Are observation, action and reward of one row kept together?

    The observation is -1 or +1; reward 1 if action 1 is taken at +1 or action 0
    at -1, else -1: Q(-1) = (1, -1), Q(+1) = (-1, 1).

    All 0: gathered along the wrong axis, or `[B, 1]` met `[B]`.
    """

    table = ((end(1, 1.0), end(1, -1.0)), (end(0, -1.0), end(0, 1.0)))
    num_actions = 2
    expected = {0: (1.0, -1.0), 1: (-1.0, 1.0)}


class NeverEndsProbe(TableProbe):
    """Does a truncated task go on for ever?

    One state, reward 1, truncated every 5th step: Q = 1 / (1 - 0.9) = 10.

    3.571: truncation counts as termination. Drifting: no target network.
    """

    table = ((Outcome(0, 1.0),),)
    time_limit = 5
    expected = {0: (10.0,)}
    tolerance = 0.1


class TruncationProbe(TableProbe):
    """Does truncation look at its own final observation, and termination not?

    Starts in 0 or 1. 0: truncated in 1 without a reward. 1: terminated in 0 with
    reward 1. Q = 0.9, 1.

    (0, 1): truncation counts as termination. (0.818, 1): looks at the first
    observation of the next episode. (4.74, 5.26): looks beyond `terminated`.
    """

    table = ((Outcome(1, truncated=True),), (end(0, 1.0),))
    starts = (0, 1)
    expected = {0: (0.9,), 1: (1.0,)}


class BothFlagsProbe(TruncationProbe):
    """Does termination win where an episode is also truncated?

    As `TruncationProbe`, but in 1 both flags are set, as `TimeLimit` does when
    the task ends on the limit: Q = 0.9, 1.

    (4.74, 5.26): both flags count as truncation. (0, 1): truncation counts as
    termination.
    """

    table = (
        (Outcome(1, truncated=True),),
        (Outcome(0, 1.0, terminated=True, truncated=True),),
    )


class GhostRowProbe(TableProbe):
    """Is the reset of a vector environment kept out of the memory?

    Starts in 0 or 1, one step. 0: terminated in 1 without a reward. 1: terminated
    in 0 with reward 1. Q = 0, 1.

    (0.205, 0.705): the step on which a `NEXT_STEP` vector environment resets was
    stored. (4.74, 5.26): looks beyond `terminated`.
    """

    table = ((end(1),), (end(0, 1.0),))
    starts = (0, 1)
    expected = {0: (0.0,), 1: (1.0,)}


class CorridorProbe(TableProbe):
    """Does value travel back over several steps of control?

    States 0 to 4, starts in 0 to 3. Action 0 goes left (0 stays), action 1 right;
    4 ends with reward 1. Q(left) = 0.6561, 0.6561, 0.729, 0.81;
    Q(right) = 0.729, 0.81, 0.9, 1.

    Right column times 0.9: one discount too many. Q(3, left) other than 0.81: the
    next observation is a stale one.
    """

    table = (
        (Outcome(0), Outcome(1)),
        (Outcome(0), Outcome(2)),
        (Outcome(1), Outcome(3)),
        (Outcome(2), end(4, 1.0)),
        (),
    )
    num_actions = 2
    starts = (0, 1, 2, 3)
    expected = {0: (0.6561, 0.729), 1: (0.6561, 0.81), 2: (0.729, 0.9), 3: (0.81, 1.0)}


class TimeLimitProbe(TableProbe):
    """Does a time limit in the middle of a longer task leave the values alone?

    0 → 1 → 0 for ever, with reward 1 on the way back; starts in 0, truncated on
    the 3rd step. Q = 0.9 / 0.19 = 4.737, 1 / 0.19 = 5.263.

    (0.756, 1.681): truncation counts as termination. (3.103, 3.793): looks at the
    first observation of the next episode. (2.368, 2.632): the reset step of a
    `NEXT_STEP` vector environment was stored.
    """

    table = ((Outcome(1),), (Outcome(0, 1.0),))
    time_limit = 3
    expected = {0: (0.9 / 0.19,), 1: (1 / 0.19,)}
    tolerance = 0.1


class TrapProbe(TableProbe):
    """Are values those of the best behaviour, though the behaviour is random?

    0 → 1 by either action; in 1 action 0 ends with reward 1, action 1 with -10:
    Q(0) = (0.9, 0.9), Q(1) = (1, -10).

    Q(0) = -4.05: the mean of the next values in place of the best. Q(1, 1) = -1:
    rewards are clipped.
    """

    table = ((Outcome(1), Outcome(1)), (end(0, 1.0), end(0, -10.0)))
    num_actions = 2
    expected = {0: (0.9, 0.9), 1: (1.0, -10.0)}
    tolerance = 0.1


class NoisyRewardProbe(TableProbe):
    """Which loss is really used?

    One state, one step, rewards 1, 1, 1, -1 in turn: Q = 0.5 by the mean squared
    error, 2/3 by the Huber loss (delta 1) or with clipped errors
    (`expected_huber`).

    The one in place of the other: another loss than documented. The rewards take
    turns, over all episodes, because random ones have a spread of their own.
    Seeding starts the turn again.
    """

    rewards = (1.0, 1.0, 1.0, -1.0)
    table = ((),)
    expected = {0: (0.5,)}
    expected_huber = {0: (2 / 3,)}

    def __init__(self, continuous: bool = False):
        super().__init__(continuous)
        self.turn = 0

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        """Starts an episode; a seed also starts the turn of the rewards again."""
        if seed is not None:
            self.turn = 0
        return super().reset(seed=seed, options=options)

    def outcome(self, state: int, action: Any) -> Outcome:
        """Returns an end with the reward whose turn it is."""
        reward = self.rewards[self.turn]
        self.turn = (self.turn + 1) % len(self.rewards)
        return end(0, reward)


class RareRewardProbe(NoisyRewardProbe):
    """Is a rare, large reward clipped?

    One state, one step, reward -1 nine times, then 10: Q = 0.1 by the mean squared
    error, -8/9 by the Huber loss (delta 1) (`expected_huber`).

    -0.8: rewards are clipped to their sign. The tolerance is wide, since the mean
    of a minibatch is far from 0.1; the wrong values are further away.
    """

    rewards = (-1.0,) * 9 + (10.0,)
    expected = {0: (0.1,)}
    expected_huber = {0: (-8 / 9,)}
    tolerance = 0.2


class OffsetActionProbe(TableProbe):
    """Are discrete actions that start at 5 understood?

    One state, one step, actions 5, 6, 7 with rewards 0, 1, 0.5:
    Q = (0, 1, 0.5), and the best action is 6.

    An error, or 1 as best action: the start was forgotten on acting, storing or
    predicting.
    """

    table = ((end(0, 0.0), end(0, 1.0), end(0, 0.5)),)
    num_actions = 3
    first_action = 5
    best_action = 6
    expected = {0: (0.0, 1.0, 0.5)}


class AsymmetricActionProbe(TableProbe):
    """Are continuous actions shifted and scaled to a Box that is not around 0?

    One state, one step, action in `[2, 6]`, reward -(action - 3)²: the best action
    is 3, and `expected` maps (state, action) to a value: Q(2) = -1, Q(3) = 0,
    Q(6) = -9. The actions that came are kept in `actions`.

    Stuck at 2: the output is not shifted and scaled. Random actions in `[-1, 1]`
    raise; those of a warm-up have mean 4 and fill the range.
    """

    table = ((),)
    best_action = 3.0
    expected = {(0, 2.0): -1.0, (0, 3.0): 0.0, (0, 6.0): -9.0}
    tolerance = 0.2

    def __init__(self):
        super().__init__(continuous=True)
        self.action_space = spaces.Box(2.0, 6.0, (1,), np.float32)
        self.actions: list[float] = []

    def outcome(self, state: int, action: Any) -> Outcome:
        """Returns an end with a reward for being near 3."""
        self.actions.append(float(action[0]))
        return end(0, -((self.actions[-1] - 3.0) ** 2))


class ChainProbe(TableProbe):
    """Do n-step returns leave the values alone?

    0 → 1 → 2 → 3 → end with rewards 1, 2, 3, 4 and gamma 0.5:
    Q = 3.25, 4.5, 5, 4, for every n.

    With n = 3, (4.75, 4.5, 5, 4): gamma in place of gamma³;
    (3.47, 4.93, 5.87, 5.73): sums run on into the next episode.
    """

    table = ((Outcome(1, 1.0),), (Outcome(2, 2.0),), (Outcome(3, 3.0),), (end(0, 4.0),))
    gamma = 0.5
    expected = {0: (3.25,), 1: (4.5,), 2: (5.0,), 3: (4.0,)}
    tolerance = 0.1


class ReusedBufferProbe(CorridorProbe):
    """Are observations copied before the environment overwrites them?

    `CorridorProbe`, but `reset` and `step` always return the same array, written
    in place. Q as there.

    All states equal: references are kept. The last step of episodes wrong: the
    final observation is not copied.
    """

    def __init__(self):
        super().__init__()
        self.buffer = np.zeros_like(self.rows[0])

    def observe(self, state: int) -> np.ndarray:
        """Returns the one array there is, with the observation of `state`."""
        self.buffer[:] = self.rows[state]
        return self.buffer


class ImageScaleProbe(TableProbe):
    """Are images scaled to `[0, 1]`, once?

    A uint8 image, all 0 or all 255, one step, reward 1 for 255; the final image is
    the other one: Q(0) = 0, Q(255) = 1.

    Slow, or both near 0.5: divided by 255 twice. NaN or a wide spread: not
    scaled. (4.74, 5.26): looks beyond `terminated`.

    Args:
        shape: tuple of int, shape of the image. Defaults to `(8, 8, 1)`.
    """

    table = ((end(1),), (end(0, 1.0),))
    starts = (0, 1)
    expected = {0: (0.0,), 1: (1.0,)}

    def __init__(self, shape: tuple = (8, 8, 1)):
        self.shape = tuple(shape)
        super().__init__()
        self.observation_space = spaces.Box(0, 255, self.shape, np.uint8)

    def observations(self) -> np.ndarray:
        """Returns the black and the white image."""
        return np.stack([np.full(self.shape, value, np.uint8) for value in (0, 255)])


class RewardScaleProbe(ActionProbe):
    """Are large rewards left as they are?

    `ActionProbe` with rewards -1000 and 1000: Q = (-1000, 1000) within 1 %.

    (-1, 1): clipped.
    """

    table = ((end(0, -1000.0), end(0, 1000.0)),)
    expected = {0: (-1000.0, 1000.0)}
    tolerance = 10.0


class RandomWalkProbe(TableProbe):
    """Are values right where chance moves, at both ends, without a discount?

    States 0 to 4, starts in 2; the only action moves left or right at random.
    Beyond 4 is an end with reward 1, beyond 0 one without, and gamma is 1:
    Q = 1/6, 2/6, 3/6, 4/6, 5/6.

    A bias at the ends: terminations are handled wrongly. The memory must hold
    10 000 steps, or its own chance shows.
    """

    table = (  # to the left and to the right; chance takes the place of the action
        (end(2), Outcome(1)),
        (Outcome(0), Outcome(2)),
        (Outcome(1), Outcome(3)),
        (Outcome(2), Outcome(4)),
        (Outcome(3), end(2, 1.0)),
    )
    starts = (2,)
    gamma = 1.0
    expected = {state: ((state + 1) / 6,) for state in range(5)}
    tolerance = 0.1

    def outcome(self, state: int, action: Any) -> Outcome:
        """Returns a step to a random side."""
        return self.table[state][self.np_random.integers(2)]


PROBES = (
    OneStateProbe,
    ObservationProbe,
    DiscountProbe,
    ActionProbe,
    XorProbe,
    NeverEndsProbe,
    TruncationProbe,
    BothFlagsProbe,
    GhostRowProbe,
    CorridorProbe,
    TimeLimitProbe,
    TrapProbe,
    NoisyRewardProbe,
    RareRewardProbe,
    OffsetActionProbe,
    AsymmetricActionProbe,
    ChainProbe,
    ReusedBufferProbe,
    ImageScaleProbe,
    RewardScaleProbe,
    RandomWalkProbe,
)

__all__ = ["PROBES", "Outcome", "TableProbe", *(probe.__name__ for probe in PROBES)]
