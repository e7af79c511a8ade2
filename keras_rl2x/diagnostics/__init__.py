"""Answers to "why does it not learn?", for any Keras code."""

from keras_rl2x.diagnostics.explain_gradients import explain_gradients

__all__ = ["explain_gradients"]
