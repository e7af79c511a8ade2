"""What is looked after inside of the compiled loop: gradients that stop, or explode."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x import DQN
from tests.agents.contract import online
from tests.agents.contract import optimizer_values
from tests.agents.contract import same
from tests.agents.contract import values
from tests.agents.walk import Walk

EAGER, XLA = {"run_eagerly": True}, {"jit_compile": True}


def state(agent):
    return [*values(agent), *optimizer_values(agent)]


def stack_of(case, bad=None, count=8, **changes):
    """`count` minibatches of 16 rows; fields of the one numbered `bad` are changed."""
    batches = [case.transitions(seed=i)._replace(index=None) for i in range(count)]
    if bad is not None:
        batches[bad] = batches[bad]._replace(**changes)
    leaves = zip(*batches, strict=True)
    return type(batches[0])(
        *(None if leaf[0] is None else np.stack(leaf) for leaf in leaves)
    )


def stack_in_units(agent, case):
    stack = stack_of(case)
    return stack._replace(action=agent.action_units.to_network(stack.action))


def huge(value=1e38):
    return {"reward": np.full(16, value, np.float32)}


@pytest.mark.parametrize(
    ("bad", "mode"), [(3, {}), (5, XLA), (0, EAGER), (7, EAGER), (2, EAGER)]
)
def test_a_loss_that_is_no_number_ends_with_the_weights_before_it(case, bad, mode):
    loss = keras.losses.MeanSquaredError()
    agent = case.compiled(loss=loss, **mode)
    twin = case.compiled(loss=loss, **mode)
    with pytest.raises(FloatingPointError, match="the loss is inf") as caught:
        agent.train_on_batch(stack_of(case, bad, **huge()))
    if bad:
        twin.train_on_batch(stack_of(case, count=bad))
    assert same(state(agent), state(twin))
    assert agent.gradient_steps == bad
    text = str(caught.value)
    assert f"gradient step {bad + 1} " in text
    assert "`reward` of the minibatch holds 1e+38 (row 0)" in text


def test_training_goes_on_after_it(case):
    agent = case.compiled(loss=keras.losses.MeanSquaredError())
    with pytest.raises(FloatingPointError):
        agent.train_on_batch(stack_of(case, 3, **huge()))
    before = state(agent)
    agent.train_on_batch(stack_of(case))
    assert agent.gradient_steps == 3 + 8
    assert not same(before, state(agent))
    assert all(np.isfinite(value).all() for value in state(agent))


def test_a_gradient_that_is_no_number_is_found_though_the_loss_is_finite(case):
    def root(y_true, y_pred):
        # Zero at every row, with the slope of a root at zero.
        return keras.ops.sqrt(keras.ops.abs(0.0 * y_pred[..., 0]))

    agent = case.compiled(loss=root)
    before = state(agent)
    name = next(iter(online(agent)))
    text = f"loss is finite, but the gradient of '{name}/.*' is not.*root of zero"
    with pytest.raises(FloatingPointError, match=text):
        agent.train_on_batch(stack_of(case))
    assert same(before, state(agent))


def test_fit_names_the_steps_and_keeps_what_it_had(case):
    class Flash(gym.RewardWrapper):
        count = 0

        def reward(self, reward):
            self.count += 1
            return 1e30 if self.count == 60 else reward

    agent = case.compiled(loss=keras.losses.MeanSquaredError())
    with pytest.raises(FloatingPointError, match=r"holds 1e\+30.*Scale or clip it"):
        agent.fit(
            Flash(case.env()), steps_per_epoch=200, batch_size=16, seed=1, verbose=0
        )
    assert agent.env_steps > 60
    assert agent.gradient_steps > 0
    assert all(np.isfinite(value).all() for value in state(agent))


def test_a_layer_whose_output_is_no_number_is_named():
    class Inverse(keras.layers.Layer):
        def call(self, x):
            return 1.0 / x

    env = Walk("discrete")
    inputs = keras.Input((3,))
    x = keras.layers.Dense(4, name="first", activation="relu")(inputs)
    x = Inverse(name="inverse")(x)
    agent = DQN(keras.Model(inputs, keras.layers.Dense(3)(x)))
    agent.compile(warmup_steps=16, jit_compile=False)
    with pytest.raises(FloatingPointError, match="is 'inverse' of `network`"):
        agent.fit(env, steps_per_epoch=40, batch_size=16, seed=1, verbose=0)


@pytest.mark.parametrize("mode", [{}, XLA, EAGER])
def test_the_values_of_before_are_those_of_before(case, mode):
    agent = case.compiled(**mode)
    agent.train_on_batch(stack_of(case))
    expected = [variable.numpy() for variable in agent._state_variables()]
    step = np.arange(1, 9)
    *_, before = agent.engine.learn(stack_in_units(agent, case), step, step - 1, 8)
    assert same(expected, [np.asarray(value) for value in before])
    assert not same(expected, [v.numpy() for v in agent._state_variables()])


def test_the_reason_is_told_when_no_gradient_arrives():
    class Argmax(DQN):
        def train_step(self, batch):
            with tf.GradientTape() as tape:
                action = tf.argmax(self.network(batch.observation), axis=-1)
                values = tf.cast(action, tf.float32)[:, None]
                loss = self.compute_loss(y=batch.reward[:, None], y_pred=values)
            self.apply_gradients(tape, loss, self.network)
            return self.track(loss=loss)

    agent = Argmax.from_env(Walk("discrete"), hidden=(4,), seed=1)
    agent.compile(warmup_steps=16)
    before = state(agent)
    with pytest.raises(ValueError, match=r"(?s)any variable.*Why:.*cut by argmax.*"):
        agent.fit(Walk("discrete"), steps_per_epoch=8, batch_size=8, verbose=0)
    assert same(before, state(agent))
