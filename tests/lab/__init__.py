import pytest

for module in ("cluster", "services", "service_cases"):
    pytest.register_assert_rewrite(f"{__name__}.{module}")
