"""What the programs of this folder check with."""


def raised(call, kind, *words):
    """Checks that `call` raises a `kind` with all the words, and returns it."""
    try:
        call()
    except kind as error:
        assert all(each in str(error) for each in words), error
        return error
    raise AssertionError(f"no {kind.__name__}")
