#!/usr/bin/env python3
"""Makes seed prompts for generate.py: one JSON object a line, {"id", "kind", "system", "text"}.

    python seeds.py --n 8000 --seed 1 --out seeds.jsonl

Kinds: `self` (no text: the target writes the user's turn itself), `topic`, `code`, `math` from lists below, `document`
and `edit` from the documentation and the sources of the running Python's standard library, read here and now. The
same arguments and the same Python give the same file. features.py drops whatever resembles an evaluation prompt.
"""
import argparse
import ast
import functools
import inspect
import json
import pathlib
import random
import re
import sys

TOPICS = """glaciers; tide pools; the printing press; compound interest; bread yeast; mangrove forests; the Ottoman Empire;
beekeeping; train timetables; vitamin D; origami; lighthouses; the nervous system; solar eclipses; library catalogues;
the Suez Canal; plate tectonics; opera; hydroponics; knitting; sourdough starters; the Aztecs; kites; magnetism; sleep;
batteries; wind turbines; fermentation; maps and projections; the Hubble telescope; coral reefs; crosswords; marathon
training; antibiotics; the Magna Carta; earthquakes; haiku; bicycle gears; tea ceremonies; monsoons; tax returns; trees
in cities; the digestive system; board games; migration of birds; calligraphy; elections; the Vikings; caves; bridges;
radio waves; caring for houseplants; the Great Wall; weather balloons; stage fright; public libraries; cheese making;
robots in factories; the Nile; budgeting as a student; photosynthesis; black holes; rivers; jazz; refrigerators; ants;
vaccines; rainbows; time zones; chess; swimming; dreams; deserts; soap; clouds; the Moon; volcanoes; salt; paper; glass;
electric guitars; pottery; recycling; ballet; dinosaurs; friendship; rice farming; honesty; the stock exchange; steel;
remote teams; job interviews; first aid; compasses; penguins; gravity; whales; coffee; mushrooms; noise; patience;
linked lists; hash tables; version control; unit tests; databases; recursion; caching; operating systems; encryption;
compilers; regular expressions; HTTP; sorting; floating-point numbers; threads; spreadsheets; web browsers; e-mail"""

TASKS = """Explain {t} to somebody who has never heard of it.|Tell me five surprising facts about {t}.|Write a short story
that has to do with {t}.|What should a beginner know about {t}?|Write a poem about {t}.|Give me a plan of seven days to learn
about {t}.|What are the pros and cons of {t}?|Why should anybody care about {t}?|How did people think about {t} two hundred years
ago?|Write an e-mail that invites colleagues to a talk on {t}.|Compare {t} and {u}.|Write a conversation between two
friends about {t}.|Make a list of key terms about {t} with one sentence each.|Write a quiz of four questions about {t},
with answers.|What do people often get wrong about {t}?|Describe {t} in one paragraph.|Write an outline of an essay on
{t}.|Which books or courses would you suggest on {t}?|Explain what {t} and {u} have in common.|Give a step-by-step guide
that starts with {t}.|Write a product description for something that has to do with {t}.|Summarise what is known about
{t}.|Imagine a world without {t}.|Write a letter to a child about {t}.""".replace("\n", " ")

CODING = """counts how often each word occurs|finds the longest common prefix of a list of strings|rotates a matrix by 90
degrees|checks whether brackets are balanced|converts seconds into hours, minutes and seconds|merges overlapping
intervals|finds the second largest number|removes blank lines from a file|prints the first N primes|computes a running
average|parses a date such as 2024-05-17|swaps keys and values of a dictionary|splits a list into chunks|implements a
priority queue|finds the shortest path in a grid|validates a credit card number|converts a decimal number to
hexadecimal|reverses the words of a sentence|implements merge sort|computes the dot product of two vectors|reads a JSON
file and prints its keys|generates all subsets of a set|draws a triangle of stars|finds duplicate files in a folder|
implements a least recently used cache|guesses a number with the user|computes the median|checks whether a year is a
leap year|encodes text with a Caesar cipher|counts inversions of a list""".replace("\n", " ")

CODING_ASKS = ["Write a Python function that {c}.", "Write a JavaScript function that {c}, and explain it.",
               "How would you write a program that {c}? Show the code.", "Write a C++ function that {c}.",
               "Write a Python function that {c}, with a docstring and two examples."]

