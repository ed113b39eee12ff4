"""SmolLM2 with the bundled drafters; skipped if the model is not on this machine (``make target``)."""

from __future__ import annotations

import pytest

from d2sd import METHODS, DecodeConfig, load
from d2sd.folders.model_sets import BUNDLED
from d2sd.folders.store import REMOTE, downloaded, home
from d2sd.nets.dtypes import can_mix

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


def test_smollm2_text_equals_plain_decoding(smollm2):
    """Settings of a run on the page and of a timed run alternate by method."""
    prompt = "Why is the sky blue?"
    plain = smollm2.generate(prompt, DecodeConfig("autoregressive", NEW_TOKENS, chat=True)).token_ids
    methods = [m for m in METHODS if m != "autoregressive" and smollm2.obstacle(m) is None]
    assert len(methods) > 1
    for number, method in enumerate(methods):
        settings = ({}, {"block_size": 6, "num_branches": 2, "inspect": False})[number % 2]
        trace = smollm2.generate(prompt, DecodeConfig(method, NEW_TOKENS, chat=True, **settings))
        assert trace.token_ids == plain, method
    assert smollm2.models.target.numbers == ("mixed" if can_mix() else "float32")  # the default on CPUs
