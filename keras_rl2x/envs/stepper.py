"""True transitions from any gymnasium environment.

Single environments and vector environments of all three autoreset modes look the
same from outside: `reset` once, then `step`. What `step` returns are true steps
only: no ghost row of a NEXT_STEP autoreset, and at the end of an episode the final
observation in place of the next episode's first one.
"""

from typing import Any
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from keras_rl2x.envs import spaces
from keras_rl2x.envs.workers import guarded
from keras_rl2x.ops.checks import warn
from keras_rl2x.types import Step

# Fields that change from step to step.
STATE = ("step_count", "_observation", "_action_mask", "_has_masks")
STATE += ("_ghost", "_over", "_last_action", "_warn_outside")


class Outcome(NamedTuple):
    """What one call of `EnvStepper.step` brought.

    Attributes:
        step: the true steps, `[M, ...]`; `M` is less than `N` after a NEXT_STEP
            autoreset.
        columns: `[M]` int, the environments that they belong to.
        reward: `[M]` float, the env's own; `step.reward` may be clipped for learning.
        ended: `[M]` bool, where an episode of the env ended. A lost life may be an
            end in `step` while the game goes on.
    """

    step: Step
    columns: np.ndarray
    reward: np.ndarray
    ended: np.ndarray

    def rows(self, chosen: np.ndarray) -> "Outcome":
        """Some rows of everything."""
        step = Step(
            *(None if leaf is None else _rows(leaf, chosen) for leaf in self.step)
        )
        return Outcome(
            step, self.columns[chosen], self.reward[chosen], self.ended[chosen]
        )


