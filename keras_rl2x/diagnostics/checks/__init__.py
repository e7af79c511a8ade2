"""What can be wrong, one short function each: from a history to a finding or `None`.

The order is that of cause and effect: of several findings at once the first one is
the root of the others. To add a check, write a function and put it into the list of
its file.
"""

from keras_rl2x.diagnostics.checks import acting
from keras_rl2x.diagnostics.checks import data
from keras_rl2x.diagnostics.checks import gradients
from keras_rl2x.diagnostics.checks import networks
from keras_rl2x.diagnostics.checks import targets
from keras_rl2x.diagnostics.checks import values

CHECKS = (
    gradients.gradient_missing,
    *data.CHECKS,
    *networks.CHECKS,
    *acting.SETTINGS,
    *targets.CHECKS,
    *gradients.CHECKS,
    *networks.OUTCOMES,
    *values.CHECKS,
    *acting.OUTCOMES,
)

__all__ = ["CHECKS"]
