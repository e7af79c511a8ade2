"""Write your own algorithm: Munchausen DQN, from the paper, on the base class.

The agent adds the log-probability of its own action to the reward and backs up a soft
value in place of the maximum (Vieillard, Pietquin and Geist, "Munchausen reinforcement
learning", 2020). The rest, from the environment to saving, comes from `Agent`. Stops
once the pole is balanced; under a minute on two CPU cores.
"""

import argparse

import gymnasium as gym
import keras
import tensorflow as tf

from keras_rl2x import Agent
from keras_rl2x import networks
from keras_rl2x import ops
from keras_rl2x.callbacks import StopAtReturn
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.exploration import EpsilonGreedy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--steps-per-epoch", type=int, default=1_000)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()


@keras.saving.register_keras_serializable(package="examples")
class MunchausenDQN(Agent):
    trained = {"network": "optimizer"}  # what learns, and by which optimizer
    targets = {"network": "target_network"}  # what follows it

    def __init__(self, network, temperature=0.03, scale=0.9, floor=-1.0, **kwargs):
        super().__init__(**kwargs)
        self.network, self.target_network = network, None
        self.temperature, self.scale, self.floor = temperature, scale, floor

    def policy(self, observation, training=False):
        return self.network(observation, training=training)

    def train_step(self, batch):
        # Policies are softmaxes of the target network; log-probabilities stay finite.
        next_q = self.target_network(batch.next_observation, training=False)  # [B, A]
        next_log_pi = tf.nn.log_softmax(next_q / self.temperature)
        soft = next_q - self.temperature * next_log_pi
        next_values = tf.reduce_sum(tf.exp(next_log_pi) * soft, axis=1)  # [B]
        q = self.target_network(batch.observation, training=False)
        log_pi = ops.select(tf.nn.log_softmax(q / self.temperature), batch.action)
        bonus = tf.clip_by_value(self.temperature * log_pi, self.floor, 0.0)
        reward = batch.reward + self.scale * bonus
        targets = ops.td_target(reward, batch.discount, next_values)

        with tf.GradientTape() as tape:
            q_values = self.network(batch.observation, training=True)
            values = ops.select(q_values, batch.action)
            loss = self.compute_loss(y=targets[:, None], y_pred=values[:, None])
        self.apply_gradients(tape, loss, self.network)
        self.update_targets()
        return self.track(loss=loss, q_value=values, munchausen_bonus=bonus)

    def get_config(self):
        own = {name: getattr(self, name) for name in ("temperature", "scale", "floor")}
        network = self.serialize_network(self.network)
        return {**super().get_config(), "network": network, **own}


env, eval_env = gym.make("CartPole-v1"), gym.make("CartPole-v1")
network = networks.q_network(env.observation_space, 2, seed=args.seed)
agent = MunchausenDQN(network, temperature=0.1)
agent.compile(optimizer=keras.optimizers.Adam(1e-3), exploration=EpsilonGreedy(0.05))
agent.fit(
    env,
    epochs=args.epochs,
    steps_per_epoch=args.steps_per_epoch,
    validation_data=eval_env,
    callbacks=[TargetUpdate(tau=0.01), StopAtReturn(475)],
    seed=args.seed,
    verbose=2,
)
agent.save("munchausen.keras")
agent = keras.saving.load_model("munchausen.keras")
score = agent.evaluate(eval_env, episodes=20, seed=args.seed)
print(f"Mean return over 20 episodes: {score['episode_return']:.0f}")
