from contextlib import contextmanager


@contextmanager
def forbid():
    print("watching")
    yield
    print("not watching")
