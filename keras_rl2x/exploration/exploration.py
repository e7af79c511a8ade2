"""What every exploration rule shares."""

from collections.abc import Callable
from typing import Any
from typing import ClassVar

import numpy as np


class Exploration:
    """Turns what the policy network says into actions to try.

    A rule receives the network's output and the env step, never an agent. The
    output comes as a function, so that a rule that needs no forward pass (a
    random action) costs none.

    Subclasses define `__call__` and `get_config`.

    Attributes:
        actions: `"discrete"` or `"continuous"`, what it chooses; `None` for both.
    """

    actions: ClassVar[str | None] = None

    def __call__(
        self,
        policy: Callable[[], np.ndarray],
        step: int,
        rng: np.random.Generator,
        action_mask: np.ndarray | None = None,
    ) -> np.ndarray:
        """Chooses one action for each of N environments.

        Args:
            policy: returns `[N, A]`: Q-values, or actions in `[-1, 1]`.
            step: env steps taken so far, which schedules are read at.
            rng: source of randomness.
            action_mask: `[N, A]` bool or `None`, actions that are allowed.

        Returns:
            `[N]` int (discrete) or `[N, A]` float in `[-1, 1]` (continuous).
        """
        raise NotImplementedError

    def reset(self, ended: np.ndarray) -> None:
        """Called after each step with `[N]` bool, where an episode has ended."""

    def values(self, step: int) -> dict[str, float]:
        """Numbers for the logs, such as `{"epsilon": 0.1}`."""
        return {}

    def get_state(self) -> dict[str, Any]:
        """What the next action depends on besides the arguments, JSON-ready."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave."""

    def __repr__(self) -> str:
        def plain(value: Any) -> Any:
            return value["class_name"] if isinstance(value, dict) else value

        items = self.get_config().items()
        given = ", ".join(f"{name}={plain(value)}" for name, value in items)
        return f"{type(self).__name__}({given})"

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Exploration":
        """A rule made from `get_config()`."""
        return cls(**config)
