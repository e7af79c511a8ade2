import pytest
import tensorflow as tf


@pytest.fixture(params=["eager", "graph", "xla"])
def run(request):
    """Calls a function on constants, eagerly or compiled, and returns NumPy."""

    def call(function, *args):
        args = [tf.convert_to_tensor(arg) for arg in args]
        if request.param != "eager":
            function = tf.function(function, jit_compile=request.param == "xla")
        return tf.nest.map_structure(lambda x: x.numpy(), function(*args))

    return call
