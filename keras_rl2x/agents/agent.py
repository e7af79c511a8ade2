"""The Keras side of every agent."""

import contextlib
import functools
import inspect
import json
import math
import os
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

from keras_rl2x import export as exporting
from keras_rl2x.agents.engine import Engine
from keras_rl2x.agents.engine import resolve_jit_compile
from keras_rl2x.agents.state import Progress
from keras_rl2x.agents.state import RandomStreams
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.callbacks import checkpoint
from keras_rl2x.callbacks.fit_callbacks import FitCallbacks
from keras_rl2x.callbacks.validation import Validation
from keras_rl2x.envs import spaces
from keras_rl2x.envs.actions import ActionUnits
from keras_rl2x.experience import ReplayGenerator
from keras_rl2x.experience import run_episodes
from keras_rl2x.experience.evaluation import MAX_STEPS
from keras_rl2x.memories import ReplayMemory
from keras_rl2x.networks import checks
from keras_rl2x.networks import encoding
from keras_rl2x.types import Transition


class Agent(keras.Model):
    """A `keras.Model` that learns from an environment.

    Holds what Keras needs and no algorithm. A subclass says which networks it has,
    what its policy is, and how it learns from a minibatch:

    - `trained`: for each online network's attribute, the attribute of its optimizer;
    - `targets`: for each online network's attribute, that of its target network;
    - `policy(observation, training)`: `[B, A]`, Q-values or actions in `[-1, 1]`;
    - `train_step(batch)`: target, loss, gradients, metrics;
    - `check_action_space`, `default_exploration`, `get_config`.

    Args:
        gamma: float in `[0, 1]`, discount per env step. Higher looks further ahead
            and learns more slowly.
        n_step: int, rewards that are summed before the bootstrap. Higher carries
            rewards back faster and is less exact off-policy.
        name: as in Keras.
    """

    trained: ClassVar[dict[str, str]] = {}
    targets: ClassVar[dict[str, str]] = {}
    default_batch_size: ClassVar[int] = 64

    def __init__(self, gamma: float = 0.99, n_step: int = 1, name: str | None = None):
        super().__init__(name=name)
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"`gamma` must lie in [0, 1]. Received: gamma={gamma}.")
        if n_step < 1 or int(n_step) != n_step:
            raise ValueError(
                f"`n_step` must be a whole number, at least 1. Received: {n_step}."
            )
        self.gamma, self.n_step = float(gamma), int(n_step)
        self._run = _Run()

    def __setattr__(self, name: str, value: Any) -> None:
        # Keras itself keeps the compiled loss under the name of an old method.
        taken = callable(getattr(keras.Model, name, None)) and name != "loss"
        if taken and not inspect.isroutine(value) and not _is_function(value):
            raise AttributeError(
                f"`{type(self).__name__}.{name} = …` would shadow the Keras method "
                f"`{name}`, which `fit` and others need. Use another name, for example "
                f"`{name}_network`."
            )
        super().__setattr__(name, value)

    # ------------------------------------------------------------ the algorithm

    def policy(self, observation: Any, training: bool = False) -> Any:
        """What exploration starts from: `[B, A]`, Q-values or actions in `[-1, 1]`."""
        raise NotImplementedError

    def call(self, observation: Any, training: bool = False) -> Any:
        """What the policy says about a batch of observations."""
        return self.policy(observation, training=training)

    def greedy(self, observation: Any, action_mask: Any = None) -> np.ndarray:
        """Best actions for a batch, in network units: `[B]` int or `[B, A]` float."""
        raise NotImplementedError

    def check_action_space(self, space: Any) -> None:
        """Raises for action spaces that the algorithm cannot handle."""
        raise NotImplementedError

    def check_networks(self, observation: Any) -> None:
        """Raises for networks of the wrong shape, given symbolic observations."""

    def default_exploration(self) -> Any:
        """The exploration rule of `compile()` without one."""
        raise NotImplementedError

    def exported_outputs(self, observation: Any, action_mask: Any) -> dict[str, Any]:
        """Outputs of the exported policy, from symbolic inputs."""
        raise NotImplementedError

    def train_step(self, batch: Transition) -> dict[str, Any]:
        """Learns from one minibatch. Runs compiled.

        Args:
            batch: `Transition` with `[B, ...]` leaves, actions in network units.

        Returns:
            Numbers by name, from `track`.
        """
        raise NotImplementedError

    # --------------------------------------------- what a train_step is made of

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
        network: keras.Model | None = None,
    ) -> Any:
        """The compiled loss, plus the regularisers of one network only.

        Keras would add those of all networks to each loss.

        Args:
            x: not used.
            y: `[B, 1]` targets. Keep the last axis: without it Keras averages before
                it applies sample weights.
            y_pred: `[B, 1]` predictions.
            sample_weight: `[B]` or `None`.
            training: not used.
            network: whose regularisers count; defaults to the only one that learns.

        Returns:
            Scalar loss.
        """
        if network is None:
            network = getattr(self, next(iter(self.trained)))
        loss = self._run.loss(y, y_pred, sample_weight=sample_weight)
        if self._run.has_metrics:
            self.compute_metrics(x, y, y_pred, sample_weight)
        return loss + self.regularization(network)

    @staticmethod
    def regularization(network: keras.Model) -> Any:
        """Sum of the regularisation losses of a network, 0 without any."""
        losses = [tf.cast(loss, tf.float32) for loss in network.losses]
        return tf.add_n(losses) if losses else tf.zeros(())

    def apply_gradients(
        self, tape: tf.GradientTape, loss: Any, network: keras.Model
    ) -> None:
        """Takes one optimizer step of one network.

        Args:
            tape: that recorded `loss`.
            loss: scalar.
            network: one of `trained`; its own optimizer is used.

        Raises:
            ValueError: naming the variables that no gradient reaches, before
                anything has changed.
        """
        name, optimizer = self._optimizer_of(network)
        variables = network.trainable_variables
        # Scales the loss under mixed_float16, is 1 otherwise.
        scale = optimizer.scale_loss(tf.ones_like(loss))
        gradients = tape.gradient(loss, variables, output_gradients=scale)
        self._check_gradients(name, variables, gradients)
        if self._run.dry_gradients is not None:
            pairs = zip(variables, gradients, strict=True)
            self._run.dry_gradients.update({v.path: g / scale for v, g in pairs})
            return
        optimizer.apply(gradients, variables)

    def update_targets(self) -> None:
        """Lets the target networks follow, by the rule of `TargetUpdate`."""
        if self._run.dry_gradients is None:
            self._run.target_update.apply(self._target_pairs(), *self._run.engine.clock)

    def report_td_error(self, td_error: Any) -> None:
        """Hands `[B]` TD errors to a memory that samples by them."""
        self._run.engine.td_error = td_error

    def track(self, **values: Any) -> dict[str, Any]:
        """Adds numbers to the epoch's means, which `fit` logs under these names.

        Args:
            **values: tensors of any shape; their mean counts.

        Returns:
            The means of this batch by name.
        """
        means = {}
        for name, value in values.items():
            means[name] = tf.reduce_mean(tf.cast(value, tf.float32))
            if name not in self._run.trackers:
                with tf.init_scope():
                    self._run.trackers[name] = keras.metrics.Mean(name=name)
            if self._run.dry_gradients is None:
                self._run.trackers[name].update_state(means[name])
        return means

    # ----------------------------------------------------------------- binding

    def bind(self, observation_space: Any, action_space: Any) -> None:
        """Fixes the spaces and builds all networks. Done by `from_env` and `fit`.

        Raises:
            ValueError: for spaces or networks that cannot work, or spaces other than
                those bound before. The agent is unchanged then.
        """
        run = self._run
        if run.observation_space is not None:
            self._check_same_spaces(observation_space, action_space)
            return
        spaces.check_observation_space(observation_space)
        self.check_action_space(action_space)
        run.observation_space, run.action_space = observation_space, action_space
        run.action_units = ActionUnits(action_space)
        try:
            self._build_networks(encoding.inputs(observation_space))
        except BaseException:
            run.observation_space = run.action_space = run.action_units = None
            raise
        self._build_optimizers()

    def _check_same_spaces(self, observation_space: Any, action_space: Any) -> None:
        pairs = (
            ("observation", self._run.observation_space, observation_space),
            ("action", self._run.action_space, action_space),
        )
        for kind, own, given in pairs:
            difference = spaces.describe_difference(own, given)
            if difference:
                raise ValueError(
                    f"This agent was made for another {kind} space: {difference}. Make "
                    "a new agent for this environment, or wrap the environment."
                )
        # Bounds may differ in Box observations, but actions are scaled by theirs.
        own = self._run.action_space
        if not self._run.action_units.is_discrete and not (
            np.array_equal(own.low, action_space.low)
            and np.array_equal(own.high, action_space.high)
        ):
            raise ValueError(
                f"This agent was made for other action bounds: {own} against "
                f"{action_space}."
            )

    def _build_networks(self, observation: Any) -> None:
        for name in self.trained:
            network = getattr(self, name)
            checks.check_layout(network, name)
            checks.check_stateless(network, name)
        self.check_networks(observation)
        for name, target_name in self.targets.items():
            online = getattr(self, name)
            if getattr(self, target_name, None) is None:
                setattr(self, target_name, checks.clone(online, name))
            _check_separate(online, getattr(self, target_name), name, target_name)
        # Builds what is left: Keras restores optimizers only of a called model.
        self(observation)
        self.build_targets(observation)
        for target, online in self._target_pairs():
            checks.copy_weights(online, target)
            target.trainable = False

    def build_targets(self, observation: Any) -> None:
        """Calls target networks once, with symbolic observations."""
        for target_name in self.targets.values():
            getattr(self, target_name)(observation)

    def _target_pairs(self) -> list[tuple[keras.Model, keras.Model]]:
        return [
            (getattr(self, target), getattr(self, online))
            for online, target in self.targets.items()
        ]

    def _build_optimizers(self) -> None:
        """Gives every optimizer its network's variables, once both are there.

        An unbuilt optimizer would drop the state that is loaded into it.
        """
        if not self.compiled or self._run.observation_space is None:
            return
        for name, optimizer_name in self.trained.items():
            variables = getattr(self, name).trainable_variables
            if not variables:
                raise ValueError(
                    f"`{name}` has no trainable variable, so it cannot learn. Set "
                    "`trainable = True` on at least one of its layers before `compile`."
                )
            optimizer = getattr(self, optimizer_name)
            if optimizer.built:
                _check_optimizer(optimizer, optimizer_name, variables)
            else:
                optimizer.build(variables)

    def _optimizer_of(self, network: keras.Model) -> tuple[str, Any]:
        for name, optimizer_name in self.trained.items():
            if getattr(self, name) is network:
                return name, getattr(self, optimizer_name)
        raise ValueError(
            f"The network {network.name!r} is none of those that learn: "
            f"{list(self.trained)}."
        )

    @staticmethod
    def _check_gradients(name: str, variables: list, gradients: list) -> None:
        missing = [
            variable.path
            for variable, gradient in zip(variables, gradients, strict=True)
            if gradient is None
        ]
        if not missing:
            return
        extent = "any variable" if len(missing) == len(variables) else "these variables"
        raise ValueError(
            f"No gradient reaches {extent} of `{name}`: {', '.join(missing)}. The loss "
            "does not depend on them in a differentiable way. Look for a forward pass "
            "outside the `GradientTape`, for NumPy, `argmax` or a cast to integers on "
            "the way, for a critic whose output does not depend on the action, or for a "
            "layer that is never called (freeze it: `layer.trainable = False`)."
        )

    # ----------------------------------------------------------------- compile

    def _compile(
        self,
        optimizers: dict[str, Any],
        *,
        loss: Any,
        metrics: Any = None,
        memory: Any = None,
        exploration: Any = None,
        target_update: TargetUpdate | None = None,
        updates_per_step: float | None = None,
        warmup_steps: int | None = None,
        steps_per_execution: int | None = None,
        run_eagerly: bool = False,
        jit_compile: bool | str = "auto",
    ) -> None:
        """What the `compile` of every replay agent comes down to."""
        optimizers = _separate_optimizers(optimizers)
        ups = 1.0 if updates_per_step is None else float(updates_per_step)
        warmup = 1_000 if warmup_steps is None else int(warmup_steps)
        memory = self._memory_for(memory, warmup)
        if not ups > 0:
            raise ValueError(f"`updates_per_step` must be above 0. Received: {ups}.")
        if steps_per_execution is not None and steps_per_execution < 1:
            raise ValueError(
                "`steps_per_execution` must be at least 1. "
                f"Received: {steps_per_execution}."
            )
        if warmup < 0:
            raise ValueError(
                f"`warmup_steps` must not be negative. Received: {warmup}."
            )
        first = next(iter(optimizers))
        super().compile(
            optimizer=optimizers[first],
            loss=loss,
            metrics=metrics,
            run_eagerly=run_eagerly,
            jit_compile=False if jit_compile == "auto" or run_eagerly else jit_compile,
        )
        for name, optimizer in optimizers.items():
            if name != first:
                setattr(self, name, optimizer)
        run = self._run
        run.compile_arguments = {
            **{name: getattr(self, name) for name in optimizers},
            "loss": loss,
            "metrics": metrics,
            "memory": memory,
            "exploration": exploration,
            "updates_per_step": updates_per_step,
            "warmup_steps": warmup_steps,
            "steps_per_execution": steps_per_execution,
            "run_eagerly": run_eagerly,
            "jit_compile": jit_compile,
        }
        run.loss, run.has_metrics = _loss_object(loss), bool(metrics)
        run.memory, run.exploration = memory, exploration
        run.target_update = target_update or run.target_update
        run.updates_per_step, run.warmup_steps = ups, warmup
        run.configured_execution = steps_per_execution
        run.engine, run.trackers = None, {}
        if run.experience is not None and run.experience.memory is not memory:
            run.experience = None
        self._build_optimizers()

    def _memory_for(self, memory: Any, warmup: int) -> Any:
        """The memory to use: the one passed, the old one, or a new one."""
        if memory is None:
            memory = self._run.memory
        if memory is None:
            memory = ReplayMemory()
        for method in ("add", "sample", "allocate", "__len__"):
            if not hasattr(memory, method) or isinstance(memory, type):
                raise TypeError(
                    "`memory` must be a memory such as `ReplayMemory(50_000)`. "
                    f"Received: {memory!r}."
                )
        capacity = getattr(memory, "capacity", math.inf)
        if warmup > capacity:
            raise ValueError(
                f"The memory holds {capacity:,} steps but learning is to start at "
                f"warmup_steps={warmup:,}: it would never start. Use a larger memory or "
                "a shorter warm-up."
            )
        return memory

    def get_compile_config(self) -> dict[str, Any]:
        """How the agent was compiled, as saved in `.keras`."""
        if not self.compiled:
            return {}
        arguments = {**self._run.compile_arguments, "target_update": self.target_update}
        return {
            name: keras.saving.serialize_keras_object(value)
            for name, value in arguments.items()
        }

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles as `get_compile_config` says; called by `load_model`."""
        arguments = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
        }
        target_update = arguments.pop("target_update")
        self.compile(**arguments)
        self.target_update = target_update

    # --------------------------------------------------------------------- fit

    def fit(
        self,
        env: Any,
        epochs: int = 1,
        steps_per_epoch: int = 1_000,
        batch_size: int | None = None,
        validation_data: Any = None,
        validation_episodes: int = 5,
        validation_freq: int = 1,
        callbacks: Sequence[keras.callbacks.Callback] | None = None,
        seed: int | None = None,
        verbose: int | str = "auto",
        initial_epoch: int = 0,
        resume: str | os.PathLike | None = None,
    ) -> keras.callbacks.History:
        """Acts and learns. A step is one environment transition.

        First the memory is filled to `warmup_steps`; those steps come before epoch 1.
        A second `fit` goes on with everything; with the same env object and no new
        seed it continues the episode.

        Args:
            env: `gymnasium.Env` or `gymnasium.vector.VectorEnv`.
            epochs: number of the last epoch, as in Keras.
            steps_per_epoch: env steps in each.
            batch_size: rows per gradient step; `None` for the agent's default.
            validation_data: another environment, for greedy episodes after epochs.
            validation_episodes: how many.
            validation_freq: epochs between them.
            callbacks: Keras callbacks. A `TargetUpdate` among them becomes the agent's.
            seed: of the env, its action space, exploration, sampling and the
                validation env; without it the streams go on.
            verbose: 0 silent, 1 a bar per epoch, 2 a line per epoch.
            initial_epoch: epochs already done, as in Keras.
            resume: directory of a `Checkpoint`, to go on from its newest one, if any.

        Returns:
            `History`, with `loss`, the agent's own numbers, `steps_per_second`,
            `episode_return` and `episode_length`, and `val_episode_return` and
            `val_episode_length` with `validation_data`.

        Raises:
            ValueError, TypeError: for what cannot work, before any training.
            Whatever the environment raises, unchanged.
        """
        self._check_fit(env, epochs, steps_per_epoch, batch_size, validation_data)
        self.bind(*spaces.single_spaces(env))
        if validation_data is not None:
            self.bind(*spaces.single_spaces(validation_data))
        run, progress = self._run, self._run.progress
        progress.epoch, progress.epoch_steps = initial_epoch, 0
        if resume is not None:
            self._resume(resume)
        run.steps_per_epoch, run.already = int(steps_per_epoch), progress.epoch_steps
        experience = self._prepare(env, batch_size, seed)
        container = self._callbacks(
            callbacks, validation_data, validation_episodes, validation_freq, seed,
            epochs, verbose,
        )  # fmt: skip
        try:
            self._warm_up(experience, verbose)
            experience.timer.seconds.clear()
            dataset = tf.data.Dataset.range(run.steps_per_epoch)  # only counts
            return super().fit(
                dataset,
                epochs=epochs,
                verbose=verbose,
                callbacks=container,
                initial_epoch=progress.epoch,
                shuffle=False,
            )
        except BaseException:
            # The env may be anywhere in its episode, so the next `fit` begins one.
            run.experience = None
            container.clean_up()
            raise

    def _check_fit(
        self, env: Any, epochs: int, steps: int, batch_size: Any, validation: Any
    ) -> None:
        if not self.compiled:
            raise ValueError(
                f"Call `compile()` before `fit`: `{type(self).__name__}` has no "
                "optimizer yet. `compile()` without arguments takes good defaults."
            )
        spaces.single_spaces(env)
        for name, value in (("epochs", epochs), ("steps_per_epoch", steps)):
            _check_count(name, value)
        if batch_size is not None:
            _check_count("batch_size", batch_size)
        if validation is not None:
            spaces.single_spaces(validation)
            if validation is env:
                raise ValueError(
                    "`validation_data` must be an environment of its own: evaluating "
                    "in the training env would break its episode. Make a second one "
                    "with `gymnasium.make`."
                )

    def _prepare(self, env: Any, batch_size: int | None, seed: int | None) -> Any:
        """The generator for this `fit`: the last one's, or a new one."""
        run = self._run
        if seed is not None:
            run.streams = RandomStreams(seed)
        num_envs = int(getattr(env, "num_envs", 1))
        wanted = run.configured_execution or self.default_steps_per_execution()
        execution = math.ceil(min(wanted, run.steps_per_epoch) / num_envs) * num_envs
        self.steps_per_execution = min(execution, run.steps_per_epoch)
        settings = {
            "batch_size": batch_size or self.default_batch_size,
            "updates_per_step": run.updates_per_step,
            "steps_per_execution": self.steps_per_execution,
            "rng": run.streams.sample,
        }
        if run.experience is None or run.experience.env is not env or seed is not None:
            experience = ReplayGenerator(self, env, run.memory, **settings)
            experience.begin(seed)
            run.experience = experience
        else:
            run.experience.configure(**settings)
        return run.experience

    def default_steps_per_execution(self) -> int:
        """Env steps per compiled call where `compile` was given none."""
        return 32

    def _callbacks(
        self, callbacks, env, episodes, every, seed, epochs, verbose
    ) -> FitCallbacks:
        callbacks = (
            list(callbacks) if isinstance(callbacks, list | tuple) else callbacks
        )
        callbacks = [] if callbacks is None else callbacks
        callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
        if env is not None:
            _check_count("validation_episodes", episodes)
            _check_count("validation_freq", every)
            other = None if seed is None else _other_seed(seed)
            validation = Validation(env, episodes, every, other, lambda: container)
            callbacks = [validation, *callbacks]
        if not any(isinstance(callback, TargetUpdate) for callback in callbacks):
            callbacks = [*callbacks, self.target_update]
        container = FitCallbacks(
            callbacks,
            steps=self._run.steps_per_epoch,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=epochs,
            model=self,
        )
        return container

    def _warm_up(self, experience: ReplayGenerator, verbose: int | str) -> None:
        run = self._run
        wanted = max(run.warmup_steps, experience.batch_size)
        wanted = min(wanted, getattr(run.memory, "capacity", wanted))
        missing = wanted - len(run.memory)
        if missing <= 0:
            return
        random = run.progress.gradient_steps == 0
        if verbose:
            kind = "random" if random else "exploring"
            print(f"Filling the memory with {missing:,} {kind} steps before learning")
        experience.warm_up(wanted, random=random)

    def begin_epoch(self, epoch: int) -> None:
        """Called at the start of each epoch of `fit`."""
        run = self._run
        run.progress.epoch, run.progress.epoch_steps = epoch, run.already
        run.already = 0
        run.experience.episodes.new_epoch()
        run.experience.timer.start_clock(run.progress.env_steps)

    def make_train_function(self, force: bool = False) -> Callable:
        """What Keras calls once per execution: act, store, sample, learn."""
        if self.train_function is None or force:
            self._make_engine()
            self.train_function = self._execute
        return self.train_function

    def _make_engine(self) -> Engine:
        networks = [getattr(self, name) for name in self.trained]
        run, eagerly = self._run, self.run_eagerly
        auto = run.compile_arguments.get("jit_compile", "auto")
        run.engine = Engine(
            self.policy,
            self.train_step,
            self.get_metrics_result,
            jit_compile=not eagerly and resolve_jit_compile(auto, networks),
            run_eagerly=eagerly,
        )
        if run.has_metrics:
            # Metrics make their variables on first use, which a loop may not.
            one = tf.zeros((1, 1))
            self.compute_metrics(None, one, one)
            self.reset_metrics()
        return run.engine

    def _execute(self, iterator: Any) -> dict[str, Any]:
        """One execution. The iterator only counts, and is not advanced."""
        del iterator
        run, progress = self._run, self._run.progress
        left = run.steps_per_epoch - progress.epoch_steps
        steps = min(self.steps_per_execution, left)
        if steps > 0:
            try:
                before = progress.env_steps
                stack, n = run.experience.draw(steps)
            except StopIteration as error:
                # Keras would end the training as if the data had run out.
                raise RuntimeError("The environment raised StopIteration.") from error
            finally:
                progress.epoch_steps += progress.env_steps - before
            if n > 0:
                with run.experience.timer("updating"):
                    self._rehearse(stack.batches)
                    logs, errors = run.engine.learn(*stack, n)
                    run.logs = {name: float(value) for name, value in logs.items()}
                progress.gradient_steps += n
                errors = None if errors is None else np.asarray(errors)
                run.experience.learned(stack, n, errors)
        return {
            **run.logs,
            **run.exploration.values(progress.env_steps),
            **run.experience.episodes.logs(),
            "steps_per_second": run.experience.timer.rate(progress.env_steps),
        }

    # ------------------------------------------------------- acting, evaluating

    def explore(
        self, observation: Any, step: int, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Actions to try, for a batch of observations, in network units.

        Args:
            observation: `[N, ...]`.
            step: env steps taken, for the schedules.
            action_mask: `[N, A]` bool or `None`.

        Returns:
            `[N]` int or `[N, A]` float.
        """
        policy = _LazyPolicy(self._engine().act, observation, self.action_units.size)
        return self.exploration(policy, step, self._run.streams.explore, action_mask)

    def act(self, observation: Any, action_mask: Any = None) -> Any:
        """Greedy action, in the env's units.

        Args:
            observation: one observation of the env, or a batch of them.
            action_mask: bool, `[A]` or `[B, A]`: actions that are allowed.

        Returns:
            For one observation an `int` (Discrete) or an array of the action's shape;
            for a batch an array with a leading batch axis.

        Raises:
            ValueError: before the spaces are known, or for another shape.
        """
        self._check_bound("act")
        batch, single = self._as_batch(observation)
        if action_mask is not None:
            action_mask = np.asarray(action_mask, bool).reshape(
                -1, self.action_units.size
            )
        action = self.action_units.to_env(self.greedy(batch, action_mask))
        if not single:
            return action
        return int(action[0]) if self.action_units.is_discrete else action[0]

    def _as_batch(self, observation: Any) -> tuple[Any, bool]:
        space = self._run.observation_space
        parts = spaces.leaves(space)
        given = observation if isinstance(observation, dict) else {None: observation}
        if isinstance(observation, dict) != hasattr(space, "spaces") or (
            isinstance(observation, dict) and set(observation) != set(parts)
        ):
            raise ValueError(
                f"The observation does not fit the space {space}. Received: "
                f"{sorted(observation) if isinstance(observation, dict) else type(observation)}."
            )
        singles = []

        def convert(part: Any, value: Any) -> np.ndarray:
            array = np.asarray(value)
            single = array.shape == part.shape
            if (
                not single
                and array.shape[1:] != part.shape
                or array.dtype.kind in "OUS"
            ):
                raise ValueError(
                    f"Expected one observation of shape {part.shape} or a batch of "
                    f"shape {('batch', *part.shape)}. Received shape: {array.shape}."
                )
            singles.append(single)
            return (array[None] if single else array).astype(part.dtype, copy=False)

        del given
        batch = spaces.map_observation(convert, space, observation)
        return batch, all(singles)

    def evaluate(
        self,
        env: Any,
        episodes: int = 10,
        epsilon: float = 0.0,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
        return_episodes: bool = False,
        callbacks: Any = None,
        verbose: int | str = 0,
    ) -> dict[str, Any]:
        """Plays whole episodes greedily. Training is not touched.

        Args:
            env: environment, single or vector.
            episodes: how many.
            epsilon: probability of a random action.
            seed: of the env's first reset and of random actions.
            max_steps: an episode is cut after so many steps, with a warning.
            return_episodes: add the lists `episode_returns` and `episode_lengths`.
            callbacks: Keras callbacks, whose `on_test_…` hooks fire; a batch is an
                episode.
            verbose: 1 shows a bar.

        Returns:
            `{"episode_return": mean, "episode_length": mean, "episode_return_std": …}`.
        """
        _check_count("episodes", episodes)
        _check_count("max_steps", max_steps)
        if not 0.0 <= epsilon <= 1.0:
            raise ValueError(f"`epsilon` must lie in [0, 1]. Received: {epsilon}.")
        self.bind(*spaces.single_spaces(env))
        container = callbacks
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            container = keras.callbacks.CallbackList(
                callbacks, add_progbar=verbose == 1, verbose=verbose, epochs=1,
                steps=episodes, model=self,
            )  # fmt: skip
        container.on_test_begin()

        def on_episode(number: int, total: float, length: int) -> None:
            logs = {"episode_return": total, "episode_length": length}
            container.on_test_batch_begin(number - 1)
            container.on_test_batch_end(number - 1, logs)

        returns, lengths = run_episodes(
            self, env, episodes, epsilon=epsilon, seed=seed, max_steps=max_steps,
            on_episode=on_episode,
        )  # fmt: skip
        if self._run.experience is not None and self._run.experience.env is env:
            self._run.experience = None  # its episode was broken off
        numbers = {
            "episode_return": float(returns.mean()),
            "episode_length": float(lengths.mean()),
            "episode_return_std": float(returns.std()),
        }
        container.on_test_end(numbers)
        if return_episodes:
            numbers["episode_returns"] = returns.tolist()
            numbers["episode_lengths"] = lengths.tolist()
        return numbers

    # --------------------------------------------------- by hand, and for a look

    def train_on_batch(self, batch: Transition) -> dict[str, float]:
        """Learns once from a batch of transitions, without an environment.

        Args:
            batch: `Transition` as `memory.sample(batch_size)` returns it, `[B, ...]`
                or `[K, B, ...]` leaves, with actions in the env's units.

        Returns:
            This batch's numbers by name. A `TargetUpdate(period=…)` counts the calls.
        """
        self._check_bound("train_on_batch", compiled=True)
        stack = self._as_stack(batch)
        count = len(stack.reward)
        engine, progress = self._engine(), self._run.progress
        self._rehearse(stack)
        self.reset_metrics()
        done = progress.gradient_steps + np.arange(count, dtype=np.int64)
        logs, _ = engine.learn(stack, done + 1, done, count)
        progress.gradient_steps += count
        return {name: float(value) for name, value in logs.items()}

    def gradient_norms(self, batch: Transition) -> dict[str, float]:
        """Norm of the gradient of every trainable variable; nothing changes.

        Args:
            batch: as in `train_on_batch`.

        Returns:
            Norms by the variable's path, in the order of the networks' layers.
        """
        self._check_bound("gradient_norms", compiled=True)
        stack = self._as_stack(batch)
        with self._dry_run() as gradients:
            self._engine().run_one(stack, np.zeros(1), np.zeros(1), 0)
        return {path: float(tf.norm(value)) for path, value in gradients.items()}

    def _rehearse(self, batches: Transition) -> None:
        """Runs one minibatch without effect before the first one counts.

        Mistakes in a `train_step` show as plain Python, before anything has changed;
        and the metrics' variables are made, which would cost a second compilation.
        """
        engine = self._engine()
        if not engine.rehearsed:
            with self._dry_run():
                engine.run_one(batches, np.zeros(1), np.zeros(1), 0)
            engine.rehearsed = True

    @contextlib.contextmanager
    def _dry_run(self) -> Iterator[dict[str, Any]]:
        """Lets `train_step` run without changing anything; collects the gradients."""
        saved = [(v, v.numpy()) for v in self.non_trainable_variables]
        self._run.dry_gradients = {}
        try:
            yield self._run.dry_gradients
        finally:
            self._run.dry_gradients = None
            for variable, value in saved:
                variable.assign(value)

    def _as_stack(self, batch: Transition) -> Transition:
        """`[K, B, ...]` leaves with actions in network units."""
        if not isinstance(batch, Transition):
            raise TypeError(
                "A batch is a `keras_rl2x.types.Transition`, as `memory.sample` returns "
                f"it. Received: {type(batch).__name__}."
            )
        batch = batch._replace(action=self.action_units.to_network(batch.action))
        if np.ndim(batch.reward) == 1:
            batch = Transition(*(_expand(leaf) for leaf in batch))
        return batch

    # ------------------------------------------------------------------- export

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "tf_saved_model",
        action_mask: bool = False,
        verbose: bool = False,
        **kwargs: Any,
    ) -> None:
        """Writes the greedy policy, to be run without this package.

        The signature takes the env's raw observations (named inputs for a Dict, any
        batch size) and returns `action` in the env's units, and `q_values` where the
        agent has them. No optimizer, memory or target network is in it.

        Args:
            filepath: directory (SavedModel) or file.
            format: `"tf_saved_model"`, `"onnx"` or `"litert"`.
            action_mask: add a bool input `action_mask` of shape `[B, A]`.
            verbose: let Keras print the signature.
            **kwargs: as in `keras.Model.export`.

        Raises:
            ValueError: before the spaces are known, or for an unknown format.
            ImportError: naming the extra to install.
        """
        self._check_bound("export")
        if action_mask and not self.action_units.is_discrete:
            raise ValueError("`action_mask` is for discrete actions only.")
        exporting.export_policy(
            self.exported_outputs,
            self._run.observation_space,
            filepath,
            format,
            num_masked=self.action_units.size if action_mask else 0,
            verbose=verbose,
            **kwargs,
        )

    # ---------------------------------------------------------- saving, loading

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments and the spaces."""
        run = self._run
        bound = run.observation_space is not None
        return {
            "name": self.name,
            "gamma": self.gamma,
            "n_step": self.n_step,
            "observation_space": spaces.to_config(run.observation_space)
            if bound
            else None,
            "action_space": spaces.to_config(run.action_space) if bound else None,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "Agent":
        """An agent made from `get_config()`, with its networks built."""
        config = dict(config)
        bound = [config.pop("observation_space"), config.pop("action_space")]
        for name in (*cls.trained, *cls.targets.values()):
            if config.get(name) is not None:
                config[name] = keras.saving.deserialize_keras_object(
                    config[name], custom_objects
                )
        agent = cls(**config)
        if None not in bound:
            agent.bind(*map(spaces.from_config, bound))
        return agent

    def get_build_config(self) -> None:
        """Nothing: `from_config` builds the agent from its spaces."""

    def save_own_variables(self, store: Any) -> None:
        """Saves what is no weight: counters, random streams, exploration."""
        run = self._run
        state = {
            "progress": vars(run.progress),
            "streams": run.streams.get_state(),
            "exploration": run.exploration.get_state() if run.exploration else {},
        }
        store["state"] = np.frombuffer(json.dumps(state).encode(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        """Takes back what `save_own_variables` gave."""
        if "state" not in store.keys():  # noqa: SIM118  (an HDF5 group)
            raise ValueError("This file does not hold the state of an agent.")
        state = json.loads(bytes(np.asarray(store["state"], np.uint8)))
        run = self._run
        # Read first, assign last: a damaged file changes nothing.
        progress, streams = Progress(**state["progress"]), RandomStreams()
        streams.set_state(state["streams"])
        if run.exploration is not None:
            run.exploration.set_state(state["exploration"])
        run.progress, run.streams, run.experience = progress, streams, None

    def load_weights(
        self, filepath: Any, skip_mismatch: bool = False, **kwargs
    ) -> None:
        """Loads all networks, optimizers and counters, or changes nothing.

        Args:
            filepath: what `save_weights` or `save` wrote.
            skip_mismatch: as in Keras.
            **kwargs: as in Keras.

        Raises:
            ValueError: if the file does not fit; the agent is as before then.
        """
        self._check_bound("load_weights")
        variables = [*self.variables, *self._optimizer_variables()]
        before = [(variable, variable.numpy()) for variable in variables]
        state = (self._run.progress, self._run.streams, self._run.experience)
        try:
            super().load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)
        except BaseException:
            for variable, value in before:
                variable.assign(value)
            self._run.progress, self._run.streams, self._run.experience = state
            raise

    def _optimizer_variables(self) -> list:
        if not self.compiled:
            return []
        optimizers = [getattr(self, name) for name in self.trained.values()]
        return [variable for each in optimizers for variable in each.variables]

    def _resume(self, directory: str | os.PathLike) -> None:
        """Goes on from the newest complete checkpoint, if there is one."""
        path = checkpoint.newest(directory)
        if path is None:
            return
        memory = type(self.memory).load(path / "memory")
        self.load_weights(path / "agent.keras")
        self._run.memory = self._run.compile_arguments["memory"] = memory

    # --------------------------------------------------------------- properties

    @property
    def env_steps(self) -> int:
        """Environment transitions taken so far, warm-up included."""
        return self._run.progress.env_steps

    @property
    def gradient_steps(self) -> int:
        """Gradient steps taken so far."""
        return self._run.progress.gradient_steps

    @property
    def progress(self) -> Progress:
        """All counters."""
        return self._run.progress

    @property
    def memory(self) -> Any:
        """The replay memory."""
        return self._run.memory

    @property
    def exploration(self) -> Any:
        """The exploration rule."""
        return self._run.exploration

    @property
    def action_units(self) -> ActionUnits:
        """Conversion between the env's actions and the networks'."""
        return self._run.action_units

    @property
    def observation_space(self) -> Any:
        """Space of one observation, or `None` before it is known."""
        return self._run.observation_space

    @property
    def action_space(self) -> Any:
        """Space of one action, or `None` before it is known."""
        return self._run.action_space

    @property
    def target_update(self) -> TargetUpdate:
        """The rule of the target networks."""
        return self._run.target_update

    @target_update.setter
    def target_update(self, rule: TargetUpdate) -> None:
        if rule is not self._run.target_update:
            self._run.target_update = rule
            self.train_function = None  # the old rule is part of what is compiled

    @property
    def seconds(self) -> dict[str, float]:
        """Where the last `fit` spent its time: acting, environment, memory, updating."""
        experience = self._run.experience
        return {} if experience is None else dict(experience.timer.seconds)

    @property
    def metrics(self) -> list:
        """One mean per tracked number, and the metrics of `compile`."""
        own = self._run.trackers
        return [
            *own.values(),
            *(
                metric
                for metric in super().metrics
                if metric.name not in own and metric.name != "loss"
            ),
        ]

    def _engine(self) -> Engine:
        if self._run.engine is None:
            self._make_engine()
        return self._run.engine

    def _check_bound(self, method: str, compiled: bool = False) -> None:
        if self._run.observation_space is None:
            raise ValueError(
                f"`{method}` needs the env's spaces, which this agent does not know "
                "yet: make it with `from_env(env)`, or call `fit(env)` or "
                "`evaluate(env)` first."
            )
        if compiled and not self.compiled:
            raise ValueError(f"Call `compile()` before `{method}`.")


class _Run:
    """What changes while an agent runs; see `keras_rl2x.agents.state`."""

    def __init__(self):
        self.progress, self.streams = Progress(), RandomStreams()
        self.observation_space = self.action_space = self.action_units = None
        self.memory = self.exploration = self.experience = self.engine = None
        self.loss = self.dry_gradients = self.configured_execution = None
        self.target_update: TargetUpdate | None = None
        self.compile_arguments: dict[str, Any] = {}
        self.trackers: dict[str, keras.metrics.Mean] = {}
        self.logs: dict[str, float] = {}
        self.has_metrics = False
        self.updates_per_step, self.warmup_steps = 1.0, 0
        self.steps_per_epoch = self.already = 0


class _LazyPolicy:
    """The policy's output for one batch, computed if asked for."""

    def __init__(self, act: Callable, observation: Any, size: int):
        self._act, self._observation = act, observation
        parts = observation if isinstance(observation, dict) else {"": observation}
        self.shape = (len(next(iter(parts.values()))), size)

    def __call__(self) -> np.ndarray:
        return self._act(self._observation)


def _is_function(value: Any) -> bool:
    """A function in any form that Keras sets on a model: partials, `tf.function`s."""
    return isinstance(value, functools.partial) or hasattr(value, "python_function")


def _check_count(name: str, value: Any) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ValueError(
            f"`{name}` must be a whole number, at least 1. Received: {value!r}."
        )


def _check_separate(online: Any, target: Any, name: str, target_name: str) -> None:
    shared = {id(v) for v in online.variables} & {id(v) for v in target.variables}
    if online is target or shared:
        raise ValueError(
            f"`{target_name}` shares variables with `{name}`, so it would move with "
            "it. Pass a network of its own, or leave the argument out."
        )


def _separate_optimizers(optimizers: dict[str, Any]) -> dict[str, Any]:
    """Optimizers from names, configs or objects, each for one network."""
    made = {name: keras.optimizers.get(value) for name, value in optimizers.items()}
    if len({id(optimizer) for optimizer in made.values()}) < len(made):
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in made)} are the same object, but an "
            "optimizer keeps a state for the variables of one network. Make two."
        )
    return made


def _check_optimizer(optimizer: Any, name: str, variables: list) -> None:
    """Raises if an optimizer belongs to other variables: Keras says so late."""
    known = {
        id(variable) for variable in getattr(optimizer, "_trainable_variables", [])
    }
    if known and known != {id(variable) for variable in variables}:
        raise ValueError(
            f"`{name}` has already been used for other variables (another agent, or "
            "before layers were frozen). Pass a new optimizer to `compile`."
        )


def _loss_object(loss: Any) -> keras.losses.Loss:
    """A Keras loss from a name, a function or an object, with sample weights."""
    loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        return loss
    wrapped = keras.losses.Loss(name=getattr(loss, "__name__", None))
    wrapped.call = loss
    return wrapped


def _other_seed(seed: int) -> int:
    """A seed for the validation env, far from the training envs' `seed + i`."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0] % 2**31)


def _expand(leaf: Any) -> Any:
    if isinstance(leaf, dict):
        return {name: np.asarray(part)[None] for name, part in leaf.items()}
    return None if leaf is None else np.asarray(leaf)[None]