SUMS = ["A shop sells {a} pens a day at ${b} each. What does it earn in {c} days?", "What is {a} * {b} - {c}? Show the steps.",
        "A bus goes {a} km in {b} hours. How far does it go in {c} hours?", "Solve for x: {b}x - {c} = {a}.",
        "Ann has {a} stamps, loses {b} and then buys {c}. How many has she now?", "What is {b} percent of {a}?",
        "A garden is {a} m long and {b} m wide. What are its area and perimeter?", "Find the mean of {a}, {b} and {c}."]

DOCUMENT_ASKS = ["Summarise the following text:\n\n{d}", "{d}\n\nWhat are the main points of this text?",
                 "Explain this in simple words:\n\n{d}", "Summarise this in two sentences.\n\n{d}",
                 "Rewrite the following text as a list of facts:\n\n{d}", "Write a headline and a short summary of this:\n\n{d}"]

EDIT_ASKS = ["Add type hints to this function and give the whole function:\n\n```python\n{d}\n```",
             "Rename the variables of this function so that they are clear. Give the whole function.\n\n```python\n{d}\n```",
             "Add comments to this code:\n\n```python\n{d}\n```", "Rewrite this function without the docstring:\n\n```python\n{d}\n```",
             "Add error handling to this function and give the whole function:\n\n```python\n{d}\n```",
             "Explain this code, then repeat it with a docstring:\n\n```python\n{d}\n```"]

SYSTEMS = [None, None, None, "You are a helpful assistant.", "You are a patient teacher.", "You are an experienced programmer.",
           "You answer questions about daily life.", "You are a creative writer.", "You help with mathematics."]

# Parts of the whole, by kind.
SHARES = {"self": 0.30, "topic": 0.30, "code": 0.06, "math": 0.06, "document": 0.14, "edit": 0.14}


def split(text, mark):
    return [" ".join(item.split()) for item in text.split(mark)]


@functools.cache
def library():
    """(paragraphs of documentation, functions) of the standard library, sorted by module and place."""
    documents, functions = [], []
    root = pathlib.Path(inspect.getfile(inspect)).parent
    for path in sorted(root.glob("*.py")) + sorted(root.glob("[a-z]*/*.py")):
        if "test" in str(path.relative_to(root)) or "site-packages" in path.parts:
            continue
        try:
            source = path.read_text()
            tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):
            continue
        lines = source.splitlines()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = inspect.cleandoc(ast.get_docstring(node) or "")
                letters = sum(c.isalpha() or c.isspace() for c in text)
                if 300 <= len(text) <= 1200 and letters > 0.85 * len(text):
                    documents.append(text)
            if isinstance(node, ast.FunctionDef) and 5 <= node.end_lineno - node.lineno <= 24:
                body = lines[node.lineno - 1:node.end_lineno]
                indent = len(body[0]) - len(body[0].lstrip())
                text = "\n".join(line[indent:] for line in body)
                if text.isascii() and len(text) <= 900 and not re.search(r"\n\n\n", text):
                    functions.append(text)
    return sorted(set(documents)), sorted(set(functions))


def make(n, seed):
    rnd = random.Random(seed)
    topics, tasks, coding = split(TOPICS, ";"), split(TASKS, "|"), split(CODING, "|")
    documents, functions = library()
    makers = {
        "self": lambda: None,
        "topic": lambda: rnd.choice(tasks).format(t=rnd.choice(topics), u=rnd.choice(topics)),
        "code": lambda: rnd.choice(CODING_ASKS).format(c=rnd.choice(coding)),
        "math": lambda: rnd.choice(SUMS).format(a=rnd.randint(20, 400), b=rnd.randint(2, 19), c=rnd.randint(2, 24)),
        "document": lambda: rnd.choice(DOCUMENT_ASKS).format(d=rnd.choice(documents)),
        "edit": lambda: rnd.choice(EDIT_ASKS).format(d=rnd.choice(functions)),
    }
    seen = set()
    while len(seen) < n:
        kind = rnd.choices(list(SHARES), SHARES.values())[0]
        text, system = makers[kind](), rnd.choice(SYSTEMS)
        key = (text, system) if text else len(seen)
        if key not in seen:  # the lists are finite: a kind that is used up gives way to the others
            seen.add(key)
            yield {"id": f"{seed}.{len(seen) - 1}", "kind": kind, "system": system, "text": text}


def main():
    parser = argparse.ArgumentParser(description="Make seed prompts.")
    parser.add_argument("--n", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with open(args.out, "w") as out:
        for seed in make(args.n, args.seed):
            out.write(json.dumps(seed) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
