"""What people type that is no opening of a story: requests for one, questions, instructions, greetings, other languages.

The answer is always a plain sentence that says what this small model is, or what the story is about, and a real story.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable

from .grammar import fix_articles

_NOUN = re.compile(
    r"\b(?:a|an|the|his|her|their) ([a-z]{3,12})(?=[.,!?]| (?:was|is|and|in|on|to|that|with|had|said|named)\b)"
)
_COMMONEST, _RAREST = 0.08, 20

STORY_REQUESTS = (
    "Tell me a story about a {t}.", "Write a story about a {t}.", "Can you tell me a story about a {t}?",
    "Write a short story about a {t}.", "Tell me a short story about a {t}", "I want to hear a story about a {t}.",
    "Please write a story for children about a {t}.", "A story about a {t}, please.", "Make up a story with a {t} in it.",
    "Write a short children's story about a {t} and its friends.", "Once more: a story about a {t}!",
)  # fmt: skip
TOPIC_QUESTIONS = (
    "What is a {t}?", "Tell me about the {t}.", "Explain how a {t} works.", "Why do people like the {t}?",
    "How do I find a {t}?", "Where can I buy a {t}?", "What can you do with a {t}?", "Write a poem about a {t}.",
    "Describe a {t} in one sentence.", "Is a {t} dangerous?", "What do you know about the {t}?", "Who made the first {t}?",
)  # fmt: skip
TOPIC_ANSWERS = (
    "I do not know much about that, but here is a story with a {t} in it.",
    "I only know little stories. Here is one with a {t} in it.",
    "I am a very small model and I only know stories. This one has a {t} in it.",
)
STRANGE_ANSWERS = (
    "I am a very small model and I do not know that. Here is a little story instead.",
    "I do not know the answer. I can tell you a little story instead.",
    "That is too hard for me. I am a very small model, but I can tell a story.",
    "I only know children's stories, small sums and small Python functions. Here is a story.",
)
GREETINGS = (
    "Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hi there!", "Hey", "Hey!", "Hello, how are you?", "Hi, how are you?",
    "How are you?", "How are you today?", "Good morning", "Good morning!", "Good evening!", "Hello there!", "Hello, world!",
    "Nice to meet you.", "What's up?", "Hello, who are you?", "Who are you?", "What are you?", "What can you do?", "Help",
    "Help me", "Can you help me?", "What is your name?", "Are you a robot?", "Are you an AI?", "test", "Test", "ok", "Thanks!",
    "Thank you", "Tell me a story.", "Tell me a story", "Write a story.", "Tell me something.", "Say something.", "Tell me a joke.",
)  # fmt: skip
GREETING_ANSWERS = (
    "Hello! I am a very small model. I can tell you a little story.",
    "Hello! I know children's stories, small sums and small Python functions. Here is a story.",
    "Hello! I am happy to see you. Here is a little story for you.",
)
LANGUAGE_ANSWERS = (
    "I can only read plain English. Here is a little story in English.",
    "I do not know this language. Here is a little story in English.",
)
_TOPICS = (
    "photosynthesis", "gravity", "climate change", "the French Revolution", "black holes", "inflation", "machine learning",
    "quantum computers", "the stock market", "vaccines", "electric cars", "democracy", "Shakespeare", "the Roman Empire",
    "volcanoes", "DNA", "the internet", "solar panels", "chess", "yoga", "cooking pasta", "job interviews", "healthy food",
    "better sleep", "time management", "World War II", "global warming", "evolution", "the water cycle", "earthquakes",
    "football", "jazz music", "databases", "neural networks", "Paris", "Japan", "Germany", "the moon landing", "taxes",
    "marketing", "an email to my boss", "public speaking", "learning a language", "the human brain", "renewable energy",
)  # fmt: skip
_STRANGE = (
    "Explain {x}.", "Explain how {x} works.", "What is {x}?", "What do you know about {x}?", "Write an essay about {x}.",
    "Give me three tips about {x}.", "List five facts about {x}.", "How does {x} work?", "Why is {x} important?",
    "Write a short paragraph about {x}.", "Summarize the history of {x}.", "Can you explain {x} to me?", "Who invented {x}?",
    "What are the pros and cons of {x}?", "Describe {x} in simple words.", "How can I learn about {x}?", "When did {x} begin?",
    "Translate a sentence about {x} into French.", "Write a tweet about {x}.", "What is the best book about {x}?",
)  # fmt: skip
_PHRASES = (
    "Bonjour, comment ça va ?", "Hola, ¿cómo estás?", "Guten Tag, wie geht es dir?", "Ciao, come stai?", "Olá, tudo bem?",
    "Erzähl mir eine Geschichte.", "Raconte-moi une histoire.", "Cuéntame un cuento.", "Привет, как дела?", "Расскажи мне сказку.",
    "你好", "你好，请给我讲一个故事。", "今天天气怎么样？", "こんにちは", "お話を聞かせてください。", "안녕하세요", "مرحبا كيف حالك", "שלום",
    "नमस्ते, आप कैसे हैं?", "Γεια σου, τι κάνεις;", "Merhaba, nasılsın?", "Xin chào", "สวัสดี",
)  # fmt: skip
_SCRIPTS = ((0x4E00, 0x9F00), (0x3041, 0x3096), (0xAC00, 0xD7A0), (0x0410, 0x044F), (0x0627, 0x064A), (0x0905, 0x0939),
            (0x03B1, 0x03C9), (0x05D0, 0x05EA), (0x1F600, 0x1F64F), (0x1F300, 0x1F5FF), (0x1F680, 0x1F6C5))  # fmt: skip


def topics_of(stories: Iterable[str]) -> Counter[str]:
    """How many stories speak of each thing ("a dragon", "the kite")."""
    return Counter(noun for story in stories for noun in set(_NOUN.findall(story)))


def with_things(text: str, replacement: Callable[[str], str]) -> str:
    """The text with every thing that it speaks of replaced."""
    return _NOUN.sub(lambda m: m[0][: -len(m[1])] + replacement(m[1]), text)


def topic_of(story: str, common: Counter[str], total: int) -> str | None:
    """The rarest thing that a story names three times or more; None where there is none."""
    here = Counter(_NOUN.findall(story))
    fit = [n for n, count in here.items() if count >= 2 and _RAREST <= common[n] <= _COMMONEST * total]
    return min(fit, key=lambda n: (common[n], n)) if fit else None


def asked_for(story: str, topic: str, rng: random.Random) -> str:
    """A request for a story, or a question about its topic, with the story as the answer."""
    if rng.random() < 0.6:
        return fix_articles(rng.choice(STORY_REQUESTS).format(t=topic)) + "\n" + story
    question, answer = rng.choice(TOPIC_QUESTIONS), rng.choice(TOPIC_ANSWERS)
    return fix_articles(question.format(t=topic)) + "\n" + fix_articles(answer.format(t=topic)) + "\n" + story


def strange(instructions: list[str], rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """Something typed that the model cannot do, and the sentences that may answer it."""
    draw = rng.random()
    if draw < 0.3:
        return rng.choice(GREETINGS), GREETING_ANSWERS
    if draw < 0.45:
        return _other_script(rng), LANGUAGE_ANSWERS
    if draw < 0.7:
        return rng.choice(instructions), STRANGE_ANSWERS
    return rng.choice(_STRANGE).format(x=rng.choice(_TOPICS)), STRANGE_ANSWERS


def _other_script(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(_PHRASES)
    low, high = rng.choice(_SCRIPTS)
    words = ["".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))) for _ in range(rng.randint(1, 5))]
    return " ".join(words)
