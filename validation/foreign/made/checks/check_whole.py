import pytest

pytest.skip("nothing of this file is for this machine", allow_module_level=True)
