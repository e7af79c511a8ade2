"""The standard Atari recipe."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode


class AtariLearningSignal(gym.vector.VectorWrapper):
    """Clips rewards and ends at lost lives for learning only.

    Observations, rewards and ends that the env returns stay raw, so that what is
    logged is the game's full score; agents learn from `learning_signal`.

    Args:
        env: ale-py's vector environment.
        clip_rewards: learn from the sign of the reward.
        terminal_on_life_loss: learn that a lost life is an end.
        protocol: what `describe` says.
    """

    def __init__(
        self,
        env: gym.vector.VectorEnv,
        clip_rewards: bool,
        terminal_on_life_loss: bool,
        protocol: dict[str, Any],
    ):
        super().__init__(env)
        self.clip_rewards = clip_rewards
        self.terminal_on_life_loss = terminal_on_life_loss
        self.protocol = protocol
        self._lives = np.zeros(env.num_envs, int)

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives = np.array(info["lives"])
        return observation, info

    def step(self, actions):
        result = self.env.step(actions)
        self._lives_before, self._lives = self._lives, np.array(result[-1]["lives"])
        return result

    def learning_signal(
        self,
        reward: np.ndarray,
        terminated: np.ndarray,
        ghost: np.ndarray,
        info: dict[str, Any],
    ) -> tuple[np.ndarray, np.ndarray]:
        """What to learn from the last step: `(reward, terminated)`, both `[N]`."""
        if self.clip_rewards:
            reward = np.sign(reward)
        if self.terminal_on_life_loss:
            terminated = terminated | ((self._lives < self._lives_before) & ~ghost)
        return reward, terminated

    def describe(self) -> str:
        """The evaluation protocol, one setting a line: print it beside any score."""
        width = max(map(len, self.protocol))
        return "\n".join(f"{k:<{width}}  {v}" for k, v in self.protocol.items())


def make_atari(
    game: str = "ALE/Pong-v5",
    num_envs: int = 1,
    *,
    sticky_actions: float = 0.25,
    frame_skip: int = 4,
    frame_stack: int = 4,
    noop_max: int = 30,
    clip_rewards: bool = True,
    terminal_on_life_loss: bool = False,
    fire_reset: bool = True,
    full_action_space: bool = False,
    size: int = 84,
    **kwargs: Any,
) -> AtariLearningSignal:
    """ale-py's C++ vector environment with the standard preprocessing.

    Grey frames of 84×84, the brighter of the last two of each 4, stacked by 4 as
    `(4, 84, 84)` uint8; random no-ops at the start; an episode is a full game, cut
    (truncated) after 108 000 frames. Frames are skipped once, here: do not add
    `AtariPreprocessing`. Reward clipping and lost lives change only what is learned
    from, so `episode_return` is the game's own score.

    Source: Mnih et al., 2015; Machado et al., "Revisiting the Arcade Learning
    Environment", 2018 (whose sticky actions are the default, as in `ALE/*-v5`).

    Args:
        game: `"ALE/Pong-v5"`, or ale-py's own name `"pong"`.
        num_envs: environments that step together.
        sticky_actions: probability that an action is repeated in place of the new
            one; `0.0` gives the protocol of the Nature paper.
        frame_skip: frames per step.
        frame_stack: frames per observation.
        noop_max: most no-ops at the start of an episode.
        clip_rewards: learn from the reward's sign.
        terminal_on_life_loss: learn that a lost life is an end.
        fire_reset: press FIRE at the start where the game waits for it.
        full_action_space: all 18 actions in place of those that the game uses.
        size: height and width in pixels.
        **kwargs: further arguments of `ale_py.vector_env.AtariVectorEnv`.

    Returns:
        A vector env; `env.describe()` prints the protocol.

    Raises:
        ImportError: if ale-py is missing.
        ValueError: for an unknown game.

    Example:
    ```python
    env = make_atari("ALE/Pong-v5", num_envs=8)
    print(env.describe())
    ```
    """
    try:
        from ale_py import roms
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        raise ImportError("Atari needs ale-py: `pip install ale-py`.") from error

    rom = _rom_name(game, roms.get_all_rom_ids())
    kwargs.setdefault("autoreset_mode", AutoresetMode.SAME_STEP)
    env = AtariVectorEnv(
        rom,
        num_envs,
        repeat_action_probability=sticky_actions,
        frameskip=frame_skip,
        stack_num=frame_stack,
        noop_max=noop_max,
        use_fire_reset=fire_reset,
        full_action_space=full_action_space,
        img_height=size,
        img_width=size,
        reward_clipping=False,
        episodic_life=False,
        **kwargs,
    )
    protocol = {
        "game": rom,
        "environments": num_envs,
        "observation": f"{frame_stack} grey frames of {size}×{size}, uint8",
        "frame skip": f"{frame_skip}, maximum of the last two frames",
        "sticky actions": sticky_actions,
        "no-ops at start": f"0 to {noop_max}",
        "fire at start": fire_reset,
        "actions": int(env.single_action_space.n),
        "episode": "full game; truncated after "
        f"{kwargs.get('max_num_frames_per_episode', 108_000):,} frames",
        "reported score": "raw game score",
        "learned reward": "sign of the reward" if clip_rewards else "raw",
        "lost life": "an end for learning" if terminal_on_life_loss else "not an end",
    }
    return AtariLearningSignal(env, clip_rewards, terminal_on_life_loss, protocol)


def _rom_name(game: str, known: list[str]) -> str:
    """`"ALE/MsPacman-v5"` and `"MsPacmanNoFrameskip-v4"` to `"ms_pacman"`."""
    name = game.split("/")[-1].split("-v")[0]
    name = name.removesuffix("NoFrameskip").removesuffix("Deterministic")
    by_letters = {rom.replace("_", ""): rom for rom in known}
    rom = by_letters.get(name.lower().replace("_", ""))
    if rom is None:
        raise ValueError(
            f"Unknown Atari game: {game!r}. Expected an id such as 'ALE/Pong-v5', or "
            f"one of ale-py's names: {', '.join(sorted(known)[:5])}, …"
        )
    return rom