class EnvStepper:
    """Steps an environment and keeps what an episode needs to be remembered.

    Args:
        env: `gymnasium.Env` or `gymnasium.vector.VectorEnv`.
        warn_outside: warn (once) of numbers beyond the bounds of a Box. A Discrete
            number that does not exist is refused in any case.

    Attributes:
        num_envs: number of environments.
        timeout: seconds that `step` and `reset` may take, or `None`.
        step_count: vector calls so far, for error messages.
    """

    def __init__(self, env: Any, warn_outside: bool = False):
        self.env = env
        self.is_vector = isinstance(env, gym.vector.VectorEnv)
        self._has_workers = isinstance(env.unwrapped, gym.vector.AsyncVectorEnv)
        self.timeout: float | None = None
        self.num_envs = int(env.num_envs) if self.is_vector else 1
        self.observation_space, self.action_space = spaces.single_spaces(env)
        self.mode = _autoreset_mode(env) if self.is_vector else None
        self._limits = {
            id(space): spaces.limits(space)
            for space in spaces.leaves(self.observation_space).values()
        }
        self._warn_outside = warn_outside
        self._learning_signal = _find_method(env, "learning_signal")
        self._ghost = np.zeros(self.num_envs, bool)
        self._all = np.arange(self.num_envs)
        self.step_count = 0
        self._observation: Any = None
        self._action_mask: np.ndarray | None = None
        self._over = np.zeros(self.num_envs, bool)  # ended, and to be reset by us
        self._last_action: np.ndarray | None = None
        self._has_masks = True

    @property
    def observation(self) -> Any:
        """`[N, ...]`, what to act on next. Resets what has ended, if nobody else does.

        So late, that an evaluation does not reset once more after its last episode.
        """
        self._reset_ended()
        return self._observation

    @property
    def action_mask(self) -> np.ndarray | None:
        """`[N, A]` bool or `None`, actions allowed in `observation`."""
        self._reset_ended()
        return self._action_mask

    # ----------------------------------------------------------------- episodes

    def reset(self, seed: int | None = None) -> None:
        """Starts a new episode in every environment."""
        self._let_ghosts_pass()
        result = self._seeded_reset(seed)
        observation, info = self._unpack_reset(result)
        self._ghost[:] = False
        self.step_count = 0
        self._over[:] = False
        self._observation = self._batch(observation, "reset")
        self._has_masks = True
        self._action_mask = self._mask(info)
        self._has_masks = self._action_mask is not None

    def get_state(self) -> dict[str, Any]:
        """What is known of the episodes in progress, as plain data."""
        return {name: getattr(self, name) for name in STATE}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; the env must be in its state of then."""
        for name in STATE:
            setattr(self, name, state[name])

    def _let_ghosts_pass(self) -> None:
        """Lets an env that is about to reset itself do so before a reset by hand.

        `AsyncVectorEnv` without shared memory would else reset once more in the first
        step after, which would look like a true one.
        """
        if self._ghost.any():
            self._call(self.env.step, self._last_action.copy())

    def step(self, action: np.ndarray) -> Outcome:
        """Takes one step in every environment.

        Args:
            action: `[N, ...]` in the env's units.
        """
        self.step_count += 1
        before, mask_before = self.observation, self.action_mask
        # The env gets a copy: it may modify it, or keep it.
        self._last_action = action
        given = action.copy() if self.is_vector else self._plain(action[0])
        result = self._unpack_step(self._call(self.env.step, given))
        observation = self._batch(result[0], "step")
        reward, info = self._reward(result[1]), result[4]
        terminated = self._flag(result[2], "terminated")
        truncated = self._flag(result[3], "truncated")
        mask = next_mask = self._mask(info)
        ended = terminated | truncated
        final = observation
        if ended.any():
            ended &= ~self._ghost
            final = self._final_observation(observation, info, ended)
            next_mask = self._final_mask(mask, info, ended)
        learned, over = reward, terminated
        if self._learning_signal is not None:
            learned, over = self._learning_signal(reward, terminated, self._ghost, info)
        step = Step(
            observation=before,
            action=action,
            reward=learned,
            terminated=over,
            truncated=truncated & ~over,
            next_observation=final,
            action_mask=mask_before,
            next_action_mask=next_mask,
        )
        outcome = Outcome(step, self._all, reward, ended)
        if self._ghost.any():
            outcome = outcome.rows(np.flatnonzero(~self._ghost))
        self._begin_next(observation, mask, ended)
        return outcome

    def _plain(self, action: np.ndarray) -> Any:
        """One action as the env's space wants it: an int, or an array of its own."""
        if isinstance(self.action_space, gym.spaces.Discrete):
            return int(action)
        return np.array(action)

    def _begin_next(
        self, observation: Any, mask: np.ndarray | None, ended: np.ndarray
    ) -> None:
        self._observation, self._action_mask = observation, mask
        by_itself = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
        if self.mode == AutoresetMode.NEXT_STEP:
            self._ghost = ended.copy()
        elif self.mode not in by_itself:
            self._over = ended.copy()

    def _reset_ended(self) -> None:
        """Resets what has ended, where the env does not do so by itself."""
        if not self._over.any():
            return
        if self.is_vector:
            # gymnasium takes the mask out of the options.
            options = {"reset_mask": self._over.copy()}
            result = self._call(self.env.reset, options=options)
        else:
            result = self._call(self.env.reset)
        observation, info = self._unpack_reset(result)
        observation, mask = self._batch(observation, "reset"), self._mask(info)
        if mask is not None and self._action_mask is not None:
            mask = np.where(self._over[:, None], mask, self._action_mask)
        self._observation, self._action_mask = observation, mask
        self._over[:] = False

    def _final_observation(self, observation: Any, info: Any, ended: np.ndarray) -> Any:
        """The true next observations, also where the env has already reset itself."""
        if self.mode != AutoresetMode.SAME_STEP or not ended.any():
            return observation
        final = info.get("final_obs") if isinstance(info, dict) else None
        if final is None:
            raise ValueError(
                f"{_name(self.env)} resets itself in the same step but did not give "
                "`info['final_obs']`; without it the end of an episode cannot be "
                "learned from. Use AutoresetMode.NEXT_STEP."
            )
        rows = np.flatnonzero(ended)

        def merge(part: Any, current: np.ndarray, key: str | None) -> np.ndarray:
            merged = current.copy()
            for row in rows:
                if isinstance(final, dict):
                    value = final[key][row]
                else:
                    value = final[row] if key is None else final[row][key]
                if np.shape(value) != merged[row].shape:
                    raise ValueError(
                        f"`info['final_obs']` of {_name(self.env)} {self._where(row)} "
                        f"has shape {np.shape(value)}, expected {merged[row].shape}."
                    )
                merged[row] = value
            return merged

        if isinstance(observation, dict):
            merged = {key: merge(None, part, key) for key, part in observation.items()}
        else:
            merged = merge(None, observation, None)
        return self._batch(merged, "step")

    def _final_mask(
        self, mask: np.ndarray | None, info: Any, ended: np.ndarray
    ) -> np.ndarray | None:
        """Masks of the final observations; without any, everything is allowed."""
        if mask is None or self.mode != AutoresetMode.SAME_STEP or not ended.any():
            return mask
        final = info.get("final_info")
        final = self._mask(final) if isinstance(final, dict) else None
        return np.where(ended[:, None], True if final is None else final, mask)

    # ------------------------------------------------- what an env may return

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls `step` or `reset`, which may be in other processes, or hang."""
        if self.timeout is None and not self._has_workers:
            return function(*args, **kwargs)
        return guarded(self.env, function, *args, timeout=self.timeout, **kwargs)

    def _seeded_reset(self, seed: int | None) -> Any:
        try:
            return self._call(self.env.reset, seed=seed)
        except TypeError as error:
            if "keyword argument 'seed'" not in str(error):
                raise
            raise TypeError(
                f"`reset` of {_name(self.env)} does not take a seed, as gymnasium "
                "requires: write `def reset(self, seed=None, options=None)` and begin "
                "it with `super().reset(seed=seed)`."
            ) from error

    def _unpack_reset(self, result: Any) -> tuple[Any, Any]:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError(
                f"`reset` of {_name(self.env)} must return `(observation, info)`, as "
                f"gymnasium requires. Received: {_describe(result)}. An env written "
                "for the old gym: return `observation, {}`."
            )
        return result

    def _unpack_step(self, result: Any) -> tuple[Any, Any, Any, Any, Any]:
        if not (isinstance(result, tuple) and len(result) == 5):
            raise ValueError(
                f"`step` of {_name(self.env)} must return `(observation, reward, "
                "terminated, truncated, info)`, as gymnasium requires. Received: "
                f"{_describe(result)}. An env written for the old gym: replace `done` "
                "by `terminated` (the task is over) and `truncated` (a time limit)."
            )
        return result

    def _batch(self, observation: Any, source: str) -> Any:
        """Own copies in the space's dtype, `[N, ...]`, checked."""
        if isinstance(self.observation_space, gym.spaces.Dict):
            wanted = set(self.observation_space.spaces)
            if not isinstance(observation, dict) or set(observation) != wanted:
                raise ValueError(
                    f"`{source}` of {_name(self.env)} returned an observation "
                    f"{self._where()} that does not fit its space: expected a dict "
                    f"with {sorted(wanted)}, received {_describe(observation)}."
                )
        return spaces.map_observation(
            lambda space, part: self._part(space, part, source),
            self.observation_space,
            observation,
        )

    def _part(self, space: gym.Space, part: Any, source: str) -> np.ndarray:
        shape = (self.num_envs, *space.shape) if self.is_vector else space.shape
        if not _fits(part, shape, space.dtype):
            raise ValueError(
                f"`{source}` of {_name(self.env)} returned an observation "
                f"{self._where()} that does not fit its space: expected shape "
                f"{tuple(shape)} and dtype {space.dtype}, received {_describe(part)}."
            )
        array = np.array(part, space.dtype).reshape(self.num_envs, *space.shape)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = np.argwhere(~np.isfinite(array))[0]
            raise ValueError(
                f"`{source}` of {_name(self.env)} returned {array[tuple(bad)]} "
                f"{self._where(int(bad[0]))} at index {tuple(bad[1:].tolist())} of the "
                "observation. Nothing was learned from it; mend the env, or replace "
                "such values in a wrapper."
            )
        self._check_limits(space, array, source)
        return array

    def _check_limits(self, space: gym.Space, array: np.ndarray, source: str) -> None:
        is_box = isinstance(space, gym.spaces.Box)
        limits = self._limits[id(space)]
        if limits is None or is_box and not self._warn_outside:
            return
        outside = (array < limits[0]) | (array > limits[1])
        if not outside.any():
            return
        bad = tuple(np.argwhere(outside)[0])
        at = f" at index {tuple(map(int, bad[1:]))}" if len(bad) > 1 else ""
        text = (
            f"`{source}` of {_name(self.env)} returned {array[bad]:g}"
            f"{at} of the observation {self._where(int(bad[0]))}, which is outside of "
            f"its space {space}."
        )
        if not is_box:
            raise ValueError(f"{text} Nothing was learned from it; mend the env.")
        self._warn_outside = False
        warn(
            f"{text} Networks scale observations by the bounds of the space: mend the "
            "env, or widen the bounds."
        )

    def _reward(self, reward: Any) -> np.ndarray:
        try:
            array = np.array(reward, dtype=np.float64)
        except (TypeError, ValueError):
            array = None
        given = isinstance(reward, str) or reward is None
        if array is None or array.size != self.num_envs or given:
            raise ValueError(
                f"`step` of {_name(self.env)} returned a reward {self._where()} that "
                f"is not {'one number per env' if self.is_vector else 'a number'}: "
                f"received {_describe(reward)}."
            )
        array = array.reshape(self.num_envs)
        if not np.isfinite(array).all():
            bad = int(np.flatnonzero(~np.isfinite(array))[0])
            raise ValueError(
                f"`step` of {_name(self.env)} returned the reward {array[bad]} "
                f"{self._where(bad)}. Nothing was learned from it; mend the env."
            )
        return array

    def _flag(self, flag: Any, name: str) -> np.ndarray:
        array = np.asarray(flag)
        if array.dtype.kind not in "biu" or array.size != self.num_envs:
            raise ValueError(
                f"`step` of {_name(self.env)} returned `{name}` {self._where()} that "
                f"is not a bool: received {_describe(flag)}."
            )
        return array.astype(bool).reshape(self.num_envs)

    def _mask(self, info: Any) -> np.ndarray | None:
        """`info["action_mask"]` of every environment, if the first `reset` gave it."""
        if not self._has_masks or not isinstance(
            self.action_space, gym.spaces.Discrete
        ):
            return None
        shape = (self.num_envs, int(self.action_space.n))
        if not isinstance(info, dict) or "action_mask" not in info:
            return None if self._action_mask is None else np.ones(shape, bool)
        try:
            mask = np.array(info["action_mask"], dtype=bool).reshape(shape)
        except (TypeError, ValueError):
            if self._action_mask is None:
                return None  # a key of the same name that means something else
            raise ValueError(
                f"`info['action_mask']` of {_name(self.env)} {self._where()} does not "
                f"fit: expected bools of shape {shape}, received "
                f"{_describe(info['action_mask'])}."
            ) from None
        known = info.get("_action_mask")
        if self.is_vector and known is not None:
            # Rows without a mask allow everything.
            mask = np.where(np.reshape(known, (-1, 1)), mask, True)
        if not mask.any(axis=1).all():
            raise ValueError(
                f"`info['action_mask']` of {_name(self.env)} {self._where()} allows no "
                "action at all; at least one must be allowed."
            )
        return mask

    def _where(self, row: int = 0) -> str:
        env = f"in env {row} " if self.is_vector and self.num_envs > 1 else ""
        return f"{env}at step {self.step_count}"


