"""From which document length attention costs more than everything else of a layer."""

import pytest

from workbench import analyze
from workbench.errors import WorkbenchError


def test_flops_alone_put_it_later():
    assert analyze.crossover_from_flops(hidden_size=4096, ffn_size=11_008) == 49_408
    with pytest.raises(WorkbenchError, match="above 0"):
        analyze.crossover_from_flops(hidden_size=0, ffn_size=1)
