"""What must be refused: the error of a call has these words."""
import cleave


def refused(call, *words):
    try:
        call()
    except cleave.CleaveError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"not refused: {words}")
