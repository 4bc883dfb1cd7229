"""Models of the packages transformers and timm beside eager, random weights.

    pip install transformers timm
    python tests/bench/zoo.py                        all, f32 and bf16
    python tests/bench/zoo.py bert t5 --dtypes f32 --backends inductor
    python tests/bench/zoo.py --train                a step's gradients
    python tests/bench/zoo.py --images               those of timm, one image
    python tests/bench/zoo.py --device cuda          on a GPU

The bench's models are few and were tuned for; these were not. One thread; eager
and a backend take turns in this process; the time is the least of the CPU's of
`--turns`, so other work on the machine matters little (on a GPU the least of 10
calls between two events). An error is the root of the mean square against
float64 over eager's (with --train: of all gradients). At the end stand the
geometric mean of the speeds and the worst of each column.
"""

import argparse
import math
import time
from functools import partial

import gpu
import torch
from backends import BACKENDS, OURS

try:
    import transformers
except ImportError:
    transformers = None
try:
    import timm
except ImportError:
    timm = None

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
BODY = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
DECODER = {**BODY, "num_key_value_heads": 2, "vocab_size": 2000}
CODER = {
    f"{side}_{what}": value
    for side in ("encoder", "decoder")
    for what, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 512))
}

# name of the configuration: (class, what differs from its defaults, inputs)
MODELS = {
    "bert": ("BertModel", BODY, "text"),
    "roberta": ("RobertaForMaskedLM", BODY, "text"),
    "distilbert": (
        "DistilBertModel",
        {"dim": 256, "hidden_dim": 512, "n_layers": 3, "n_heads": 4},
        "text",
    ),
    "albert": ("AlbertModel", BODY, "text"),
    "electra": ("ElectraModel", BODY, "text"),
    "deberta-v2": ("DebertaV2Model", BODY, "text"),
    "mpnet": ("MPNetModel", BODY, "text"),
    "gpt2": (
        "GPT2LMHeadModel",
        {"n_embd": 256, "n_layer": 3, "n_head": 4},
        "text",
    ),
    "opt": (
        "OPTForCausalLM",
        {**BODY, "ffn_dim": 512, "word_embed_proj_dim": 256},
        "text",
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", BODY, "text"),
    "llama": ("LlamaForCausalLM", DECODER, "text"),
    "mistral": ("MistralForCausalLM", DECODER, "text"),
    "qwen2": ("Qwen2ForCausalLM", DECODER, "text"),
    "qwen3": ("Qwen3ForCausalLM", {**DECODER, "head_dim": 64}, "text"),
    "gemma2": ("Gemma2ForCausalLM", {**DECODER, "head_dim": 64}, "text"),
    "phi3": ("Phi3ForCausalLM", {**DECODER, "pad_token_id": 0}, "text"),
    "mamba": (
        "MambaForCausalLM",
        {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 2000},
        "text",
    ),
    "falcon": ("FalconForCausalLM", {**BODY, "vocab_size": 2000}, "text"),
    "t5": (
        "T5ForConditionalGeneration",
        {"d_model": 256, "d_ff": 512, "num_layers": 2, "num_heads": 4},
        "texts",
    ),
    "bart": (
        "BartForConditionalGeneration",
        {**CODER, "d_model": 256},
        "texts",
    ),
    "vit": ("ViTModel", {**BODY, "image_size": 112}, 112),
    "deit": ("DeiTModel", {**BODY, "image_size": 112}, 112),
    "dpt": ("DPTModel", {**BODY, "image_size": 112}, 112),
    "clip_vision_model": (
        "CLIPVisionModel",
        {**BODY, "image_size": 112, "patch_size": 16},
        112,
    ),
    "swin": (
        "SwinModel",
        {"embed_dim": 48, "depths": [2, 2, 2], "num_heads": [2, 4, 8]},
        224,
    ),
    "convnext": (
        "ConvNextModel",
        {"depths": [1, 1, 2, 1], "hidden_sizes": [48, 96, 192, 384]},
        224,
    ),
    "resnet": (
        "ResNetModel",
        {
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [64, 128, 256, 512],
            "embedding_size": 32,
        },
        224,
    ),
    "mobilenet_v2": ("MobileNetV2Model", {}, 224),
    "regnet": ("RegNetModel", {"depths": [1, 1, 2, 1]}, 224),
    "segformer": ("SegformerModel", {}, 224),
    "whisper": ("WhisperModel", {**CODER, "d_model": 128}, "spectrum"),
    "wav2vec2": ("Wav2Vec2Model", BODY, "sound"),
}

# of timm, of their own sizes; one of each family
IMAGES = [
    "resnet18",
    "resnext50_32x4d",
    "seresnet50",
    "regnety_008",
    "densenet121",
    "inception_v3",
    "vgg11_bn",
    "mobilenetv3_small_100",
    "mobilenetv4_conv_small",
    "mobileone_s0",
    "efficientnet_b0",
    "efficientnetv2_rw_t",
    "convnext_atto",
    "convnextv2_atto",
    "vit_tiny_patch16_224",
    "deit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224",
    "swinv2_tiny_window8_256",
    "beit_base_patch16_224",
    "cait_xxs24_224",
    "coat_tiny",
    "coatnet_0_rw_224",
    "maxvit_nano_rw_256",
    "mixer_s32_224",
    "resmlp_12_224",
    "gmlp_ti16_224",
    "poolformer_s12",
    "edgenext_xx_small",
    "mobilevit_xxs",
    "levit_128s",
    "crossvit_tiny_240",
    "tnt_s_patch16_224",
    "xcit_nano_12_p16_224",
    "hrnet_w18_small",
    "dla34",
    "dpn68",
    "cspresnet50",
    "vovnet39a",
    "ghostnet_100",
    "mnasnet_100",
    "hardcorenas_a",
    "tinynet_e",
    "lcnet_050",
    "fastvit_t8",
    "repvit_m0_9",
    "efficientformer_l1",
    "efficientvit_b0",
    "davit_tiny",
    "focalnet_tiny_srf",
    "nest_tiny",
    "pvt_v2_b0",
    "twins_pcpvt_small",
    "visformer_tiny",
    "volo_d1_224",
    "sequencer2d_s",
    "res2net50_26w_4s",
    "ese_vovnet19b_dw",
    "nfnet_l0",
    "resnetv2_50",
    "botnet26t_256",
    "eva02_tiny_patch14_224",
    "hiera_tiny_224",
    "inception_next_atto",
    "starnet_s1",
    "rdnet_tiny",
    "mambaout_femto",
    "tiny_vit_5m_224",
    "xception41",
]


def make_inputs(kind, dtype):
    generator = torch.Generator().manual_seed(1)

    def numbers(*size):
        return torch.randn(*size, generator=generator).to(dtype)

    def tokens(*size):
        return torch.randint(3, 1000, size, generator=generator)

    if kind == "text":
        return {"input_ids": tokens(2, 48)}
    if kind == "texts":
        return {"input_ids": tokens(2, 40), "decoder_input_ids": tokens(2, 24)}
    if kind == "spectrum":
        return {
            "input_features": numbers(1, 80, 3000),
            "decoder_input_ids": tokens(1, 16),
        }
    if kind == "sound":
        return {"input_values": numbers(2, 16000)}
    if isinstance(kind, tuple):
        return {"x": numbers(1, *kind)}
    return {"pixel_values": numbers(2, 3, kind, kind)}


def make_text_model(name):
    """Without dropout and caches, whose numbers would differ."""
    class_name, settings, kind = MODELS[name]
    config = transformers.AutoConfig.for_model(name, **settings)
    config.use_cache = False
    config.apply_spec_augment = False  # wav2vec2: random masks
    for field, value in vars(config).items():
        if "drop" in field and isinstance(value, float):
            setattr(config, field, 0.0)
    return getattr(transformers, class_name)(config), kind


def make_image_model(name):
    """Some heads begin at zero, and so would all results be. Batch norms that
    begin at 1 - 5e-6 put sums of bf16 just beside ties: their correct rounding
    has a bias that no trained model has, so they get numbers of their own."""
    model = timm.create_model(name, pretrained=False)
    for module in model.modules():
        if isinstance(getattr(module, "running_var", None), torch.Tensor):
            module.running_var.uniform_(0.7, 1.5)
            module.running_mean.normal_(std=0.1)
    for weight in model.parameters():
        if weight.ndim > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.02)
    size = model.default_cfg["input_size"]
    return model, size if size[1] <= 256 else (3, 224, 224)


