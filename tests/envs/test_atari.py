import ale_py
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from keras_rl2x.envs import EnvStepper
from keras_rl2x.envs import atari
from keras_rl2x.envs import make_atari
from keras_rl2x.envs.stepper import frame_stack

gym.register_envs(ale_py)


class FakeAtari(gym.vector.VectorEnv):
    """Three envs with scripted rewards and lives; episodes end with the last life."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    rewards = np.array([[4.0, -7.0, 0.0], [0.0, 2.0, -1.0], [1.0, 1.0, 1.0]])
    lives = np.array([[3, 2, 2], [2, 2, 2], [2, 1, 3]])
    ends = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 1]], bool)

    def __init__(self, mode=AutoresetMode.SAME_STEP):
        self.num_envs, self.t = 3, 0
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = gym.spaces.Box(0, 255, (4, 8, 8), np.uint8)
        self.single_action_space = gym.spaces.Discrete(2)

    def _observation(self):
        return np.full((3, 4, 8, 8), self.t, np.uint8)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._observation(), {"lives": np.array([3, 3, 2])}

    def step(self, actions):
        t, self.t = self.t, self.t + 1
        info = {"lives": self.lives[t], "final_obs": self._observation() + 100}
        none = np.zeros(3, bool)
        return self._observation(), self.rewards[t], self.ends[t], none, info


@pytest.fixture
def emulators(monkeypatch):
    """Arguments with which ale-py's class was called; there is no emulator."""
    calls = []

    class Recorder(FakeAtari):
        def __init__(self, *args, **kwargs):
            calls.append((args, kwargs))
            super().__init__()

    monkeypatch.setattr(ale_py.vector_env, "AtariVectorEnv", Recorder)
    return calls


def played(clip_rewards=True, terminal_on_life_loss=True):
    env = atari.AtariLearningSignal(
        FakeAtari(), clip_rewards, terminal_on_life_loss, {}
    )
    stepper = EnvStepper(env)
    stepper.reset()
    return [stepper.step(np.zeros(3, int)) for _ in range(3)]


def test_rewards_are_clipped_for_learning_and_raw_in_the_log():
    outcomes = played()
    learned = np.array([outcome.step.reward for outcome in outcomes])
    logged = np.array([outcome.reward for outcome in outcomes])
    np.testing.assert_array_equal(learned, np.sign(FakeAtari.rewards))
    np.testing.assert_array_equal(logged, FakeAtari.rewards)


def test_without_clipping_the_raw_reward_is_learned():
    learned = [outcome.step.reward for outcome in played(clip_rewards=False)]
    np.testing.assert_array_equal(learned, FakeAtari.rewards)


def test_a_lost_life_is_an_end_for_learning_only():
    outcomes = played()
    terminated = np.array([outcome.step.terminated for outcome in outcomes])
    ended = np.array([outcome.ended for outcome in outcomes])
    lost = [[0, 1, 0], [1, 0, 0], [0, 1, 1]]  # the last one: the game is over
    np.testing.assert_array_equal(terminated, lost)
    np.testing.assert_array_equal(ended, FakeAtari.ends)
    # The game goes on: the next frame, not a final one.
    assert (outcomes[0].step.next_observation == 1).all()
    assert (outcomes[2].step.next_observation[2] == 103).all()
    assert (outcomes[2].step.next_observation[:2] == 3).all()


def test_lives_do_not_matter_unless_asked_for():
    outcomes = played(terminal_on_life_loss=False)
    terminated = [outcome.step.terminated for outcome in outcomes]
    np.testing.assert_array_equal(terminated, FakeAtari.ends)


def test_evaluation_and_training_get_the_same_emulator(emulators):
    """The emulator itself never clips, and never ends at a lost life."""
    make_atari("pong", clip_rewards=True, terminal_on_life_loss=True)
    (game, num_envs), kwargs = emulators[0]
    assert (game, num_envs) == ("pong", 1)
    assert kwargs["reward_clipping"] is False
    assert kwargs["episodic_life"] is False
    assert kwargs["repeat_action_probability"] == 0.25
    assert kwargs["frameskip"] == 4
    assert kwargs["noop_max"] == 30


