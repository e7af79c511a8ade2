"""Answers to "why does it not learn?", for agents and for any Keras code."""

from keras_rl2x.diagnostics.explain_gradients import explain_gradients
from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.health import Health

__all__ = ["Finding", "Health", "explain_gradients"]