def make_model(name, training):
    torch.manual_seed(0)
    make = make_text_model if name in MODELS else make_image_model
    model, kind = make(name)
    return model.train() if training else model.eval(), kind


def first_tensor(result):
    if isinstance(result, torch.Tensor):
        return result
    return next(t for t in result.to_tuple() if isinstance(t, torch.Tensor))


def infer(call, model, inputs):
    with torch.no_grad():
        return first_tensor(call(**inputs)).double().flatten()


def train(call, model, inputs):
    """All gradients of a step, in one row; of what is not used: zeros, which
    AOTAutograd makes of an unused result and eager does not."""
    differentiate(call, model, inputs)
    grads = [
        torch.zeros_like(p) if p.grad is None else p.grad
        for p in model.parameters()
    ]
    return torch.cat([g.double().flatten() for g in grads])


def differentiate(call, model, inputs):
    """What of it is timed: a row of gradients takes longer than many steps."""
    model.zero_grad(set_to_none=True)
    first_tensor(call(**inputs)).square().mean().backward()


def in_float64(run, name, model, inputs, training):
    exact, _ = make_model(name, training)
    exact.load_state_dict(model.state_dict())
    exact = exact.to(next(model.parameters()).device, torch.double)
    inputs = {
        key: value.double() if value.is_floating_point() else value
        for key, value in inputs.items()
    }
    return run(exact, exact, inputs)


