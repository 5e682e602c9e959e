"""The two acts: which load, for how long; the short one is for the tests."""

from collections.abc import Sequence

from sojourn.decide.lengths import output_law
from sojourn.facts.declaration import DeclaredTokens
from sojourn.facts.service_time import TokenLengths
from sojourn.simulate.load import RateStep
from tests.e2e.demo.stage import Part

# As declared in manifests/chat.yaml.
CHAT_OUTPUT = output_law(DeclaredTokens(64.0, 160.0))
CHAT_PROMPT = TokenLengths(128.0)

# A replica of GPT-3 carries 148 requests/s. Each tread up brings the load of the replicas that run
# to about 0.95: above the table's 0.85, below the point where a queue would outlive the tread.
GPT3_RATES = (60.0, 140.0, 280.0, 420.0, 200.0, 60.0)
# A replica of chat carries 68 requests/s at max batch 128, which the operator sets at its start.
CHAT_RATES = (12.0, 30.0, 62.0, 125.0, 40.0, 12.0)
SHORT_GPT3_RATES = (60.0, 140.0, 60.0)
SHORT_CHAT_RATES = (12.0, 62.0, 12.0)
TREAD_S = 26.0
# Up quickly, and down long enough for the stabilisation window to pass.
SHORT_TREADS_S = (12.0, 18.0, 24.0)


def parts(*, short: bool = False) -> tuple[Part, ...]:
    """The parts of the demo."""
    if short:
        return gpt3(SHORT_GPT3_RATES, SHORT_TREADS_S), chat(SHORT_CHAT_RATES, SHORT_TREADS_S)
    treads_s = (TREAD_S,) * len(GPT3_RATES)
    return gpt3(GPT3_RATES, treads_s), chat(CHAT_RATES, treads_s)


def steady() -> tuple[Part, ...]:
    """An hour of the first tread, for a demo that is kept."""
    return gpt3(GPT3_RATES[:1], (3600.0,)), chat(CHAT_RATES[:1], (3600.0,))


def gpt3(rates_per_s: Sequence[float], treads_s: Sequence[float]) -> Part:
    """The book's service under a staircase: a rate and a duration a tread."""
    return Part("gpt3", _steps(rates_per_s, treads_s))


def chat(rates_per_s: Sequence[float], treads_s: Sequence[float]) -> Part:
    """The chat service under a staircase: a rate and a duration a tread."""
    return Part("chat", _steps(rates_per_s, treads_s), CHAT_OUTPUT, CHAT_PROMPT)


def _steps(rates_per_s: Sequence[float], treads_s: Sequence[float]) -> tuple[RateStep, ...]:
    pairs = zip(treads_s, rates_per_s, strict=True)
    return tuple(RateStep(tread_s, rate) for tread_s, rate in pairs)
