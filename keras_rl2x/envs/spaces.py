"""Which spaces are supported, and what is read from them."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

FLATTEN = "wrap the env in `gymnasium.wrappers.FlattenObservation`"


def single_spaces(env: Any, name: str = "env") -> tuple[spaces.Space, spaces.Space]:
    """Observation and action space of one environment of `env`, checked to be one.

    Args:
        env: environment, single or vector.
        name: what error messages call it.

    Raises:
        TypeError: if `env` is not a gymnasium environment.
    """
    if isinstance(env, gym.vector.VectorEnv):
        return env.single_observation_space, env.single_action_space
    if isinstance(env, gym.Env):
        return env.observation_space, env.action_space
    if isinstance(env, str):
        raise TypeError(
            f"`{name}` must be an environment, not its name: pass "
            f"`gymnasium.make({env!r})`."
        )
    if isinstance(env, type):
        raise TypeError(
            f"`{name}` must be an environment, not its class: pass `{env.__name__}()`."
        )
    raise TypeError(
        f"`{name}` must be a `gymnasium.Env` or `gymnasium.vector.VectorEnv`. Received "
        f"an object of type {type(env).__module__}.{type(env).__name__}. Environments "
        "of the old `gym` package can be used through `shimmy`."
    )


def check_observation_space(space: spaces.Space, inside: str = "") -> None:
    """Raises for an observation space that no network can read.

    Raises:
        ValueError: naming the space and what to wrap.
    """
    leaves = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    if isinstance(space, spaces.Dict) and not inside:
        if not space.spaces:
            raise ValueError("The observation space is an empty Dict.")
        for name, part in space.spaces.items():
            check_observation_space(part, inside=name)
        return
    if isinstance(space, leaves):
        if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim != 1:
            raise ValueError(
                f"MultiDiscrete observations need one axis. Received: {space}; "
                f"{FLATTEN}."
            )
        if 0 in (space.shape or ()):
            raise ValueError(f"The observation space holds no number: {space}.")
        return
    where = f" (in the part {inside!r} of a Dict)" if inside else ""
    raise ValueError(
        "Observations must be Box, Discrete, MultiDiscrete, MultiBinary or a flat "
        f"Dict of these. Received: {space}{where}; {FLATTEN}."
    )


def check_discrete_actions(space: spaces.Space, agent: str) -> None:
    """Raises unless actions are one choice out of several.

    Raises:
        ValueError: naming the space and what to do.
    """
    if isinstance(space, spaces.Discrete):
        return
    if isinstance(space, spaces.Box):
        advice = "use an agent for continuous actions, such as `DDPG`"
    elif isinstance(space, spaces.MultiDiscrete):
        count = int(np.prod(space.nvec))
        advice = (
            f"number the {count} combinations: wrap the env so that its action space "
            f"is Discrete({count}) (`gymnasium.wrappers.TransformAction`)"
        )
    elif isinstance(space, spaces.MultiBinary):
        count = 2 ** int(np.prod(space.shape))
        advice = (
            f"number the {count} combinations: wrap the env so that its action space "
            f"is Discrete({count}) (`gymnasium.wrappers.TransformAction`)"
        )
    else:
        advice = "wrap the env so that it takes one Discrete action"
    raise ValueError(f"{agent} needs a Discrete action space, got {space}; {advice}.")


def check_continuous_actions(space: spaces.Space, agent: str) -> None:
    """Raises unless actions are a bounded Box of floats.

    Raises:
        ValueError: naming the space and what to do.
    """
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"{agent} needs a Box action space, got {space}; use an agent for "
            "discrete actions, such as `DQN`."
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"{agent} needs a Box of floats as action space, got {space} of dtype "
            f"{space.dtype}; convert in a `gymnasium.wrappers.TransformAction`."
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(
            f"{agent} needs bounded actions, got {space}. Wrap the env in "
            "`gymnasium.wrappers.RescaleAction(env, min_action, max_action)` if it has "
            "bounds of its own, or in a `TransformAction` that sets them; no bounds "
            "are made up here."
        )
    if int(np.prod(space.shape)) == 0:
        raise ValueError(f"The action space holds no number: {space}.")
    if not (space.low < space.high).all():
        raise ValueError(
            f"{agent} needs `low < high` in each dimension of the action space, got "
            f"low={space.low.tolist()}, high={space.high.tolist()}; leave out the "
            "dimensions that cannot vary."
        )


def is_image(space: spaces.Space) -> bool:
    """A Box of uint8 over 0 ... 255 with three axes; nothing else is guessed."""
    return is_pixels(space) and len(space.shape) == 3


def is_pixels(space: spaces.Space) -> bool:
    """A Box of uint8 that covers 0 ... 255."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and bool((space.low == 0).all() and (space.high == 255).all())
    )


def is_channels_first(shape: tuple[int, ...]) -> bool:
    """Whether the smallest of three axes is the first one: `(4, 84, 84)`."""
    return shape[0] < min(shape[1:])