def find_wrapper(env: Any, kind: type | tuple[type, ...]) -> Any:
    """The outermost wrapper (or env) of a kind, or `None`."""
    while env is not None:
        if isinstance(env, kind):
            return env
        if isinstance(env, gym.vector.SyncVectorEnv):
            env = env.envs[0]
        else:
            env = getattr(env, "env", None)
    return None


def frame_stack(env: Any) -> int | None:
    """How many frames gymnasium or ale-py stack in an observation, if any."""
    observation_space, _ = spaces.single_spaces(env)
    shape = observation_space.shape or ()
    stacked = find_wrapper(env, gym.wrappers.FrameStackObservation)
    size = getattr(stacked, "stack_size", None)
    if size is None and spaces.is_image(observation_space):
        base = getattr(env, "unwrapped", None)
        size = shape[0] if type(base).__name__ == "AtariVectorEnv" else None
    fits = size is not None and size > 1 and size in (shape[:1] + shape[-1:])
    return int(size) if fits and len(shape) > 1 else None


def _find_method(env: Any, name: str) -> Any:
    while env is not None:
        if name in dir(type(env)):
            return getattr(env, name)
        env = getattr(env, "env", None)
    return None


def _autoreset_mode(env: Any) -> AutoresetMode:
    # The instance first: making one vector env writes into the class's metadata.
    mode = getattr(env.unwrapped, "autoreset_mode", None)
    mode = mode or (env.metadata or {}).get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise ValueError(
            f"{_name(env)} does not say how it resets itself: expected "
            "`env.metadata['autoreset_mode']` to be one of "
            "`gymnasium.vector.AutoresetMode` (NEXT_STEP, SAME_STEP, DISABLED). "
            f"Received: {mode!r}. Set it to what the env does."
        ) from None


def _fits(part: Any, shape: tuple, dtype: np.dtype) -> bool:
    """Whether an observation can be taken for what its space promises."""
    if isinstance(part, np.ndarray) and part.dtype == dtype:
        return part.shape == shape
    try:
        array = np.asarray(part)
    except (TypeError, ValueError):
        return False
    if array.shape != shape:
        return False
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        # Integers of another width are common (a Python int for int8, say).
        bounds = np.iinfo(dtype)
        return bool((array >= bounds.min).all() and (array <= bounds.max).all())
    return np.can_cast(array.dtype, dtype, "same_kind")


def _rows(observation: Any, rows: np.ndarray) -> Any:
    if isinstance(observation, dict):
        return {name: part[rows] for name, part in observation.items()}
    return observation[rows]


def _name(env: Any) -> str:
    return type(getattr(env, "unwrapped", env)).__name__


def _describe(value: Any) -> str:
    """A short account of anything, for error messages."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if isinstance(value, dict):
        return f"a dict with {sorted(map(str, value))}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value)
    return f"{text if len(text) < 60 else text[:57] + '...'} ({type(value).__name__})"
