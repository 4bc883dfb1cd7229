"""Semantic search in the documentation of the installed PyTorch.

    python examples/search_torch_docs.py "join tensors along a new dimension"

Embeds the docstrings of torch with the real all-MiniLM-L6-v2, compiled once
for all lengths of text, then answers questions. --check embeds everything a
second time with eager PyTorch and compares the rankings.
"""

import argparse
import sys
import time

import measure
import minilm
import torch
import torch_docs

QUESTIONS = (
    "join tensors along a new dimension",
    "find the k largest values",
    "solve a system of linear equations",
    "randomly drop units during training",
    "decay the learning rate over time",
    "compute gradients without storing activations",
    "count how often each value occurs",
    "save a model to disk",
)
BATCH, LONGEST = 32, 64  # texts at once, always; tokens of a text at most
BEST = 5
TIE = 1e-5  # scores closer than this may come in either order


class Index:
    """Texts, and what finds them: one unit vector a text.

    first_s, seconds: of one batch before all others, which compiles, and of
    embedding the texts.
    """

    def __init__(self, model, tokenizer, entries, progress=None):
        self.model = model
        self.tokenizer = tokenizer
        self.names = [entry.name for entry in entries]
        texts = [
            f"{entry.name}: {torch_docs.summary(entry.text)}"
            for entry in entries
        ]
        progress = progress or (lambda done: None)
        progress(0.0)
        _, self.first_s = measure.timed_call(lambda: self._embed(texts[:1]))
        self.vectors, self.seconds = measure.timed_call(
            lambda: self._embed_all(texts, progress)
        )

    def search(self, question, count=BEST):
        """The best (score, name) pairs, best first."""
        scores = self.vectors @ self._embed([question])[0]
        best = scores.topk(min(count, len(self.names)))
        return [
            (float(score), self.names[i])
            for score, i in zip(*best, strict=True)
        ]

    @torch.no_grad()
    def _embed(self, texts):
        """One unit vector a text, for up to BATCH texts.

        Only the length of a batch varies. Tracing with two sizes that vary
        takes torch three times as long, and a batch of one its own program.
        """
        full = [*texts, *[""] * (BATCH - len(texts))]
        inputs = minilm.encode(self.tokenizer, full, LONGEST)
        for tensor in inputs:
            torch._dynamo.maybe_mark_dynamic(tensor, 1)
        return self.model(*inputs)[: len(texts)]

    def _embed_all(self, texts, progress):
        """In order of length, so that batches need little padding."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        vectors = torch.empty(len(texts), minilm.WIDTH)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            vectors[batch] = self._embed([texts[i] for i in batch])
            progress((start + len(batch)) / len(order))
        return vectors


def bar(title, width=40):
    """A function that draws progress (0 to 1) on one line of the terminal."""
    shown = sys.stderr if sys.stderr.isatty() else None
    began = time.perf_counter()

    def draw(done):
        spent = time.perf_counter() - began
        if shown:
            filled = "█" * int(done * width)
            print(
                f"\r{title} {filled:░<{width}} {done:4.0%} {spent:5.1f} s",
                end="",
                file=shown,
                flush=True,
            )
        if done >= 1:
            print(f"\r{title}: {spent:.1f} s" + " " * (width + 8))

    return draw


def same_ranking(first, second):
    """Equal names in order; those whose scores tie may be exchanged."""
    scores = {name: score for score, name in first}
    return len(first) == len(second) and all(
        abs(score - scores.get(other, near)) < TIE
        for (score, _), (near, other) in zip(first, second, strict=True)
    )


def compare(index, exact, questions, count=10):
    """The questions whose first `count` answers differ between indexes."""
    return [
        question
        for question in questions
        if not same_ranking(
            index.search(question, count), exact.search(question, count)
        )
    ]


def report(index, exact, questions, wrong):
    """What the comparison with eager's index gave, as text."""
    print(
        f"rankings equal to eager's: {len(questions) - len(wrong)} of "
        f"{len(questions)}, {index.seconds:.1f} s against {exact.seconds:.1f}"
        f" s, and {index.first_s - exact.first_s:.1f} s to compile"
        + "".join(f"\n  differs: {question}" for question in wrong)
    )


def asked(words):
    """A question with something in it; argparse reports the error."""
    if not words.strip():
        raise argparse.ArgumentTypeError("the question is empty")
    return words


def show(index, question):
    print(f"\n{question}")
    for score, name in index.search(question):
        print(f"  {score:5.2f}  {name}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "question", nargs="*", type=asked, help="each in quotes"
    )
    options.add_argument("--check", action="store_true", help="against eager")
    measure.add_backend_option(options)
    args = options.parse_args()

    compile = measure.compiler(args.backend, args.mode)
    model, tokenizer = minilm.load()
    entries = torch_docs.entries()
    print(f"{len(entries)} docstrings of torch {torch.__version__}")
    index = Index(compile(model), tokenizer, entries, bar("embedding"))
    questions = args.question or QUESTIONS
    for question in questions:
        show(index, question)
    if not args.check:
        return 0
    print()
    exact = Index(model, tokenizer, entries, bar("embedding, eager"))
    wrong = compare(index, exact, questions)
    report(index, exact, questions, wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(measure.run(main))
