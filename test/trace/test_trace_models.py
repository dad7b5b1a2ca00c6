"""Small models, called natively with stand-ins: the traced graph replays node by node with the traced types, gives
eager's values, and needs no type function of Python's."""
import pytest
import torch
from torch import nn

import trace_driver
from trace_driver import check, trace

transformers = pytest.importorskip("transformers")


def tokens(batch, length):
    return torch.randint(0, 500, (batch, length))


def model(name, config, inputs, pick, **sizes):
    def make():
        module = getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()
        return (lambda *args: getattr(module(*args), pick)), (inputs(),), [module]
    return make


def mlp():
    module = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.LayerNorm(128), nn.Linear(128, 16)).eval()
    return module, (torch.randn(8, 64),), [module]


BERT = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=500)
GPT2 = dict(n_embd=48, n_layer=2, n_head=4, vocab_size=500, use_cache=False)
MODELS = {
    "mlp": mlp,
    "bert": model("BertModel", "BertConfig", lambda: tokens(2, 17), "last_hidden_state", **BERT),
    "gpt2": model("GPT2LMHeadModel", "GPT2Config", lambda: tokens(1, 19), "logits", **GPT2),
    "llama": model("LlamaForCausalLM", "LlamaConfig", lambda: tokens(1, 21), "logits", hidden_size=64,
                   intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                   vocab_size=500, use_cache=False),
    "t5": model("T5EncoderModel", "T5Config", lambda: tokens(2, 15), "last_hidden_state", d_model=48, d_kv=12, d_ff=96,
                num_layers=2, num_heads=4, vocab_size=500),
    "vit": model("ViTModel", "ViTConfig", lambda: torch.randn(2, 3, 32, 32), "last_hidden_state", hidden_size=48,
                 num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8),
    "resnet": model("ResNetForImageClassification", "ResNetConfig", lambda: torch.randn(2, 3, 64, 64), "logits",
                    embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], num_labels=10),
    "convnext": model("ConvNextModel", "ConvNextConfig", lambda: torch.randn(1, 3, 64, 64), "last_hidden_state",
                      hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 2, 1]),
    "swin": model("SwinModel", "SwinConfig", lambda: torch.randn(1, 3, 56, 56), "last_hidden_state", image_size=56,
                  patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=7),
}


@pytest.mark.parametrize("name", MODELS)
def test_same_as_eager(name):
    trace_driver.reset_statistics()
    check(MODELS[name])
    assert trace_driver.statistics()["python_ops"] == []


@pytest.mark.parametrize("name", MODELS)
def test_in_inference_mode(name):
    """Without autograd keys composites reach the tracer whole."""
    with torch.inference_mode():
        check(MODELS[name])


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_bfloat16_autocast(name):
    def make():
        fn, args, modules = MODELS[name]()

        def cast(*a):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return fn(*a)
        return cast, args, modules
    traced = check(make, tolerance=2e-2)
    assert "bf16" in traced.text


def test_channels_last():
    def make():
        module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                               nn.AdaptiveAvgPool2d(2)).eval().to(memory_format=torch.channels_last)
        return module, (torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last),), [module]
    check(make)


LAYERS = {
    "lstm": lambda: (nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), torch.randn(2, 5, 3)),
    "gru": lambda: (nn.GRU(3, 4), torch.randn(5, 2, 3)),
    "encoder_layer": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8)),
    "group_norm": lambda: (nn.GroupNorm(2, 6), torch.randn(2, 6, 4, 4)),
    "instance_norm": lambda: (nn.InstanceNorm2d(3, affine=True), torch.randn(2, 3, 4, 4)),
    "upsample": lambda: (nn.Upsample(scale_factor=2, mode="bilinear"), torch.randn(1, 2, 5, 5)),
    "pixel_shuffle": lambda: (nn.PixelShuffle(2), torch.randn(1, 8, 3, 3)),
    "transposed_conv": lambda: (nn.ConvTranspose2d(3, 4, 3, stride=2), torch.randn(1, 3, 5, 5)),
    "conv1d": lambda: (nn.Conv1d(3, 4, 3, padding=1, groups=1), torch.randn(2, 3, 9)),
    "prelu": lambda: (nn.PReLU(3), torch.randn(2, 3, 4)),
    "bilinear": lambda: (nn.Bilinear(3, 3, 2), torch.randn(4, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    def make():
        module, x = LAYERS[name]()
        module.eval()
        fn = module if name != "bilinear" else (lambda t: module(t, t))
        return fn, (x,), [module]
    check(make)


@pytest.mark.parametrize("name,other", [("mlp", lambda: torch.randn(3, 64)), ("bert", lambda: tokens(5, 9)),
                                        ("gpt2", lambda: tokens(4, 11))])
def test_dynamic_batch(name, other):
    """One graph over every batch size: replayed and run at a size that it was not traced at."""
    torch.manual_seed(0)
    fn, args, modules = MODELS[name]()
    args = (torch.cat([args[0]] * 2),)
    with torch.no_grad():
        traced = trace(fn, args, modules, dynamic=True)
        assert traced.mismatches() == []
        x = other()
        callers = [x if c is args[0] else c for c in traced.callers]
        assert traced.trace.explain(callers) == ""
        assert traced.mismatches(callers) == []
        torch.testing.assert_close(traced.run(callers), fn(x), rtol=2e-5, atol=2e-5)
