"""The whole of torchair in a few minutes: search, training, decoding, figures.

    make demo            or    python examples/demo.py [--quick]

Embeds and searches PyTorch's docstrings with the real MiniLM, trains a small
Llama on them and lets it write, and prints what that costs beside eager.
"""

import argparse
import sys
import time

import measure
import minilm
import search_torch_docs as search
import tiny_llama as llama
import torch
import torch_docs

TRAIN_SECONDS, TURN_SECONDS = 70.0, 3.0


def heading(text):
    print(f"\n── {text} " + "─" * max(0, 72 - len(text)), flush=True)


def search_part(compile, entries, model, tokenizer):
    heading("semantic search: all-MiniLM-L6-v2 over the docstrings of torch")
    index = search.Index(
        compile(model),
        tokenizer,
        entries,
        search.bar(f"embedding {len(entries)}"),
    )
    for question in search.QUESTIONS[:4]:
        search.show(index, question)
    print()
    exact = search.Index(
        model, tokenizer, entries, search.bar("the same in eager")
    )
    wrong = search.compare(index, exact, search.QUESTIONS)
    search.report(index, exact, search.QUESTIONS, wrong)
    return not wrong


def llama_part(compile, seconds):
    heading("a byte-level Llama, trained by a compiled step, then decoding")
    torch.manual_seed(0)
    model = llama.Llama(llama.Config())
    losses = llama.train(model, llama.training_text(), compile, seconds)
    end = losses[-50:]
    print(
        f"  {len(losses)} steps, loss {losses[0]:.3f} -> "
        f"{sum(end) / len(end):.3f}\n"
    )
    decoder = llama.Decoder(model.eval())
    eager = [llama.write(decoder, prompt, 200, 256) for prompt in llama.PROMPTS]
    decode = compile(decoder)
    llama.write(decode, "t", 1, 256)  # compiles
    began = time.perf_counter()
    texts = [llama.write(decode, prompt, 200, 256) for prompt in llama.PROMPTS]
    spent = time.perf_counter() - began
    for line in texts:
        print(f"  {line}")
    print(
        f"\n  {len(''.join(texts))} bytes in {spent * 1e3:.0f} ms, "
        f"{'equal to' if texts == eager else 'not'} eager's text"
    )
    return model, decoder


def minilm_work(model, tokenizer, entries):
    texts = [torch_docs.summary(entry.text) for entry in entries]
    longest = sorted(texts, key=len)[-search.BATCH :]
    inputs = minilm.encode(tokenizer, longest, length=search.LONGEST)
    title = f"MiniLM, {search.BATCH} texts of {search.LONGEST} tokens"
    return measure.Inference(title, model, inputs)


def decode_work(decoder):
    inputs = torch.tensor([[ord("t")]]), torch.tensor([100])
    return measure.Inference("Llama decode, one token", decoder, inputs)


def train_work(model):
    tokens = next(llama.batches(llama.training_text()))
    return measure.Training("Llama training, forward + backward", model, tokens)


def figures_part(backend, works, seconds):
    heading(
        f"figures ({torch.get_num_threads()} threads, torch "
        f"{torch.__version__}, timed in turns with eager)"
    )
    modes = measure.MODES if backend == "torchair" else (None,)
    print(measure.HEADER)
    for work in works:
        print(work.title)
        for i, mode in enumerate(modes):
            rows = measure.compare(work, backend, mode, seconds)
            for row in rows if i == 0 else rows[1:]:
                print(row, flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a short look")
    measure.add_backend_option(options)
    args = options.parse_args()

    began = time.perf_counter()
    compile = measure.compiler(args.backend, args.mode)
    model, tokenizer = minilm.load()
    entries = torch_docs.entries()
    equal = search_part(
        compile, entries[::8] if args.quick else entries, model, tokenizer
    )
    trained, decoder = llama_part(compile, 5.0 if args.quick else TRAIN_SECONDS)
    works = [
        minilm_work(model, tokenizer, entries),
        decode_work(decoder),
        train_work(trained),
    ]
    figures_part(args.backend, works, 0.5 if args.quick else TURN_SECONDS)
    print(f"\n{time.perf_counter() - began:.0f} s in all")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(measure.run(main))
