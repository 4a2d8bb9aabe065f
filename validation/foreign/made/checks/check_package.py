import a_package_that_nobody_has


def test_that_is_never_there():
    assert a_package_that_nobody_has
