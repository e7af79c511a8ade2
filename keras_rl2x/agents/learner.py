"""The learning side of every agent: networks, optimizers, targets, gradients."""

import contextlib
import functools
import inspect
import json
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any
from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

from keras_rl2x import plain
from keras_rl2x.agents import arguments
from keras_rl2x.agents import guards
from keras_rl2x.agents import resume
from keras_rl2x.agents.engine import Engine
from keras_rl2x.agents.engine import resolve_jit_compile
from keras_rl2x.agents.state import Progress
from keras_rl2x.agents.state import RandomStreams
from keras_rl2x.agents.state import Run
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.envs import spaces
from keras_rl2x.envs.actions import ActionUnits
from keras_rl2x.networks import checks
from keras_rl2x.networks import encoding
from keras_rl2x.ops.checks import check_number
from keras_rl2x.ops.checks import check_whole
from keras_rl2x.types import Transition


class Learner(keras.Model):
    """A `keras.Model` that holds networks and learns from minibatches.

    What `train_step`s are made of, and what Keras needs to compile, save and load
    them. It knows no environment; `Agent` adds that. See `Agent` for what a subclass
    defines.
    """

    trained: ClassVar[dict[str, str]] = {}
    targets: ClassVar[dict[str, str]] = {}
    actions: ClassVar[str] = "discrete"  # or "continuous"

    def __init__(self, gamma: float = 0.99, n_step: int = 1, name: str | None = None):
        arguments.check_not_distributed()
        super().__init__(name=name)
        self.gamma = check_number("gamma", gamma, 0.0, 1.0)
        self.n_step = check_whole("n_step", n_step)
        self._run = Run()

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
        self.engine.losses.append(loss)
        if self._run.dry_losses is not None:
            self._run.dry_losses[name] = loss
            return
        variables = network.trainable_variables
        # Scales the loss under mixed_float16, is 1 otherwise.
        scale = optimizer.scale_loss(tf.ones_like(loss))
        gradients = tape.gradient(loss, variables, output_gradients=scale)
        self._check_gradients(name, variables, gradients)
        if self._run.dry_gradients is not None:
            pairs = zip(variables, gradients, strict=True)
            self._run.dry_gradients.update(
                {f"{name}/{v.path}": g / tf.cast(scale, g.dtype) for v, g in pairs}
            )
            return
        self.engine.apply(optimizer, gradients, variables)

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

    # ------------------------------------------------------ networks, optimizers

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
        given = {name: getattr(self, name, None) for name in self.targets.values()}
        try:
            self._build_networks(encoding.inputs(observation_space))
        except BaseException:
            run.observation_space = run.action_space = run.action_units = None
            for name, target in given.items():
                setattr(self, name, target)
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
            if getattr(self, target_name, None) is None:
                clone = checks.clone(getattr(self, name), name)
                setattr(self, target_name, clone)
        self._call_targets(observation)
        # Keras restores optimizers only of a model that has been called.
        self(observation)
        for name, target_name in self.targets.items():
            online, target = getattr(self, name), getattr(self, target_name)
            arguments.check_separate(online, target, name, target_name)
            checks.copy_weights(online, target, name)
            target.trainable = False

    def _call_targets(self, observation: Any) -> None:
        try:
            self.build_targets(observation)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{' or '.join(f'`{name}`' for name in self.targets.values())} cannot "
                "be called as its online network is; both must have the same "
                f"architecture. Keras says: {checks.first_line(error)}"
            ) from error

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
        optimizers = {name: getattr(self, name) for name in self.trained.values()}
        arguments.check_learners(self, optimizers)
        for name, optimizer_name in self.trained.items():
            optimizers[optimizer_name].build(getattr(self, name).trainable_variables)

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
            variable
            for variable, gradient in zip(variables, gradients, strict=True)
            if gradient is None
        ]
        if missing:
            raise guards.MissingGradients(
                name, missing, everywhere=missing == variables
            )

    # ------------------------------------------------------------------ compiling

    def compile(
        self,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Any = None,
        memory: Any = None,
        exploration: Any = None,
        updates_per_step: float | None = None,
        warmup_steps: int | None = None,
        steps_per_execution: int | None = None,
        run_eagerly: bool = False,
        jit_compile: bool | str = "auto",
        **other_optimizers: Any,
    ) -> None:
        """Says how to learn. What is left out is taken from `defaults()`.

        Args:
            optimizer: Keras optimizer, name or config. Clipping is its own:
                `clipnorm` per variable, `global_clipnorm` over all.
            loss: Keras loss of `[B, 1]` targets and values.
            metrics: Keras metrics of the same.
            memory: where steps are kept; without one the present memory stays, or a
                `ReplayMemory()` is made.
            exploration: rule of `keras_rl2x.exploration`.
            updates_per_step: gradient steps per env step; fractions are exact in the
                long run. Higher learns more from each step and takes longer.
            warmup_steps: steps in memory before learning. Higher starts from more
                varied data.
            steps_per_execution: env steps per compiled call. Bigger is faster; the
                ratio of updates to steps does not change.
            run_eagerly: compile nothing, for debugging.
            jit_compile: use XLA; `"auto"` does where it measured faster, which is
                without convolutions.
            **other_optimizers: of agents with several networks, by name.

        Raises:
            ValueError, TypeError: for what cannot work.
        """
        defaults = self.defaults()
        optimizers = {"optimizer": optimizer, **other_optimizers}
        optimizers = arguments.separate_optimizers(optimizers, self.trained, defaults)
        loss = defaults.loss if loss is None else loss
        exploration = arguments.check_exploration(exploration, defaults, self.actions)
        ups = _or(updates_per_step, defaults.updates_per_step)
        warmup = _or(warmup_steps, defaults.warmup_steps)
        execution = _or(steps_per_execution, defaults.steps_per_execution)
        arguments.check_compile(ups, warmup, execution)
        memory = arguments.check_memory(_or(memory, self._run.memory), warmup)
        loss_object = arguments.loss_object(loss)
        if self._run.observation_space is not None:
            arguments.check_learners(self, optimizers)
        super().compile(
            optimizer=optimizers["optimizer"],
            loss=loss,
            metrics=metrics,
            run_eagerly=run_eagerly,
            jit_compile=False if jit_compile == "auto" or run_eagerly else jit_compile,
        )
        for name, other in optimizers.items():
            if name != "optimizer":
                setattr(self, name, other)
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
        run.loss, run.has_metrics = loss_object, bool(metrics)
        run.memory, run.exploration = memory, exploration
        run.target_update = _or(run.target_update, defaults.target_update)
        run.updates_per_step, run.warmup_steps = float(ups), int(warmup)
        run.configured_execution = int(execution)
        run.engine, run.trackers = None, {}
        if run.session is not None and run.session.generator.memory is not memory:
            run.session = None
        self._build_optimizers()

    def get_compile_config(self) -> dict[str, Any]:
        """How the agent was compiled, as saved in `.keras`."""
        if not self.compiled:
            return {}
        arguments = {**self._run.compile_arguments, "target_update": self.target_update}
        config = {
            name: keras.saving.serialize_keras_object(value)
            for name, value in arguments.items()
        }
        if isinstance(self.loss, keras.losses.Huber):
            # Keras leaves it out of the loss's own config.
            config["loss"]["config"].update(getattr(self.loss, "_fn_kwargs", {}))
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles as `get_compile_config` says; called by `load_model`."""
        arguments = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
        }
        target_update = arguments.pop("target_update")
        self.compile(**arguments)
        self.target_update = target_update

    def make_engine(self) -> Engine:
        networks = [getattr(self, name) for name in self.trained]
        run, eagerly = self._run, self.run_eagerly
        wanted = run.compile_arguments.get("jit_compile", "auto")
        jit_compile = not eagerly and resolve_jit_compile(wanted, networks)
        run.engine = Engine(
            self.policy,
            self.train_step,
            self.get_metrics_result,
            self._learned_variables,
            self._state_variables,
            jit_compile=jit_compile,
            run_eagerly=eagerly,
            fuse_updates=wanted == "auto" and not eagerly and not jit_compile,
        )
        if run.has_metrics:
            # Metrics make their variables on first use, which a loop may not.
            one = tf.zeros((1, 1))
            self.compute_metrics(None, one, one)
            self.reset_metrics()
        return run.engine

    @property
    def engine(self) -> Engine:
        """The compiled functions; made when they are first needed."""
        if self._run.engine is None:
            self.make_engine()
        return self._run.engine

    def learn(self, stack: Any, n: int) -> tuple[dict[str, Any], Any]:
        """Takes the first `n` gradient steps of a stack, in one compiled call.

        Args:
            stack: `(batches, step, previous)`, see `ReplayGenerator`.
            n: how many minibatches are due.

        Returns:
            `(logs, td_errors)`: means so far, and `[K, B]` for a memory that samples
            by TD errors.

        Raises:
            FloatingPointError: where a loss or gradient is NaN or infinite; all weights
                are those from before that step then.
        """
        self._rehearse(stack[0])
        logs, td_errors, finite, before = self.engine.learn(*stack, n)
        if not finite:
            guards.stop_before_nonfinite(self, stack, n, before)
        self._run.progress.gradient_steps += n
        return logs, td_errors

    def _learned_variables(self) -> list:
        networks = [getattr(self, name) for name in self.trained]
        return [v for network in networks for v in network.trainable_variables]

    def _state_variables(self) -> list:
        """Everything that a gradient step may change."""
        return [*self.variables, *self.metrics_variables, *self._optimizer_variables()]

    def _rehearse(self, batches: Transition) -> None:
        """Runs one minibatch without effect before the first one counts.

        Mistakes in a `train_step` show as plain Python, before anything has changed;
        and the metrics' variables are made, which would cost a second compilation.
        """
        engine = self.engine
        if not engine.rehearsed:
            try:
                with self._dry_run():
                    engine.run_one(batches, np.zeros(1), np.zeros(1), 0)
            except guards.MissingGradients as error:
                text = guards.explain_missing(self, error, batches)
                raise ValueError(text) from None
            engine.rehearsed = True

    @contextlib.contextmanager
    def _dry_run(self) -> Iterator[dict[str, Any]]:
        """Lets `train_step` run without changing anything; collects the gradients."""
        # Keras does not count the metrics of `compile` among the variables.
        metrics = [v for metric in self.metrics for v in metric.variables]
        variables = [*self.non_trainable_variables, *metrics]
        saved = [(variable, variable.numpy()) for variable in variables]
        self._run.dry_gradients = {}
        try:
            yield self._run.dry_gradients
        finally:
            self._run.dry_gradients = None
            for variable, value in saved:
                variable.assign(value)

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

    def infer(self, observation: Any) -> np.ndarray:
        """`policy` of a batch of raw observations through a compiled function.

        Args:
            observation: `[B, ...]` array, or a dict of such.

        Returns:
            `[B, A]` array: Q-values, or actions in `[-1, 1]`.
        """
        return self.engine.act(observation)

    def weights_held(self) -> contextlib.AbstractContextManager[None]:
        """While it lasts, `infer` may read the weights once: they do not change."""
        return self.engine.weights_held()

    # -------------------------------------------------- by hand, and for a look

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
        count, done = len(stack.reward), self._run.progress.gradient_steps
        due = done + 1 + np.arange(count, dtype=np.int64)
        self.reset_metrics()
        logs, _ = self.learn((stack, due, due - 1), count)
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
            self.engine.run_one(stack, np.zeros(1), np.zeros(1), 0)
        return {path: float(tf.norm(value)) for path, value in gradients.items()}

    def _as_stack(self, batch: Transition) -> Transition:
        """`[K, B, ...]` leaves with actions in network units."""
        if not isinstance(batch, Transition):
            raise TypeError(
                "A batch is a `keras_rl2x.types.Transition`, as `memory.sample` gives "
                f"it. Received: {type(batch).__name__}."
            )
        batch = batch._replace(action=self.action_units.to_network(batch.action))
        if np.ndim(batch.reward) == 1:
            batch = Transition(*(_expand(leaf) for leaf in batch))
        self._check_stack(batch)
        return batch

    def _check_stack(self, batch: Transition) -> None:
        """Raises for leaves that fit neither the rewards nor the spaces."""
        lead, units = np.shape(batch.reward), self.action_units
        expected = {
            "action": (batch.action, () if units.is_discrete else (units.size,)),
            "discount": (batch.discount, ()),
        }
        for field in ("observation", "next_observation"):
            value = getattr(batch, field)
            for name, space in spaces.leaves(self.observation_space).items():
                part = value[name] if isinstance(value, dict) else value
                label = f"{field}[{name!r}]" if isinstance(value, dict) else field
                expected[label] = (part, space.shape)
        for name, (value, shape) in expected.items():
            if np.shape(value) != (*lead, *shape):
                raise ValueError(
                    f"`{name}` of the batch does not fit: expected shape "
                    f"{(*lead, *shape)}, received {np.shape(value)}."
                )

    # ------------------------------------------------------------ saving, loading

    def get_build_config(self) -> None:
        """Nothing: `from_config` builds the agent from its spaces."""

    def save_own_variables(self, store: Any) -> None:
        """Saves what is no weight: counters, random streams, exploration."""
        run = self._run
        state = {
            "progress": vars(run.progress),
            "streams": run.streams.get_state(),
            "exploration": run.exploration.get_state() if run.exploration else {},
            "networks": self._shapes(),
            "spaces": self._space_configs(),
            "seeds": [variable.numpy().tolist() for variable in resume.seeds(self)],
        }
        store["state"] = np.frombuffer(json.dumps(state).encode(), np.uint8)

    def _space_configs(self) -> dict[str, Any]:
        run = self._run
        return {
            "observation": spaces.to_config(run.observation_space),
            "action": spaces.to_config(run.action_space),
        }

    def _shapes(self) -> dict[str, list]:
        """Shapes of the weights of every network."""
        networks = {name: getattr(self, name) for name in self.trained}
        return {
            name: [list(weight.shape) for weight in network.weights]
            for name, network in networks.items()
        }

    def load_own_variables(self, store: Any) -> None:
        """Takes back what `save_own_variables` gave."""
        if "state" not in store.keys():  # noqa: SIM118  (an HDF5 group)
            raise ValueError("This file does not hold the state of an agent.")
        run = self._run
        try:
            state = plain.read_json(bytes(np.asarray(store["state"], np.uint8)))
            run.mismatch = self._mismatch(state)
            if run.mismatch is None:
                self._take_back(state)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            run.mismatch = f"The agent's state in it is damaged: {error!r}."
        if run.mismatch:
            raise ValueError(run.mismatch)

    def _take_back(self, state: dict[str, Any]) -> None:
        run, streams = self._run, RandomStreams()
        # Read first, assign last: a damaged file changes nothing.
        progress = Progress.from_config(state["progress"])
        streams.set_state(state["streams"])
        if run.exploration is not None:
            run.exploration.set_state(state["exploration"])
        for variable, value in zip(resume.seeds(self), state["seeds"], strict=True):
            variable.assign(value)
        run.progress, run.streams, run.session = progress, streams, None

    def _mismatch(self, state: dict[str, Any]) -> str | None:
        """What keeps a saved state from fitting this agent, or `None`."""
        for kind, space in (
            ("observation", self._run.observation_space),
            ("action", self._run.action_space),
        ):
            saved = spaces.from_config(state["spaces"][kind])
            difference = spaces.describe_difference(saved, space)
            if difference:
                return f"The file is for another {kind} space: {difference}."
        own = self._shapes()
        for name, shapes in state["networks"].items():
            # Keras would not notice layers that are only in the file.
            if own.get(name) != shapes:
                return (
                    f"The file holds another `{name}`: weights of shapes {shapes}, "
                    f"where this agent has {own.get(name)}."
                )
        return None

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
        self._run.mismatch = None
        try:
            with self.unchanged_on_error(), warnings.catch_warnings():
                # Keras only warns where a part of the file has no place here.
                if not skip_mismatch:
                    warnings.filterwarnings("error", message="Skipping ")
                super().load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)
        except BaseException as error:
            damaged = (UserWarning, zipfile.BadZipFile, zlib.error, EOFError)
            if not isinstance(error, damaged) and not self._run.mismatch:
                raise
            raise ValueError(
                f"{str(filepath)!r} does not fit this agent; nothing was loaded. "
                f"{self._run.mismatch or f'Keras says: {error}'}"
            ) from None

    @contextlib.contextmanager
    def unchanged_on_error(self) -> Iterator[None]:
        """Lets what happens within succeed as a whole, or leave the agent as it was."""
        run, exploration = self._run, self._run.exploration
        before = self.variable_values()
        fields = {**vars(run), "trackers": dict(run.trackers)}
        fields["compile_arguments"] = dict(run.compile_arguments)
        noise = None if exploration is None else exploration.get_state()
        try:
            yield
        except BaseException:
            for variable, value in before:
                variable.assign(value)
            mismatch = run.mismatch
            vars(run).update(fields, mismatch=mismatch)
            if exploration is not None:
                exploration.set_state(noise)
            raise

    def variable_values(self) -> list[tuple[Any, np.ndarray]]:
        """All variables, the optimizers' too, with copies of their values."""
        variables = [*self.variables, *self._optimizer_variables()]
        return [(variable, variable.numpy()) for variable in variables]

    def _optimizer_variables(self) -> list:
        if not self.compiled:
            return []
        optimizers = [getattr(self, name) for name in self.trained.values()]
        return [variable for each in optimizers for variable in each.variables]

    # ----------------------------------------------------------------- properties

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

    def _check_bound(self, method: str, compiled: bool = False) -> None:
        if self._run.observation_space is None:
            raise ValueError(
                f"`{method}` needs the env's spaces, which this agent does not know "
                "yet: make it with `from_env(env)`, or call `fit(env)` or "
                "`evaluate(env)` first."
            )
        if compiled and not self.compiled:
            raise ValueError(f"Call `compile()` before `{method}`.")


def _is_function(value: Any) -> bool:
    """A function in any form that Keras sets on a model: partials, `tf.function`s."""
    return isinstance(value, functools.partial) or hasattr(value, "python_function")


def _or(value: Any, default: Any) -> Any:
    """Not Python's `or`, which would replace an empty memory, whose length is 0."""
    return default if value is None else value


def _expand(leaf: Any) -> Any:
    if isinstance(leaf, dict):
        return {name: np.asarray(part)[None] for name, part in leaf.items()}
    return None if leaf is None else np.asarray(leaf)[None]