def limits(space: spaces.Space) -> tuple[np.ndarray, np.ndarray] | None:
    """Lowest and highest numbers of a space; `None` where its dtype allows no others.

    Floats have some room for rounding.
    """
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return np.int8(0), np.int8(1)
    if is_pixels(space) or not (space.bounded_below | space.bounded_above).any():
        return None
    if space.dtype.kind != "f":
        return space.low, space.high
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    return low - 1e-3 * (1 + np.abs(low)), high + 1e-3 * (1 + np.abs(high))


def leaves(space: spaces.Space) -> dict[str, spaces.Space]:
    """The parts of a space; the only part of a plain one is called `observation`."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    return {"observation": space}


def map_observation(function: Any, space: spaces.Space, *observations: Any) -> Any:
    """Applies `function(part_space, *parts)` to each part, keeping the structure."""
    if isinstance(space, spaces.Dict):
        return {
            name: function(part, *(observation[name] for observation in observations))
            for name, part in space.spaces.items()
        }
    return function(space, *observations)


def zeros(space: spaces.Space, count: int) -> Any:
    """A batch of `count` observations of zeros."""
    return map_observation(
        lambda part: np.zeros((count, *part.shape), part.dtype), space
    )


def to_config(space: spaces.Space) -> dict[str, Any]:
    """A space as JSON-ready dict."""
    if isinstance(space, spaces.Dict):
        parts = {name: to_config(part) for name, part in space.spaces.items()}
        return {"type": "Dict", "spaces": parts}
    if isinstance(space, spaces.Box):
        return {
            "type": "Box",
            "low": _bound(space.low),
            "high": _bound(space.high),
            "shape": list(space.shape),
            "dtype": space.dtype.name,
        }
    if isinstance(space, spaces.Discrete):
        return {
            "type": "Discrete",
            "n": int(space.n),
            "start": int(space.start),
            "dtype": space.dtype.name,
        }
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "type": "MultiDiscrete",
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": space.dtype.name,
        }
    if isinstance(space, spaces.MultiBinary):
        n = space.n if isinstance(space.n, int | np.integer) else list(space.n)
        return {"type": "MultiBinary", "n": n if isinstance(n, list) else int(n)}
    raise ValueError(f"Cannot save the space {space}.")


def from_config(config: dict[str, Any]) -> spaces.Space:
    """The space that `to_config` described."""
    config = dict(config)
    kind = config.pop("type")
    if kind == "Dict":
        return spaces.Dict({k: from_config(v) for k, v in config["spaces"].items()})
    if kind == "Box":
        shape, dtype = tuple(config["shape"]), np.dtype(config["dtype"])
        low = _full(config["low"], shape, dtype)
        high = _full(config["high"], shape, dtype)
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        dtype = np.dtype(config["dtype"]).type
        return spaces.Discrete(config["n"], start=config["start"], dtype=dtype)
    if kind == "MultiDiscrete":
        dtype = np.dtype(config["dtype"]).type
        return spaces.MultiDiscrete(config["nvec"], start=config["start"], dtype=dtype)
    if kind == "MultiBinary":
        return spaces.MultiBinary(config["n"])
    raise ValueError(f"Unknown kind of space in a saved file: {kind!r}.")


def describe_difference(saved: spaces.Space, given: spaces.Space) -> str | None:
    """What keeps two spaces from being used with the same networks, or `None`."""
    if type(saved) is not type(given):
        return f"{saved} against {given}"
    if isinstance(saved, spaces.Dict):
        if set(saved.spaces) != set(given.spaces):
            return f"parts {sorted(saved.spaces)} against {sorted(given.spaces)}"
        for name in saved.spaces:
            difference = describe_difference(saved[name], given[name])
            if difference:
                return f"part {name!r}: {difference}"
        return None
    same = saved.shape == given.shape and saved.dtype == given.dtype
    if isinstance(saved, spaces.Discrete):
        same = same and saved.n == given.n and saved.start == given.start
    elif isinstance(saved, spaces.MultiDiscrete):
        same = same and (saved.nvec == given.nvec).all()
        same = same and (saved.start == given.start).all()
    return None if same else f"{saved} against {given}"


def _bound(values: np.ndarray) -> Any:
    """A bound as one number where all are equal; infinities as text."""
    values = np.asarray(values)

    def plain(value: Any) -> Any:
        if np.issubdtype(values.dtype, np.integer):
            return int(value)
        return float(value) if np.isfinite(value) else str(float(value))

    if values.size and (values == values.flat[0]).all():
        return plain(values.flat[0])
    return [plain(value) for value in values.flat]


def _full(bound: Any, shape: tuple, dtype: np.dtype) -> np.ndarray:
    kind = int if np.issubdtype(dtype, np.integer) else float
    if isinstance(bound, list):
        return np.array([kind(value) for value in bound], dtype).reshape(shape)
    return np.full(shape, kind(bound), dtype)
