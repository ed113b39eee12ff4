"""SmolLM2 with the bundled drafters; skipped if the model is not on this machine (``make target``)."""

from __future__ import annotations

import pytest

from d2sd import METHODS, DecodeConfig, load
from d2sd.folders.model_sets import BUNDLED
from d2sd.folders.store import REMOTE, downloaded, home
from d2sd.nets.dtypes import can_mix

# Settings of a run on the page, and of a timed run.
RUNS = {
    "Why is the sky blue?": {},
    "What is 17 plus 25?": {"block_size": 6, "num_branches": 2, "inspect": False},
}
DRAFTERS = BUNDLED / "smollm2"
NEW_TOKENS = 8
WHERE, TARGET = home().parent, downloaded("smollm2")  # read before the tests set D2SD_HOME

pytestmark = pytest.mark.skipif(
    TARGET is None, reason=f"{REMOTE['smollm2'].title} is not here; get it with: d2sd get smollm2"
)


@pytest.fixture(autouse=True)
def real_home(monkeypatch):
    monkeypatch.setenv("D2SD_HOME", str(WHERE))


@pytest.fixture(scope="module")
def smollm2():
    if not (DRAFTERS / "dflash").is_dir():
        pytest.skip("there are no drafters for it in assets/models/smollm2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D2SD_HOME", str(WHERE))
        return load("smollm2")


@pytest.mark.parametrize(("prompt", "settings"), RUNS.items(), ids=RUNS)
def test_smollm2_text_equals_plain_decoding(smollm2, prompt, settings):
    """Each run tests half of the methods."""
    plain = smollm2.generate(prompt, DecodeConfig("autoregressive", NEW_TOKENS, chat=True)).token_ids
    methods = [m for m in METHODS if m != "autoregressive" and smollm2.obstacle(m) is None]
    assert len(methods) > 1
    for method in methods[list(RUNS).index(prompt) :: len(RUNS)]:
        assert smollm2.generate(prompt, DecodeConfig(method, NEW_TOKENS, chat=True, **settings)).token_ids == plain, (
            method
        )


def test_smollm2_dtype_is_mixed_on_cpu_by_default(smollm2):
    assert smollm2.models.target.numbers == ("mixed" if can_mix() else "float32")
