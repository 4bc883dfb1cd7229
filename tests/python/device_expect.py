"""What is torch's on a GPU and the engine's on the CPU: HOST nodes that tests
allow there. What they compute is compared all the same."""

_NO_KERNEL = "src/driver/cuda/kernels.def has no row for it"
_GRADIENT = "its gradient is torch's kernel, which takes what this one gives"
_DRAWS = "torch draws the random numbers of a GPU"
_ROUNDS = "torch's kernel rounds otherwise"
_SUMS = "torch's kernel adds in an order that does not change"

_HEADS = (
    "heads of a width that kern_attend.c has no text for, weights of 8 bits"
)

_BACKWARD = ("", "_backward")
_PADS = [
    f"{kind}_pad{n}d_backward"
    for kind in ("reflection", "replication")
    for n in (1, 2, 3)
]
_POOLS = [
    f"{name}{end}"
    for name in (
        "avg_pool2d",
        "avg_pool3d",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "_adaptive_avg_pool2d",
        "_adaptive_avg_pool3d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
    )
    for end in _BACKWARD
]
_BAGS = [
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_embedding_bag_backward",
    "_embedding_bag_dense_backward",
    "_embedding_bag_per_sample_weights_backward",
]
_ATTENTION = [
    f"_scaled_dot_product_{kind}_attention{end}"
    for kind in ("flash", "efficient", "cudnn")
    for end in _BACKWARD
]

# Type of the device -> operator -> why.
LACKING = {
    "cuda": {
        **dict.fromkeys(["convolution", "convolution_backward"], _NO_KERNEL),
        "col2im": _NO_KERNEL,
        **dict.fromkeys([*_PADS, *_POOLS], _NO_KERNEL),
        **dict.fromkeys(_BAGS, _NO_KERNEL),
        "fake_quantize_per_channel_affine_cachemask": _ROUNDS,
        **dict.fromkeys(["tril_indices", "triu_indices"], _NO_KERNEL),
        **dict.fromkeys(["embedding_dense_backward"], _NO_KERNEL),
        **dict.fromkeys(["_unsafe_index_put", "scatter_add"], _SUMS),
        **dict.fromkeys(_ATTENTION, _GRADIENT),
        **dict.fromkeys(["native_dropout", "bernoulli"], _DRAWS),
        "air::dense_attention": _HEADS,
    }
}
