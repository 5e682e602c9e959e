"""The two acts: which load, for how long; the short one is for the tests."""

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
SHORT_TREAD_S = 20.0


def parts(*, short: bool = False) -> tuple[Part, ...]:
    """The parts of the demo."""
    tread_s = SHORT_TREAD_S if short else TREAD_S
    return (
        gpt3(SHORT_GPT3_RATES if short else GPT3_RATES, tread_s),
        chat(SHORT_CHAT_RATES if short else CHAT_RATES, tread_s),
    )


def steady() -> tuple[Part, ...]:
    """An hour of the first tread, for a demo that is kept."""
    return gpt3(GPT3_RATES[:1], 3600.0), chat(CHAT_RATES[:1], 3600.0)


def gpt3(rates_per_s: tuple[float, ...], tread_s: float) -> Part:
    """The book's service under a staircase."""
    return Part("gpt3", tuple(RateStep(tread_s, rate) for rate in rates_per_s))


def chat(rates_per_s: tuple[float, ...], tread_s: float) -> Part:
    """The chat service under a staircase."""
    steps = tuple(RateStep(tread_s, rate) for rate in rates_per_s)
    return Part("chat", steps, CHAT_OUTPUT, CHAT_PROMPT)
