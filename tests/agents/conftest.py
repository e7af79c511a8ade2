import pytest

from tests.agents.contract import AGENTS


@pytest.fixture(
    scope="session", params=AGENTS, ids=[case.cls.__name__ for case in AGENTS]
)
def case(request):
    """One of the agents that the contract holds for."""
    return request.param


@pytest.fixture(autouse=True)
def _seeded():
    """Same numbers in every run, also where a test gives no seed."""
    import keras

    keras.utils.set_random_seed(0)
