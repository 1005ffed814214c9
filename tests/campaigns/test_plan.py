"""Which verifications a campaign makes, and which files it refuses."""

from pathlib import Path

import pytest

from symattn import Attention, Rotary
from symattn.campaigns.plan import planned, read
from symattn.document.errors import InputError

PLAN = """
targets = ["a.py:f", { target = "b.py:g", layout = "bhnd", call = ["x=1"] }]
dtypes = ["float32", "bfloat16", "float64"]

[options]
budget = 3
layout = "nd"

[specs.plain]
[specs.rotary]
causal = true
window = [3, 0]
scale = "1/8"
position = "Rotary(base=100)"
call = ["is_causal=true"]
[specs.llama]
like = "llama"

[domains.short]
max-tokens = 9
square = true
[domains.all]
"""


def test_a_file_is_multiplied_out(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, encoding="utf-8")
    jobs = read(path)
    assert len(jobs) == 2 * 3 * 3 * 2
    assert len({job.key for job in jobs}) == len(jobs)
    job = next(j for j in jobs if (j.target, j.spec, j.dtype, j.domain) == ("b.py:g", "rotary", "float64", "short"))
    wanted = Attention(causal=True, window=(3, 0), scale=job.attention[0].scale, position=Rotary(base=100))
    assert job.attention == (wanted, "")
    assert (job.attention[0].scale, job.attention[0].position) == (1 / 8, Rotary(base=100))
    assert job.options == {"budget": 3, "layout": "bhnd", "call": ["is_causal=true"]}
    assert job.promised == {"max_tokens": 9, "square": True}
    llama, cut = next(j for j in jobs if j.spec == "llama").attention
    assert (llama.heads, llama.kv_heads) == (8, 2)
    assert "are cut" in cut


def test_keys_speak_of_everything_that_a_result_depends_on() -> None:
    def key(spec: object = {}, dtype: str = "float32", domain: object = {}, **options: object) -> str:
        return planned(["a.py:f"], {"s": spec}, [dtype], {"d": domain}, options)[0].key

    others = [key({"causal": True}), key(dtype="float16"), key(domain={"square": True}), key(seed=1)]
    assert len({key(), *others}) == 5
    assert key() == key()
    assert len(planned(["a.py:f", "a.py:f"], {}, ["float32"], {}, {})) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs a target"),
        ("targets = 'a.py:f'", "must be a list"),
        ("targets = ['attn.py']", "entry 1 names no target"),
        ("target = ['a.py:f']", "Did you mean 'targets'"),
        ("targets = ['a.py:f']\ndtypes = ['float31']", "'float31' is unknown"),
        ("targets = ['a.py:f']\nspecs = 3", "specs must be a table, got 3"),
        ("targets = ['a.py:f']\n[specs.x]\ncasual = true", "Did you mean 'causal'"),
        ("targets = ['a.py:f']\n[specs.x]\ncausal = 'perhaps'", "specs.x.causal"),
        ("targets = ['a.py:f']\n[specs.x]\nlike = 'nosuch'", "unknown model"),
        ("targets = ['a.py:f']\n[specs.x]\nwindow = 0", "window"),
        ("targets = ['a.py:f']\n[specs.x]\ncall = 'x=1'", "call is 'x=1'"),
        ("targets = ['a.py:f']\n[options]\nbudget = 'long'", "budget is 'long'"),
        ("targets = ['a.py:f']\n[options]\nbudget = nan", "budget must be a number of seconds above 0, got nan"),
        ("targets = ['a.py:f']\n[specs.x]\ntime_limit = 0", "time-limit must be a number of seconds above 0, got 0"),
        ("targets = ['a.py:f']\n[domains.x]\nmax_tokens = 0", "max_tokens must be an integer of at least 1, got 0"),
        ("targets = ['a.py:f']\n[domains.x]\nmax_tokens = 'many'", "must be an integer"),
        ("targets = [", "is not valid TOML"),
    ],
)
def test_what_means_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.toml")
