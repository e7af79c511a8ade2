"""Checks of what a user passes to `compile` and `fit`."""

import math
import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_rl2x.agents.defaults import Defaults
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.exploration import Exploration
from keras_rl2x.memories import ReplayMemory
from keras_rl2x.ops.checks import check_number
from keras_rl2x.ops.checks import check_whole


def check_separate(online: Any, target: Any, name: str, target_name: str) -> None:
    shared = {id(v) for v in online.variables} & {id(v) for v in target.variables}
    if online is target or shared:
        raise ValueError(
            f"`{target_name}` shares variables with `{name}`, so it would move with "
            "it. Pass a network of its own, or leave the argument out."
        )


def separate_optimizers(
    optimizers: dict[str, Any], trained: dict[str, str], defaults: Defaults
) -> dict[str, keras.optimizers.Optimizer]:
    """Optimizers from names, configs, objects or the defaults, one for each network.

    Raises:
        TypeError: for an unknown argument.
        ValueError: if two of them are one object.
    """
    unknown = set(optimizers) - set(trained.values())
    if unknown:
        raise TypeError(
            f"`compile` got an unexpected argument {sorted(unknown)[0]!r}; the "
            f"optimizers of this agent are {list(trained.values())}. A learning rate "
            f"is theirs: `{next(iter(trained.values()))}=keras.optimizers.Adam(1e-3)`."
        )
    made = {}
    for name in trained.values():
        given = optimizers.get(name)
        if given is None:
            made[name] = defaults.optimizer(name)
        else:
            made[name] = keras.optimizers.get(given)
    if len({id(optimizer) for optimizer in made.values()}) < len(made):
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in made)} are the same object, but an "
            "optimizer keeps a state for the variables of one network. Make two."
        )
    return made


def check_exploration(
    exploration: Any, defaults: Defaults, actions: str
) -> Exploration:
    """The exploration rule to use, checked.

    Raises:
        TypeError: if it is no exploration rule.
        ValueError: if it is one for other actions.
    """
    if exploration is None:
        return defaults.exploration
    if not isinstance(exploration, Exploration):
        raise TypeError(
            "`exploration` must be an object of `keras_rl2x.exploration`, for "
            f"example `EpsilonGreedy(0.1)`. Received: {exploration!r}."
        )
    if exploration.actions not in (None, actions):
        rules = {"discrete": "EpsilonGreedy", "continuous": "GaussianNoise"}
        raise ValueError(
            f"{exploration!r} explores {exploration.actions} actions, but this agent's "
            f"are {actions}. Use, for example, `{rules[actions]}(0.1)`."
        )
    return exploration


def check_not_distributed() -> None:
    """Raises within `strategy.scope()`, where variables are spread over devices."""
    if tf.distribute.has_strategy():
        raise ValueError(
            "An agent learns on one device. Received the scope of a "
            f"`{type(tf.distribute.get_strategy()).__name__}`: make, compile and fit "
            "the agent outside of `strategy.scope()`."
        )


def check_fit(seed: Any, initial_epoch: Any, **counts: Any) -> None:
    """Raises for numbers out of range, by their names in `fit`."""
    for name, value in counts.items():
        check_whole(name, value)
    check_whole("initial_epoch", initial_epoch, minimum=0)
    check_seed(seed)


def check_seed(seed: Any) -> None:
    """Raises unless a seed is `None` or a whole number from 0 on."""
    if seed is not None:
        check_whole("seed", seed, minimum=0)


def check_callbacks(callbacks: Any) -> list[keras.callbacks.Callback]:
    """The callbacks as a list.

    Raises:
        TypeError: for what is none.
        ValueError: for two rules of the targets.
    """
    callbacks = [] if callbacks is None else keras.tree.flatten(callbacks)
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                "`callbacks` must be objects of `keras.callbacks.Callback`. Received: "
                f"{callback!r}."
            )
    if sum(isinstance(callback, TargetUpdate) for callback in callbacks) > 1:
        raise ValueError(
            "`callbacks` holds more than one `TargetUpdate`; the agent's targets "
            "follow one rule. Pass one."
        )
    return callbacks


def check_batch_size(batch_size: int, memory: Any) -> None:
    """Raises for minibatches that the memory can only fill with copies."""
    capacity = getattr(memory, "capacity", batch_size)
    if batch_size > capacity:
        raise ValueError(
            f"`batch_size` is {batch_size:,} but the memory holds {capacity:,} steps. "
            "Use a larger memory or smaller batches."
        )


def check_compile(updates_per_step: Any, warmup_steps: Any, execution: Any) -> None:
    """Raises for numbers out of range."""
    check_number("updates_per_step", updates_per_step, minimum=1e-6)
    check_whole("warmup_steps", warmup_steps, minimum=0)
    check_whole("steps_per_execution", execution)


def check_learners(agent: Any, optimizers: dict[str, Any]) -> None:
    """Raises where an optimizer cannot serve its network: Keras says so late.

    Raises:
        ValueError: naming network or optimizer.
    """
    for name, optimizer_name in agent.trained.items():
        variables, optimizer = (
            getattr(agent, name).trainable_variables,
            optimizers[optimizer_name],
        )
        if not variables:
            raise ValueError(
                f"`{name}` has no trainable variable, so it cannot learn. Set "
                "`trainable = True` on at least one of its layers before `compile`."
            )
        known = {id(v) for v in getattr(optimizer, "_trainable_variables", [])}
        if known and known != {id(variable) for variable in variables}:
            raise ValueError(
                f"`{optimizer_name}` has already been used for other variables (another"
                " agent, or before layers were frozen). Pass a new optimizer to "
                "`compile`."
            )


def loss_object(loss: Any) -> keras.losses.Loss:
    """A Keras loss from a name, a function or an object, with sample weights."""
    loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        return loss
    # A name of TensorFlow, which that of a lambda is not.
    name = re.sub(r"\W", "", getattr(loss, "__name__", "loss"))
    wrapped = keras.losses.Loss(name=name)
    wrapped.call = loss
    return wrapped


def other_seed(seed: int) -> int:
    """A seed for the validation env, far from the training envs' `seed + i`."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0] % 2**31)


def check_memory(memory: Any, warmup_steps: int) -> Any:
    """The memory to use, checked; `None` gives a new one.

    Raises:
        TypeError: if it is no memory.
        ValueError: if it can never hold `warmup_steps`.
    """
    if memory is None:
        memory = ReplayMemory()
    for method in ("add", "sample", "allocate", "__len__"):
        if not hasattr(memory, method) or isinstance(memory, type):
            raise TypeError(
                "`memory` must be a memory such as `ReplayMemory(50_000)`. "
                f"Received: {memory!r}."
            )
    capacity = getattr(memory, "capacity", math.inf)
    if warmup_steps > capacity:
        raise ValueError(
            f"The memory holds {capacity:,} steps but learning is to start at "
            f"warmup_steps={warmup_steps:,}: it would never start. Use a larger memory "
            "or a shorter warm-up."
        )
    return memory
