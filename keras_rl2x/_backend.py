"""Checks the backend of Keras; imported before anything else of the package."""

import os

_name = os.environ.get("KERAS_BACKEND") or "tensorflow"
if _name == "tensorflow":
    import keras

    _name = keras.backend.backend()
if _name != "tensorflow":
    raise ImportError(
        f"keras_rl2x needs the TensorFlow backend of Keras, but it is {_name!r}. Set "
        "the environment variable KERAS_BACKEND=tensorflow (or unset it) before the "
        "first `import keras`."
    )