def test_the_recipe_on_the_real_emulator():
    env = make_atari("ALE/Breakout-v5", num_envs=2)
    assert env.single_observation_space.shape == (4, 84, 84)
    assert env.single_observation_space.dtype == np.uint8
    assert env.single_action_space.n == 4
    assert frame_stack(env) == 4
    stepper = EnvStepper(env)
    assert stepper.mode == AutoresetMode.SAME_STEP
    stepper.reset(seed=1)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(250):
        outcome = stepper.step(rng.integers(4, size=2))
        step, ends = outcome.step, ends + outcome.ended.sum()
        # Stacked by four: three frames stay, within an episode.
        np.testing.assert_array_equal(
            step.observation[:, 1:], step.next_observation[:, :-1]
        )
    assert ends >= 1  # also at the end the final frames are those of the old game
    env.close()


def test_frames_are_skipped_once():
    """A game cut after 400 frames takes 100 steps of 4 frames, not 25."""
    env = make_atari("pong", noop_max=0, max_num_frames_per_episode=400)
    stepper = EnvStepper(env)
    stepper.reset(seed=0)
    lengths, length = [], 0
    while len(lengths) < 2:
        outcome = stepper.step(np.zeros(1, np.int64))
        length += 1
        if outcome.ended[0]:
            assert outcome.step.truncated[0]
            lengths.append(length)
            length = 0
    env.close()
    assert all(90 <= length <= 101 for length in lengths), lengths


def test_a_seed_repeats_the_game_and_sticky_actions_are_an_argument():
    def trace(sticky, seed):
        env = make_atari("pong", sticky_actions=sticky, noop_max=1)
        stepper = EnvStepper(env)
        stepper.reset(seed=seed)
        pictures = []
        for t in range(30):
            step = stepper.step(np.array([2 + t // 2 % 2])).step
            pictures.append(step.next_observation[0, -1])
        env.close()
        return np.array(pictures)

    sticky = trace(0.25, 3)
    np.testing.assert_array_equal(sticky, trace(0.25, 3))
    assert (sticky != trace(0.25, 4)).any()
    assert (sticky != trace(0.0, 3)).any()


def test_the_protocol_says_all_that_a_score_depends_on():
    env = make_atari("ALE/Pong-v5", 2, terminal_on_life_loss=True, sticky_actions=0.0)
    text = env.describe()
    env.close()
    said = dict(line.split("  ", 1) for line in text.splitlines())
    said = {key.strip(): value.strip() for key, value in said.items()}
    assert said == {
        "game": "pong",
        "environments": "2",
        "observation": "4 grey frames of 84×84, uint8",
        "frame skip": "4, maximum of the last two frames",
        "sticky actions": "0.0",
        "no-ops at start": "0 to 30",
        "fire at start": "True",
        "actions": "6",
        "episode": "full game; truncated after 108,000 frames",
        "reported score": "raw game score",
        "learned reward": "sign of the reward",
        "lost life": "an end for learning",
    }


@pytest.mark.parametrize(
    ("game", "rom"),
    [
        ("ALE/Pong-v5", "pong"),
        ("pong", "pong"),
        ("ALE/MsPacman-v5", "ms_pacman"),
        ("MsPacmanNoFrameskip-v4", "ms_pacman"),
        ("PongDeterministic-v4", "pong"),
        ("space_invaders", "space_invaders"),
        ("ALE/TicTacToe3D-v5", "tic_tac_toe_3d"),
    ],
)
def test_names_of_games(game, rom, emulators):
    make_atari(game)
    assert emulators[0][0] == (rom, 1)


def test_every_game_of_ale_py_is_known_by_its_id(emulators):
    ids = [x for x in gym.registry if x.startswith("ALE/") and x.endswith("-v5")]
    assert len(ids) > 100
    for name in ids:
        make_atari(name)
    roms = {args[0] for args, _ in emulators}
    assert len(roms) == len(ids)
    assert roms <= set(ale_py.roms.get_all_rom_ids())


@pytest.mark.parametrize("game", ["ALE/Pongg-v5", "CartPole-v1", ""])
def test_an_unknown_game_is_named(game):
    with pytest.raises(ValueError, match=f"Unknown Atari game: '{game}'.*ALE/Pong-v5"):
        make_atari(game)