def cpu_milliseconds(call):
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def take_turns(calls, turns, clock):
    """The least milliseconds of each."""
    least = [math.inf] * len(calls)
    for _ in range(turns):
        for i, call in enumerate(calls):
            least[i] = min(least[i], clock(call))
    return least


def measure(name, dtype, backend, options):
    """(eager's milliseconds, times its speed, times its error)"""
    torch._dynamo.reset()
    run = train if options.train else infer
    model, kind = make_model(name, options.train)
    model = model.to(options.device, DTYPES[dtype])
    inputs = make_inputs(kind, DTYPES[dtype])
    inputs = {key: value.to(options.device) for key, value in inputs.items()}
    # Batch norms move as they run: each call starts from the same state.
    state = {key: value.clone() for key, value in model.state_dict().items()}
    exact = in_float64(run, name, model, inputs, options.train)

    def error(call):
        model.load_state_dict(state)
        return (run(call, model, inputs) - exact).square().mean().sqrt()

    compiled = BACKENDS[backend](model)
    ratio = error(compiled) / error(model)
    timed = differentiate if options.train else infer
    calls = [lambda c=c: timed(c, model, inputs) for c in (model, compiled)]
    for call in calls:
        call()
    clock = cpu_milliseconds
    if options.device == "cuda":
        clock = partial(gpu.milliseconds, args=(), calls=10)
    eager, ours = take_turns(calls, options.turns, clock)
    return eager, eager / ours, ratio.item()


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def print_summary(columns):
    """columns: for each backend its rows of (speed, error)"""
    middle = ["geometric mean", ""]
    worst = ["slowest; largest error", ""]
    for rows in columns:
        speeds, errors = zip(*rows, strict=True)
        mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
        middle += [f"{mean:.2f} ×", ""]
        worst += [f"{min(speeds):.2f} ×", f"{max(errors):.2f}"]
    print_row(middle)
    print_row(worst)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--backends", default=",".join(reversed(OURS)))
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    known = IMAGES if options.images else list(MODELS)
    for name in options.models:
        if name not in known:
            parser.error(f"no model {name!r}: there are {', '.join(known)}")
    if (timm if options.images else transformers) is None:
        package = "timm" if options.images else "transformers"
        raise SystemExit(f"this needs: pip install {package}")
    torch.set_num_threads(1)
    if transformers:
        transformers.logging.set_verbosity_error()
    backends = options.backends.split(",")
    dtypes = ["f32"] if options.train else options.dtypes.split(",")
    head = ["model", "eager ms"]
    for backend in backends:
        head += [backend, "error"]
    print_row(head)
    print("|---" + "|--:" * (len(head) - 1) + "|")
    columns = [[] for _ in backends]
    for name in options.models or known:
        for dtype in dtypes:
            cells = [f"{name} {dtype}", ""]
            for backend, column in zip(backends, columns, strict=True):
                eager, speed, error = measure(name, dtype, backend, options)
                column.append((speed, error))
                cells[1] = f"{eager:.3g}"
                cells += [f"{speed:.2f} ×", f"{error:.2f}"]
            print_row(cells)
    print_summary(columns)


if __name__ == "__main__":
    main()
